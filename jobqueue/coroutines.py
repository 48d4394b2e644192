"""Coroutine handlers: one event loop thread of the worker's own, and seats that wait for it (spec W-4, W-6).

A coroutine that is given up is cancelled, and its slot is free at once, even if it swallows the cancellation (N-3).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from jobqueue.events import End
from jobqueue.handlers import Handler, Handlers, attempt, attempt_coroutine, is_coroutine_function
from jobqueue.types import Job, Settlement

log = logging.getLogger("jobqueue.worker")
PROBE = 1.0  # Seconds that a loop may take to answer after a handler was given up; then it is taken to be blocked.
FAREWELL = 0.5  # Seconds that cancelled handlers get when the worker ends.


class _Turn:
    """One handler's turn on the loop. It is finished once, by the handler or by whoever gives it up."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.done = threading.Event()
        self.what: Settlement | End = End.STOPPED
        self._task: asyncio.Task[None] | None = None
        self._finished = False
        self._lock = threading.Lock()

    def finish(self, what: Settlement | End) -> bool:
        with self._lock:
            if self._finished:
                return False
            self._finished, self.what = True, what
        self.done.set()
        return True

    def begin(self, function: Handler, loop: asyncio.AbstractEventLoop) -> None:
        """On the loop."""
        if not self._finished:
            self._task = loop.create_task(self._run(function))

    async def _run(self, function: Handler) -> None:
        if not self.finish(await attempt_coroutine(function, self.job)):
            log.info("job %s: a coroutine that was given up has ended", self.job.id)

    def cancel(self) -> None:
        """On the loop."""
        if self._task is not None:
            self._task.cancel()


class EventLoop:
    """The worker's loop thread. A loop that a handler blocks is left to it, and replaced."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()  # The loop of now is to end, not merely stopped by a handler.
        self._probe: threading.Event | None = None

    def begin(self, turn: _Turn, function: Handler) -> None:
        loop = self._living()
        loop.call_soon_threadsafe(turn.begin, function, loop)

    def give_up(self, turn: _Turn) -> None:
        with self._lock:
            loop = self._loop
            if loop is not None:
                self._probe = threading.Event()
                loop.call_soon_threadsafe(turn.cancel)
                loop.call_soon_threadsafe(self._probe.set)

    def _living(self) -> asyncio.AbstractEventLoop:
        probe = self._probe
        blocked = probe is not None and not probe.wait(PROBE)
        with self._lock:
            if self._probe is probe:
                self._probe = None
                if blocked and self._loop is not None:
                    log.warning("a coroutine handler blocks its event loop; coroutines go on with a new one")
                    self._over.set()
                    self._loop.call_soon_threadsafe(self._loop.stop)
                    self._loop = None
            if self._loop is None:
                self._loop, self._over = asyncio.new_event_loop(), threading.Event()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop, self._over), name=f"{self._name} event loop", daemon=True
                )
                self._thread.start()
            return self._loop

    def close(self, patience: float) -> None:
        """Cancel what runs and end the thread."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
            self._over.set()
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(patience)


def _serve(loop: asyncio.AbstractEventLoop, over: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    while not over.is_set():  # A handler that stops the loop stops it for nobody.
        _survive(loop.run_forever)
    _survive(lambda: loop.run_until_complete(_farewell()))
    loop.close()


def _survive(run: Callable[[], None]) -> None:
    """Let the loop run; it serves others too, whatever a task raises through it that a handler has started."""
    try:
        run()
    except BaseException as error:  # SystemExit and KeyboardInterrupt are not kept in their task.
        log.warning("a task of a coroutine handler raised %s; the event loop goes on", type(error).__name__)


async def _farewell() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=FAREWELL)
    await asyncio.get_running_loop().shutdown_asyncgens()


class CoroutineSeat:
    """Runs coroutine functions on the loop while the slot's thread waits, and plain functions in that thread."""

    def __init__(self, handlers: Handlers, loop: EventLoop) -> None:
        self._handlers, self._loop = handlers, loop
        self._kinds: dict[Handler, bool] = {}
        self._turn: _Turn | None = None
        self._lock = threading.Lock()

    def ready(self) -> bool:
        return True

    def prepare(self) -> None:
        return

    def run(self, job: Job) -> Settlement | End:
        function: Any = self._handlers.handler(job.type)
        kind = self._kinds.get(function)
        if kind is None:
            kind = self._kinds[function] = is_coroutine_function(function)
        return self._await(function, job) if kind else attempt(function, job)

    def _await(self, function: Handler, job: Job) -> Settlement | End:
        turn = _Turn(job)
        with self._lock:
            if job.lost is not None:  # Set before an interrupt, which then has found no turn.
                return End.SKIPPED
            self._turn = turn
        self._loop.begin(turn, function)
        turn.done.wait()
        with self._lock:
            self._turn = None
        return turn.what

    def interrupt(self, job: Job) -> bool:
        with self._lock:
            turn = self._turn
            if turn is None:
                return False
        if turn.job is job and turn.finish(End.STOPPED):
            self._loop.give_up(turn)
        return True

    def close(self) -> None:
        return
