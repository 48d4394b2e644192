"""A sleep that ends when an SQLite database changes (spec W-9): by inotify, by looking, or in memory by being told.

A change that is missed only costs time: whoever sleeps here also polls at its own ceiling.
"""

from __future__ import annotations

import ctypes
import os
import select
import sqlite3
import struct
import sys
import threading
import weakref
from collections.abc import Iterable

from jobqueue.clock import Clock
from jobqueue.forks import abandon_in_children
from jobqueue.protocols import Wakeup

IN_MODIFY, IN_DELETE_SELF, IN_MOVE_SELF, IN_IGNORED = 0x2, 0x400, 0x800, 0x8000
EVENT = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, length of the name that follows.
SHORTEST_STEP, LONGEST_STEP = 0.001, 0.01  # Seconds between two looks: under 1 % of a core, 5 ms late in the middle.
BLIND = 0.05  # Seconds: how long to sleep at most where a change could not be seen.


def wakeup_for(path: str | None, clock: Clock) -> Wakeup:
    """The best watch on the database file at ``path`` that this system has; None means a database in memory."""
    if path is None:
        return MemoryWakeup()
    if sys.platform == "linux":
        try:
            return InotifyWakeup(path)
        except OSError:  # Out of inotify instances, or a kernel without them.
            pass
    return PollingWakeup(path, clock)


class InotifyWakeup:
    """Watches the ``-wal`` file, to which every commit of every process writes."""

    def __init__(self, path: str) -> None:
        self._wal = os.fsencode(path + "-wal")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._events = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._watch: int | None = None
        try:
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except BaseException:
            os.close(self._events)
            raise
        self._poll = select.poll()
        self._poll.register(self._events, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)

    def _checked(self, result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def arm(self) -> None:
        self._drain()
        if self._watch is None:
            try:
                add = self._libc.inotify_add_watch
                self._watch = self._checked(add(self._events, self._wal, IN_MODIFY | IN_DELETE_SELF | IN_MOVE_SELF))
            except OSError:  # No such file now; the next arm tries again.
                return

    def _drain(self) -> bool:
        """Take the events that have come; whether there were any."""
        try:
            events = os.read(self._events, 65536)
        except BlockingIOError:
            return False
        start = 0
        while start < len(events):
            watch, mask, _, length = EVENT.unpack_from(events, start)
            if watch == self._watch and mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED):
                self._watch = None
            start += EVENT.size + length
        return True

    def wait(self, seconds: float) -> bool:
        if self._watch is None:
            seconds = min(seconds, BLIND)
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        for descriptor, _ in ready:
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
        return bool(ready) or self._watch is None

    def wake(self) -> None:
        try:
            os.eventfd_write(self._bell, 1)
        except (OSError, ValueError):  # Closed meanwhile: nobody waits.
            return

    def close(self) -> None:
        descriptors = self._events, self._bell
        self._events = self._bell = -1  # First, so that a late wake cannot meet a number that was given out again.
        for descriptor in descriptors:
            os.close(descriptor)


class PollingWakeup:
    """Looks at ``PRAGMA data_version``, which changes when any other connection commits, in growing steps."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._clock = clock
        self._bell = threading.Event()
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        self._baseline = 0
        abandon_in_children(self)

    def connections(self) -> Iterable[object]:
        return (self._connection,)

    def arm(self) -> None:
        self._baseline = self._version()

    def _version(self) -> int:
        try:
            version: int = self._connection.execute("pragma data_version").fetchone()[0]
        except sqlite3.Error:  # Whoever polls next will say what is wrong with the file.
            return self._baseline
        return version

    def wait(self, seconds: float) -> bool:
        until, step = self._clock.monotonic() + seconds, SHORTEST_STEP
        while True:
            left = until - self._clock.monotonic()
            if self._bell.wait(max(0.0, min(step, left))):
                self._bell.clear()
                return True
            if self._version() != self._baseline:
                return True
            if left <= step:
                return False
            step = min(step * 1.5, LONGEST_STEP)

    def wake(self) -> None:
        self._bell.set()

    def close(self) -> None:
        self._connection.close()


class MemoryWakeup:
    """Sleeps until ``memory_changed``: a database in memory has no users but this process."""

    def __init__(self) -> None:
        self._bell = threading.Event()
        self._changed = False
        _sleepers.add(self)

    def arm(self) -> None:
        self._changed = False

    def wait(self, seconds: float) -> bool:
        if not self._changed and not self._bell.wait(max(0.0, seconds)):
            return False
        self._bell.clear()
        return True

    def wake(self) -> None:
        self._bell.set()

    def tell(self) -> None:
        self._changed = True
        self._bell.set()

    def close(self) -> None:
        _sleepers.discard(self)


_sleepers: weakref.WeakSet[MemoryWakeup] = weakref.WeakSet()


def memory_changed() -> None:
    """Some database in memory has changed; those who sleep over another one merely look once more."""
    for sleeper in tuple(_sleepers):
        sleeper.tell()
