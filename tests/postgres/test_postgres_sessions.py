"""Nothing depends on the state of a session: a pooler may give each transaction another one (B69)."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from jobqueue import DuplicateKey, Queue, Status, Worker
from jobqueue.postgres_pool import AT_ONCE, Address, Pool, Session
from tests.postgres.conftest import OpenPostgres, OpenSession, until


@pytest.fixture(params=["discarded", "another each time"])
def queue(request: pytest.FixtureRequest, open_postgres: OpenPostgres, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue whose sessions forget everything at the end of each transaction."""
    original = Pool.take_back

    def take_back(self: Pool, session: Session) -> None:
        if request.param == "discarded" and not session.connection.closed:
            session.cursor.execute("discard all")
        else:
            session.connection.close()
        original(self, session)

    monkeypatch.setattr(Pool, "take_back", take_back)
    return open_postgres()


def test_b69_the_life_of_jobs_goes_on_in_sessions_that_forget(queue: Queue, session: OpenSession) -> None:
    queue.enqueue_many([{"type": "t", "priority": i % 3, "unique_key": f"k{i}"} for i in range(30)])
    for _ in range(12):  # More than the five after which drivers and servers begin to keep plans.
        job = queue.dequeue()
        assert job is not None
        queue.extend(job)
        queue.complete(job)
    jobs = queue.dequeue_many(5)
    queue.fail_many([(job, "e") for job in jobs])
    assert queue.cancel_many(status="failed") == 5
    with pytest.raises(DuplicateKey):
        queue.enqueue("t", unique_key="k0")
    assert queue.requeue_many(status="dead").count == 5
    job = queue.dequeue()
    assert job is not None
    with queue.completing(job) as connection:
        connection.execute("create temporary table mine (id integer) on commit drop")
    caller = session()
    queue.enqueue("t", transaction=caller)
    caller.commit()
    assert queue.counts()[Status.COMPLETED] == 13
    assert queue.cleanup(0) == 13
    assert queue.audit() == []


@pytest.mark.direct
def test_b69_the_library_prepares_no_statement_and_sets_nothing_for_the_session(
    open_postgres: OpenPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []
    original = Pool.take_back

    def take_back(self: Pool, session: Session) -> None:
        look = session.connection.cursor()
        look.execute("select name from pg_prepared_statements", prepare=False)
        left.extend(look.fetchall())
        look.execute(
            "select name from pg_settings where source = 'session' and name not like 'transaction%'", prepare=False
        )
        left.extend(look.fetchall())
        look.execute("select classid from pg_locks where locktype = 'advisory'", prepare=False)
        left.extend(look.fetchall())
        original(self, session)

    monkeypatch.setattr(Pool, "take_back", take_back)
    queue = open_postgres()
    for _ in range(12):
        queue.enqueue_many([{"type": "t"}, {"type": "t"}])
        job = queue.dequeue()
        assert job is not None
        queue.complete(job)
        queue.counts()
    assert left == []


@pytest.mark.direct
def test_each_turn_that_ends_lets_one_waiting_call_in(postgres_url: str) -> None:
    pool = Pool(Address(postgres_url))
    for _ in range(AT_ONCE):
        pool.take_turn()
    waiting = [threading.Thread(target=pool.take_turn, daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    until(lambda: len(vars(pool._turn)["_waiters"]) == 3)  # Nothing else tells that a thread waits.
    for _ in waiting:  # One right after the other: nobody who waits has moved in between.
        pool.end_turn()
    until(lambda: not any(thread.is_alive() for thread in waiting))


def test_w9_without_a_listener_polling_finds_the_job(open_postgres: OpenPostgres) -> None:
    deaf = open_postgres(listen=False)
    wakeup = deaf.wakeup()
    wakeup.arm()
    deaf.enqueue("t")
    assert not wakeup.wait(0.01)
    assert deaf.dequeue() is not None


@pytest.mark.parametrize("listen", [True, False])
def test_b69_an_idle_worker_starts_what_comes_whether_it_is_told_or_polls(
    open_postgres: OpenPostgres, listen: bool
) -> None:
    """A pooler takes the LISTEN, and passes no notification on: nobody tells the worker that it is deaf."""
    queue = open_postgres(listen=listen)
    with Worker(queue, lambda job: None, poll_interval=0.1):
        for number in range(1, 4):
            queue.enqueue("t")
            until(partial(_completed, queue, number))


def _completed(queue: Queue, number: int) -> bool:
    return queue.counts()[Status.COMPLETED] == number
