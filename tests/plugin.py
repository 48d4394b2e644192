"""What a run of the tests says at its end, whether the proof ledger's tests ran, and the profiles of Hypothesis.

Loaded by tests/conftest.py.

A test tells a number with ``record_property``: pytest-xdist carries it to the process that prints.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings

from spec import ledger

EDGES, INTERLEAVINGS = "edges on ", "interleavings on "

# Derandomised: a run of the same tree finds the same. `--hypothesis-profile=deep` looks at new cases each night.
settings.register_profile(
    "tests", deadline=None, derandomize=True, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", deadline=None, max_examples=5000, stateful_step_count=100)
# One fault among many: that a test fails is all that is asked, not by which smallest example.
settings.register_profile("mutants", parent=settings.get_profile("tests"), phases=[Phase.explicit, Phase.generate])
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


class Ran:
    """In a run of the whole suite: that every test which the proof ledger names has passed. Else the run fails."""

    def __init__(self, config: pytest.Config) -> None:
        self._whole = _is_whole(config)
        self._passed: set[str] = set()
        self._missing: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid.partition("[")[0])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._whole and not hasattr(session.config, "workerinput"):
            self._missing = sorted(ledger.must_pass() - self._passed)
            if self._missing and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self._missing:
            terminalreporter.write_line(f"named in the proof ledger, but not run or not passed: {test}")
        if self._whole and not self._missing:
            terminalreporter.write_line(f"proof ledger: {len(ledger.must_pass())} tests named, all passed")


def _is_whole(config: pytest.Config) -> bool:
    """Whether nothing was left out by an argument."""
    asked = {str(argument).rstrip("/") for argument in config.args}
    options = config.option
    narrowed = options.keyword or options.markexpr or options.deselect or options.ignore or options.maxfail
    return asked in ({"tests"}, {str(config.rootpath / "tests")}) and not (narrowed or options.collectonly)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "direct: not for a pooler: listens, cuts or counts connections, sets them up")
    config.pluginmanager.register(Counts(), "counts")
    config.pluginmanager.register(Ran(config), "ran")
