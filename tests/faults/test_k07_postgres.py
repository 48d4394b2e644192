"""K7, PostgreSQL away: a worker outlives it in every phase, and no job starts twice or is forgotten for it."""

from __future__ import annotations

import threading
from contextlib import closing

import psycopg
import pytest

from jobqueue import Job, Queue, Status
from jobqueue.postgres_listen import Listener
from tests.faults.actors import AT_ONCE
from tests.faults.conftest import Hire
from tests.faults.scene import row, until
from tests.postgres.conftest import stoppable, stoppable_url
from tests.servers import Server

__all__ = ["stoppable", "stoppable_url"]  # Fixtures of the tests of PostgreSQL, used here as well.


def test_b67_a_worker_outlives_a_server_that_is_away_in_every_phase(
    stoppable: Server, stoppable_url: str, hire: Hire, caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    """Idle, while a handler runs, and when its outcome is to be recorded; nobody restarts the worker."""
    starts: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def handler(job: Job) -> str:
        starts.append(job.id)
        if job.type == "long":
            begun.set()
            go.wait()
        return "done"

    with Queue.open(stoppable_url, lease=120, busy_timeout=0.2, backoff=AT_ONCE) as queue:
        worker = hire(queue, handler, poll_interval=0.1)
        first = queue.enqueue("t")
        until(lambda: row(queue, first).status is Status.COMPLETED)
        _away(stoppable, caplog, full)  # Idle, or in the middle of a claim.
        long = queue.enqueue("long", max_attempts=1)
        begun.wait()
        stoppable.stop()
        go.set()  # The handler returns while nobody can be told.
        caplog.clear()
        until(lambda: "away" in caplog.text)
        stoppable.start()
        until(lambda: row(queue, long).status is Status.COMPLETED)
        last = queue.enqueue("t")
        until(lambda: row(queue, last).status is Status.COMPLETED)
        worker.stop()
        assert starts == [first, long, last]
        assert queue.audit() == []


def _away(server: Server, caplog: pytest.LogCaptureFixture, full: bool) -> None:
    caplog.clear()
    server.stop()
    until(lambda: "away" in caplog.text)
    threading.Event().wait(60 if full else 0)
    server.start()


def test_b23_a_running_jobs_claim_does_not_hang_on_a_session(postgres_url: str, hire: Hire) -> None:
    """All sessions of its worker are ended while the handler runs; another worker is idle."""
    starts: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def handler(job: Job) -> str:
        starts.append(job.fence)
        begun.set()
        go.wait()
        return "done"

    with Queue.open(postgres_url, lease=30) as queue, Queue.open(postgres_url) as other:
        id = queue.enqueue("t")
        workers = [hire(queue, handler)]
        begun.wait()
        workers.append(hire(other, handler, poll_interval=0.05))
        with closing(psycopg.connect(postgres_url, autocommit=True)) as admin:
            admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobqueue'")
        sign = other.enqueue("sign")
        until(lambda: len(starts) == 2 and row(other, sign).status is Status.RUNNING)  # The other works on.
        go.set()
        until(lambda: row(other, id).status is Status.COMPLETED)
        for worker in workers:
            worker.stop()
        assert (starts, row(other, id).attempts) == ([1, 1], 1)


def test_b65_a_listener_that_is_dead_without_a_word_only_costs_time(
    postgres_url: str, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection looks open and says nothing any more: polling at the worker's own interval finds the job."""
    silent = threading.Event()

    def deaf(self: Listener, connection: psycopg.Connection[object]) -> None:
        silent.set()
        self._stopping.wait()

    monkeypatch.setattr(Listener, "_pass_on", deaf)
    with Queue.open(postgres_url) as queue:
        worker = hire(queue, lambda job: "done", poll_interval=0.3)
        silent.wait()
        for _ in range(3):
            id = queue.enqueue("t")
            until(lambda id=id: row(queue, id).result == "done")  # type: ignore[misc]
        worker.stop()
