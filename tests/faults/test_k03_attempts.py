"""K3, poison pills: every attempt is counted when it begins, and no path gives more of them than were allowed."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobqueue import InvalidArgument, JobQueueError, Queue, Release, Status
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults import actors
from tests.faults.conftest import Hire, StartActor
from tests.faults.scene import change, claim, row, until

EXPIRED = 31


def test_b48_a_job_that_kills_its_process_starts_max_attempts_times_then_is_dead(
    open_live: OpenQueue, hire: Hire, tmp_path: Path
) -> None:
    """In process mode the worker itself survives, and other jobs flow in between."""
    queue, log = open_live(), tmp_path / "log"
    poison = queue.enqueue("t", {"log": str(log), "do": "exit"}, priority=9)
    good = queue.enqueue_many([{"type": "t", "payload": {}} for _ in range(5)])
    hire(queue, actors.HANDLERS, mode="processes")
    until(lambda: all(row(queue, id).status is Status.COMPLETED for id in good))
    until(lambda: row(queue, poison).status is Status.DEAD)
    assert log.read_text().splitlines() == [f"{poison} {attempt}" for attempt in (1, 2, 3)]
    assert "exit code 137" in (row(queue, poison).error or "")


def test_b48_a_job_that_kills_its_worker_is_swept_and_ends_dead(
    url: str, open_live: OpenQueue, actor: StartActor, tmp_path: Path, full: bool
) -> None:
    """In thread mode the worker dies with it; whoever restarts it does so no more than max_attempts times."""
    queue, log = open_live(), tmp_path / "log"
    limit = 3 if full else 2
    poison = queue.enqueue("t", {"log": str(log), "do": "exit"}, max_attempts=limit)
    for attempt in range(1, limit + 1):
        assert actor("worker", url, {"lease": 0.6}).end() == 137
        good = queue.enqueue("t", {}, priority=9)
        assert len(log.read_text().splitlines()) == attempt
    actor("worker", url, {"lease": 0.6})
    until(lambda: row(queue, good).status is Status.COMPLETED)
    until(lambda: row(queue, poison).status is Status.DEAD)
    assert (row(queue, poison).attempts, row(queue, poison).error) == (limit, "lease expired")
    assert len(log.read_text().splitlines()) == limit


def test_b49_a_lost_claim_of_a_job_with_one_attempt_is_dead_and_not_pending(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("t", max_attempts=1)
    claim(queue)
    clock.advance(EXPIRED)
    assert [(swept.id, swept.status) for swept in queue.sweep(queue.expired())] == [(id, Status.DEAD)]
    clock.advance(86_400)
    assert queue.dequeue() is None
    assert queue.sweep() == []


@pytest.mark.parametrize("seed", range(3))
def test_b49_no_walk_through_the_operations_exceeds_the_limit(queue: Queue, clock: ManualClock, seed: int) -> None:
    chance = random.Random(seed)
    for most in (1, 2, 3):
        queue.enqueue("t", max_attempts=most)
    claims: list[Any] = []
    operations = {
        "dequeue": lambda: claims.extend(queue.dequeue_many(2)),
        "fail": lambda: queue.fail(chance.choice(claims), "e", delay=0),
        "release": lambda: queue.settle_many([Release(chance.choice(claims), begun=chance.random() < 0.7)]),
        "extend": lambda: queue.extend(chance.choice(claims)),
        "sweep": lambda: queue.sweep(),
        "wait": lambda: clock.advance(chance.choice((1, EXPIRED, 600))),
    }
    for _ in range(120):
        name = chance.choice(list(operations))
        if claims or name not in ("fail", "release", "extend"):
            with suppress(JobQueueError):  # A lost lease, which is an answer.
                operations[name]()  # type: ignore[no-untyped-call]
        for view in queue.list(limit=10):
            assert 0 <= view.attempts <= view.max_attempts
            assert (view.status is Status.DEAD) <= (view.error is not None)
    assert queue.audit() == []


def test_b50_a_job_lost_in_its_last_attempt_is_dead_visible_and_can_be_requeued(
    queue: Queue, clock: ManualClock
) -> None:
    id = queue.enqueue("t", max_attempts=2, unique_key="k")
    queue.fail(claim(queue), "first")
    clock.advance(60)
    claim(queue)
    clock.advance(EXPIRED)
    queue.sweep()
    view = row(queue, id)
    assert (view.status, view.attempts, view.error) == (Status.DEAD, 2, "lease expired")
    assert queue.list(status="dead") == [queue.list()[0]]
    other = queue.enqueue("t", unique_key="k")  # Its key is free.
    assert claim(queue).id == other  # And it blocks nobody.
    queue.cancel(other)
    assert queue.requeue(id)
    queue.complete(claim(queue))
    clock.advance(60)
    assert queue.cleanup(60) == 2


def test_b51_a_snooze_is_not_counted(queue: Queue, full: bool) -> None:
    id, times = queue.enqueue("t", max_attempts=2), 700 if full else 40
    for _ in range(times):
        assert queue.release(claim(queue), delay=0) is Status.PENDING
    assert (row(queue, id).attempts, claim(queue).fence) == (0, times + 1)


def test_b51_a_handler_that_asks_for_later_for_ever_is_bounded_or_not_counted(live: Queue, hire: Hire) -> None:
    asks = live.enqueue("t", {"do": "retry"}, max_attempts=4)
    snoozes = live.enqueue("t", {"do": "snooze"}, max_attempts=2)
    once = live.enqueue("t", {"do": "snooze"}, max_attempts=1)
    worker = hire(live, actors.HANDLERS)
    until(lambda: row(live, asks).status is Status.DEAD)
    until(lambda: row(live, once).status is Status.DEAD)
    worker.stop()
    assert (row(live, asks).attempts, row(live, asks).error) == (4, "retry asked for")
    assert (row(live, snoozes).attempts, row(live, snoozes).status) == (0, Status.PENDING)
    assert row(live, once).error == "interrupted"
    assert claim(live).fence > 2


def test_b51_the_column_of_attempts_has_room(backend: str, url: str, queue: Queue) -> None:
    most = 2**31 - 1
    id = queue.enqueue("t", max_attempts=most)
    change(backend, url, f"update jobs set attempts = {most - 1}, fence = {2**62}")
    job = claim(queue)
    assert (job.attempts, job.fence) == (most, 2**62 + 1)
    assert queue.fail(job, "e") is Status.DEAD
    assert queue.requeue(id)


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("how", ["fails", "is lost"])
def test_b52_a_job_that_never_succeeds_starts_exactly_max_attempts_times(
    queue: Queue, clock: ManualClock, limit: int, how: str
) -> None:
    id = queue.enqueue("t", max_attempts=limit)
    starts = 0
    while (job := queue.dequeue()) is not None:
        starts += 1
        if how == "fails":
            queue.fail(job, "e")
        clock.advance(EXPIRED)
        queue.sweep()
        clock.advance(3600)
    assert starts == limit
    assert row(queue, id).status is Status.DEAD


@pytest.mark.parametrize("limit", [0, -1, True, "3", 2**63, 2**31, 1.0, None, float("nan")], ids=str)
def test_b52_any_other_limit_is_refused(queue: Queue, limit: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_attempts"):
        queue.enqueue("t", max_attempts=limit)
    with pytest.raises(InvalidArgument, match="max_attempts"):
        queue.enqueue_many([{"type": "t"}, {"type": "t", "max_attempts": limit}])
    assert sum(queue.counts().values()) == 0
