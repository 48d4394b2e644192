"""K2, work that is lost: a crash, a shutdown, a claim that nobody works on, a job that was never committed."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobqueue import Handlers, Job, Queue, Status
from tests.conftest import OpenQueue
from tests.faults.conftest import Hire, StartActor
from tests.faults.scene import claim, row, until, until_noted


def plain_connection(backend: str, url: str) -> Any:
    """The application's own connection, with a table of its own, and a transaction open."""
    connection: Any = sqlite3.connect(url) if backend == "sqlite" else psycopg.connect(url)
    connection.execute("create table if not exists orders (id integer)")
    connection.commit()
    connection.execute("begin immediate" if backend == "sqlite" else "select 1")
    return connection


def test_b27_a_job_whose_worker_is_killed_runs_again(
    url: str, open_live: OpenQueue, actor: StartActor, tmp_path: Path
) -> None:
    queue, log = open_live(), tmp_path / "log"
    id = queue.enqueue("t", {"log": str(log), "do": "never"})
    doomed = actor("worker", url, {"lease": 1})
    until_noted(log)
    doomed.kill()
    assert queue.counts() == {**dict.fromkeys(Status, 0), Status.RUNNING: 1}
    actor("worker", url, {"lease": 1})
    until(lambda: log.read_text().splitlines() == [f"{id} 1", f"{id} 2"])
    assert sum(queue.counts().values()) == 1


@pytest.mark.parametrize(
    ("grace", "attempts", "status"), [(30, 3, "completed"), (0.05, 3, "pending"), (0.05, 1, "dead")]
)
def test_b28_a_deploy_ends_jobs_or_hands_them_back(
    url: str, open_live: OpenQueue, actor: StartActor, tmp_path: Path, grace: float, attempts: int, status: str
) -> None:
    queue, log, stay = open_live(), tmp_path / "log", tmp_path / "stay"
    stay.touch()
    id = queue.enqueue("t", {"log": str(log), "do": "wait", "while": str(stay)}, max_attempts=attempts)
    worker = actor("worker", url, {"grace": grace})
    until_noted(log)
    worker.process.send_signal(signal.SIGTERM if attempts == 3 else signal.SIGINT)
    waiting = queue.enqueue("t", {})
    if status == "completed":
        stay.unlink()
    assert [worker.says(), worker.says(), worker.end()] == ["ready", "ended", 0]
    view = row(queue, id)
    assert (view.status, view.worker, row(queue, waiting).attempts) == (status, None, 0)
    if status == "pending":
        stay.unlink()
        assert claim(queue).attempts == 1  # At once, and the interrupted attempt is not counted.
    if status == "dead":
        assert view.error == "interrupted"


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_b29_a_cancelled_coroutine_leaves_nothing_running(live: Queue, hire: Hire, how: str) -> None:
    """Cancelled by the worker's stop, or from outside by whoever can reach its task."""
    tasks: list[asyncio.Task[Any] | None] = []

    async def handler(job: Job) -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(3600)

    id = live.enqueue("t", max_attempts=1 if how == "cancel" else 3)
    worker = hire(live, handler)
    [task] = until(lambda: tasks[:])
    assert task is not None
    if how == "cancel":
        task.get_loop().call_soon_threadsafe(task.cancel)
        until(lambda: row(live, id).status is Status.DEAD)
        assert "CancelledError" in (row(live, id).error or "")
        return
    worker.stop()
    assert (row(live, id).status, row(live, id).attempts) == (Status.PENDING, 0)


@pytest.mark.parametrize("point", [
    "before the claim commits", "after the claim commits", "in the handler", "before the outcome commits",
    "after the outcome commits",
])  # fmt: skip
def test_b30_a_kill_at_any_point_leaves_no_state_in_between(
    url: str, open_live: OpenQueue, actor: StartActor, point: str
) -> None:
    queue = open_live()
    id = queue.enqueue("t")
    assert actor("die_at", url, point, 0.001).end() == -signal.SIGKILL
    view = row(queue, id)
    claimed = point != "before the claim commits"
    if point == "after the outcome commits":
        assert (view.status, view.result, view.attempts) == (Status.COMPLETED, "done", 1)
        return
    assert (view.status, view.attempts) == (Status.RUNNING if claimed else Status.PENDING, int(claimed))
    if claimed:
        until(queue.sweep)
    job = until(queue.dequeue)
    assert job is not None
    assert (job.id, job.attempts) == (id, 2 if claimed else 1)
    assert queue.audit() == []


