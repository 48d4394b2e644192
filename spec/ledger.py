"""The proof ledger: each clause of lifecycle.md with its TLA+, its model rule, its tests and the faults that die by it.

    python -m spec.ledger    write it into spec/README.md, between the markers

TLA+ is found by the labels in the modules (trace.py), tests by their names (`test_g3_…` is a test of G-3) and by
spec/trace.toml where one tests many clauses, faults by their clause in tests/mutants/faults.toml.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spec import lifecycle, manifest, trace

ROOT = Path(__file__).resolve().parents[1]
TRACE = Path(__file__).with_name("trace.toml")
README = Path(__file__).with_name("README.md")
FAULTS = ROOT / "tests" / "mutants" / "faults.toml"
RULES = ("model/step.py", "model/invariants.py", "model/refusals.py")
BEGIN, END = "<!-- ledger: python -m spec.ledger -->", "<!-- end of the ledger -->"
SHOWN = 3  # Names in one cell; the rest is counted.

_CLAUSES_OF_NAME = re.compile(r"_([tgnw])(\d+)(?=_)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What leads from one clause to its proofs; a reason stands where there is none."""

    clause: str
    actions: tuple[str, ...]
    properties: tuple[str, ...]
    rules: tuple[str, ...]
    tests: tuple[str, ...]
    faults: tuple[str, ...]
    reasons: tuple[str, ...]


@cache
def named_tests() -> dict[str, tuple[str, ...]]:
    """Every test function, as pytest names it without parameters, and the clauses that its name begins with."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[f"{path.relative_to(ROOT).as_posix()}::{node.name}"] = tuple(clauses_of(node.name))
    return found


def clauses_of(name: str) -> Iterator[str]:
    """`test_w7_g20_what_outlasts…` is about W-7 and G-20."""
    position = len("test")
    while match := _CLAUSES_OF_NAME.match(name, position):
        yield f"{match[1].upper()}-{match[2]}"
        position = match.end()


@cache
def document() -> dict[str, dict[str, object]]:
    return tomllib.loads(TRACE.read_text(encoding="utf-8"))


def lists(table: str) -> dict[str, list[str]]:
    return {key: [str(item) for item in value] for key, value in document()[table].items() if isinstance(value, list)}


def entries() -> list[Entry]:
    checked = trace.properties(manifest.load())
    labelled = trace.all_labelled()
    faults = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    shared, absent = lists("shared"), document()["absent"]
    reasons = trace.reasons()
    found = []
    for clause in lifecycle.clauses(lifecycle.LIFECYCLE.read_text(encoding="utf-8")):
        own = [name for name, clauses in named_tests().items() if clause in clauses]
        labels = [one.name for one in labelled if clause in one.clauses]
        found.append(Entry(
            clause=clause,
            actions=_once(name for name in labels if name not in checked),
            properties=_once(name for name in labels if name in checked),
            rules=tuple(lists("model").get(clause, [])),
            tests=_once([*own, *(test for test, clauses in shared.items() if clause in clauses)]),
            faults=tuple(fault["name"] for fault in faults if clause in fault["clause"].split()),
            reasons=tuple(str(why) for why in (reasons["not_modelled"].get(clause), absent.get(clause)) if why),
        ))  # fmt: skip
    return found


def _once(names: Iterator[str] | list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def gaps() -> Iterator[str]:
    """Every way in which the clauses and what is said to prove them do not match."""
    known = {entry.clause for entry in entries()}
    rules = set(model_rules())
    for entry in entries():
        if not (entry.actions or entry.properties or entry.reasons):
            yield f"{entry.clause}: no TLA+ and no reason"
        for name, there in (("model rule", entry.rules), ("test", entry.tests), ("fault", entry.faults)):
            if not there and not entry.reasons:
                yield f"{entry.clause}: no {name} and no reason"
    for test, clauses in [*named_tests().items(), *lists("shared").items()]:
        if test not in named_tests():
            yield f"spec/trace.toml names {test}, which is not there"
        yield from (f"{test}: there is no {clause}" for clause in clauses if clause not in known)
    named = {rule for of_clause in lists("model").values() for rule in of_clause}
    yield from (f"spec/trace.toml names the model rule {rule}, which is not there" for rule in sorted(named - rules))
    yield from (f"the model rule {rule} belongs to no clause" for rule in sorted(rules - named))
    for table in ("model", "absent"):
        yield from (f"[{table}]: there is no {clause}" for clause in document()[table] if clause not in known)
    for fault in tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]:
        for clause in fault["clause"].split():
            if clause not in known and not clause.startswith("§"):
                yield f"{fault['name']}: there is no {clause}"


def model_rules() -> Iterator[str]:
    """The functions of the model that judge: each is named by a clause."""
    for file in RULES:
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                yield f"{Path(file).stem}.{node.name}"


def must_pass() -> set[str]:
    """The tests without which the ledger would claim too much: they have to pass in a run of the whole suite."""
    return {test for entry in entries() for test in entry.tests}


def table() -> str:
    lines = ["| clause | TLA+ action | TLA+ property | model rule | tests | faults that must die |", "|---" * 6 + "|"]
    for entry in entries():
        tests = tuple(test.rsplit("::", 1)[1] for test in entry.tests)
        cells = [_cell(names) for names in (entry.actions, entry.properties, entry.rules, tests, entry.faults)]
        if entry.reasons:
            cells = [cell or "–" for cell in cells[:-1]] + [cells[-1] or f"– ({'; '.join(entry.reasons)})"]
        lines.append(f"| {entry.clause} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + more


def written(text: str) -> str:
    """The README with the ledger between its markers."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
