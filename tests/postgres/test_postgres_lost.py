"""A connection is lost at each point of a call; a server goes away and comes back (B23, B67; spec §5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobqueue import DatabaseUnavailable, Job, LeaseLost, OutcomeUnknown, Queue, Settled, Status
from tests.postgres.conftest import OpenPostgres, OpenSession, until, waits_for_lock
from tests.postgres.proxy import Proxy
from tests.servers import Server

pytestmark = pytest.mark.direct


@pytest.fixture
def queue(proxied_url: str, open_postgres: OpenPostgres) -> Queue:
    """A queue whose connections go through the proxy."""
    return open_postgres(url=proxied_url)


@pytest.fixture
def job(queue: Queue) -> Job:
    queue.enqueue("t")
    job = queue.dequeue()
    assert job is not None
    return job


COMMIT = "commit\0"  # Not "read committed".
POINTS = [("^Q....begin", "before"), ("^Q....begin", "after"), ("STATEMENT", "before"), ("STATEMENT", "after")]


@pytest.mark.parametrize(("point", "when"), [*POINTS, (COMMIT, "before"), (COMMIT, "after")])
def test_an_enqueue_happens_once_wherever_the_connection_is_lost(
    queue: Queue, proxy: Proxy, point: str, when: Any
) -> None:
    proxy.cut(f"(?s){point.replace('STATEMENT', 'insert into')}", when)
    id = queue.enqueue("t", unique_key="k")
    assert proxy.done
    assert [job.id for job in queue.list()] == [id]


@pytest.mark.parametrize(("point", "when"), [*POINTS, (COMMIT, "before"), (COMMIT, "after")])
@pytest.mark.parametrize(
    ("settle", "status"),
    [
        (lambda queue, job: queue.complete(job, {"done": 1}), Status.COMPLETED),
        (lambda queue, job: queue.fail(job, "e"), Status.FAILED),
        (lambda queue, job: queue.fail(job, "e", for_good=True), Status.DEAD),
        (lambda queue, job: queue.release(job, begun=False), Status.PENDING),
    ],
    ids=["complete", "fail", "bury", "release"],
)
def test_a_settlement_happens_once_wherever_the_connection_is_lost(
    queue: Queue, proxy: Proxy, job: Job, point: str, when: Any, settle: Callable[[Queue, Job], None], status: Status
) -> None:
    proxy.cut(f"(?s){point.replace('STATEMENT', 'update ')}", when)
    settle(queue, job)
    assert proxy.done
    view = queue.get(job.id)
    assert view is not None
    assert (view.status, view.attempts) == (status, 0 if status is Status.PENDING else 1)


def test_a_settlement_whose_answer_was_lost_and_whose_job_moved_on_is_unknown(
    queue: Queue, proxy: Proxy, job: Job, session: OpenSession
) -> None:
    proxy.cut(COMMIT, "after")
    proxy.cut("for no key update", "before")  # The look at what happened: meanwhile another claims the job.
    other = session(autocommit=True)
    before = proxy._ruling

    def meanwhile(statement: str) -> Any:
        ruling = before(statement)
        if ruling == "before":
            other.execute("update jobs set fence = fence + 1")
        return ruling

    proxy._ruling = meanwhile  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        queue.release(job, begun=False)
    assert proxy.done


def test_a_commit_that_the_server_is_still_at_is_waited_for(
    queue: Queue, proxy: Proxy, job: Job, session: OpenSession
) -> None:
    """The client lost its connection, the server did not: a look that did not wait would see the job running still."""
    observer = session(autocommit=True)
    queue.enqueue("t")
    another = queue.dequeue()
    assert another is not None
    proxy.cut("^Q....commit", "late")  # Of several jobs: their commit is a message of its own.
    with ThreadPoolExecutor(1) as threads:
        completing = threads.submit(queue.complete_many, [(job, 1), (another, 2)])
        until(lambda: waits_for_lock(observer))
        proxy.let_go.set()
        assert completing.result() == [Settled(Status.COMPLETED)] * 2
    assert queue.counts()[Status.COMPLETED] == 2


@pytest.mark.parametrize(
    ("settle", "status"),
    [
        (lambda queue, job: queue.complete(job), Status.COMPLETED),
        (lambda queue, job: queue.fail(job, "e"), Status.FAILED),
        (lambda queue, job: queue.release(job, begun=False), Status.PENDING),
        (lambda queue, job: queue.enqueue("late"), Status.RUNNING),
    ],
    ids=["complete", "fail", "release", "enqueue"],
)
def test_a_message_that_comes_after_its_second_try_changes_nothing(
    queue: Queue, proxy: Proxy, job: Job, session: OpenSession, settle: Callable[[Queue, Job], None], status: Status
) -> None:
    """A pooler brings it about: the whole call, commit and all, reaches the server when it has been made again."""
    proxy.cut(COMMIT, "late")
    settle(queue, job)
    before = queue.list(payloads=True)
    proxy.let_go.set()
    until(lambda: _all_idle(session(autocommit=True)))
    assert queue.list(payloads=True) == before
    assert next(view.status for view in before if view.id == job.id) is status


def _all_idle(observer: Any) -> bool:
    query = "select count(*) from pg_stat_activity where state not like 'idle%' and pid <> pg_backend_pid()"
    return bool(observer.execute(query).fetchone()[0] == 0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_claim_whose_answer_was_lost_is_left_to_the_sweep(queue: Queue, proxy: Proxy, when: Any) -> None:
    queue.enqueue("t")
    proxy.cut(COMMIT, when)
    job = queue.dequeue(lease=0.001)
    assert (job is None) is (when == "after")
    if job is None:
        [swept] = queue.sweep()
        assert swept.status is Status.FAILED


@pytest.mark.parametrize(("point", "when"), [("update ", "before"), ("update ", "after"), (COMMIT, "before")])
def test_completing_rolls_back_where_the_connection_is_lost_before_the_commit(
    queue: Queue, proxy: Proxy, job: Job, session: OpenSession, point: str, when: Any
) -> None:
    plain = session(autocommit=True)
    plain.execute("create table effects (id integer)")
    proxy.cut(point, when)
    with pytest.raises((DatabaseUnavailable, OutcomeUnknown)):
        with queue.completing(job) as connection:
            connection.execute("insert into effects values (1)")
    assert plain.execute("select count(*) from effects").fetchone() == (0,)
    assert queue.counts()[Status.RUNNING] == 1


def test_a_read_is_made_again(queue: Queue, proxy: Proxy) -> None:
    id = queue.enqueue("t")
    for point in ("begin", "select id", "rollback"):
        proxy.cut(point, "before")
        assert queue.get(id) is not None
    until(lambda: proxy.done)


def test_b23_terminating_every_session_between_two_calls_is_not_noticed(
    open_postgres: OpenPostgres, session: OpenSession
) -> None:
    queue, other, observer = open_postgres(), open_postgres(), session(autocommit=True)
    queue.enqueue("t")
    job = queue.dequeue()
    assert job is not None
    _terminate_others(observer)
    assert other.dequeue() is None  # Nobody else starts it: what a session held, no claim depends on.
    queue.complete(job)
    assert queue.counts()[Status.COMPLETED] == 1


def _terminate_others(observer: Any) -> None:
    observer.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobqueue'")


def _complete(queue: Queue, job: Job) -> None:
    """As a worker does: with the same claim, until it is answered (W-8)."""
    unknown = False
    while True:
        try:
            return queue.complete(job)
        except OutcomeUnknown:
            unknown = True
        except LeaseLost:
            assert unknown, "nobody else could have ended it"
            return None


def test_b67_no_job_is_lost_or_run_twice_while_sessions_are_terminated_at_random(
    open_postgres: OpenPostgres, session: OpenSession
) -> None:
    queue, observer = open_postgres(), session(autocommit=True)
    ids = queue.enqueue_many([{"type": "t"} for _ in range(150)])
    stop = threading.Event()

    def work() -> list[str]:
        done = []
        while not stop.is_set():
            try:
                job = queue.dequeue(lease=60)
            except OutcomeUnknown:  # Its connection was lost at commit again and again; a worker polls again.
                continue
            if job is not None:
                _complete(queue, job)
                done.append(job.id)
            elif queue.counts()[Status.PENDING] == 0:
                break
        return done

    def terminate() -> None:
        while not stop.wait(0.05):
            _terminate_others(observer)

    with ThreadPoolExecutor(4) as threads:
        terminating = threads.submit(terminate)
        try:
            workers = [threads.submit(work) for _ in range(3)]
            done = [id for worker in workers for id in worker.result(timeout=60)]
        finally:
            stop.set()
        terminating.result()
    assert len(set(done)) == len(done)
    counts = queue.counts()
    assert counts[Status.COMPLETED] == len(done)
    assert counts[Status.COMPLETED] + counts[Status.RUNNING] == len(ids)  # Running: claimed, and the answer lost.


@pytest.fixture
def restarting(stoppable_url: str) -> Iterator[Queue]:
    with Queue.open(stoppable_url, busy_timeout=30) as queue:
        yield queue


def test_b67_calls_wait_for_a_server_that_comes_back(restarting: Queue, stoppable: Server) -> None:
    restarting.enqueue("t")
    job = restarting.dequeue()
    assert job is not None
    stoppable.stop()
    with ThreadPoolExecutor(3) as threads:
        completing = threads.submit(restarting.complete, job)
        enqueueing = threads.submit(restarting.enqueue, "u")
        counting = threads.submit(restarting.counts)
        stoppable.start()
        completing.result()
        assert enqueueing.result()
        assert sum(counting.result().values()) in (1, 2)
    assert restarting.counts()[Status.COMPLETED] == 1


def test_b67_a_crash_of_the_server_loses_nothing_that_was_acknowledged(restarting: Queue, stoppable: Server) -> None:
    ids = restarting.enqueue_many([{"type": "t"} for _ in range(20)])
    jobs = restarting.dequeue_many(5)
    stoppable.stop("QUIT")
    stoppable.start()
    restarting.complete_many([(job, None) for job in jobs])
    assert restarting.counts()[Status.COMPLETED] == 5
    assert [job.id for job in restarting.dequeue_many(100)] == ids[5:]


def test_a_server_that_stays_away_is_an_error_that_says_so_and_may_pass(stoppable: Server, stoppable_url: str) -> None:
    with Queue.open(stoppable_url, busy_timeout=0.05) as queue:
        stoppable.stop()
        try:
            with pytest.raises(DatabaseUnavailable, match="postgresql://") as raised:
                queue.enqueue("t")
            assert raised.value.transient
            with pytest.raises(DatabaseUnavailable):
                Queue.open(stoppable_url)
        finally:
            stoppable.start()
        queue.enqueue("t")
