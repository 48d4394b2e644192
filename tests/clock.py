"""A clock that only a test moves."""

from __future__ import annotations

import os
import random
import threading
import time
from datetime import timedelta

START_US = 1_750_000_000_123_456  # 2025-06-15T15:06:40.123456Z: not a whole second, so that lost fractions show.


class ManualClock:
    """jobqueue.clock.Clock, stepped by hand. Wall-clock time stands still until ``advance`` or ``now`` is called.

    ``sleep`` moves the monotonic clock only, after a real moment in which another thread or process can get on: so a
    wait for a lock ends by its deadline, and the instants that a test expects stay as they are.
    """

    def __init__(self, now_us: int = START_US, seed: int = 0) -> None:
        self._now_us = now_us
        self._monotonic = 1000.0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.005))
        with self._lock:
            self._monotonic += seconds

    def draw(self) -> float:
        return self._random.random()

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    def advance(self, by: float | timedelta) -> None:
        """Move both clocks on, by seconds or a timedelta."""
        micros = by // timedelta(microseconds=1) if isinstance(by, timedelta) else round(by * 1_000_000)
        with self._lock:
            self._now_us += micros
            self._monotonic += micros / 1_000_000

    def set(self, now_us: int) -> None:
        """Set the wall clock, back as well as forth; the monotonic clock does not move."""
        self._now_us = now_us
