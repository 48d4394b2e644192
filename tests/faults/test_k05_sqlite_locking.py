"""K5, locks and transactions: busy files, forks, connections of the caller's, handles and threads. On both backends
where the case is one of theirs too."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobqueue import Complete, DatabaseUnavailable, DuplicateKey, InvalidArgument, Job, Queue, Status, Worker, WrongUse
from jobqueue.sqlite import SqliteDatabase
from tests.conftest import OpenQueue
from tests.faults import actors
from tests.faults.conftest import Hire, StartActor
from tests.faults.scene import claim, row, until


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


def test_b24_a_busy_database_is_not_a_failure_of_the_handler(
    backend: str, url: str, open_live: OpenQueue, hire: Hire, caplog: pytest.LogCaptureFixture
) -> None:
    """Another holds the lock for longer than the busy timeout just when the handler returns."""
    queue, starts = open_live(busy_timeout=0.05), []
    begun, go = threading.Event(), threading.Event()

    def handler(job: Job) -> str:
        starts.append(job.attempts)
        begun.set()
        go.wait()
        return "done"

    id = queue.enqueue("t", max_attempts=1)
    hire(queue, handler)
    begun.wait()
    with closing(exclusively(backend, url)) as holder:
        go.set()
        until(lambda: "busy or away" in caplog.text)
        holder.rollback()
    until(lambda: row(queue, id).status is Status.COMPLETED)
    assert (starts, row(queue, id).attempts) == ([1], 1)


def exclusively(backend: str, url: str) -> Any:
    """A connection that keeps all others from writing."""
    connection: Any = sqlite3.connect(url) if backend == "sqlite" else psycopg.connect(url)
    connection.execute("begin immediate" if backend == "sqlite" else "lock table jobs in exclusive mode")
    return connection


@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_b25_a_handle_is_of_no_use_to_a_forked_child_and_harmless_to_its_parent(
    backend: str, url: str, open_live: OpenQueue, actor: StartActor, how: str
) -> None:
    queue = open_live()
    assert actor("forks", url, how).says() == {"refused": [9, 9, 9], "exit codes": [0, 0, 0], "settled": "completed"}
    assert queue.counts() == {**dict.fromkeys(Status, 0), Status.PENDING: 1, Status.COMPLETED: 31}
    assert queue.audit() == []
    if backend == "sqlite":
        with closing(sqlite3.connect(url)) as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("leaving", ["by its end", "by an exception"])
def test_b25_a_child_that_is_forked_inside_completing_ends_nothing_of_its_parents(
    backend: str, url: str, open_live: OpenQueue, actor: StartActor, leaving: str
) -> None:
    queue = open_live()
    with closing(sqlite3.connect(url) if backend == "sqlite" else psycopg.connect(url)) as connection:
        connection.execute("create table effects (who text)")
        connection.commit()
        id, code = actor("forks_inside", url, leaving).says()
        assert code == 0
        assert connection.execute("select who from effects order by who").fetchall() == [("after",), ("before",)]
    assert row(queue, id).status is Status.COMPLETED


MODES: list[dict[str, Any]] = [
    {}, {"isolation_level": "IMMEDIATE"}, {"isolation_level": "EXCLUSIVE"}, {"isolation_level": None},
    *([{"autocommit": True}, {"autocommit": False}] if sys.version_info >= (3, 12) else []),
]  # fmt: skip


def opened(path: str, mode: dict[str, Any]) -> sqlite3.Connection:
    """The caller's connection, with a transaction open and a row of the caller's own in it."""
    connection: sqlite3.Connection = sqlite3.connect(path, **mode)
    connection.execute("create table if not exists orders (id integer)")
    if connection.in_transaction:
        connection.commit()
    if not connection.in_transaction:
        connection.execute("begin immediate")
    connection.execute("insert into orders values (17)")
    return connection


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_b34_b35_nothing_ends_a_transaction_that_it_did_not_begin(path: str, mode: dict[str, Any]) -> None:
    with Queue.open(path) as queue:
        dead, failed, pending = queue.enqueue_many([{"type": "t"}, {"type": "t"}, {"type": "t"}])
        queue.cancel(dead)
        queue.fail(claim(queue), "e", delay=60)
        before = [row(queue, id) for id in (dead, failed, pending)]
        for ending in ("rollback", "close", "commit"):
            connection = opened(path, mode)
            queue.enqueue("new", transaction=connection)
            queue.enqueue_many([{"type": "new"}, {"type": "new", "unique_key": "k"}], transaction=connection)
            with pytest.raises(DuplicateKey):
                queue.enqueue_many([{"type": "x"}, {"type": "x", "unique_key": "k"}], transaction=connection)
            with pytest.raises(InvalidArgument):
                queue.enqueue_many([{"type": "x"}, {"type": ""}], transaction=connection)
            assert queue.cancel(pending, transaction=connection)
            assert queue.requeue(dead, transaction=connection)
            assert connection.in_transaction
            assert [row(queue, id) for id in (dead, failed, pending)] == before
            connection.close() if ending == "close" else connection.execute(ending)
            with closing(sqlite3.connect(path)) as reader:
                stored = reader.execute("select count(*) from orders").fetchone()
            assert (stored, len(queue.list(type="new"))) == (((1,), 3) if ending == "commit" else ((0,), 0))
            connection.close()
        assert queue.list(type="x") == []
        assert row(queue, pending).status is Status.DEAD


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_b35_with_no_transaction_open_one_is_begun_or_the_connection_refused(path: str, mode: dict[str, Any]) -> None:
    with Queue.open(path) as queue, closing(sqlite3.connect(path, **mode)) as connection:
        if mode in ({"isolation_level": None}, {"autocommit": True}):
            with pytest.raises(WrongUse, match="autocommit"):
                queue.enqueue("t", transaction=connection)
            return
        queue.enqueue("t", transaction=connection)
        assert connection.in_transaction
        assert queue.list() == []
        connection.commit()
        assert len(queue.list()) == 1


def test_b35_what_was_enqueued_without_a_transaction_is_there_after_close(url: str) -> None:
    with Queue.open(url) as queue:
        id = queue.enqueue("t")
    with Queue.open(url) as queue:
        assert row(queue, id).status is Status.PENDING
        jobs: list[dict[str, Any]] = [{"type": "t", "payload": number} for number in range(100)]
        jobs[57]["payload"] = {1: 2}
        with pytest.raises(InvalidArgument):
            queue.enqueue_many(jobs)
        jobs[57] = {"type": "t", "unique_key": "k"}
        jobs[58] = {"type": "t", "unique_key": "k"}
        with pytest.raises(DuplicateKey):
            queue.enqueue_many(jobs)
        assert sum(queue.counts().values()) == 1


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip([column[0] for column in cursor.description], row, strict=True))


@pytest.mark.parametrize(("rows", "text"), [(sqlite3.Row, str), (as_dict, str), (None, bytes)])
def test_b35_a_connection_that_was_taught_strange_ways_serves_the_queue_and_keeps_them(
    path: str, rows: Any, text: Any
) -> None:
    with Queue.open(path) as queue:
        held = queue.enqueue("t", unique_key="k")
        job = claim(queue)
        connection = opened(path, {})
        connection.row_factory, connection.text_factory = rows, text
        assert queue.enqueue("t", unique_key="k", on_duplicate="keep", transaction=connection) == held
        queue.extend(job, 600, transaction=connection)
        queue.fail(job, "e", for_good=True, transaction=connection)
        assert queue.requeue(held, transaction=connection)
        assert queue.cancel(held, transaction=connection)
        other = queue.enqueue("t", unique_key="k", transaction=connection)
        with pytest.raises(DuplicateKey) as raised:
            queue.requeue(held, transaction=connection)
        assert (raised.value.holder, raised.value.key) == (other, "k")
        assert (connection.row_factory, connection.text_factory) == (rows, text)
        connection.commit()
        connection.close()


def test_b60_nobody_who_uses_the_queue_at_the_same_time_sees_it_locked(
    backend: str, url: str, open_live: OpenQueue, actor: StartActor, full: bool
) -> None:
    """Those who enqueue, work, sweep and count, and a ninth who keeps the write lock for a while."""
    queue, seconds = open_live(), 60 if full else 1.0
    crowd = actor("crowd", "bustle", 8, [url, seconds])
    for _ in range(6 if full else 1):
        with closing(exclusively(backend, url)) as holder:
            threading.Event().wait(3 if full else 0.3)
            holder.rollback()
    results = crowd.says(seconds + 120)
    assert [result for result in results if "raised" in result] == []
    assert all(result["returned"]["rounds"] > 0 for result in results)
    assert queue.audit() == []
    assert queue.counts()[Status.FAILED] == queue.counts()[Status.DEAD] == 0


OPERATIONS: dict[str, Callable[[Queue, Job, str], object]] = {
    "enqueue": lambda queue, job, dead: queue.enqueue("t", unique_key="k"),
    "enqueue_many": lambda queue, job, dead: queue.enqueue_many([{"type": "t"}]),
    "dequeue": lambda queue, job, dead: queue.dequeue(),
    "complete": lambda queue, job, dead: queue.complete(job),
    "fail": lambda queue, job, dead: queue.fail(job, "e"),
    "release": lambda queue, job, dead: queue.release(job),
    "extend": lambda queue, job, dead: queue.extend(job),
    "extend_many": lambda queue, job, dead: queue.extend_many([job]),
    "exchange": lambda queue, job, dead: queue.exchange([Complete(job)], 3, None),
    "cancel": lambda queue, job, dead: queue.cancel(job.id),
    "cancel_many": lambda queue, job, dead: queue.cancel_many(),
    "requeue": lambda queue, job, dead: queue.requeue(dead),
    "requeue_many": lambda queue, job, dead: queue.requeue_many(),
    "sweep": lambda queue, job, dead: queue.sweep(),
    "expired": lambda queue, job, dead: queue.expired(),
    "cleanup": lambda queue, job, dead: queue.cleanup(0),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_b61_every_operation_that_writes_takes_the_write_lock_before_it_reads(path: str, operation: str) -> None:
    with Queue.open(path) as queue:
        dead = queue.enqueue("t")
        queue.cancel(dead)
        queue.enqueue("t")
        job = claim(queue)
        database = queue.database
        assert isinstance(database, SqliteDatabase)
        writer, reader = database.connections()
        written: list[str] = []
        read: list[str] = []
        writer.set_trace_callback(written.append)
        reader.set_trace_callback(read.append)
        OPERATIONS[operation](queue, job, dead)
        assert written[0] == "begin immediate"
        assert [
            text for text in read if not text.lstrip("-abcdefghijklmnopqrstuvwxyz ,.\n").startswith("select")
        ] == read
        assert not any(text.startswith("begin") for text in read)


def test_b61_completing_takes_the_write_lock_at_its_start(path: str) -> None:
    with Queue.open(path) as queue, Queue.open(path, busy_timeout=0.01) as other:
        queue.enqueue("t")
        with queue.completing(claim(queue)) as connection:
            with pytest.raises(DatabaseUnavailable, match="locked"):
                other.enqueue("t")
            connection.execute("create table effects (id integer)")
        other.enqueue("t")


def test_b61_a_stale_snapshot_of_the_callers_own_transaction_is_told_at_once(path: str) -> None:
    """Only the caller can begin it again, so waiting would not help; nothing of the caller's is undone."""
    with Queue.open(path) as queue, closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (id integer)")
        connection.execute("begin")
        connection.execute("select * from orders").fetchall()
        queue.enqueue("meanwhile")
        with pytest.raises(DatabaseUnavailable, match="roll it back, and start again with BEGIN IMMEDIATE") as raised:
            queue.enqueue("t", transaction=connection)
        assert raised.value.transient
        assert connection.in_transaction
        connection.rollback()
        queue.enqueue("t", transaction=connection)
        connection.commit()
        assert len(queue.list()) == 2


