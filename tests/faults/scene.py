"""What the tests of this directory share: waiting for others, processes that are talked to, a clock that is stepped.

Nothing here knows what is right; the tests do.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from jobqueue import Job, JobView, Queue
from jobqueue.clock import SystemClock

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
LONG = 60.0  # Seconds: far more than anything here takes, also on a busy machine.


def claim(queue: Queue, *types: str, **options: Any) -> Job:
    """The next due job, of which there must be one."""
    job = queue.dequeue(*types, **options)
    assert job is not None
    return job


def row(queue: Queue, id: str) -> JobView:
    """The job as ``get`` shows it; it must be there."""
    view = queue.get(id)
    assert view is not None
    return view


def change(backend: str, url: str, statement: str) -> None:
    """Change the table by hand, past the library."""
    connection: Any = sqlite3.connect(url) if backend == "sqlite" else psycopg.connect(url)
    with closing(connection):
        connection.execute(statement)
        connection.commit()


def until(condition: Callable[[], T], seconds: float = LONG) -> T:
    """Wait for what another thread or process is about to do; what ``condition`` then said."""
    deadline = time.monotonic() + seconds
    while not (said := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
    return said


def together(*actions: Callable[[], T]) -> list[T | Exception]:
    """Do these in threads that start at one moment; what each returned, or raised."""
    start = threading.Barrier(len(actions))
    results: list[Any] = [None] * len(actions)

    def act(index: int, action: Callable[[], T]) -> None:
        start.wait()
        try:
            results[index] = action()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=act, args=entry) for entry in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    return results


def until_noted(log: Path) -> None:
    """Wait for the first whole line: the file is there a moment before it, in which its writer must not be killed."""
    until(lambda: log.exists() and log.read_text().endswith("\n"))


class SteppedClock:
    """The machine's clock, but its wall clock can be set apart; on PostgreSQL it is the now of every statement."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self.ahead = 0.0  # Seconds.
        self.monotonic, self.sleep = self._real.monotonic, self._real.sleep
        self.draw, self.entropy = self._real.draw, self._real.entropy

    def now_us(self) -> int:
        return self._real.now_us() + round(self.ahead * 1_000_000)


class Actor:
    """A process that plays a part of tests/faults/actors.py. It says and hears JSON, a line each."""

    def __init__(self, part: str, *arguments: Any, directory: Path, user: int | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.actors", part, json.dumps(arguments)],
            cwd=directory, user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip

    def hears(self, what: Any = None) -> None:
        """Tell it something; what it waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()

    def says(self, seconds: float = LONG) -> Any:
        """The next thing it says."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else b""
        assert line, f"it said nothing more (exit code {self.process.poll()})"
        return json.loads(line)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send it a signal and wait for its end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(LONG)

    def end(self) -> int:
        """Wait for its end; its exit code."""
        return self.process.wait(LONG)

    def dismiss(self) -> None:
        """Make sure that it is gone, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait(LONG)
