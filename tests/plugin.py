"""What a run of the tests says at its end, and the profiles of Hypothesis. Loaded by tests/conftest.py.

A test tells a number with ``record_property``: pytest-xdist carries it to the process that prints.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

EDGES, INTERLEAVINGS = "edges on ", "interleavings on "

# Derandomised: a run of the same tree finds the same. `--hypothesis-profile=deep` looks at new cases each night.
settings.register_profile(
    "tests", deadline=None, derandomize=True, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", deadline=None, max_examples=5000, stateful_step_count=100)
settings.load_profile("tests")


class Counts:
    """Adds up what the tests say that they tried, per backend."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for name, value in report.user_properties:
                if name.startswith((EDGES, INTERLEAVINGS)):
                    self.tried[name] += int(str(value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, number in sorted(self.tried.items()):
            terminalreporter.write_line(f"tried: {number:,} {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "direct: not for a pooler: listens, cuts or counts connections, sets them up")
    config.pluginmanager.register(Counts(), "counts")
