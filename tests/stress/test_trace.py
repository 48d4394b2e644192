"""Verdict (b): a log of the database is replayed by TLC; what is no step of the specification is named."""

from __future__ import annotations

from random import Random
from typing import Any

from stress.places import LogRow
from stress.trace import Chosen, Verdict, validate

ID = "01900000000070008000000000000001"


def rows(*changes: tuple[str, str, int, int, str | None], id: str = ID, most: int = 3, key: Any = None) -> list[LogRow]:
    """Changes of one job: (was, status, attempts, fence, note), by a worker named for the fence."""
    return [
        (id, number, 0.0, 1, was, status, attempts, most, fence, f"w{fence}" if fence else None, 0, key, note)
        for number, (was, status, attempts, fence, note) in enumerate(changes, 1)
    ]


def replayed(*logs: list[LogRow], begun: frozenset[tuple[str, int]] = frozenset()) -> Verdict:
    chosen = Chosen(limit=100, sample=100, random=Random(0))
    found = validate([row for log in logs for row in log], chosen, set(), set(begun), lambda text: None)
    assert found.broke is None
    return found


SWEPT = [
    ("absent", "pending", 0, 0, None), ("pending", "running", 1, 1, None), ("running", "failed", 1, 1, "lease expired"),
    ("failed", "running", 2, 2, None),
]  # fmt: skip


def test_a_life_with_every_kind_of_change_is_a_behaviour() -> None:
    life = [
        *SWEPT, ("running", "pending", 1, 2, None), ("pending", "running", 2, 3, None),
        ("running", "failed", 2, 3, "ValueError: fence 3: failed"), ("failed", "running", 3, 4, None),
        ("running", "dead", 3, 4, "fence 4: no"), ("dead", "pending", 0, 4, None), ("pending", "running", 1, 5, None),
        ("running", "dead", 1, 5, "cancelled"), ("dead", "pending", 0, 5, None), ("pending", "running", 1, 6, None),
        ("running", "completed", 1, 6, "6"), ("completed", "deleted", 0, 0, None),
    ]  # fmt: skip
    once = rows(("absent", "pending", 0, 0, None), ("pending", "running", 1, 1, None),
                ("running", "dead", 1, 1, "interrupted"), id=ID[:-1] + "2", most=1)  # fmt: skip
    verdict = replayed(rows(*life), once)
    assert verdict.ok
    assert verdict.events == len(life) + 4  # The interrupted one has begun: that is an event, too.


def test_a_forged_completion_by_a_zombie_is_rejected_at_its_event() -> None:
    verdict = replayed(rows(*SWEPT, ("running", "completed", 2, 2, "1")))
    [finding] = verdict.findings
    assert finding.message.startswith("event 5 ")
    assert finding.excerpt[-1].startswith(">> 5: complete by fence 1: running → completed")


def test_a_job_that_may_be_begun_once_is_not_begun_again() -> None:
    job = rows(("absent", "pending", 0, 0, None), ("pending", "running", 1, 1, None),
               ("running", "pending", 0, 1, None), most=1)  # fmt: skip
    name = "01900000-0000-7000-8000-000000000001"
    assert replayed(job).ok
    assert not replayed(job, begun=frozenset({(name, 1)})).ok


def test_two_jobs_with_one_key_do_not_wait_together() -> None:
    one = rows(("absent", "pending", 0, 0, None), key="k")
    other = [(ID[:-1] + "2", 2, *row[2:]) for row in one]
    assert not replayed(one, other).ok
