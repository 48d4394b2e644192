"""Handlers that misbehave, each under the name of a job type, and the error that is then to be recorded."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from jobqueue import Discard, Handlers, Job, Retry, Snooze

LET_GO = threading.Event()  # Ends, when a test is over, what would otherwise never end.
EVERYWHERE = frozenset({"threads", "coroutines", "processes"})


@dataclass(frozen=True)
class Misdeed:
    """What a handler does, and what is to be found in the error of its job, which is allowed one attempt."""

    act: Callable[[Job], Any]
    error: str
    modes: frozenset[str] = EVERYWHERE
    timeout: float | None = None


class TwoArguments(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class TextExits(Exception):
    def __str__(self) -> str:
        sys.exit("no text")


class EndlessText(Exception):
    def __str__(self) -> str:
        return str(self)


class Unpicklable(Exception):
    def __reduce__(self) -> NoReturn:
        raise TypeError("not to be sent anywhere")


class OwnBase(BaseException):
    pass


class OddRetry(Retry):
    """Forgets what its base keeps."""

    def __init__(self, one: int) -> None:
        self.one = one


class BackwardsRetry(Retry):
    def __init__(self) -> None:
        super().__init__(0)
        self.delay_us = -5


class EndlessSnooze(Snooze):
    def __init__(self) -> None:
        super().__init__(0)
        self.delay_us = 2**80


class NulDiscard(Discard):
    def __str__(self) -> str:
        return "x\0" * 20_000


class NoTextDiscard(Discard):
    def __str__(self) -> str:
        raise OwnBase


class RaisingDict(dict[str, Any]):
    def items(self) -> NoReturn:
        raise OwnBase


def throw(make: Callable[[], BaseException]) -> Callable[[Job], Any]:
    def act(job: Job) -> NoReturn:
        raise make()

    return act


def give(make: Callable[[], Any]) -> Callable[[Job], Any]:
    return lambda job: make()


def _oddly_named() -> BaseException:
    error: BaseException = type("Fehler \U0001f600", (Exception,), {})("x")
    return error


def _chained(job: Job) -> NoReturn:
    error: Exception = ValueError("the first")
    for number in range(200):
        try:
            raise KeyError(number) from error
        except KeyError as caught:
            error = caught
    raise error


def _deep(job: Job) -> int:
    return 1 + _deep(job)


def _containing_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _never(job: Job) -> None:
    LET_GO.wait()


def _swallowing(job: Job) -> None:
    while not LET_GO.is_set():
        try:
            LET_GO.wait(0.01)
        except BaseException:
            continue


def _burning(job: Job) -> None:
    """Pure Python that never looks up. Where nobody can stop it, it ends when it is told, as a kind one would."""
    while job.lost is None:
        pass


def _burning_for_ever(job: Job) -> None:
    while True:
        pass


def _killing(number: int) -> Callable[[Job], None]:
    return lambda job: os.kill(os.getpid(), number)


def _closing_everything(job: Job) -> None:
    os.closerange(3, 256)


def _closing_the_streams(job: Job) -> NoReturn:
    os.closerange(0, 3)
    raise ValueError("nobody hears this")


async def _endless(job: Job) -> None:
    await asyncio.Event().wait()


async def _deaf(job: Job) -> None:
    while not LET_GO.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


async def _cancelling_itself(job: Job) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def _stopping_the_loop(job: Job) -> NoReturn:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    raise ValueError("after the stop")


async def _leaving_a_task_that_exits(job: Job) -> NoReturn:
    async def exits() -> NoReturn:
        sys.exit(4)

    tasks.add(asyncio.get_running_loop().create_task(exits()))
    await asyncio.sleep(0.01)
    raise ValueError("after the task")


tasks: set[asyncio.Task[Any]] = set()
PROCESS, LOOP = frozenset({"processes"}), frozenset({"coroutines"})
INTERRUPTIBLE = frozenset({"processes", "threads"})

MISDEEDS: dict[str, Misdeed] = {
    # Raises
    "two arguments": Misdeed(throw(lambda: TwoArguments(1, 2)), "TwoArguments: 1 and 2"),
    "no text": Misdeed(throw(NoText), "NoText: (its text cannot be shown: ValueError)"),
    "text that exits": Misdeed(throw(TextExits), "TextExits: (its text cannot be shown: SystemExit)"),
    "endless text": Misdeed(throw(EndlessText), "EndlessText: (its text cannot be shown: RecursionError)"),
    "cannot be sent": Misdeed(throw(lambda: Unpicklable(1)), "Unpicklable: 1"),
    "odd name": Misdeed(throw(_oddly_named), "Fehler \U0001f600: x"),
    "NUL and surrogates": Misdeed(throw(lambda: ValueError("a\0b\udcff")), "ValueError: a\ufffdb\ufffd"),
    "group": Misdeed(throw(lambda: ExceptionGroup("many", [ValueError(1), NoText()])), "ExceptionGroup: many"),
    "chain": Misdeed(_chained, "KeyError: 199"),
    "deep": Misdeed(_deep, "RecursionError"),
    "50 MB": Misdeed(throw(lambda: ValueError("x" * 50_000_000)), "ValueError: xxxxx"),
    "own base": Misdeed(throw(OwnBase), "OwnBase"),
    "exit 0": Misdeed(throw(lambda: SystemExit(0)), "SystemExit: 0"),
    "exit 3": Misdeed(throw(lambda: SystemExit(3)), "SystemExit: 3"),
    "Ctrl-C": Misdeed(throw(KeyboardInterrupt), "KeyboardInterrupt"),
    "generator exit": Misdeed(throw(GeneratorExit), "GeneratorExit"),
    "cancelled": Misdeed(throw(asyncio.CancelledError), "CancelledError"),
    "stop iteration": Misdeed(throw(lambda: StopIteration(1)), "StopIteration"),
    "no memory": Misdeed(throw(MemoryError), "MemoryError"),
    "odd retry": Misdeed(throw(lambda: OddRetry(1)), "OddRetry"),
    "backwards retry": Misdeed(throw(BackwardsRetry), "BackwardsRetry"),
    "endless snooze": Misdeed(throw(EndlessSnooze), "EndlessSnooze"),
    "discard with NULs": Misdeed(throw(lambda: NulDiscard("x")), "x\ufffdx\ufffd"),
    "discard without text": Misdeed(throw(lambda: NoTextDiscard("x")), "NoTextDiscard"),
    # Returns what is not JSON
    "a set": Misdeed(give(lambda: {1}), "its result cannot be stored: result is a set"),
    "not a number": Misdeed(give(lambda: [math.nan]), "its result cannot be stored: result[0] is nan"),
    "itself": Misdeed(give(_containing_itself), "its result cannot be stored: result is nested too deeply"),
    "an object": Misdeed(give(object), "its result cannot be stored: result is a object"),
    "a generator": Misdeed(
        give(lambda: (number for number in range(3))), "its result cannot be stored: result is a generator"
    ),
    "a dict that raises": Misdeed(give(lambda: RaisingDict(a=1)), "its result cannot be stored"),
    # Never returns
    "never": Misdeed(_never, "timeout", INTERRUPTIBLE, 0.2),
    "swallowing": Misdeed(_swallowing, "timeout", INTERRUPTIBLE, 0.2),
    "burning": Misdeed(_burning, "timeout", EVERYWHERE, 0.2),
    "burning for ever": Misdeed(_burning_for_ever, "timeout", PROCESS, 0.2),
    "endless": Misdeed(_endless, "timeout", LOOP, 0.2),
    "deaf": Misdeed(_deaf, "timeout", LOOP, 0.2),
    # To its process, or its loop
    "os._exit": Misdeed(lambda job: os._exit(137), "worker process died (exit code 137)", PROCESS),
    "SIGKILL": Misdeed(_killing(signal.SIGKILL), "worker process died (exit code -9)", PROCESS),
    "SIGSEGV": Misdeed(_killing(signal.SIGSEGV), "worker process died (exit code -11)", PROCESS),
    "SIGSTOP": Misdeed(_killing(signal.SIGSTOP), "timeout", PROCESS, 0.2),
    "closes everything": Misdeed(_closing_everything, "worker process died", PROCESS),
    "closes the streams": Misdeed(_closing_the_streams, "ValueError: nobody hears this", PROCESS),
    "cancels itself": Misdeed(_cancelling_itself, "CancelledError", LOOP),
    "stops the loop": Misdeed(_stopping_the_loop, "ValueError: after the stop", LOOP),
    "leaves a task that exits": Misdeed(_leaving_a_task_that_exits, "ValueError: after the task", LOOP),
}


def behave(job: Job) -> Any:
    """Misbehave as the job's type says; 'good' jobs wait until as many of them run as there are slots."""
    if job.type == "good":
        return _meet(job)
    return MISDEEDS[job.type].act(job)


async def behave_async(job: Job) -> Any:
    if job.type == "good":
        while not _met(job):
            await asyncio.sleep(0.005)
        return "good"
    done = MISDEEDS[job.type].act(job)
    return await done if inspect.iscoroutine(done) else done


def _meet(job: Job) -> str:
    while not _met(job):
        LET_GO.wait(0.005)
    return "good"


def _met(job: Job) -> bool:
    """Be there, in a directory that is the meeting place; whether all are."""
    place, number = job.payload
    os.makedirs(os.path.join(place, job.id), exist_ok=True)
    return len(os.listdir(place)) >= int(number)


HANDLERS, HANDLERS_ASYNC = Handlers(behave), Handlers(behave_async)
