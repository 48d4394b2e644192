"""K15, order: total and stated, whatever was deleted meanwhile, and no job stands in the way of another."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

from jobqueue import LeaseLost, Queue, Status
from tests.clock import ManualClock
from tests.faults.scene import claim, row


def test_b96_jobs_of_one_instant_come_in_the_order_of_their_enqueue(
    backend: str, url: str, queue: Queue, clock: ManualClock
) -> None:
    """Also after the newest rows were deleted and the file was rewritten."""
    ids = queue.enqueue_many([{"type": f"t{number % 3}"} for number in range(100)])
    ids += [queue.enqueue("t") for _ in range(20)]
    assert [job.id for job in queue.dequeue_many(60)] == ids[:60]
    queue.cancel_many(ids[100:])
    assert queue.cleanup(0) == 20
    if backend == "sqlite":
        with closing(sqlite3.connect(url, isolation_level=None)) as connection:
            connection.execute("vacuum")
    else:
        with closing(psycopg.connect(url, autocommit=True)) as connection_:
            connection_.execute("vacuum full jobs")
    more = [queue.enqueue("t0") for _ in range(20)]
    assert not set(more) & set(ids)
    assert [job.id for job in queue.dequeue_many(200)] == ids[60:100] + more


def test_b96_a_place_in_the_table_that_is_given_again_gives_no_claim_again(queue: Queue, clock: ManualClock) -> None:
    """SQLite may use the number of a deleted top row anew: a stale holder of it must not reach the new job."""
    queue.enqueue("t")
    stale = claim(queue, worker="w")
    queue.cancel(stale.id)
    queue.cleanup(0)
    fresh = queue.enqueue("t")
    claim(queue, worker="w")
    for refused in (queue.complete, queue.extend, queue.release):
        with pytest.raises(LeaseLost):
            refused(stale)
    assert (row(queue, fresh).status, row(queue, fresh).attempts) == (Status.RUNNING, 1)


def test_b97_priority_is_strict_as_the_specification_says(queue: Queue, full: bool) -> None:
    """N-2: endless arrivals of higher priority keep a lower one waiting; when they end, its turn comes."""
    low = queue.enqueue("low", priority=-1)
    for _ in range(10):
        queue.enqueue("high", priority=5)
    for _ in range(1000 if full else 100):
        assert claim(queue).type == "high"
        queue.enqueue("high", priority=5)
    rest = [job.type for job in queue.dequeue_many(20)]
    assert rest == ["high"] * 10 + ["low"]
    assert row(queue, low).attempts == 1


def test_b97_a_worker_reserved_for_a_type_is_the_remedy(queue: Queue) -> None:
    low = queue.enqueue("low", priority=-1)
    queue.enqueue_many([{"type": "high", "priority": 5} for _ in range(10)])
    assert claim(queue, "low").id == low


def test_b99_a_key_in_a_long_backoff_blocks_no_other_job(queue: Queue, clock: ManualClock) -> None:
    """There is no serial order for each key; a unique key only keeps a second job of that key out."""
    waiting = queue.enqueue("t", unique_key="k", priority=9)
    queue.fail(claim(queue), "e", delay=3600)
    ready = queue.enqueue_many([{"type": "t", "unique_key": "other"}, {"type": "t"}])
    assert [job.id for job in queue.dequeue_many(9)] == ready
    clock.advance(3600)
    assert claim(queue).id == waiting
