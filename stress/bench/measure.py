"""One measurement: how many operations in how much time, and how long single ones took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one side: ``operations`` in ``seconds``; ``latencies`` of single operations in seconds, if taken."""

    operations: int
    seconds: float
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.operations / self.seconds if self.seconds else float("inf")


def timed(operations: int, work: Callable[[], object]) -> Sample:
    """Time ``work`` as a whole."""
    start = time.perf_counter()
    work()
    return Sample(operations, time.perf_counter() - start)


def each(operations: int, step: Callable[[int], object]) -> Sample:
    """Time ``step`` for 0, 1, 2 …, one by one."""
    clock, latencies = time.perf_counter, []
    start = before = clock()
    for number in range(operations):
        step(number)
        after = clock()
        latencies.append(after - before)
        before = after
    return Sample(operations, before - start, latencies)


@dataclass(frozen=True, slots=True)
class Summary:
    """The median rate of several samples, and percentiles over all their latencies."""

    rate: float
    p50_us: float | None
    p99_us: float | None


def summary(samples: list[Sample]) -> Summary:
    latencies = sorted(latency for sample in samples for latency in sample.latencies)
    return Summary(
        median(sample.rate for sample in samples),
        _percentile(latencies, 0.50),
        _percentile(latencies, 0.99),
    )


def _percentile(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1_000_000
