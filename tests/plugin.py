"""What a run of the tests says at its end, and the profiles of Hypothesis. Loaded by tests/conftest.py.

A test tells a number with ``record_property``: pytest-xdist carries it to the process that prints.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

EDGES = "edges on "

# Derandomised: a run of the same tree finds the same. `--hypothesis-profile=deep` looks at new cases each night.
settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "deep", deadline=None, max_examples=5000, stateful_step_count=100, suppress_health_check=list(HealthCheck)
)
settings.load_profile("default")


class Edges:
    """Counts the edges of the exhaustive replay, per backend."""

    def __init__(self) -> None:
        self.replayed: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for name, value in report.user_properties:
                if name.startswith(EDGES):
                    self.replayed[name.removeprefix(EDGES)] += int(str(value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for backend, number in sorted(self.replayed.items()):
            terminalreporter.write_line(f"exhaustive replay: {number:,} {EDGES}{backend}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Edges(), "edges")
