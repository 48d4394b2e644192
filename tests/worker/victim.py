"""A worker in a process of its own, for tests that stop or kill it: ``python -m tests.worker.victim URL OPTIONS``.

``--kill POINT`` ends the process by SIGKILL when it gets there for the first time. The points are the moments of a
worker's life between which a crash could lose something: before and after a claim commits, before and after the
handler, before and after its outcome commits.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from jobqueue import Backoff, Queue
from jobqueue.handlers import Handlers
from jobqueue.types import Exchange, Job, Settlement
from jobqueue.worker import Worker
from tests.worker import jobs

POINTS = ("before claim", "after claim", "before handler", "after handler", "before outcome", "after outcome")


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


def say(text: str) -> None:
    """One line for the test that waits for it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class DyingQueue(Queue):
    """A queue whose process is killed before or after one of its commits."""

    point: str | None = None

    def exchange(
        self, settlements: Sequence[Settlement], n: int, types: Collection[str] | None, **options: Any
    ) -> Exchange:
        if (self.point == "before claim" and n) or (self.point == "before outcome" and settlements):
            die()
        done = super().exchange(settlements, n, types, **options)
        if (self.point == "after claim" and done.jobs) or (self.point == "after outcome" and settlements):
            die()
        return done


def handlers_for(point: str | None, log: str) -> Handlers:
    handlers = Handlers()

    @handlers.register("work")
    def work(job: Job) -> str:
        if point == "before handler":
            die()
        with open(log, "a", encoding="ascii") as file:
            file.write(f"{job.id} {job.attempts}\n")
        if point == "after handler":
            die()
        return "done"

    @handlers.register("long")
    def long(job: Job) -> None:
        say("begun")
        threading.Event().wait(job.payload)

    handlers.register("fork")(jobs.forking)
    return handlers


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--kill", choices=POINTS)
    parser.add_argument("--log", default=os.devnull)
    parser.add_argument("--lease", type=float, default=0.6)
    parser.add_argument("--grace", type=float, default=8.0)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--drain", action="store_true")
    options = parser.parse_args()
    queue = DyingQueue.open(options.url, lease=options.lease, backoff=Backoff(base_us=1000, cap_us=1000))
    assert isinstance(queue, DyingQueue)
    queue.point = options.kill
    handlers = jobs.handlers if options.processes else handlers_for(options.kill, options.log)
    mode: Any = "processes" if options.processes else "threads"
    worker = Worker(queue, handlers, grace=options.grace, concurrency=options.concurrency, mode=mode)
    say("ready")
    worker.run(drain=options.drain)
    queue.close()
    say("ended")


if __name__ == "__main__":
    main()
