"""In the caller's transaction: what the queue did there happens when, and only if, the caller commits (spec §5)."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from jobqueue import DuplicateKey, Job, LeaseLost, Queue, Status, WrongUse
from tests.postgres.conftest import OpenPostgres, OpenSession, until, waits_for_lock


@pytest.fixture
def queue(open_postgres: OpenPostgres) -> Queue:
    return open_postgres()


def test_an_enqueue_commits_and_rolls_back_with_the_callers_data(queue: Queue, session: OpenSession) -> None:
    connection = session()
    connection.execute("create table effects (id integer)")
    connection.commit()
    for ending in ("rollback", "commit"):
        connection.execute("insert into effects values (1)")
        queue.enqueue("t", transaction=connection)
        assert queue.list() == []
        connection.execute(ending)
    assert len(queue.list()) == 1
    assert connection.execute("select count(*) from effects").fetchone() == (1,)


def test_with_no_transaction_open_one_is_begun_and_left_to_the_caller(queue: Queue, session: OpenSession) -> None:
    connection = session()
    queue.enqueue("t", transaction=connection)
    assert queue.list() == []
    connection.rollback()
    assert queue.list() == []


def test_an_autocommit_connection_without_a_transaction_is_refused(queue: Queue, session: OpenSession) -> None:
    connection = session(autocommit=True)
    with pytest.raises(WrongUse):
        queue.enqueue("t", transaction=connection)
    with connection.transaction():
        queue.enqueue("t", transaction=connection)
    assert len(queue.list()) == 1


@pytest.mark.parametrize("wrong", [object(), "postgresql://", 1])
def test_what_is_not_a_connection_is_refused(queue: Queue, wrong: object) -> None:
    with pytest.raises(WrongUse):
        queue.enqueue("t", transaction=wrong)


def test_a_refused_call_leaves_the_callers_transaction_usable(queue: Queue, session: OpenSession) -> None:
    connection = session()
    queue.enqueue("t", unique_key="k")
    with pytest.raises(DuplicateKey):
        queue.enqueue_many([{"type": "u"}, {"type": "t", "unique_key": "k"}], transaction=connection)
    queue.enqueue("v", transaction=connection)
    connection.commit()
    assert [job.type for job in queue.list()] == ["t", "v"]  # The refused batch was all or nothing.


def test_a_failed_transaction_is_told_as_such(queue: Queue, session: OpenSession) -> None:
    connection = session()
    with pytest.raises(psycopg.Error):
        connection.execute("select 1 / 0")
    with pytest.raises(WrongUse, match="failed"):
        queue.enqueue("t", transaction=connection)


def test_the_callers_connection_keeps_its_own_ways(queue: Queue, session: OpenSession) -> None:
    """Rows as dicts, ids as UUID, instants as datetime, bytes as bytea, whatever the queue does with the connection."""
    connection = session()
    connection.row_factory = dict_row  # type: ignore[assignment]
    id = queue.enqueue("t", transaction=connection)
    connection.execute("create table files (content bytea)")
    connection.execute("insert into files values (%s)", [b"0123456789abcdef"])
    content: object = connection.execute("select content from files").fetchone()
    assert content == {"content": b"0123456789abcdef"}
    found = connection.execute("select id, created_at from jobs", binary=True).fetchone()
    assert isinstance(found, dict)
    assert found["id"] == UUID(id)
    assert isinstance(found["created_at"], datetime)


def test_a_callers_connection_that_was_taught_strange_ways_serves_the_queue(queue: Queue, session: OpenSession) -> None:
    class Shouting(psycopg.adapt.Loader):
        def load(self, data: psycopg.adapt.Buffer) -> str:
            return bytes(data).decode().upper()

    connection = session()
    for oid in (23, 25, 20):
        connection.adapters.register_loader(oid, Shouting)
    id = queue.enqueue("t", unique_key="key", transaction=connection)
    assert queue.enqueue("t", unique_key="key", on_duplicate="keep", transaction=connection) == id
    assert queue.cancel(id, transaction=connection)
    assert queue.requeue(id, transaction=connection)


def test_another_search_path_leads_to_the_same_table(queue: Queue, session: OpenSession) -> None:
    connection = session()
    connection.execute("create temporary table jobs (id integer)")
    connection.execute("set local search_path = pg_temp, public")
    queue.enqueue("t", transaction=connection)
    connection.commit()
    assert len(queue.list()) == 1


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_b38_an_enqueue_waits_for_a_key_that_is_taken_but_not_committed(
    queue: Queue, session: OpenSession, ending: str
) -> None:
    connection, observer = session(), session(autocommit=True)
    first = queue.enqueue("t", unique_key="k", transaction=connection)
    with ThreadPoolExecutor(1) as threads:
        enqueueing = threads.submit(queue.enqueue, "t", unique_key="k", on_duplicate="keep")
        until(lambda: waits_for_lock(observer))
        connection.execute(ending)
        second = enqueueing.result()
    assert (second == first) is (ending == "commit")
    assert [job.id for job in queue.list()] == [second]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_b71_a_requeue_waits_for_a_key_that_is_taken_but_not_committed(
    queue: Queue, session: OpenSession, ending: str
) -> None:
    connection, observer = session(), session(autocommit=True)
    ids = queue.enqueue_many([{"type": "t", "unique_key": "k"}, {"type": "t"}])
    assert queue.cancel_many(ids) == 2
    queue.enqueue("t", unique_key="k", transaction=connection)
    with ThreadPoolExecutor(1) as threads:
        requeueing = threads.submit(queue.requeue_many, ids)
        until(lambda: waits_for_lock(observer))
        connection.execute(ending)
        done = requeueing.result()
    assert (done.count, done.duplicates) == ((1, ids[:1]) if ending == "commit" else (2, []))


def test_a_requeue_in_the_callers_transaction_that_meets_a_taken_key_does_not_spoil_it(
    queue: Queue, session: OpenSession
) -> None:
    connection = session()
    id = queue.enqueue("t", unique_key="k")
    queue.cancel(id)
    queue.enqueue("t", unique_key="k")
    with pytest.raises(DuplicateKey):
        queue.requeue(id, transaction=connection)
    queue.enqueue("u", transaction=connection)
    connection.commit()
    assert len(queue.list()) == 3


def test_b39_fifty_at_once_store_one_job_for_a_key(queue: Queue) -> None:
    with ThreadPoolExecutor(10) as threads:
        ids = set(threads.map(lambda _: queue.enqueue("t", unique_key="k", on_duplicate="keep"), range(50)))
    assert len(ids) == 1
    assert [job.id for job in queue.list()] == list(ids)


def test_a_serialization_failure_of_the_callers_stricter_transaction_is_the_drivers(
    queue: Queue, session: OpenSession
) -> None:
    connection = session()
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    id = queue.enqueue("t")
    connection.execute("select count(*) from jobs")
    queue.cancel(id)
    with pytest.raises(psycopg.errors.SerializationFailure):
        queue.cancel(id, transaction=connection)


# completing()


@pytest.fixture
def job(queue: Queue) -> Job:
    queue.enqueue("t")
    job = queue.dequeue()
    assert job is not None
    return job


@pytest.fixture
def effects(session: OpenSession) -> Callable[[], int]:
    connection = session(autocommit=True)
    connection.execute("create table effects (id integer)")

    def count() -> int:
        [(number,)] = connection.execute("select count(*) from effects").fetchall()
        return int(number)

    return count


def test_completing_commits_effect_and_completion_together(queue: Queue, job: Job, effects: Callable[[], int]) -> None:
    with queue.completing(job, {"ok": True}) as connection:
        connection.execute("insert into effects values (1)")
        next_job = queue.enqueue("next", transaction=connection)
        assert effects() == 0
    assert effects() == 1
    assert queue.counts()[Status.COMPLETED] == 1
    assert queue.get(next_job) is not None


def test_completing_a_lost_lease_leaves_no_effect(queue: Queue, job: Job, effects: Callable[[], int]) -> None:
    queue.cancel(job.id)
    with pytest.raises(LeaseLost), queue.completing(job) as connection:
        connection.execute("insert into effects values (1)")
    assert effects() == 0
    queue.enqueue("t")  # The handle works on.


def test_completing_that_raises_leaves_no_effect(queue: Queue, job: Job, effects: Callable[[], int]) -> None:
    with pytest.raises(ZeroDivisionError), queue.completing(job) as connection:  # noqa: PT012
        connection.execute("insert into effects values (1)")
        raise ZeroDivisionError
    assert effects() == 0
    assert queue.counts()[Status.RUNNING] == 1


def test_completing_refuses_other_calls_inside_and_a_commit_of_its_own(
    queue: Queue, job: Job, effects: Callable[[], int]
) -> None:
    with pytest.raises(WrongUse), queue.completing(job):
        queue.counts()
    with pytest.raises(WrongUse), queue.completing(job) as connection:  # noqa: PT012
        connection.execute("insert into effects values (1)")
        connection.execute("rollback")
    assert effects() == 0


def test_completing_after_a_swallowed_error_is_refused(queue: Queue, job: Job, effects: Callable[[], int]) -> None:
    """COMMIT of a failed transaction is a ROLLBACK that raises nothing: it must not pass for success."""
    with pytest.raises(WrongUse), queue.completing(job) as connection:  # noqa: PT012
        connection.execute("insert into effects values (1)")
        with pytest.raises(psycopg.Error):
            connection.execute("select 1 / 0")
    assert effects() == 0
    assert queue.counts()[Status.RUNNING] == 1


def test_the_connection_of_completing_reads_and_writes_as_any_other(queue: Queue, job: Job) -> None:
    with queue.completing(job) as connection:
        found = connection.execute("select id, created_at, %s from jobs", [b"bytes"], binary=True).fetchone()
    assert found[0] == UUID(job.id)
    assert found[1] == job.created_at
    assert found[2] == b"bytes"


# Handles


def test_a_handle_is_refused_after_close_and_after_fork(queue: Queue, open_postgres: OpenPostgres) -> None:
    queue.enqueue("t")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            queue.counts()
        except WrongUse:
            os.write(write, b"refused")
        finally:
            queue.close()
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"refused"
    os.close(read)
    os.close(write)
    assert queue.counts()[Status.PENDING] == 1  # What the child did or closed has not touched the parent's session.
    queue.close()
    with pytest.raises(WrongUse):
        queue.counts()