@pytest.mark.parametrize("has_a_queue", [False, True])
def test_what_goes_through_a_connection_to_another_file_is_refused(path: str, has_a_queue: bool) -> None:
    other = f"{path}.other"
    with Queue.open(path) as queue, closing(sqlite3.connect(other)) as connection:
        if has_a_queue:
            Queue.open(other).close()
        connection.row_factory = sqlite3.Row
        with pytest.raises(WrongUse, match="is not one to"):
            queue.enqueue("t", transaction=connection)
        assert not connection.in_transaction
        if not has_a_queue:  # The table is found where the file is attached, under whatever name.
            connection.execute("attach ? as queues", (path,))
            queue.enqueue("t", transaction=connection)
            connection.commit()
    os.symlink(path, f"{path}.link")
    with Queue.open(path) as queue, closing(sqlite3.connect(f"{path}.link")) as connection:
        queue.enqueue("t", transaction=connection)
        connection.commit()
        assert len(queue.list()) == 2 - has_a_queue


def test_b106_no_read_of_ours_holds_up_the_checkpoint(path: str, hire: Hire) -> None:
    """A page half read, a wait half waited, an idle worker: the log can be emptied, and is then of its first size."""
    with Queue.open(path) as queue:
        queue.enqueue_many([{"type": "other", "payload": "x" * 1000} for _ in range(300)])
        page = iter(queue.list(limit=200, payloads=True))
        next(page)
        worker = hire(queue, lambda job: None, types=("none",))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            until(lambda: connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0)
        assert os.path.getsize(f"{path}-wal") <= 100_000
        assert len(list(page)) == 199
        worker.stop()


