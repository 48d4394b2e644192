"""K16, names and schema: made once however many begin at once; a name works everywhere or is refused once, clearly."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobqueue import InvalidArgument, Queue, Status
from tests.conftest import OpenQueue
from tests.faults.conftest import StartActor
from tests.faults.scene import claim, row


def tables(backend: str, url: str) -> list[str]:
    """Everything that is in the database."""
    if backend == "sqlite":
        with closing(sqlite3.connect(url)) as connection:
            return [name for (name,) in connection.execute("select name from sqlite_schema order by name")]
    with closing(psycopg.connect(url)) as connection_:
        found = connection_.execute(
            "select relname::text from pg_class where relnamespace = current_schema()::regnamespace order by 1"
        )
        return [name for (name,) in found]


def test_b111_twenty_processes_create_one_queue_at_once(backend: str, url: str, actor: StartActor, full: bool) -> None:
    """In a database that is empty; on SQLite the file is not there yet."""
    for round_ in range(20 if full else 1):
        name = f"queue{round_}"
        results = actor("crowd", "create", 20, [url, name]).says(300)
        assert [result for result in results if "raised" in result] == []
        with Queue.open(url, name=name) as queue:
            assert Counter(job.id for job in queue.dequeue_many(50)) == Counter(each["returned"] for each in results)
            assert queue.audit() == []


GOOD = ["select", "order", "jobs", "_q", "user", "table", "a" * 40, "case", "x1", "index", "group", "null", "primary"]
BAD = [
    "my-queue", "1q", "a.b", '"x"; drop table y; --', "", "a" * 41, "a" * 57, "a" * 58, "a" * 63, "a" * 64, "a" * 200,
    "q\0", "\U0001f600", "é" * 20, "Jobs", "JOBS", " jobs", "jobs ", "sqlite_x", "jobqueue_x", "jobs'", "jobs:claim",
    "jobs\n", "ſ", None, 1, b"jobs",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_b113_a_legal_name_works_twice_in_a_row(open_queue: OpenQueue, name: str) -> None:
    for _ in range(2):
        queue = open_queue(name=name)
        id = queue.enqueue("t", unique_key="k")
        queue.complete(claim(queue))
        assert row(queue, id).status is Status.COMPLETED
        assert queue.requeue_many().count == queue.cancel_many() == 0
        assert queue.cleanup(0) == 1
        queue.close()


@pytest.mark.parametrize("name", BAD, ids=lambda name: repr(name)[:20])
def test_b113_b114_any_other_name_is_one_clear_error_and_changes_nothing(
    backend: str, url: str, open_queue: OpenQueue, name: Any
) -> None:
    open_queue().enqueue("t")
    before = tables(backend, url)
    with pytest.raises(InvalidArgument, match="queue name"):
        open_queue(name=name)
    assert tables(backend, url) == before


def test_b113_types_keys_and_workers_are_data(queue: Queue) -> None:
    nasty = "'; drop table jobs; -- \" % :now {queue} \\ \U0001f600"
    id = queue.enqueue(nasty, nasty, unique_key=nasty)
    assert queue.enqueue(nasty, unique_key=nasty, on_duplicate="keep") == id
    job = claim(queue, nasty, worker=nasty)
    assert (job.type, job.payload, job.unique_key, job.worker) == (nasty, nasty, nasty, nasty)
    queue.fail(job, nasty, delay=0)
    assert queue.list(type=nasty, unique_key=nasty)[0].error == nasty
    queue.complete(claim(queue, nasty), nasty)
    assert row(queue, id).result == nasty


def test_b114_the_longest_names_are_two_queues_if_they_differ_at_all(
    backend: str, url: str, open_queue: OpenQueue
) -> None:
    """With the names that are derived from them, all within 63 bytes."""
    one, two = open_queue(name="a" * 39 + "b"), open_queue(name="a" * 39 + "c")
    id = one.enqueue("t", unique_key="k")
    other = two.enqueue("t", unique_key="k")
    assert (claim(one).id, claim(two).id) == (id, other)
    assert one.dequeue() is None
    names = tables(backend, url)
    assert len(set(names)) == len(names)
    assert max(len(name.encode()) for name in names if not name.startswith("sqlite_")) <= 63


def test_b114_a_payload_of_a_megabyte_wakes_a_sleeper_like_any_other(open_live: OpenQueue) -> None:
    """A notification carries no payload, so there is none that could be too long."""
    queue, other = open_live(), open_live()
    wakeup = queue.wakeup()
    wakeup.arm()
    other.enqueue("t" * 200, "x" * 1_000_000, unique_key="k" * 500)
    assert wakeup.wait(30)
    wakeup.close()
    assert len(claim(queue).payload) == 1_000_000


def test_b111_a_half_made_schema_is_completed_by_nobody_and_seen_by_nobody(tmp_path: Path) -> None:
    """One transaction makes it: who is killed in the middle leaves an empty database."""
    path = str(tmp_path / "queue.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("begin immediate")
        connection.execute("create table jobs (id integer)")
    with Queue.open(path) as queue:
        queue.enqueue("t")
        assert queue.audit() == []
