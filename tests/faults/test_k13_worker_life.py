"""K13, the life of a worker: whatever a handler does it survives, keeps its capacity and records each outcome once."""

from __future__ import annotations

import inspect
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobqueue import Job, Queue, Status, Worker
from jobqueue.core import Core
from jobqueue.processes import ProcessSeat
from tests.conftest import OpenQueue
from tests.faults import actors, misdeeds
from tests.faults.conftest import Hire, StartActor
from tests.faults.misdeeds import MISDEEDS
from tests.faults.scene import ROOT, row, until, until_noted

SLOTS = 2
LINE = 200  # Claims: twice the batch that may stand in line, and far less than have passed.
CREW = {
    "threads": (misdeeds.HANDLERS, {}), "coroutines": (misdeeds.HANDLERS_ASYNC, {}),
    "processes": (misdeeds.HANDLERS, {"mode": "processes"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    misdeeds.LET_GO.clear()
    yield
    misdeeds.LET_GO.set()


@pytest.mark.parametrize("mode", CREW)
def test_b77_b83_a_worker_survives_every_misdeed_of_its_handlers(
    backend: str, open_live: OpenQueue, hire: Hire, tmp_path: Path, full: bool, mode: str
) -> None:
    """One worker meets them all; then it still runs as many jobs at once as it did before."""
    queue = open_live()
    wanted = {name: deed for name, deed in MISDEEDS.items() if mode in deed.modes}
    if (backend, mode, full) == ("postgres", "processes", False):  # What a child does is far from the database.
        wanted = {name: wanted[name] for name in ("50 MB", "a set", "SIGSTOP", "os._exit")}
    ids = {name: queue.enqueue(name, max_attempts=1, timeout=deed.timeout, priority=1) for name, deed in wanted.items()}
    handlers, options = CREW[mode]
    worker = hire(queue, handlers, concurrency=SLOTS, grace=0.5, **options)
    until(lambda: queue.counts()[Status.DEAD] == len(ids))
    good = queue.enqueue_many([{"type": "good", "payload": [str(tmp_path / "place"), SLOTS]} for _ in range(SLOTS)])
    until(lambda: all(row(queue, id).result == "good" for id in good))
    views = {name: row(queue, id) for name, id in ids.items()}
    assert {
        name: view.error for name, view in views.items() if not (view.error or "").startswith(wanted[name].error)
        and wanted[name].error not in (view.error or "")
    } == {}  # fmt: skip
    assert {view.attempts for view in views.values()} == {1}
    assert all(len(view.error or "") <= 10_000 for view in views.values())
    assert worker.name is not None
    misdeeds.LET_GO.set()


def test_b80_threads_that_never_return_do_not_take_the_workers_capacity_away(
    live: Queue, hire: Hire, tmp_path: Path
) -> None:
    """They keep their threads, which nobody can take from them (N-3), but not their slots; and when they do return
    their threads end."""
    ours, theirs = socket.socketpair()

    def handler(job: Job) -> Any:
        if job.type == "recv":
            ours.recv(1)
        elif job.type == "never":
            misdeeds.LET_GO.wait()
        else:
            return misdeeds.behave(job)
        return None

    before = threading.active_count()
    stuck = [live.enqueue(kind, timeout=0.1, max_attempts=1) for kind in ("never", "recv", "never", "never")]
    worker = hire(live, handler, concurrency=SLOTS)
    until(lambda: live.counts()[Status.DEAD] == len(stuck))
    good = live.enqueue_many([{"type": "good", "payload": [str(tmp_path / "place"), SLOTS]} for _ in range(SLOTS)])
    until(lambda: all(row(live, id).result == "good" for id in good))
    assert {row(live, id).error for id in stuck} == {"timeout"}
    misdeeds.LET_GO.set()
    theirs.send(b"x")
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.endswith("slot")][SLOTS:])
    worker.stop()
    until(lambda: threading.active_count() <= before + 1)  # One more may be the listener of the handle.
    ours.close()
    theirs.close()


@pytest.mark.parametrize("coroutine", [False, True], ids=["thread", "coroutine"])
def test_b81_an_end_within_a_moment_of_the_limit_has_exactly_one_outcome(
    open_live: OpenQueue, hire: Hire, full: bool, coroutine: bool
) -> None:
    queue, jobs = open_live(), 1000 if full else 60
    limit = 0.02
    ends: Counter[str] = Counter()

    def handler(job: Job) -> str:
        until_then = time.monotonic() + limit - 0.001
        while time.monotonic() < until_then and job.lost is None:
            pass
        ends[job.id] += 1
        return "in time"

    async def handler_async(job: Job) -> str:
        return handler(job)

    ids = queue.enqueue_many([{"type": "t", "timeout": limit, "max_attempts": 1} for _ in range(jobs)])
    worker = hire(queue, handler_async if coroutine else handler, concurrency=2)
    until(lambda: queue.counts()[Status.COMPLETED] + queue.counts()[Status.DEAD] == jobs)
    for id in ids:
        view = row(queue, id)
        assert (view.status, view.result, view.error, view.attempts) in (
            (Status.COMPLETED, "in time", None, 1), (Status.DEAD, None, "timeout", 1),
        )  # fmt: skip
    assert set(ends.values()) == {1}
    after = queue.enqueue("t")
    until(lambda: row(queue, after).status is Status.COMPLETED)
    assert worker.name is not None


def test_b48_a_child_that_died_while_idle_costs_no_job_its_attempt(open_live: OpenQueue, hire: Hire) -> None:
    """It is noticed before a job is given to it, for a job that never began must not be counted as tried."""
    queue = open_live()
    hire(queue, actors.HANDLERS, mode="processes")
    first = queue.enqueue("t", {}, max_attempts=1)
    until(lambda: row(queue, first).status is Status.COMPLETED)
    for seat in _idle_seats():
        assert seat._process is not None
        assert seat._process.pid is not None
        os.kill(seat._process.pid, signal.SIGKILL)
        seat._process.join()
    second = queue.enqueue("t", {}, max_attempts=1)
    until(lambda: row(queue, second).status in (Status.COMPLETED, Status.DEAD))
    assert (row(queue, second).status, row(queue, second).error) == (Status.COMPLETED, None)


def _idle_seats() -> list[ProcessSeat]:
    from jobqueue.processes import _seats

    return [seat for seat in _seats if seat._process is not None and seat._job is None]


def test_b80_a_worker_that_is_broken_inside_ends_and_says_so(
    live: Queue, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: a worker that lives and does nothing is the worst."""
    worker = Worker(live, lambda job: None, poll_interval=0.05)
    worker.start()

    def broken(self: Core, event: object) -> list[object]:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(Core, "handle", broken)
    live.enqueue("t")
    until(lambda: worker.name is None)
    with pytest.raises(ZeroDivisionError, match="inside"):
        worker.stop()


def test_b110_a_worker_holds_only_what_runs(live: Queue, hire: Hire, full: bool) -> None:
    """Jobs for later and jobs that are done leave nothing behind: descriptors, threads, objects that are kept."""
    import gc

    def held() -> tuple[int, int, int]:
        gc.collect()
        claims = sum(isinstance(each, Job) for each in gc.get_objects())
        return len(os.listdir("/proc/self/fd")), threading.active_count(), claims

    batch = 50_000 if full else 300
    live.enqueue_many([{"type": "later", "delay": 86_400} for _ in range(100_000 if full else 300)])
    hire(live, lambda job: None, concurrency=4)

    def pass_jobs() -> tuple[int, int, int]:
        live.enqueue_many([{"type": "t"} for _ in range(batch)])
        until(lambda: live.due_in_us(("t",)) is None and live.counts()[Status.RUNNING] == 0, 600)
        return held()

    pass_jobs()
    descriptors, threads, _ = pass_jobs()
    for _ in range(3 if full else 1):
        now = pass_jobs()
        assert now[0] <= descriptors
        assert now[1] <= threads
        assert now[2] <= LINE


def test_b119_the_default_grace_ends_before_a_platform_kills() -> None:
    """Ten seconds are usual; one of them is for recording the last outcomes."""
    grace = inspect.signature(Worker).parameters["grace"].default
    assert grace + 1 < 10


@pytest.mark.parametrize("signals", ["one", "two"])
def test_b119_a_long_handler_is_handed_back_before_the_end(
    url: str, open_live: OpenQueue, actor: StartActor, tmp_path: Path, full: bool, signals: str
) -> None:
    """One signal and the grace time (by default with --full), or a second signal, which means now."""
    queue, log = open_live(), tmp_path / "log"
    id = queue.enqueue("t", {"log": str(log), "do": "never"})
    options: dict[str, Any] = {} if full or signals == "two" else {"grace": 0.2}
    worker = actor("worker", url, options)
    until_noted(log)
    began = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    if signals == "two":
        assert worker.says() == "ready"
        while worker.process.poll() is None:  # Signals that come at one moment are one, so more than one is sent.
            worker.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
    assert worker.end() in (0, -signal.SIGTERM)
    assert time.monotonic() - began < (4 if signals == "two" else 9.9)
    assert (row(queue, id).status, row(queue, id).attempts) == (Status.PENDING, 0)


ELSEWHERE = """
    import os, signal, sys
    import asyncio, ctypes, logging, multiprocessing.connection, multiprocessing.popen_spawn_posix
    import selectors, socket, sqlite3, subprocess, threading
    for module, names in (
        (os, ("fork", "killpg", "setpgrp", "getpgid", "register_at_fork", "eventfd", "eventfd_read", "eventfd_write")),
        (signal, ("SIGALRM", "SIGKILL", "SIGHUP", "setitimer")),
    ):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "win32"
    ctypes.CDLL = None
    from jobqueue import Handlers, Queue, Worker
    from tests.faults.actors import HANDLERS
    if __name__ == "__main__":
        queue = Queue.open(sys.argv[1])
        ids = queue.enqueue_many([{"type": "t", "payload": {}, "timeout": 60} for _ in range(5)])
        ids.append(queue.enqueue("t", {"do": "never"}, timeout=0.2, max_attempts=1))
        Worker(queue, HANDLERS, concurrency=2, grace=0.1).run(drain=True)
        print([queue.get(id).status.value for id in ids])
        queue.close()
        if os.path.isdir("/proc/self/fd"):
            links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
            assert not [link for link in links if "queue.db" in link], links
        os.unlink(sys.argv[1])
"""


def test_b120_threads_work_where_the_system_has_no_fork_no_kill_and_no_alarm(tmp_path: Path) -> None:
    """The features of another system, taken away from this one; and no file is held after close."""
    script = tmp_path / "elsewhere.py"
    script.write_text(textwrap.dedent(ELSEWHERE))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "queue.db")], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr.decode()
    assert done.stdout.decode().strip() == str(["completed"] * 5 + ["dead"])
    assert not (tmp_path / "queue.db").exists()


def test_b120_handlers_reach_their_processes_by_name_so_that_spawn_works(live: Queue) -> None:
    """What could only be forked is refused when the worker is made."""
    from jobqueue import InvalidArgument

    with pytest.raises(InvalidArgument, match="top of a module"):
        Worker(live, lambda job: None, mode="processes")
