"""Handlers in child processes: one for each slot, so that a handler can be killed (spec W-6). Only text crosses.

A child that is killed, or dies by itself, is reaped before its job's outcome is told, and another takes its place.
A child does not outlive its parent.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from jobqueue import forks
from jobqueue.coroutines import CoroutineSeat, EventLoop
from jobqueue.errors import InvalidArgument, WrongUse
from jobqueue.events import End
from jobqueue.handlers import Handlers
from jobqueue.types import Complete, Fail, Job, JsonText, Release, Settlement

FIELDS = tuple(field.name for field in fields(Job) if field.default is MISSING and field.default_factory is MISSING)
LOOK = 0.5  # Seconds between looks whether a child still lives, where a grandchild holds its pipe open.
READY = 60.0  # Seconds that a child may take to import the handlers.
BIRTHS = 3  # How often in a row a child may die before it is ready.
FAREWELL = 1.0  # Seconds that an idle child gets to end by itself.
PR_SET_PDEATHSIG = 1


def portable(handlers: Handlers) -> bytes:
    """The handlers as a child can have them: by the names of their functions."""
    try:
        return pickle.dumps(handlers)
    except Exception as error:
        raise InvalidArgument(
            f"handlers for mode='processes' must be functions at the top of a module: {error}"
        ) from error


_births = threading.Lock()  # multiprocessing reaps other threads' children when it starts one: one at a time.


class ProcessSeat:
    """One slot's child process."""

    def __init__(self, source: bytes, name: str) -> None:
        self._source, self._name = source, name
        self._context = multiprocessing.get_context("spawn")
        self._lock = threading.Lock()  # Guards the child's life: it is not reaped while it is being killed.
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self._job: Job | None = None
        _seats.add(self)

    def ready(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def prepare(self) -> None:
        """Have a living child that has imported the handlers."""
        for _ in range(BIRTHS):
            self._reap()
            if self._born():
                return
        self._reap()
        raise WrongUse("handler processes die before they are ready; see what they wrote to stderr")

    def _born(self) -> bool:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=child, args=(theirs, self._source), name=f"{self._name} handlers", daemon=False
        )
        with _births:
            process.start()
        theirs.close()
        with self._lock:
            self._process, self._pipe = process, ours
        return self._message(READY) is not None

    def run(self, job: Job) -> Settlement | End:
        if self._process is None or not self._process.is_alive():
            self.prepare()  # It died while it had nothing to do; this job has not begun, so that is not its failure.
        with self._lock:
            if job.lost is not None:  # Set before an interrupt, which then has found another job, or none.
                return End.SKIPPED
            self._job = job
        assert self._pipe is not None, "prepare comes before run"
        with suppress(OSError):  # It has died; waiting for its reply tells the same.
            self._pipe.send_bytes(_request(job))
        while (message := self._message(None)) is not None:
            if message["of"] != _key(job):  # W-5: another claim's is no answer to this one.
                continue
            if "settled" in message:
                job.settled = True
            else:
                with self._lock:
                    self._job = None
                return _settlement(job, message)
        code = self._reap(FAREWELL)
        if job.lost is not None:
            return End.STOPPED
        return Fail(job, f"worker process died (exit code {code})")

    def _message(self, patience: float | None) -> dict[str, Any] | None:
        """The child's next message; None when it has died, or said nothing for ``patience`` seconds."""
        pipe, process = self._pipe, self._process
        assert pipe is not None
        assert process is not None
        waited = 0.0
        while patience is None or waited < patience:
            ready = connection.wait([pipe, process.sentinel], LOOK)
            waited += 0.0 if ready else LOOK
            try:
                if pipe in ready or pipe.poll():
                    message: dict[str, Any] = json.loads(pipe.recv_bytes())
                    return message
            except (EOFError, OSError):
                return None
            if not process.is_alive():
                return None
        return None

    def _reap(self, patience: float = 0.0) -> int | None:
        """Make sure that the child is gone; its exit code (negative: the signal that ended it).

        One that is about to end gets ``patience`` seconds for it, so that its own code is told.
        """
        if self._process is not None:
            self._process.join(patience)
        with self._lock:
            process, self._process, self._job = self._process, None, None
            if process is None:
                return None
            _kill(process)
            with _births:
                process.join()
            if self._pipe is not None:
                self._pipe.close()
            return process.exitcode

    def interrupt(self, job: Job) -> bool:
        with self._lock:
            if self._job is job and self._process is not None:
                _kill(self._process)
        return True  # Where the job has ended, or not begun, ``run`` returns by itself.

    def kill(self) -> None:
        """Kill the child, whatever it does."""
        with self._lock:
            if self._process is not None:
                _kill(self._process)

    def close(self) -> None:
        if self._pipe is not None and self._process is not None:
            with suppress(OSError):
                self._pipe.send_bytes(b"null")
        self._reap(FAREWELL)


