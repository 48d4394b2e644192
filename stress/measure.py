"""Latencies as HdrHistograms (microseconds), and samples for the charts. Both can be added up over processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from stress.history import Call

LONGEST = 3600 * 1_000_000
SAMPLES = 1500
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)


def _histogram() -> HdrHistogram:
    return HdrHistogram(1, LONGEST, 2)


@dataclass(slots=True)
class Measures:
    """`latency` by name; `rate` counts what happened in each second of the monotonic clock, by name."""

    latency: dict[str, HdrHistogram] = field(default_factory=dict)
    rate: dict[str, Counter[int]] = field(default_factory=dict)
    attempts: Counter[int] = field(default_factory=Counter)
    backoffs: list[tuple[int, int]] = field(default_factory=list)  # Attempts, and the delay in microseconds.
    backoffs_seen: int = 0

    def __getstate__(self) -> tuple[object, ...]:
        """For the way from one process to another: a histogram itself cannot be pickled."""
        encoded = {name: histogram.encode() for name, histogram in self.latency.items()}
        return encoded, self.rate, self.attempts, self.backoffs, self.backoffs_seen

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        encoded, self.rate, self.attempts, self.backoffs, self.backoffs_seen = state
        self.latency = {name: HdrHistogram.decode(text) for name, text in encoded.items()}

    def took(self, name: str, microseconds: int) -> None:
        if name not in self.latency:
            self.latency[name] = _histogram()
        self.latency[name].record_value(min(max(microseconds, 1), LONGEST))

    def happened(self, name: str, at: int, times: int = 1) -> None:
        self.rate.setdefault(name, Counter())[at // 1_000_000] += times

    def backed_off(self, attempts: int, delay: int) -> None:
        """Keeps a sample of bounded size, each backoff as likely as any other."""
        self.backoffs_seen += 1
        if len(self.backoffs) < SAMPLES:
            self.backoffs.append((attempts, delay))
        elif (place := Random(self.backoffs_seen).randrange(self.backoffs_seen)) < SAMPLES:
            self.backoffs[place] = (attempts, delay)

    def call(self, call: Call) -> None:
        took = call.ret - call.inv
        match call.kind:
            case "exchange":
                settlements, claims = call.args[4], call.reply[1]
                if claims and not settlements:
                    self.took("claim", took)
                if settlements:
                    self.took("complete", took)
                self.happened("claimed", call.ret, len(claims))
                self.happened("settled", call.ret, sum(reply is not None for reply in call.reply[0]))
            case "enqueue":
                self.took("enqueue", took)
                self.happened("enqueued", call.ret, len(call.args[1]) if call.reply[0] == "ids" else 0)

    def add(self, other: Measures) -> None:
        for name, histogram in other.latency.items():
            self.latency.setdefault(name, _histogram()).add(histogram)
        for name, counts in other.rate.items():
            self.rate.setdefault(name, Counter()).update(counts)
        self.attempts.update(other.attempts)
        self.backoffs = (self.backoffs + other.backoffs)[: 2 * SAMPLES]
        self.backoffs_seen += other.backoffs_seen

    def percentiles(self) -> dict[str, dict[str, float]]:
        """In milliseconds."""
        return {
            name: {f"p{at:g}": histogram.get_value_at_percentile(at) / 1000 for at in PERCENTILES}
            | {"count": float(histogram.get_total_count())}
            for name, histogram in sorted(self.latency.items())
        }