def test_b32_a_worker_takes_no_job_that_it_has_no_handler_for(live: Queue, hire: Hire) -> None:
    old, new = Handlers(), Handlers()
    old.register("a")(lambda job: "old")
    new.register("b")(lambda job: "new")
    unknown = live.enqueue("b", priority=100)
    for _ in range(20):
        live.enqueue("a")
    hire(live, old)
    until(lambda: live.counts()[Status.COMPLETED] == 20)
    view = row(live, unknown)
    assert (view.status, view.attempts, view.started_at) == (Status.PENDING, 0, None)
    hire(live, new)
    until(lambda: row(live, unknown).result == "new")


def test_b32_narrowed_types_are_kept_to_as_well(live: Queue, hire: Hire) -> None:
    other = live.enqueue("b", priority=100)
    wanted = live.enqueue("a")
    hire(live, lambda job: None, types=("a",))
    until(lambda: row(live, wanted).status is Status.COMPLETED)
    assert row(live, other).attempts == 0


@pytest.mark.parametrize("ending", ["rollback", "commit"])
def test_b33_an_enqueue_is_part_of_the_callers_transaction_in_full(
    backend: str, url: str, live: Queue, open_live: OpenQueue, hire: Hire, ending: str
) -> None:
    started: list[str] = []
    hire(open_live(), lambda job: started.append(job.type), poll_interval=0.02)
    connection = plain_connection(backend, url)
    connection.execute("insert into orders values (17)")
    live.enqueue("single", transaction=connection)
    live.enqueue_many([{"type": "many"}, {"type": "many"}], transaction=connection)
    assert sum(live.counts().values()) == 0
    if backend == "postgres":  # SQLite has one writer: there the worker waits for this transaction.
        sign = live.enqueue("sign")
        until(lambda: row(live, sign).status is Status.COMPLETED)
        assert started == ["sign"]
    getattr(connection, ending)()
    sign = live.enqueue("sign", priority=-1)
    until(lambda: row(live, sign).status is Status.COMPLETED)
    assert [type for type in started if type != "sign"] == (["single", "many", "many"] if ending == "commit" else [])
    assert len(connection.execute("select id from orders").fetchall()) == (1 if ending == "commit" else 0)
    connection.close()


def test_b33_a_rollback_wakes_nobody_and_a_commit_does(backend: str, url: str, live: Queue) -> None:
    wakeup, connection = live.wakeup(), plain_connection(backend, url)
    if backend == "postgres":
        wakeup.wait(5)  # The listener is there: its first notice is its own.
    for ending in ("rollback", "commit"):
        live.enqueue("t", transaction=connection)
        wakeup.arm()
        getattr(connection, ending)()
        if ending == "commit":
            assert wakeup.wait(30)
        elif backend == "postgres":
            assert not wakeup.wait(0.1)
    wakeup.close()
    connection.close()


def test_b33_the_other_operations_join_the_callers_transaction_too(backend: str, url: str, live: Queue) -> None:
    ids = live.enqueue_many([{"type": "t"} for _ in range(6)])
    completed, failed, released, extended = live.dequeue_many(4)
    live.cancel(ids[5])
    before = [row(live, id) for id in ids]
    connection = plain_connection(backend, url)
    live.complete(completed, transaction=connection)
    live.fail(failed, "e", transaction=connection)
    live.release(released, transaction=connection)
    live.extend(extended, 900, transaction=connection)
    assert live.cancel(ids[4], transaction=connection)
    assert live.requeue(ids[5], transaction=connection)
    assert [row(live, id) for id in ids] == before
    connection.rollback()
    assert [row(live, id) for id in ids] == before
    live.complete(completed)
    connection.close()
