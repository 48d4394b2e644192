"""Each job is claimed once; the claimed rows are locked and no others; a locked row is passed over (§6)."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier

import pytest

from jobqueue import Queue, Status, Worker
from tests.postgres.conftest import OpenPostgres, OpenSession


def _claim_all(queue: Queue, n: int) -> list[str]:
    claimed = []
    while jobs := queue.dequeue_many(n):
        claimed += [job.id for job in jobs]
        queue.complete_many([(job, None) for job in jobs])
    return claimed


@pytest.mark.parametrize("n", [1, 7])
def test_b03_threads_on_one_handle_claim_each_job_once(open_postgres: OpenPostgres, n: int) -> None:
    queue = open_postgres()
    ids = queue.enqueue_many([{"type": f"t{i % 3}", "priority": i % 4} for i in range(400)])
    with ThreadPoolExecutor(8) as threads:
        claimed = [id for found in threads.map(lambda _: _claim_all(queue, n), range(8)) for id in found]
    assert Counter(claimed) == Counter(ids)


def _claim_in_process(url: str, start: Barrier, found: multiprocessing.Queue[list[str]]) -> None:
    with Queue.open(url) as queue:
        start.wait()
        found.put(_claim_all(queue, 1))


def test_b01_b02_processes_claim_each_job_once(postgres_url: str, open_postgres: OpenPostgres) -> None:
    ids = open_postgres().enqueue_many([{"type": "t"} for _ in range(200)])
    spawn = multiprocessing.get_context("spawn")
    start, found = spawn.Barrier(3), spawn.Queue()
    processes = [spawn.Process(target=_claim_in_process, args=(postgres_url, start, found)) for _ in range(3)]
    for process in processes:
        process.start()
    claimed = [id for _ in processes for id in found.get(timeout=60)]
    for process in processes:
        process.join()
    assert Counter(claimed) == Counter(ids)


@pytest.mark.parametrize("n", [1, 3, 100])
def test_a_claim_finds_the_due_job_behind_any_number_of_locked_ones(
    open_postgres: OpenPostgres, session: OpenSession, n: int
) -> None:
    queue, other = open_postgres(), session()
    ids = queue.enqueue_many([{"type": "t", "priority": i % 2} for i in range(60)])
    last = [job.id for job in queue.list(limit=100)][-2:]
    other.execute("select from jobs where id <> all (%s::uuid[]) for no key update", [last])
    found = [job.id for job in queue.dequeue_many(n)]
    assert len(found) == min(n, 2)
    assert set(found) <= set(last)
    other.rollback()
    assert len(queue.dequeue_many(100)) == len(ids) - len(found)


def test_a_drain_does_not_end_at_a_due_job_that_another_has_locked(
    open_postgres: OpenPostgres, session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock may be that of a claim whose connection was lost: it goes away, and the job is still there."""
    queue, other = open_postgres(), session()
    queue.enqueue("t")
    other.execute("select from jobs for update")
    ask = queue.due_in_us

    def ask_and_let_go(types: Collection[str] | None = None) -> int | None:
        due = ask(types)
        other.rollback()
        return due

    monkeypatch.setattr(queue, "due_in_us", ask_and_let_go)
    Worker(queue, lambda job: None).run(drain=True)
    assert queue.counts()[Status.COMPLETED] == 1


def test_two_claims_at_once_of_two_jobs_get_one_each_even_of_different_levels(
    open_postgres: OpenPostgres, session: OpenSession
) -> None:
    """A claim that locked the heads of all levels would leave the other caller with nothing."""
    queue, other = open_postgres(), session()
    first = queue.enqueue("a", priority=1)
    second = queue.enqueue("b")
    claim = "select encode(id, 'hex')::uuid::text from \"jobs:dequeue\"(%s, 1, %s, %s, null)"
    assert other.execute(claim, ['["a", "b"]', "other", "30 s"]).fetchall() == [(first,)]  # and does not commit
    job = queue.dequeue()
    assert job is not None
    assert job.id == second
    assert queue.dequeue() is None
    other.rollback()
    job = queue.dequeue()
    assert job is not None
    assert job.id == first


@pytest.mark.parametrize("types", [["a", "b", "c"], ["a"]], ids=["several types", "one type"])
@pytest.mark.parametrize("later", [0, 60], ids=["all due", "one due later"])
@pytest.mark.parametrize("n", [4, 15, 100])
def test_a_claim_locks_no_row_that_it_does_not_take(
    open_postgres: OpenPostgres, session: OpenSession, types: list[str], later: int, n: int
) -> None:
    queue, claimer, observer = open_postgres(), session(), session()
    queue.enqueue_many([{"type": t, "priority": p} for t in "abc" for p in range(3) for _ in range(5)])
    queue.enqueue("a", priority=9, delay=later)
    claim = 'select seq from "jobs:dequeue"(%s, %s, %s, %s, null)'
    taken = len(claimer.execute(claim, [json.dumps(types), n, "w", "30 s"]).fetchall())
    assert taken == min(n, 15 * len(types) + (not later))
    free = observer.execute("select count(*) from (select from jobs for update skip locked) as free").fetchone()
    assert free == (46 - taken,)


def test_the_order_is_priority_then_time_then_sequence_across_types(open_postgres: OpenPostgres) -> None:
    queue = open_postgres()
    queue.enqueue_many([{"type": f"t{i % 5}", "priority": (i * 7) % 4, "delay": 0} for i in range(100)])
    views = sorted(queue.list(limit=100), key=lambda job: (-job.priority, job.scheduled_at, job.seq))
    claimed = [job.id for n in (1, 2, 30, 100) for job in queue.dequeue_many(n)]
    assert claimed == [job.id for job in views]


def test_g12_jobs_of_one_instant_come_in_order_of_enqueue_through_many_waves(
    open_postgres: OpenPostgres, session: OpenSession
) -> None:
    """Equal instants: only seq tells where one wave of candidates ended and the next begins."""
    queue, other = open_postgres(), session()
    ids = queue.enqueue_many([{"type": "t"} for _ in range(50)])
    other.execute("select from jobs where seq % 2 = 0 for no key update")
    open_ids = [id for position, id in enumerate(ids, 1) if position % 2]
    assert [job.id for job in queue.dequeue_many(20)] == open_ids[:20]
    assert [job.id for job in queue.dequeue_many(20)] == open_ids[20:]


def test_at_most_n_rows_whatever_the_plan(open_postgres: OpenPostgres, session: OpenSession) -> None:
    queue, connection = open_postgres(), session()
    queue.enqueue_many([{"type": "t"} for _ in range(500)])
    for off in ("nestloop", "indexscan", "indexonlyscan", "hashjoin", "material", "memoize"):
        connection.execute("savepoint before")
        connection.execute(f"set local enable_{off} = off")
        found = connection.execute(
            'select count(*), count(distinct id) from "jobs:dequeue"(%s, 5, %s, %s, null)', ['["t"]', "w", "30 s"]
        ).fetchone()
        assert found == (5, 5)
        running = connection.execute("select count(*) from jobs where status = 'running'").fetchone()
        assert running == (5,)
        connection.execute("rollback to before")


def test_b16_a_sweep_never_sees_half_a_claim(open_postgres: OpenPostgres) -> None:
    queue = open_postgres()
    queue.enqueue_many([{"type": "t"} for _ in range(150)])
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:

        def sweep() -> int:
            swept = 0
            while not stop.is_set():
                swept += len(queue.sweep())
            return swept

        sweeping = threads.submit(sweep)
        _claim_all(queue, 1)
        stop.set()
        assert sweeping.result() == 0
