"""Handlers that child processes can import."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from jobqueue import Queue
from jobqueue.handlers import Discard, Handlers, Retry, Snooze
from jobqueue.types import Job

handlers = Handlers()


class Own(BaseException):
    """Neither an Exception nor any of Python's own exits."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(4)


RAISED: dict[str, BaseException] = {
    "SystemExit": SystemExit(3),
    "SystemExit of 0": SystemExit(0),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": asyncio.CancelledError(),
    "Own": Own("own"),
    "ValueError": ValueError("bad value"),
    "Unprintable": Unprintable(),
    "Exiting": Exiting(),
    "50 MB": ValueError("x" * 50_000_000),
    "NUL and surrogate": ValueError("a\0b\ud800c"),
    "MemoryError": MemoryError(),
    "StopIteration": StopIteration(1),
}


def unborn() -> None:
    """What a child calls when it should have its handlers."""
    raise RuntimeError("the handlers cannot be had here")


class Unborn:
    """A handler that can be sent to a child, but not arrive."""

    def __call__(self, job: Job) -> None:
        raise AssertionError("it never arrives")

    def __reduce__(self) -> tuple[Any, ...]:
        return unborn, ()


@handlers.register("echo")
def echo(job: Job) -> Any:
    return job.payload


@handlers.register("raise")
def raising(job: Job) -> None:
    raise RAISED[job.payload]


@handlers.register("raise later")
async def raising_later(job: Job) -> None:
    await asyncio.sleep(0)
    raise RAISED[job.payload]


@handlers.register("ask")
def asking(job: Job) -> None:
    kind, argument = job.payload
    raise {"retry": Retry, "snooze": Snooze, "discard": Discard}[kind](argument)


@handlers.register("odd result")
def odd_result(job: Job) -> Any:
    return {"set": {1}, "bytes": b"x", "nan": float("nan"), "object": object()}[job.payload]


@handlers.register("hang")
def hanging(job: Job) -> None:
    threading.Event().wait()


@handlers.register("hang with child")
def hanging_with_child(job: Job) -> None:
    """Starts a program that keeps this process's pipes, tells its number, and hangs."""
    child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    with open(job.payload, "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {child.pid}\n")
    threading.Event().wait()


@handlers.register("stubborn")
def stubborn(job: Job) -> None:
    """Catches whatever a supervisor might throw into it."""
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            continue


@handlers.register("spin")
def spinning(job: Job) -> None:
    while True:
        pass


@handlers.register("exit")
def exiting(job: Job) -> None:
    os._exit(job.payload)


@handlers.register("kill")
def killing(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@handlers.register("pid")
def pid(job: Job) -> int:
    return os.getpid()


@handlers.register("fork")
def forking(job: Job) -> list[int | str]:
    """Forks a copy that comes back from here too, in one way or another, and tells how that copy ended."""
    copy = os.fork()
    if copy == 0:
        match job.payload:
            case "exit":
                sys.exit(5)
            case "raise":
                raise Own
            case "wait":
                threading.Event().wait()
        return ["the copy's"]
    if job.payload == "wait":
        os.kill(copy, signal.SIGTERM)
    return ["the handler's", os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])]


@handlers.register("settle")
def settling(job: Job) -> str:
    """Settles its claim by an ordinary call, and goes on for longer than a lease."""
    url, how, seconds = job.payload
    with Queue.open(url) as queue:
        match how:
            case "complete":
                queue.complete(job)
            case "fail":
                queue.fail(job, "no")
            case "release":
                queue.release(job)
        threading.Event().wait(seconds)
    with open(f"{url}.{how}", "w", encoding="ascii") as file:
        file.write("not killed\n")
    return "dropped"


@handlers.register("complete")
def completing(job: Job) -> str:
    """Completes itself in its own transaction, and goes on for longer than a lease."""
    url, seconds = job.payload
    with Queue.open(url) as queue:
        with queue.completing(job, "by itself"):
            pass
        threading.Event().wait(seconds)
    return "dropped"
