"""Backoff between attempts (spec §7). Pure: chance is an argument, durations are microseconds."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000
MAX_DOUBLINGS = 62  # 2^62 µs is 146,000 years: beyond any cap, and far from overflow in any port.


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed job waits: ``min(cap, base·2^(attempts−1))`` plus up to ``jitter`` of that."""

    base_us: int = 5 * SECOND
    cap_us: int = 3600 * SECOND
    jitter: float = 0.1

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
