"""Whatever the role's defaults, and whoever else writes: no lost update, no deadlock that a caller sees (B70)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from jobqueue import Complete, DatabaseUnavailable, LeaseLost, Queue, Status
from jobqueue.clock import SystemClock
from jobqueue.postgres import PostgresDatabase
from tests.postgres.conftest import OpenPostgres, OpenSession, until, waits_for_lock

ISOLATIONS = ["read committed", "repeatable read", "serializable"]


@pytest.fixture(params=ISOLATIONS)
def role_url(request: pytest.FixtureRequest, postgres_url: str, postgres_server: str) -> Iterator[str]:
    """The test's schema, by a role whose transactions have a stricter isolation unless they say otherwise."""
    role = f"strict_{uuid4().hex[:8]}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"create role {role} login superuser password '{role}'")
        admin.execute(f"alter role {role} set default_transaction_isolation = '{request.param}'")
        yield f"{postgres_url}&user={role}&password={role}"
        admin.execute(f"drop owned by {role} cascade")
        admin.execute(f"drop role {role}")


class Impatient(SystemClock):
    """Allows no second try, so that a failure shows."""

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a transaction had to be tried again")


@pytest.mark.direct
def test_claims_and_settlements_under_a_strict_default_meet_no_serialization_failure(role_url: str) -> None:
    with Queue.open(role_url, clock=Impatient()) as queue:
        ids = queue.enqueue_many([{"type": "t"} for _ in range(200)])

        def work(_: int) -> list[str]:
            done = []
            while job := queue.dequeue():
                queue.extend(job)
                queue.complete(job)
                done.append(job.id)
            return done

        with ThreadPoolExecutor(6) as threads:
            done = [id for found in threads.map(work, range(6)) for id in found]
        assert Counter(done) == Counter(ids)
        assert queue.counts()[Status.COMPLETED] == 200


@pytest.mark.direct
def test_own_transactions_are_read_committed(role_url: str) -> None:
    with Queue.open(role_url) as queue:
        database = queue.database
        assert isinstance(database, PostgresDatabase)
        database._statements["isolation"] = "show transaction_isolation"
        seen = [
            database.write(lambda tx: tx.rows("isolation", {})),
            database.write(lambda tx: tx.rows("isolation", {}, last=True)),
            database.read(lambda tx: tx.rows("isolation", {})),
        ]
        with database.own_transaction() as (connection, same):
            seen += [connection.execute("show transaction_isolation").fetchall(), same().rows("isolation", {})]
    assert seen == [[("read committed",)]] * 5


def test_b05_a_stale_holder_that_waited_for_the_sweep_finds_its_lease_lost(
    open_postgres: OpenPostgres, session: OpenSession
) -> None:
    """The compare-and-set is tested again on the row as it is after the wait, not as it was before."""
    queue, other, observer = open_postgres(), session(), session(autocommit=True)
    queue.enqueue("t")
    job = queue.dequeue()
    assert job is not None
    other.execute("update jobs set status = 'pending', attempts = 0, worker = null, lease_expires_at = null")
    with ThreadPoolExecutor(1) as threads:
        completing = threads.submit(queue.complete, job)
        until(lambda: waits_for_lock(observer))
        other.commit()
        with pytest.raises(LeaseLost):
            completing.result()
    assert queue.counts()[Status.PENDING] == 1


def test_a_claim_whose_settlement_waited_for_a_lock_has_its_whole_lease(
    open_postgres: OpenPostgres, session: OpenSession
) -> None:
    """Both go in one message, which came when the wait began."""
    queue, other, observer = open_postgres(), session(), session(autocommit=True)
    queue.enqueue_many([{"type": "t"}, {"type": "t"}])
    job = queue.dequeue()
    assert job is not None
    other.execute("select from jobs where seq = %s for update", [job.seq])
    with ThreadPoolExecutor(1) as threads:
        exchanging = threads.submit(queue.exchange, [Complete(job)], 1, ("t",))
        until(lambda: waits_for_lock(observer))
        [(waited_until,)] = observer.execute("select clock_timestamp()").fetchall()
        other.rollback()
        [claimed] = exchanging.result().jobs
    assert claimed.started_at >= waited_until
    assert claimed.lease_expires_at - claimed.started_at == timedelta(seconds=30)


def test_a_lock_that_is_never_released_ends_the_call_after_the_busy_timeout(
    open_postgres: OpenPostgres, session: OpenSession
) -> None:
    queue, other = open_postgres(busy_timeout=0.1), session()
    id = queue.enqueue("t")
    other.execute("select from jobs for update")
    with pytest.raises(DatabaseUnavailable) as raised:
        queue.cancel(id)
    assert raised.value.transient
    other.rollback()
    assert queue.cancel(id)


def test_b70_bulk_operations_side_by_side_never_show_a_deadlock(open_postgres: OpenPostgres) -> None:
    queue = open_postgres()
    queue.enqueue_many([{"type": "t", "max_attempts": 50} for _ in range(300)])
    start = threading.Barrier(4)

    def repeated(operation: Callable[[], object]) -> None:
        start.wait()
        for _ in range(6):
            operation()

    def claim_and_fail() -> None:
        jobs = queue.dequeue_many(50, lease=0.001)
        queue.fail_many([(job, "e") for job in reversed(jobs)])

    operations = [
        claim_and_fail,
        lambda: queue.cancel_many(status="failed"),
        lambda: (queue.requeue_many(), queue.sweep()),
        lambda: queue.cleanup(3600, statuses=["completed", "dead"]),
    ]
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(repeated, operation) for operation in operations]:
            done.result()
    assert sum(queue.counts().values()) == 300
    assert queue.audit() == []


def test_a_deadlock_with_others_is_tried_again(open_postgres: OpenPostgres, session: OpenSession) -> None:
    """Somebody else's program locks in another order: the server ends one of the two, and it may be ours."""
    queue, other, observer = open_postgres(), session(), session(autocommit=True)
    first, second = sorted(queue.enqueue_many([{"type": "t"}, {"type": "t"}]))
    other.execute("set deadlock_timeout = '10s'")  # Ours looks for deadlocks first, so it is ours that is ended.
    other.execute("select from jobs where id = %s for update", [second])
    with ThreadPoolExecutor(1) as threads:
        cancelling = threads.submit(queue.cancel_many, [first, second])
        until(lambda: waits_for_lock(observer))
        other.execute("select from jobs where id = %s for update", [first])
        other.commit()
        assert cancelling.result() == 2


def test_two_cleanups_share_the_work(open_postgres: OpenPostgres) -> None:
    queue = open_postgres()
    ids = queue.enqueue_many([{"type": "t"} for _ in range(2500)])
    assert queue.cancel_many(ids) == 2500
    with ThreadPoolExecutor(2) as threads:
        deleted = list(threads.map(lambda _: queue.cleanup(0), range(2)))
    assert sum(deleted) + queue.cleanup(0) == 2500
