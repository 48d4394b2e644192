"""The command ``work`` runs the handlers it is given, and refuses what it cannot run before it opens the database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobqueue import Queue, Status
from tests.docs.readme import ROOT

APP = """
import threading
from jobqueue import Handlers

handlers = Handlers()
empty = Handlers()
number = 17

@handlers.register("double")
def double(job):
    return job.payload["number"] * 2

@handlers.register("hang")
def hang(job):
    threading.Event().wait()  # For ever: only the worker's end ends it.

@handlers.register("rude")
def rude(job):
    raise ValueError("\\x1b[2Jgone")

def any_type(job):
    return job.type
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the module ``app`` in it."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "broken.py").write_text("import json\n\n1 / 0\n")
    return tmp_path


def start(place: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "jobqueue", "work", *arguments, "--db", str(place / "q.db")],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Its exit code, and what it printed."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_drain_runs_every_due_job_and_leaves_the_others(place: Path, mode: str) -> None:
    with Queue.open(place / "q.db") as queue:
        ids = queue.enqueue_many({"type": "double", "payload": {"number": number}} for number in range(20))
        other = queue.enqueue("another type")
        later = queue.enqueue("double", {"number": 1}, delay=3600)
        process = start(place, "app:handlers", "--drain", "--concurrency", "2", "--mode", mode)
        assert finish(process) == (0, b"", b"")
        views = [queue.get(id) for id in ids]
        assert [view.result for view in views if view] == [number * 2 for number in range(20)]
        assert [view.id for view in queue.list(status="pending")] == [other, later]


def test_one_function_can_handle_every_type(place: Path) -> None:
    with Queue.open(place / "q.db") as queue:
        id = queue.enqueue("whatever")
        assert finish(start(place, "app:any_type", "--drain")) == (0, b"", b"")
        view = queue.get(id)
        assert view is not None
        assert view.result == "whatever"


def test_verbose_logs_each_job_and_never_its_payload(place: Path) -> None:
    with Queue.open(place / "q.db") as queue:
        id = queue.enqueue("double", {"number": 4711, "token": "s3cr3t"})
    _, _, err = finish(start(place, "app:handlers", "--drain", "--verbose"))
    assert id.encode() in err
    assert b"s3cr3t" not in err
    assert b"9422" not in err


def test_what_a_handler_raises_does_not_steer_the_terminal(place: Path) -> None:
    with Queue.open(place / "q.db") as queue:
        queue.enqueue("rude", max_attempts=1)
    _, _, err = finish(start(place, "app:handlers", "--drain"))
    assert b"\\x1b[2J" in err
    assert b"\x1b" not in err


def test_sigterm_gives_running_jobs_back_and_ends_well(place: Path) -> None:
    with Queue.open(place / "q.db") as queue:
        id = queue.enqueue("hang")
        process = start(place, "app:handlers", "--grace", "0")
        wakeup = queue.wakeup()
        while queue.counts()[Status.RUNNING] == 0:
            assert process.poll() is None, process.communicate()
            wakeup.wait(0.1)
            wakeup.arm()
        wakeup.close()
        process.send_signal(signal.SIGTERM)
        assert finish(process)[:2] == (0, b"")
        view = queue.get(id)
        assert view is not None
        assert (view.status, view.attempts) == (Status.PENDING, 0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["app"], b"MODULE:HANDLERS"),
        ([":handlers"], b"MODULE:HANDLERS"),
        (["there.is.no:handlers"], b"there"),
        (["app.py:handlers"], b"name the module, as import does: app:handlers"),
        (["./app:handlers"], b"name the module, as import does: app:handlers"),
        (["broken:handlers"], b"broken.py, line 3"),
        (["app:absent"], b"absent"),
        (["app:number"], b"17"),
        (["app:empty"], b"register"),
        (["app:handlers", "--mode", "fibres"], b"fibres"),
        (["app:handlers", "--concurrency", "0"], b"concurrency"),
        (["app:handlers", "--grace", "soon"], b"soon"),
        (["app:handlers", "--lease", "0"], b"lease"),
        (["app:handlers", "--retention", "-1d"], b"-1d"),
    ],
)
def test_what_cannot_be_run_is_one_line_that_names_it(place: Path, arguments: list[str], named: bytes) -> None:
    code, out, err = finish(start(place, *arguments, "--drain"))
    assert (code, out) == (2, b"")
    (line,) = err.splitlines()
    assert line.startswith(b"jobqueue: ")
    assert named in line


def test_a_mistyped_target_creates_no_database(place: Path) -> None:
    assert finish(start(place, "app:absent"))[0] == 2
    assert not (place / "q.db").exists()
