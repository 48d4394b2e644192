"""The tables of lifecycle.md, cell by cell, against the library's TABLE and against the model's rules.

A wrong cell on any side fails with the clause that it is about.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest

from jobqueue.transitions import TABLE, Event
from jobqueue.types import Status
from model import Claim, Job, Rules, State, answers
from model import calls as m
from spec.lifecycle import LIFECYCLE, transitions

TEXT = LIFECYCLE.read_text(encoding="utf-8")
EVENTS = {"T-2": "dequeue", "T-3": "complete", "T-4": "retry", "T-5": "bury", "T-6": "release", "T-7": "extend",
          "T-8": "retry bury", "T-9": "cancel", "T-10": "requeue"}  # fmt: skip
TARGET = {"retry": "failed", "bury": "dead"}
NOW, LEASE, DELAY = 100, 7, 5
RULES = Rules(base=DELAY, cap=DELAY, jitter=Fraction(0))
RUNNING = Job(
    seq=1, id="a", type="t", payload="null", status="running", priority=0, attempts=2, max_attempts=3, fence=4,
    scheduled_at=10, created_at=9, started_at=20, worker="u", lease_expires_at=50, error="old",
)  # fmt: skip
HOLDER = Claim("a", 4, "u")


def in_status(status: str) -> Job:
    job = RUNNING if status == "running" else replace(RUNNING, status=status, worker=None, lease_expires_at=None)
    return replace(job, completed_at=30) if status in ("completed", "dead") else job


def rows_of(heading: str) -> dict[str, dict[str, str]]:
    """The table of section 4 whose head starts with these cells: row name → column → cell."""
    lines = TEXT[TEXT.index(heading) :].splitlines()
    head = [cell.strip() for cell in lines[0].strip("|").split("|")]
    rows = {}
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name] = dict(zip(head[1:], cells, strict=True))
    return rows


def test_the_librarys_table_is_that_of_section_3() -> None:
    stated: dict[tuple[Status, Event], tuple[str, str]] = {}
    for row in transitions(TEXT):
        for event in EVENTS.get(row.clause, "").split():
            for source in row.sources:
                stated[Status(source), Event(event)] = (row.clause, TARGET.get(event, row.targets[0]))
    for cell in stated.keys() | TABLE.keys():
        clauses = [clause for clause, events in EVENTS.items() if cell[1] in events.split()]
        clause, target = stated.get(cell, (", ".join(clauses), None))
        assert TABLE.get(cell) == target, f"{clause}: {cell[1]} from {cell[0]} leads to {target}, not {TABLE.get(cell)}"


OPERATIONS: dict[str, tuple[str, m.Call, str]] = {
    "dequeue": ("T-2", m.Dequeue("u", LEASE), "dequeue"),
    "complete": ("T-3", m.Complete(HOLDER), "complete"),
    "fail": ("T-4", m.Fail(HOLDER, "e"), "retry bury"),
    "release": ("T-6", m.Release(HOLDER), "release"),
    "extend": ("T-7", m.Extend(HOLDER, LEASE), "extend"),
    "sweep": ("T-8", m.Sweep(), "retry bury"),
    "cancel": ("T-9", m.Cancel("a"), "cancel"),
    "requeue": ("T-10", m.Requeue("a"), "requeue"),
    "cleanup": ("T-11", m.Cleanup(0), ""),
}
NEVER = {"LeaseLost": m.LeaseLost(), "false": False, "not swept": frozenset(), "not considered": ()}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_in_every_status_is_allowed_where_section_4_says(operation: str) -> None:
    clause, call, events = OPERATIONS[operation]
    for column, cell in rows_of("| | pending | running |")[operation].items():
        jobs = () if column == "no such job" else (in_status(column),)
        ((reply, after),) = answers(State(jobs), call, NOW, RULES)
        allowed = cell.startswith("T-")
        assert (after != State(jobs)) is allowed, f"{clause}: the model answers {reply} to {operation} of {column}"
        if not allowed and cell != "–":
            assert reply == NEVER[cell.removeprefix("– ")], f"{clause}: the model answers {reply}"
        for event in events.split() if jobs else ():
            assert ((Status(column), Event(event)) in TABLE) is allowed, f"{clause}: TABLE on {event} from {column}"


CHANGES: dict[str, tuple[str, m.Call, dict[str, int]]] = {
    "T-2 dequeue": ("failed", m.Dequeue("v", LEASE), {}),
    "T-3 complete": ("running", m.Complete(HOLDER, "given"), {}),
    "T-4 fail": ("running", m.Fail(HOLDER, "given"), {}),
    "T-5 fail": ("running", m.Fail(HOLDER, "given"), {"max_attempts": 2}),
    "T-6 release": ("running", m.Release(HOLDER), {}),
    "T-7 extend": ("running", m.Extend(HOLDER, LEASE), {}),
    "T-8 sweep → failed": ("running", m.Sweep(), {}),
    "T-8 sweep → dead": ("running", m.Sweep(), {"max_attempts": 2}),
    "T-9 cancel": ("running", m.Cancel("a"), {}),
    "T-10 requeue": ("dead", m.Requeue("a"), {}),
}
WORDS: dict[str, object] = {
    "null": None, "0": 0, "now": NOW, "now + lease": NOW + LEASE, "caller's": "v", "given": "given",
    "now + delay": NOW + DELAY, "now + backoff": NOW + DELAY, "max(old, now + lease)": NOW + LEASE,
}  # fmt: skip


def new_value(cell: str, old: object, job: Job) -> object:
    """What a cell of the second table says of a column."""
    if cell.startswith("· if attempts was 0"):
        return job.created_at
    if cell.startswith("·"):
        return old
    if cell in ("+1", "−1"):
        assert isinstance(old, int)
        return old + (1 if cell == "+1" else -1)
    return WORDS.get(cell, cell.strip("`"))


@pytest.mark.parametrize("transition", CHANGES)
def test_every_column_after_every_transition_is_what_section_4_says(transition: str) -> None:
    status, call, given = CHANGES[transition]
    job = replace(in_status(status), **given)  # type: ignore[arg-type]
    ((_, after),) = answers(State((job,)), call, NOW, RULES)
    (row,) = after.jobs
    for column, cell in rows_of("| | status | attempts | fence |")[transition].items():
        wanted, found = new_value(cell, getattr(job, column), job), getattr(row, column)
        assert found == wanted, f"{transition}: {column} is {cell!r}: {wanted}, the model has {found}"


def test_every_transition_of_the_second_table_is_compared() -> None:
    shown = set(rows_of("| | status | attempts | fence |"))
    assert shown - set(CHANGES) == {"T-1 enqueue", "T-11 cleanup"}
    assert all(re.match(r"T-\d+ ", name) for name in shown)
