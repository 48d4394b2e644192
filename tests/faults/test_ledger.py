"""ledger.toml is complete and true: every fault has tests that exist and are collected, or a reason."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.faults.ledger import LEDGER, Entry
from tests.faults.scene import ROOT

SHARED = ROOT.parent / "shared" / "bug-reports.md"
ID = re.compile(r"(?<=_)[bu]\d+(?=_)")
NEVER_RUN = {"skip", "skipif", "xfail"}


@cache
def functions(path: str) -> dict[str, ast.FunctionDef]:
    """The tests of a file, by name."""
    body = ast.parse((ROOT / path).read_text()).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def marks(function: ast.FunctionDef) -> set[str]:
    """The names of everything that decorates a test."""
    return {
        node.attr for decorator in function.decorator_list for node in ast.walk(decorator)
        if isinstance(node, ast.Attribute)
    }  # fmt: skip


@pytest.mark.parametrize("entry", LEDGER, ids=[entry.id for entry in LEDGER])
def test_a_fault_has_tests_that_exist_or_a_reason(entry: Entry) -> None:
    assert bool(entry.tests) != bool(entry.reason)
    for node in entry.tests:
        path, _, name = node.partition("::")
        assert name in functions(path), f"{node} does not exist"
        assert not marks(functions(path)[name]) & NEVER_RUN, f"{node} may not run"
    if entry.tests:
        assert any(entry.id.lower() in ID.findall(node) for node in entry.tests), "no test is named for it"


def test_the_tests_of_the_ledger_are_collected(request: pytest.FixtureRequest) -> None:
    """Of every file of which this run collected any test, unless it was asked for a part."""
    option = request.config.option
    if option.keyword or option.markexpr or any("::" in argument for argument in request.config.args):
        return
    collected = {item.nodeid.partition("[")[0] for item in request.session.items}
    files = {node.partition("::")[0] for node in collected}
    named = {node for entry in LEDGER for node in entry.tests if node.partition("::")[0] in files}
    assert named <= collected


def test_every_test_here_that_is_named_for_a_fault_is_in_the_ledger() -> None:
    known = {(entry.id.lower(), node) for entry in LEDGER for node in entry.tests}
    here = Path(__file__).parent
    for path in sorted(here.glob("test_*.py")):
        node = path.relative_to(ROOT).as_posix()
        for name in functions(node):
            for id in ID.findall(name):
                assert (id, f"{node}::{name}") in known


def test_an_id_is_there_once_and_every_entry_says_what_and_where() -> None:
    assert [id for id, count in Counter(entry.id for entry in LEDGER).items() if count > 1] == []
    for entry in LEDGER:
        assert re.fullmatch(r"[BU]\d+", entry.id)
        assert re.fullmatch(r"K\d+", entry.kind)
        assert len(entry.what) > 20
        assert bool(entry.source) is entry.id.startswith("B")


def test_no_fault_of_the_shared_list_is_missing() -> None:
    """Where that list is at hand; the ledger stands without it."""
    if not SHARED.exists():
        return
    listed = re.findall(r"^### ([BU]\d+)  (K\d+) ", SHARED.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted((entry.id, entry.kind) for entry in LEDGER)
