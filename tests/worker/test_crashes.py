"""kill -9 at every point of a worker's life, and signals: no job is lost, none runs too often (G-16, G-20, W-7)."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jobqueue import Queue, Status
from jobqueue.types import Job
from jobqueue.worker import Worker
from tests.pauses import pause
from tests.worker import jobs
from tests.worker.conftest import OpenLive
from tests.worker.processes import PATIENCE, ROOT, heard, victim
from tests.worker.victim import POINTS

# The attempts after which a job that may be tried again is completed, and how one that may not ends.
LIVES = {
    "before claim": (1, Status.COMPLETED),
    "after claim": (2, Status.DEAD),
    "before handler": (2, Status.DEAD),
    "after handler": (2, Status.DEAD),
    "before outcome": (2, Status.DEAD),
    "after outcome": (1, Status.COMPLETED),
}


@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_g24_g20_a_job_survives_kill_9_at_every_point(
    open_live: OpenLive, url: str, tmp_path: Path, point: str, max_attempts: int
) -> None:
    queue, log = open_live(lease=0.6), tmp_path / "begun"
    id = queue.enqueue("work", max_attempts=max_attempts)
    with victim(url, "--kill", point, "--log", str(log)) as process:
        assert process.wait(PATIENCE) == -signal.SIGKILL
    begun = log.read_text(encoding="ascii").splitlines() if log.exists() else []

    def handler(job: Job) -> str:
        begun.append(f"{job.id} {job.attempts}")
        return "done"

    with Worker(queue, handler):
        view = queue.wait(id, PATIENCE)
    assert view is not None
    attempts, status = LIVES[point]
    if max_attempts == 1:
        assert (view.status, view.attempts) == (status, 1)
        assert len(begun) <= 1
        assert view.error == ("lease expired" if status is Status.DEAD else None)
    else:
        assert (view.status, view.attempts) == (Status.COMPLETED, attempts)
    assert queue.counts()[Status.RUNNING] == 0


def test_g24_jobs_of_a_killed_worker_run_again_in_the_next_one(open_live: OpenLive, url: str) -> None:
    queue = open_live(lease=0.6)
    ids = queue.enqueue_many({"type": "long", "payload": 60} for _ in range(3))
    with victim(url, "--concurrency", "3") as process:
        for _ in ids:
            heard(process, "begun")
        process.kill()
        process.wait()
        again: list[int] = []
        with Worker(queue, lambda job: again.append(job.attempts)):
            for id in ids:
                view = queue.wait(id, PATIENCE)
                assert view is not None
                assert view.status is Status.COMPLETED
    assert again == [2, 2, 2]


def test_g24_a_stopped_worker_that_wakes_up_loses_its_job_and_settles_nothing(open_live: OpenLive, url: str) -> None:
    queue = open_live(lease=0.6)
    id = queue.enqueue("long", 2.0, max_attempts=2)
    with victim(url) as process:
        heard(process, "begun")
        pause(process, open_live(busy_timeout=0.5))
        with Worker(queue, lambda job: f"attempt {job.attempts}"):
            view = queue.wait(id, PATIENCE)
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert queue.get(id) == view
    assert view is not None
    assert view.result == "attempt 2"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_w7_a_signal_lets_the_running_handler_end(open_live: OpenLive, url: str, number: signal.Signals) -> None:
    queue = open_live()
    first, second = queue.enqueue("long", 0.3), queue.enqueue("long", 0.3)
    with victim(url, "--lease", "30") as process:
        heard(process, "begun")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
    assert [_status(queue, id) for id in (first, second)] == [Status.COMPLETED, Status.PENDING]


@pytest.mark.parametrize(("max_attempts", "status"), [(3, Status.PENDING), (1, Status.DEAD)])
def test_w7_a_handler_that_outlasts_the_grace_time_is_handed_back(
    open_live: OpenLive, url: str, max_attempts: int, status: Status
) -> None:
    queue = open_live()
    id = queue.enqueue("long", 60, max_attempts=max_attempts)
    with victim(url, "--lease", "30", "--grace", "0.2") as process:
        heard(process, "begun")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert _status(queue, id) is status


def test_w7_a_second_signal_hands_back_at_once(open_live: OpenLive, url: str) -> None:
    queue = open_live()
    id = queue.enqueue("long", 60)
    with victim(url, "--lease", "30", "--grace", "3600") as process:
        heard(process, "begun")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert _status(queue, id) is Status.PENDING


def test_w7_a_signal_ends_the_worker_while_the_database_is_locked(tmp_path: Path) -> None:
    path = str(tmp_path / "locked.db")
    with Queue.open(path) as queue:
        queue.enqueue("long", 60)
        with victim(path, "--lease", "30", "--grace", "0.1") as process:
            heard(process, "begun")
            lock = sqlite3.connect(path, isolation_level=None)
            lock.execute("begin immediate")
            process.send_signal(signal.SIGTERM)
            assert process.wait(10.0) == 0
            lock.rollback()
            lock.close()
        assert queue.counts()[Status.RUNNING] == 1  # Nothing could be recorded: its lease will run out.


def test_w3_a_lock_held_for_longer_than_a_lease_gets_no_live_job_swept(tmp_path: Path, full: bool) -> None:
    lease = 3.0 if full else 0.6
    path, handed = str(tmp_path / "locked.db"), threading.Semaphore(0)
    gate, starts = threading.Event(), []

    def handler(job: Job) -> None:
        starts.append(job.id)
        handed.release()
        gate.wait(PATIENCE)

    with Queue.open(path, lease=lease) as one, Queue.open(path, lease=lease) as two:
        ids = one.enqueue_many({"type": "x", "max_attempts": 1} for _ in range(4))
        with Worker(one, handler, concurrency=2), Worker(two, handler, concurrency=2):
            for _ in ids:
                assert handed.acquire(timeout=PATIENCE)
            lock = sqlite3.connect(path, isolation_level=None)
            lock.execute("begin immediate")
            assert not gate.wait(3 * lease)
            lock.rollback()
            lock.close()
            assert not gate.wait(2 * lease)  # In which each worker looks at least twice.
            gate.set()
            views = [one.wait(id, PATIENCE) for id in ids]
    assert [view and view.status for view in views] == [Status.COMPLETED] * 4
    assert sorted(starts) == sorted(ids)


def test_w9_an_enqueue_of_another_process_wakes_an_idle_worker(open_live: OpenLive, url: str) -> None:
    queue = open_live()
    idle = queue.enqueue("echo", "first")
    with Worker(queue, jobs.handlers, poll_interval=3600):
        assert queue.wait(idle, PATIENCE)
        with victim(url, "--drain") as other:  # Another process that drains what only it can, then tells.
            heard(other, "ended")
        id = _enqueue_elsewhere(url)
        view = queue.wait(id, PATIENCE)
    assert view is not None
    assert view.result == "from elsewhere"


def _enqueue_elsewhere(url: str) -> str:
    code = "import sys; from jobqueue import Queue; print(Queue.open(sys.argv[1]).enqueue('echo', 'from elsewhere'))"
    done = subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, check=True, cwd=ROOT, timeout=PATIENCE
    )
    return done.stdout.strip()


def _status(queue: Queue, id: str) -> Status:
    view = queue.get(id)
    assert view is not None
    return view.status
