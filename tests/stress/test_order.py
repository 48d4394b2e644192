"""Verdict (a) over all jobs: order, emptiness, seq."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from stress.order import Dequeue, Ordered, judge, read, rising

# A job of type 0 and priority 1, due at 100, seq 5, that certainly waits from 1,000 to 9,000.
WAIT = (1000, 9000, 0, -1, 100, 5)
EMPTY = Dequeue(inv=2000, ret=2100, now=2050, types=None, wanted=1, got=0, last=None, client="w")


def clauses(wait: tuple[int, ...], call: Dequeue) -> list[str]:
    ordered = Ordered()
    judge(array("q", wait), [call], ordered)
    return [finding.clause for finding in ordered.findings]


def test_a_due_job_that_waits_all_the_while_makes_an_empty_reply_wrong() -> None:
    assert clauses(WAIT, EMPTY) == ["G-13"]


@pytest.mark.parametrize(
    "call",
    [
        replace(EMPTY, now=99),  # Not due.
        replace(EMPTY, types=frozenset({1})),  # Not wanted.
        replace(EMPTY, inv=900),  # Perhaps not yet there.
        replace(EMPTY, ret=9001),  # Perhaps taken by another.
    ],
)
def test_what_is_not_certain_is_no_violation(call: Dequeue) -> None:
    assert clauses(WAIT, call) == []


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ((0, 50, 1), ["G-12"]),
        ((-1, 100, 6), ["G-12"]),
        ((-1, 101, 4), ["G-12"]),
        ((-1, 100, 4), []),
        ((-2, 999, 9), []),
    ],
)
def test_the_claimed_job_is_the_first(last: tuple[int, int, int], expected: list[str]) -> None:
    assert clauses(WAIT, replace(EMPTY, got=1, last=last)) == expected


def test_only_quiet_dequeues_are_judged_on_postgresql(tmp_path: Path) -> None:
    def line(inv: int, ret: int) -> str:
        return json.dumps(["claim", inv, ret, inv, None, 1, 0, None, "w"]) + "\n"

    (tmp_path / "calls").write_text(line(10, 20) + line(30, 40) + json.dumps(["lock", 35, 60]) + "\n" + line(70, 80))
    calls, number = read([tmp_path / "calls"], quiet_only=True)
    assert ([call.inv for call in calls], number) == ([10, 70], 3)


def test_seq_rises_with_the_time_of_the_enqueue() -> None:
    assert list(rising(array("q", [10, 20, 1, 15, 25, 3, 18, 30, 2, 40, 50, 4]))) == []  # Overlapping: any order.
    [finding] = rising(array("q", [10, 20, 5, 30, 40, 4]))
    assert finding.clause == "§6"
