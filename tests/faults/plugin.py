"""The option --full, and how many faults of the ledger were shown not to happen in this run.

A pytest plugin: tests/conftest.py names it, because with several processes only that file is loaded in the one that
reports.
"""

from __future__ import annotations

import pytest

from tests.faults.ledger import LEDGER


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="tests at their full size, which takes long")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts if any test of the ledger ran."""
    passed = {_plain(report.nodeid) for report in terminalreporter.stats.get("passed", ()) if report.when == "call"}
    failed = {_plain(report.nodeid) for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())}
    good, reasons = passed - failed, [entry.id for entry in LEDGER if not entry.tests]
    if not any(good.union(failed).intersection(entry.tests) for entry in LEDGER):
        return
    shown = [entry.id for entry in LEDGER if entry.tests and good.issuperset(entry.tests)]
    others = [entry.id for entry in LEDGER if entry.tests and not good.issuperset(entry.tests)]
    terminalreporter.write_sep("=", "faults of other queues")
    terminalreporter.write_line(
        f"{len(LEDGER)} faults: {len(shown)} with all their tests passed, {len(reasons)} with a reason instead,"
        f" {len(others)} not run or failed"
    )
    if others and len(others) < len(LEDGER) / 4:
        terminalreporter.write_line(f"not run or failed: {' '.join(others)}")


def _plain(node: str) -> str:
    """The name of a test without its parameters."""
    return node.partition("[")[0]
