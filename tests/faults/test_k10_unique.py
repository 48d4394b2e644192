"""K10, unique jobs: the database's constraint decides, and a key that is taken blocks nobody but its own."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from jobqueue import DatabaseUnavailable, DuplicateKey, Queue, Status
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults.scene import claim, row, together, until


@pytest.mark.parametrize("ending", ["rollback", "commit"])
@pytest.mark.parametrize("on_duplicate", ["raise", "keep"])
def test_b38_nobody_is_told_of_a_job_that_was_not_committed(
    backend: str, url: str, live: Queue, open_live: OpenQueue, ending: str, on_duplicate: Any
) -> None:
    other = open_live()
    connection: Any = sqlite3.connect(url, check_same_thread=False) if backend == "sqlite" else psycopg.connect(url)
    with closing(connection):
        first = live.enqueue("t", unique_key="k", transaction=connection)
        answer: list[Any] = []

        def second() -> None:
            try:
                answer.append(other.enqueue("t", unique_key="k", on_duplicate=on_duplicate))
            except DuplicateKey as error:
                answer.append(error)

        waiting = threading.Thread(target=second)
        waiting.start()
        if backend == "sqlite":
            with pytest.raises(DatabaseUnavailable):
                open_live(busy_timeout=0.01).enqueue("t", unique_key="k")
        assert answer == []
        getattr(connection, ending)()
        waiting.join(60)
    [job] = live.list()
    if ending == "rollback":
        assert answer == [job.id]
    elif on_duplicate == "keep":
        assert answer == [first] == [job.id]
    else:
        assert (answer[0].holder, job.id) == (first, first)


def test_b39_the_constraint_decides_for_one_for_many_and_within_a_batch(live: Queue, full: bool) -> None:
    number = 50 if full else 12
    calls: list[Callable[[], Any]] = [lambda: live.enqueue("t", unique_key="k") for _ in range(number)]
    calls += [lambda: live.enqueue_many([{"type": "t", "unique_key": "k"}, {"type": "other"}]) for _ in range(3)]
    done = together(*calls)
    assert sum(not isinstance(each, Exception) for each in done) == 1
    assert all(isinstance(each, (str, list, DuplicateKey)) for each in done)
    assert len(live.list(unique_key="k")) == 1
    ids = live.enqueue_many([{"type": "t", "unique_key": key} for key in ("a", "a", "b", "k")], on_duplicate="keep")
    assert ids[0] == ids[1] != ids[2]
    assert ids[3] == live.list(unique_key="k")[0].id
    assert {key: len(live.list(unique_key=key)) for key in "abk"} == {"a": 1, "b": 1, "k": 1}


def test_b71_a_job_that_waits_for_its_retry_holds_its_key_and_blocks_nobody(queue: Queue, clock: ManualClock) -> None:
    first = queue.enqueue("t", unique_key="k")
    queue.fail(claim(queue), "e", delay=60)
    with pytest.raises(DuplicateKey) as raised:
        queue.enqueue("t", unique_key="k")
    assert raised.value.holder == first
    others = queue.enqueue_many([{"type": "t"} for _ in range(5)])
    assert [job.id for job in queue.dequeue_many(9)] == others
    clock.advance(60)
    assert claim(queue).id == first


def test_b71_one_conflict_among_many_stops_nobody_else(queue: Queue) -> None:
    dead = queue.enqueue_many([{"type": "t", "unique_key": f"k{number}"} for number in range(100)])
    queue.cancel_many(dead)
    blocker = queue.enqueue("t", unique_key="k42")
    with pytest.raises(DuplicateKey) as raised:
        queue.requeue(dead[42])
    assert raised.value.holder == blocker
    assert row(queue, dead[42]).status is Status.DEAD
    done = queue.requeue_many(status="dead")
    assert (done.count, done.duplicates) == (99, [dead[42]])
    assert queue.counts() == {**dict.fromkeys(Status, 0), Status.PENDING: 100, Status.DEAD: 1}
    assert len(queue.dequeue_many(200)) == 100


def test_b71_sweeping_and_releasing_back_meet_no_conflict(queue: Queue, clock: ManualClock) -> None:
    for number in range(4):
        queue.enqueue("t", unique_key=f"k{number}", max_attempts=9)
    swept, released, failed, snoozed = queue.dequeue_many(4)
    for number in range(4):
        with pytest.raises(DuplicateKey):
            queue.enqueue("t", unique_key=f"k{number}")
    queue.release(released)
    queue.fail(failed, "e")
    queue.release(snoozed, delay=5)
    clock.advance(31)
    assert [each.id for each in queue.sweep()] == [swept.id]
    assert queue.counts() == {**dict.fromkeys(Status, 0), Status.PENDING: 2, Status.FAILED: 2}


HOLDS = {"pending": True, "running": True, "failed": True, "completed": False, "dead": False, "cancelled": False}


@pytest.mark.parametrize("state", HOLDS)
def test_b72_which_states_hold_a_key_and_what_is_answered(queue: Queue, state: str) -> None:
    first = queue.enqueue("t", unique_key="k", max_attempts=1 if state == "dead" else 3)
    if state in ("running", "failed", "completed", "dead"):
        job = claim(queue)
        if state == "completed":
            queue.complete(job)
        elif state != "running":
            queue.fail(job, "e")
    elif state == "cancelled":
        queue.cancel(first)
    kept = queue.enqueue("t", unique_key="k", on_duplicate="keep")
    assert (kept == first) is HOLDS[state]
    with pytest.raises(DuplicateKey) as raised:
        queue.enqueue("t", unique_key="k")
    assert raised.value.holder == kept
    assert until(lambda: queue.list(unique_key="k"))[-1].id == kept
