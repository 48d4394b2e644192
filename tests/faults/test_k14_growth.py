"""K14, speed and growth: what is finished, scheduled or large costs nothing where it is not asked for."""

from __future__ import annotations

import sqlite3
import threading
import time
import tracemalloc
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobqueue import Job, Queue, Status
from jobqueue.sqlite import SqliteDatabase
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults import actors
from tests.faults.conftest import Hire
from tests.faults.scene import SteppedClock, change, claim, row, until, until_noted


def steps(queue: Queue, call: Any) -> int:
    """How many instructions of SQLite's machine a call takes, in hundreds."""
    assert isinstance(queue.database, SqliteDatabase)
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    for connection in queue.database.connections():
        connection.set_progress_handler(count, 100)
    call()
    for connection in queue.database.connections():
        connection.set_progress_handler(None, 0)
    return taken


UNWANTED = {
    "finished": "status = 'completed', completed_at = 0, attempts = 1, fence = 1",
    "dead": "status = 'dead', completed_at = 0, error = 'e', attempts = 1, fence = 1",
    "due later, of higher priority": "priority = 9, scheduled_at = 9000000000000000",
    "in backoff": "status = 'failed', error = 'e', attempts = 1, fence = 1, scheduled_at = 9000000000000000",
    "of other types": "type = 'other', priority = 9",
    "running": "status = 'running', worker = 'w', lease_expires_at = 9000000000000000, attempts = 1, fence = 1",
}


@pytest.mark.parametrize("kind", UNWANTED)
def test_b103_a_claim_costs_the_same_behind_any_number_of_jobs_that_it_does_not_want(
    tmp_path: Path, full: bool, kind: str
) -> None:
    """Counted in steps of SQLite's machine, without statistics; PostgreSQL's pages are counted in tests/postgres."""
    path, number = str(tmp_path / "queue.db"), 1_000_000 if full else 5000
    with Queue.open(path, synchronous="normal") as queue:
        queue.enqueue_many([{"type": "t"} for _ in range(4)])
        empty = steps(queue, lambda: claim(queue, "t"))
        queue.enqueue_many([{"type": "u"} for _ in range(number)])
        settled = "type = 't', " if kind != "of other types" else ""
        change("sqlite", path, f"update jobs set {settled}{UNWANTED[kind]} where type = 'u'")
        assert steps(queue, lambda: claim(queue, "t")) <= 2 * empty + 1
        assert steps(queue, queue.expired) <= empty + 1
        assert steps(queue, lambda: queue.due_in_us(("t",))) <= empty + 1


def test_b105_a_worker_with_a_retention_keeps_the_table_bounded(open_queue: OpenQueue, hire: Hire) -> None:
    """Nothing is deleted unless it is asked for: a job is a record. Asked for, it stays within its bound."""
    clock = SteppedClock()
    queue = open_queue(clock=clock)
    for _ in range(3):  # Sixty days, in three steps.
        queue.enqueue_many([{"type": "t"} for _ in range(20)])
        worker = hire(queue, lambda job: None, retention=timedelta(days=7), concurrency=4)
        until(lambda: queue.counts()[Status.COMPLETED] >= 20 and queue.due_in_us() is None)
        until(lambda: queue.counts()[Status.COMPLETED] == 20)
        worker.stop()
        clock.ahead += 20 * 86_400
    kept = hire(queue, lambda job: None, retention=timedelta(days=7))
    until(lambda: sum(queue.counts().values()) == 0)
    kept.stop()


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_b107_no_transaction_of_ours_is_open_while_a_handler_runs(
    backend: str, url: str, open_live: OpenQueue, hire: Hire, tmp_path: Path, mode: Any
) -> None:
    """Or it would hold up the clean-up of dead rows in PostgreSQL, and every writer in SQLite."""
    queue, log, stay = open_live(lease=600), tmp_path / "log", tmp_path / "stay"
    stay.touch()
    id = queue.enqueue("t", {"log": str(log), "do": "wait", "while": str(stay)})
    hire(queue, actors.HANDLERS, mode=mode, concurrency=2)
    until_noted(log)
    open_now = "select count(*) from pg_stat_activity where application_name = 'jobqueue' and xact_start is not null"
    if backend == "postgres":
        with closing(psycopg.connect(url, autocommit=True)) as observer:
            for _ in range(20):
                until(lambda: observer.execute(open_now).fetchone() == (0,))
    else:
        with closing(sqlite3.connect(url, isolation_level=None, timeout=0.05)) as observer_:
            for _ in range(20):
                observer_.execute("begin immediate")
                observer_.execute("rollback")
                until(lambda: observer_.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0)
    assert row(queue, id).status is Status.RUNNING
    stay.unlink()
    until(lambda: row(queue, id).status is Status.COMPLETED)


def test_b107_an_idle_transaction_of_somebody_elses_does_not_stop_the_work(postgres_url: str, full: bool) -> None:
    with Queue.open(postgres_url) as queue, closing(psycopg.connect(postgres_url)) as idle:
        idle.execute("set transaction isolation level repeatable read")
        idle.execute("select count(*) from jobs")
        began = time.monotonic()
        for _ in range(10 if full else 3):
            queue.enqueue_many([{"type": "t"} for _ in range(1000 if full else 100)])
            while jobs := queue.dequeue_many(100):
                queue.complete_many([(job, None) for job in jobs])
        assert time.monotonic() - began < 60
        idle.rollback()


def test_b108_looking_and_cleaning_read_no_payloads(queue: Queue, clock: ManualClock, full: bool) -> None:
    number, size = (5000, 200_000) if full else (150, 100_000)
    for _ in range(number // 50):
        queue.enqueue_many([{"type": "t", "payload": "x" * size} for _ in range(50)])
    queue.enqueue("last")
    queue.cancel_many(view.id for view in queue.list(limit=50))
    clock.advance(60)
    tracemalloc.start()
    try:
        queue.counts()
        assert all(view.payload is None for view in queue.list(limit=50))
        queue.sweep()
        queue.expired()
        queue.due_in_us()
        queue.cancel_many(type="none")
        assert queue.cleanup(60) == 50
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * size


def test_b108_a_worker_holds_no_more_payloads_than_its_line(open_live: OpenQueue, hire: Hire) -> None:
    """Slow handlers: jobs wait in the queue and not in the worker's memory."""
    queue, go, most = open_live(), threading.Event(), 0

    def handler(job: Job) -> None:
        go.wait()

    queue.enqueue_many([{"type": "t", "payload": "x" * 100_000} for _ in range(60)])
    hire(queue, handler, concurrency=2)
    until(lambda: queue.counts()[Status.RUNNING] == 2)
    most = max(queue.counts()[Status.RUNNING] for _ in range(20))
    go.set()
    assert most == 2
    until(lambda: queue.counts()[Status.COMPLETED] == 60)
