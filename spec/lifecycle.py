"""spec/lifecycle.md read by a machine: the transitions of section 3, and every clause that has an id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LIFECYCLE = Path(__file__).parent / "lifecycle.md"

_ROW = re.compile(r"^\| (T-\d+) \|(.+)\|$", re.M)
_CLAUSE = re.compile(r"^(?:\| (T-\d+) \||- \*\*([GNW]-\d+)\b)", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One row of the table: `sources` and `targets` are statuses; none for no row before, '(row deleted)' after."""

    clause: str
    operation: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    guard: str
    effect: str


def transitions(text: str) -> list[Transition]:
    section = text.split("\n## 3 ", 1)[1].split("\n## 4 ", 1)[0]
    return [_transition(clause, rest) for clause, rest in _ROW.findall(section)]


def _transition(clause: str, rest: str) -> Transition:
    operation, source, target, guard, effect = (cell.strip() for cell in rest.split("|"))
    return Transition(
        clause=clause,
        operation=operation.split(",")[0],
        sources=() if source == "–" else tuple(re.split(r", ", source)),
        targets=tuple(re.split(r" or |, ", target)),
        guard=guard,
        effect=effect,
    )


def clauses(text: str) -> list[str]:
    """Every clause id where it is stated: T-n in the table of section 3, G-n, N-n and W-n in their lists."""
    section_3 = text.split("\n## 3 ", 1)[1].split("\n## 4 ", 1)[0]
    lists = text.split("\n## 9 ", 1)[1]
    return [first or second for first, second in _CLAUSE.findall(section_3 + lists)]