def test_b106_the_log_stops_growing_when_somebody_elses_reader_has_gone(path: str, full: bool) -> None:
    with Queue.open(path, synchronous="normal") as queue, closing(sqlite3.connect(path)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from jobs").fetchall()

        def pass_jobs(number: int) -> int:
            for _ in range(number):
                queue.enqueue("t", "x" * 50_000)
                queue.complete(claim(queue))
            return os.path.getsize(f"{path}-wal")

        held = pass_jobs(2000 if full else 120)
        reader.rollback()
        assert held > 6_000_000  # More than a checkpoint would have left.
        assert pass_jobs(2000 if full else 120) <= max(held, 64 * 1024 * 1024) + 100_000
        assert queue.counts()[Status.PENDING] == 0


def test_b116_a_handle_made_in_one_thread_serves_any_other(url: str, live: Queue) -> None:
    def use(number: int) -> str:
        id = live.enqueue("t", number)
        job = until(live.dequeue)  # On PostgreSQL a job that another thread is just claiming is passed over.
        assert job is not None
        live.complete(job)
        live.counts()
        return id

    async def in_threads_of_a_loop() -> list[str]:
        return await asyncio.gather(*(asyncio.to_thread(use, number) for number in range(5)))

    with ThreadPoolExecutor(5) as threads:
        ids = [*threads.map(use, range(20)), *asyncio.run(in_threads_of_a_loop())]
    assert live.counts()[Status.COMPLETED] == len(set(ids)) == 25
    closer = threading.Thread(target=live.close)
    closer.start()
    closer.join()
    with pytest.raises(WrongUse, match="closed"):
        live.enqueue("t")


def test_b116_no_descriptor_is_left_when_threads_and_handles_have_ended(url: str) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def use(queue: Queue) -> None:
        queue.enqueue("t")
        job = until(queue.dequeue)  # On PostgreSQL a job that another thread is just claiming is passed over.
        assert job is not None
        with queue.completing(job):
            pass
        wakeup = queue.wakeup()
        wakeup.close()

    with Queue.open(url) as queue:
        use(queue)
    before = descriptors()
    for _ in range(3):
        with Queue.open(url) as queue:
            threads = [threading.Thread(target=use, args=(queue,)) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert descriptors() == before


def test_b117_a_database_in_memory_serves_the_threads_of_one_process(hire: Hire) -> None:
    with Queue.open(":memory:") as queue, Queue.open(":memory:") as apart:
        ids = queue.enqueue_many([{"type": "t", "payload": number} for number in range(100)])
        worker = hire(queue, lambda job: job.payload, concurrency=4)
        until(lambda: queue.counts()[Status.COMPLETED] == 100)
        worker.stop()
        assert [row(queue, id).result for id in ids] == list(range(100))
        assert sum(apart.counts().values()) == 0
        with pytest.raises(InvalidArgument, match="memory"):
            Worker(queue, actors.HANDLERS, mode="processes")


def test_u2_a_handler_writes_to_the_same_database_without_waiting(
    backend: str, url: str, open_live: OpenQueue, hire: Hire
) -> None:
    """No transaction of the worker's is open while a handler runs (W-1); 50 ms are no wait for a lock."""
    queue = open_live(lease=600)
    with closing(sqlite3.connect(url) if backend == "sqlite" else psycopg.connect(url)) as connection:
        connection.execute("create table effects (id integer)")
        connection.commit()

    def handler(job: Job) -> str:
        own: Any = sqlite3.connect(url, timeout=0.05) if backend == "sqlite" else psycopg.connect(url)
        with closing(own) as connection:
            if backend == "postgres":
                connection.execute("set lock_timeout = '50ms'")
                connection.commit()
            for number in range(100 if job.payload else 10):
                connection.execute("begin immediate" if backend == "sqlite" else "lock table jobs in exclusive mode")
                connection.execute(f"insert into effects values ({number})")
                connection.commit()
        return "written"

    id = queue.enqueue("t", 1)
    hire(queue, handler)
    until(lambda: row(queue, id).status is not Status.PENDING and row(queue, id).status is not Status.RUNNING)
    assert (row(queue, id).result, row(queue, id).error) == ("written", None)
