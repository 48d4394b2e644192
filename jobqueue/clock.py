"""The only place that reads a clock or draws randomness. Everything else takes time and chance as arguments."""

from __future__ import annotations

import os
import random
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time and chance; tests pass one that they step."""

    def now_us(self) -> int:
        """Wall-clock time: microseconds since 1970-01-01T00:00:00Z."""

    def monotonic(self) -> float:
        """Seconds on a clock that is never set back, for sleeps, heartbeats and timeouts."""

    def sleep(self, seconds: float) -> None:
        """Do nothing for ``seconds`` of the monotonic clock."""

    def draw(self) -> float:
        """A random number in [0, 1), for jitter."""

    def entropy(self, size: int) -> bytes:
        """``size`` random bytes, for ids and worker names: distinct in every process, forked ones too."""


class SystemClock:
    """The machine's own clock and entropy."""

    monotonic = staticmethod(time.monotonic)
    draw = staticmethod(random.random)
    entropy = staticmethod(os.urandom)

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def new_id(now_us: int, entropy: bytes) -> bytes:
    """A UUIDv7 (RFC 9562, section 5.7) of 16 bytes.

    48 bits of milliseconds, then version, variant and 74 random bits.
    """
    head = (now_us // 1000).to_bytes(6, "big")
    return head + bytes((0x70 | entropy[0] & 0x0F, entropy[1], 0x80 | entropy[2] & 0x3F)) + entropy[3:10]
