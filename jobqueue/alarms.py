"""Sleeps that other threads end early. Ringing takes no Python lock, so that a signal handler may do it too."""

from __future__ import annotations

import threading
from math import inf

from jobqueue.clock import Clock
from jobqueue.protocols import Wakeup


class Alarm:
    """A sleep that ``ring`` ends; a ring that comes before the sleep counts. For one sleeper."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent = threading.Lock()  # Held while nobody has rung.
        self._silent.acquire()

    def ring(self) -> None:
        try:
            self._silent.release()
        except RuntimeError:  # It has rung already.
            return

    def sleep(self, until: float) -> bool:
        """Sleep until that instant of the monotonic clock; whether a ring ended it."""
        seconds = until - self._clock.monotonic()
        return self._silent.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def rung(self) -> bool:
        """Take a ring that has come already."""
        return self._silent.acquire(blocking=False)


class Timer:
    """An alarm for a sleeper with deadlines, of which others may announce earlier ones."""

    def __init__(self, clock: Clock) -> None:
        self._alarm = Alarm(clock)
        self._lock = threading.Lock()
        self._announced = inf
        self._asleep_until = -inf
        self.ring = self._alarm.ring

    def announce(self, instant: float) -> None:
        """Something will be due at ``instant``. It counts until the sleeper next wakes, which then looks for itself."""
        with self._lock:
            self._announced = min(self._announced, instant)
            early = instant < self._asleep_until
        if early:
            self._alarm.ring()

    def sleep(self, until: float) -> None:
        """Sleep until that instant, or the earliest announced one, or a ring."""
        with self._lock:
            self._asleep_until = until = min(until, self._announced)
        self._alarm.sleep(until)
        with self._lock:
            self._asleep_until, self._announced = -inf, inf


class Bell:
    """An alarm that, where asked, also listens to the database (W-9)."""

    def __init__(self, wakeup: Wakeup, clock: Clock) -> None:
        self._wakeup, self._clock = wakeup, clock
        self._alarm = Alarm(clock)
        self._listening = False
        self.arm = wakeup.arm
        self.close = wakeup.close

    def ring(self) -> None:
        self._alarm.ring()
        # Set before the sleeper looks for a ring: either it finds this one, or this ends its sleep.
        if self._listening:
            self._wakeup.wake()

    def sleep(self, until: float, *, listen: bool) -> bool:
        """Sleep until that instant or a ring; if ``listen`` also until the database changes, which is told by True."""
        if not listen:
            self._alarm.sleep(until)
            return False
        self._listening = True
        try:
            if self._alarm.rung():
                return False
            changed = self._wakeup.wait(min(max(until - self._clock.monotonic(), 0.0), 3600.0))
            return changed and not self._alarm.rung()
        finally:
            self._listening = False