_seats: weakref.WeakSet[ProcessSeat] = weakref.WeakSet()


def _close_all() -> None:
    """At exit, before multiprocessing would wait for children that wait for us."""
    for seat in tuple(_seats):
        seat.kill()


atexit.register(_close_all)  # After the import of multiprocessing, so it is called before multiprocessing's own.


def _kill(process: multiprocessing.process.BaseProcess) -> None:
    """Kill a child that has not been reaped, and what its handler has started."""
    if hasattr(os, "killpg") and process.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _key(job: Job) -> list[object]:
    """What names a claim in the messages of its child."""
    return [job.raw_id.hex(), job.fence]


def _request(job: Job) -> bytes:
    given: dict[str, Any] = {name: getattr(job, name) for name in FIELDS}
    # Byte for byte: whether it is UTF-8 and JSON is found out beside the handler, where it ends this attempt only.
    raw = job.payload_text.encode() if isinstance(job.payload_text, str) else job.payload_text
    given["payload_text"], given["raw_id"] = raw.decode("latin-1"), job.raw_id.hex()
    return json.dumps(given).encode()


def _reply(what: Settlement | End) -> dict[str, Any]:
    match what:
        case Complete(_, result):
            return {"complete": result}
        case Fail(_, error, delay_us, for_good):
            return {"fail": error, "delay_us": delay_us, "for_good": for_good}
        case Release(_, _, delay_us):
            return {"release": delay_us}
        case _:
            return {"end": what.value}


def _settlement(job: Job, message: dict[str, Any]) -> Settlement | End:
    match message:
        case {"complete": result}:
            return Complete(job, None if result is None else JsonText(result))
        case {"fail": error, "delay_us": delay_us, "for_good": for_good}:
            return Fail(job, error, delay_us, for_good)
        case {"release": delay_us}:
            return Release(job, delay_us=delay_us)
        case _:
            return End.SETTLED


# In the child


class _Claim(Job):
    """A claim whose parent is told at once that ``completing`` settled it: it would kill a handler without lease."""

    __slots__ = ("_settled", "_tell")
    _tell: Callable[[], None]
    _settled: bool

    @property
    def settled(self) -> bool:
        return self._settled

    @settled.setter
    def settled(self, value: bool) -> None:
        self._settled = value
        if value:
            self._tell()


def child(pipe: Connection, source: bytes) -> None:
    """The life of a child: one job after the other, until the parent says so, or is gone."""
    _leave_signals_to_the_parent()
    _die_with_the_parent()
    handlers: Handlers = pickle.loads(source)
    requests: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, requests), daemon=True).start()
    loop = EventLoop("child")
    seat = CoroutineSeat(handlers, loop)
    pipe.send_bytes(b'{"ready": true}')
    while (given := requests.get()) is not None:
        given["payload_text"], given["raw_id"] = given["payload_text"].encode("latin-1"), bytes.fromhex(given["raw_id"])
        job = _Claim.__new__(_Claim)
        job._tell = partial(_say, pipe, job, {"settled": True})
        job.__init__(**given)  # type: ignore[misc]
        _say(pipe, job, _reply(seat.run(job)))
    loop.close(FAREWELL)


def _say(pipe: Connection, job: Job, message: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps({"of": _key(job), **message}).encode())


def _listen(pipe: Connection, requests: SimpleQueue[dict[str, Any] | None]) -> None:
    while True:
        try:
            requests.put(json.loads(pipe.recv_bytes()))
        except (EOFError, OSError):
            os._exit(1)  # The parent is gone, and with it the lease of whatever runs here.


def _leave_signals_to_the_parent() -> None:
    """A terminal's Ctrl-C or a service manager's SIGTERM reaches every process; only the worker decides what it means.

    Handlers that do nothing, rather than SIG_IGN, which programs that a job starts would inherit.
    """
    forks.serve_signals(("SIGINT", "SIGTERM", "SIGHUP"), lambda *_: None)
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # So that what a handler starts is killed with it.


def _die_with_the_parent() -> None:
    """Linux kills this process when the parent's thread ends, even if a handler blocks every thread here."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
