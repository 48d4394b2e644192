"""Backoff between attempts (spec §7). Pure: chance is an argument, durations are microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from jobqueue.errors import InvalidArgument
from jobqueue.values import Duration, duration

SECOND = 1_000_000
LONGEST = 3650 * 86_400 * SECOND  # Checked at once: recording a failure must not meet a delay that cannot be stored.
MAX_DOUBLINGS = 62  # 2^62 µs is 146,000 years: beyond any cap, and far from overflow in any port.


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed job waits: ``min(cap, base·2^(attempts−1))`` plus up to ``jitter`` of that."""

    base_us: int = 5 * SECOND
    cap_us: int = 3600 * SECOND
    jitter: float = 0.1

    def __post_init__(self) -> None:
        whole = all(type(micros) is int and 0 <= micros <= LONGEST for micros in (self.base_us, self.cap_us))
        if not whole or type(self.jitter) not in (int, float) or not 0 <= self.jitter <= 1:
            raise InvalidArgument(
                f"a backoff has a base and a cap of 0 to 3650 days, and a jitter from 0 to 1, not {self}"
            )

    @classmethod
    def of(cls, base: Duration = 5, cap: Duration = 3600, jitter: float = 0.1) -> Backoff:
        """A backoff from ``base`` and ``cap`` as seconds or timedelta, like ``Backoff.of(base=1)``."""
        return cls(duration(base, "base", zero=True), duration(cap, "cap", zero=True), jitter)

    def plain(self, attempts: int) -> int:
        """The delay in µs after ``attempts`` attempts, without jitter: never decreasing, never above the cap (G-11)."""
        doublings = min(max(attempts, 1) - 1, MAX_DOUBLINGS)
        return min(self.cap_us, self.base_us << doublings)

    def delay(self, attempts: int, draw: float) -> int:
        """The delay in µs for a ``draw`` in [0, 1).

        Never earlier than plain, so a crowd that failed together spreads.
        """
        plain = self.plain(attempts)
        return plain + int(plain * self.jitter * draw)
