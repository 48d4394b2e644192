"""The worker as its users see it: arguments checked here, decisions in core, threads in shift (spec §9)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from jobqueue import forks, values
from jobqueue.core import Settings
from jobqueue.coroutines import CoroutineSeat, EventLoop
from jobqueue.errors import InvalidArgument, WrongUse
from jobqueue.handlers import Handler, Handlers, as_handlers, load
from jobqueue.processes import ProcessSeat, portable
from jobqueue.queue import Queue
from jobqueue.shift import Plan, Shift
from jobqueue.threads import Seat, ThreadSeat
from jobqueue.values import Duration

Mode = Literal["threads", "processes"]
MOST = 10_000


class Worker:
    """Runs handlers for a queue's jobs until it is stopped. Every worker also recovers the jobs of dead workers."""

    def __init__(
        self,
        queue: Queue,
        handlers: Handlers | Handler | str,
        *,
        concurrency: int = 1,
        poll_interval: Duration = 2.0,
        heartbeat: Duration | None = None,
        grace: Duration = 8.0,
        mode: Mode = "threads",
        retention: Duration | None = None,
        types: Collection[str] | None = None,
        batch: int = 100,
    ) -> None:
        """``handlers`` is a set of handlers, one function for every type, or 'module:attribute' that names either.

        ``concurrency`` handlers run at a time, in threads (coroutine functions on an event loop), or each in a process
        of its own with ``mode='processes'``: only there can a handler be stopped. ``poll_interval`` is the longest
        time between two polls; wake-ups come at once. ``heartbeat`` is how often leases are renewed: a third of the
        queue's lease. ``grace`` is what running handlers get when the worker is stopped. ``retention`` deletes jobs
        that ended so long ago. ``types`` narrows what is claimed. ``batch`` bounds how many claims may wait for
        handlers that are quick; slow ones wait in the queue.
        """
        self._queue = queue
        self._handlers = load(handlers) if isinstance(handlers, str) else as_handlers(handlers)
        self._types = self._handlers.narrowed(types)
        if mode not in ("threads", "processes"):
            raise InvalidArgument(f"mode is 'threads' or 'processes', not {mode!r}")
        if mode == "processes" and getattr(queue.database, "path", "") is None:
            raise InvalidArgument("processes cannot share a database in memory; use a file")
        self._mode: Mode = mode
        self._source = portable(self._handlers) if mode == "processes" else b""
        self._retention = None if retention is None else _seconds(retention, "retention", zero=True)
        self._settings = Settings(
            concurrency=values.whole(concurrency, "concurrency", 1, MOST),
            batch=values.whole(batch, "batch", 1, MOST),
            lease=queue.lease_us / 1_000_000,
            heartbeat=_heartbeat(heartbeat, queue.lease_us),
            poll_interval=_seconds(poll_interval, "poll_interval"),
            grace=_seconds(grace, "grace", zero=True),
            cleanup=retention is not None,
        )
        self._shift: Shift | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._guard = threading.Lock()

    @property
    def name(self) -> str | None:
        """What the rows of running jobs call this worker; new at each start, None before the first."""
        return None if self._shift is None else self._shift.name

    def run(self, drain: bool = False) -> None:
        """Work in this thread until stopped; with ``drain`` until no job is due.

        In the main thread SIGTERM and SIGINT stop it: running handlers get the grace time, then their jobs are given
        back. A second signal does so at once.
        """
        shift = self._begin(drain)
        try:
            with _signals(shift.stop):
                shift.run()
        finally:
            self._end(shift)

    def start(self) -> None:
        """Work in a thread of its own until ``stop``."""
        shift = self._begin(False)
        self._error = None
        self._thread = threading.Thread(target=self._run_apart, args=(shift,), name="jobqueue worker", daemon=True)
        self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """End with grace; called again, at once. Returns when the worker has ended, unless ``wait`` is false.

        Raises what ended a worker in its own thread, if that was an error.
        """
        shift, thread = self._shift, self._thread
        if shift is not None:
            shift.stop()
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()
            error, self._error = self._error, None
            if error is not None:
                raise error

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run_apart(self, shift: Shift) -> None:
        try:
            shift.run()
        except BaseException as error:
            self._error = error
        finally:
            self._end(shift)

    def _begin(self, drain: bool) -> Shift:
        with self._guard:
            if self._shift is not None:
                raise WrongUse("this worker runs already; make another one for more concurrency")
            self._shift = Shift(self._plan(drain))
            return self._shift

    def _end(self, shift: Shift) -> None:
        with self._guard:
            self._shift = None

    def _plan(self, drain: bool) -> Plan:
        loop = EventLoop("jobqueue")  # Starts with its first coroutine.

        def seat(name: str) -> Seat:
            if self._mode == "processes":
                return ProcessSeat(self._source, name)
            if self._handlers.has_coroutines:
                return CoroutineSeat(self._handlers, loop)
            return ThreadSeat(self._handlers)

        return Plan(
            queue=self._queue,
            types=self._types,
            settings=replace(self._settings, drain=drain),
            seat=seat,
            after=loop.close,
            retention=self._retention,
            eager=self._mode == "processes",
        )


def _seconds(duration: object, name: str, *, zero: bool = False) -> float:
    return values.duration(duration, name, zero=zero) / 1_000_000


def _heartbeat(given: Duration | None, lease_us: int) -> float:
    if given is None:
        return lease_us / 3_000_000
    heartbeat_us = values.duration(given, "heartbeat")
    if heartbeat_us >= lease_us:
        raise InvalidArgument(
            f"heartbeat ({heartbeat_us / 1e6:g} s) must be shorter than the queue's lease ({lease_us / 1e6:g} s);"
            " a third of it is usual"
        )
    return heartbeat_us / 1_000_000


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT mean stop, in the main thread and for as long as the block runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    forks.serve_signals(("SIGTERM", "SIGINT"), lambda *_: stop())
    try:
        yield
    finally:
        forks.return_signals()
