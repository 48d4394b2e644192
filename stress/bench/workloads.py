"""The workloads W1 to W8: what each side does, on fresh ground, and which ratio is the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import cycle, repeat
from typing import Any

from stress.bench.ground import BACKLOGS, fill, payloads
from stress.bench.measure import Sample, timed
from stress.bench.ours import Ours, Synchronous, drain_in_processes
from stress.bench.raw_sqlite import BareSqlite, RawSqlite

Ground = Callable[[], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much each workload does in a round, and how many rounds there are: many short ones, on a noisy machine."""

    rounds: int
    single: int  # One by one.
    bulk: int
    backlog: int  # Rows of each unwanted kind.
    claims: int  # Claims in front of a backlog.
    growth: tuple[int, ...]
    wakeups: int  # Jobs that an idle worker is woken for.
    idle: float  # Seconds.


QUICK = Scale(
    rounds=5,
    single=1_000,
    bulk=20_000,
    backlog=50_000,
    claims=500,
    growth=(1_000, 10_000, 100_000),
    wakeups=50,
    idle=5.0,
)
FULL = Scale(
    rounds=9,
    single=2_000,
    bulk=50_000,
    backlog=1_000_000,
    claims=2_000,
    growth=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    wakeups=200,
    idle=20.0,
)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a workload. ``run`` gets the URL of its ground, and returns one sample.

    Its ground is fresh for each round; or, if it has a ``history`` to be made first, the same for all.
    """

    name: str
    run: Callable[[str], Sample]
    history: Callable[[str], object] | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Sides that are measured in turn; ``targets`` are (side over side, least ratio)."""

    name: str
    what: str
    sides: tuple[Side, ...]
    targets: tuple[tuple[str, str, float], ...]


class Bench:
    """Builds the workloads for one backend and durability."""

    def __init__(self, scale: Scale, synchronous: Synchronous, postgres: bool) -> None:
        self.scale, self.synchronous, self.postgres = scale, synchronous, postgres

    def workloads(self) -> Iterator[Workload]:
        yield self.w1()
        yield self.w2()
        yield self.w3()
        yield self.w5()
        yield self.w6()

    def raw(self, url: str) -> Any:
        if self.postgres:
            from stress.bench.raw_postgres import RawPostgres

            return RawPostgres(url)
        return RawSqlite(url, self.synchronous)

    def bare(self, url: str) -> BareSqlite:
        return BareSqlite(url, self.synchronous)

    def ours(self, url: str) -> Ours:
        return Ours(url, self.synchronous)

    def side(
        self,
        name: str,
        make: Callable[[str], Any],
        work: Callable[[Any], Sample],
        prepare: Callable[[Any], object] | None = None,
    ) -> Side:
        def run(url: str) -> Sample:
            actor = make(url)
            try:
                if prepare is not None:
                    prepare(actor)
                return work(actor)
            finally:
                actor.close()

        return Side(name, run)

    def _sides(self, work: Callable[[Any], Sample], prepare: Callable[[Any], object] | None = None) -> tuple[Side, ...]:
        raw = (self.side("raw", self.raw, work, prepare),)
        bare = () if self.postgres else (self.side("bare table", self.bare, work, prepare),)
        return raw + bare

    def w1(self) -> Workload:
        items = payloads(self.scale.single)
        ours = self.side("ours", self.ours, lambda side: side.enqueue(items))
        least = 0.85 if self.postgres else 0.8
        sides = (*self._sides(lambda side: side.enqueue(items)), ours)
        return Workload("W1", "enqueue one by one", sides, (("ours", "raw", least),))

    def w2(self) -> Workload:
        items = payloads(self.scale.bulk)
        ours = self.side("ours", self.ours, lambda side: side.enqueue_many(items, 1000))
        sides = (*self._sides(lambda side: side.enqueue_many(items, 1000)), ours)
        return Workload("W2", "enqueue_many, 1000 a call", sides, (("ours", "raw", 0.6),))

    def w3(self) -> Workload:
        count, items = self.scale.single, payloads(self.scale.single)

        def prepare(side: Any) -> object:
            return side.enqueue_many(items, 1000)

        sides = (
            self.side("raw, two commits", self.raw, lambda side: side.drain_split(count), prepare),
            self.side("raw, fused", self.raw, lambda side: side.drain_fused(count), prepare),
            *(
                ()
                if self.postgres
                else (self.side("bare table", self.bare, lambda side: side.drain_split(count), prepare),)
            ),
            self.side("calls", self.ours, lambda side: side.drain_calls(count), prepare),
            self.side("worker", self.ours, lambda side: side.drain_worker(count, 1), prepare),
        )
        targets = [("worker", "raw, two commits", 0.9)]
        if not self.postgres:
            targets += [("worker", "raw, fused", 0.75), ("worker", "bare table", 0.6)]
        return Workload("W3", "drain one at a time", sides, tuple(targets))

    def w5(self) -> Workload:
        count, items = self.scale.bulk, payloads(self.scale.bulk)

        def prepare(side: Any) -> object:
            return side.enqueue_many(items, 1000)

        sides = (
            *self._sides(lambda side: side.drain_fused(count, 100), prepare),
            self.side("worker", self.ours, lambda side: side.drain_worker(count, 100), prepare),
        )
        return Workload("W5", "drain in batches of 100", sides, (("worker", "raw", 0.8 if self.postgres else 0.65),))

    def w6(self) -> Workload:
        def behind(name: str, kinds: Iterator[tuple[str, str, int, int]], size: int, count: int) -> Side:
            items = payloads(count)
            side = self.side(
                name, self.ours, lambda ours: ours.drain_calls(count), lambda ours: ours.enqueue_many(items, 1000)
            )
            return replace(side, history=lambda url: fill(url, kinds, size))

        size, count = self.scale.backlog, self.scale.claims
        types = cycle([("pending", f"type{n}", 9, -60) for n in range(1000)])
        priorities = cycle([("pending", "job", n, 86_400) for n in range(1, 1001)])
        sides = (
            behind("nothing", repeat(BACKLOGS["finished"]), 0, count),
            *(behind(name, repeat(kind), size, count) for name, kind in BACKLOGS.items()),
            behind("1000 other types", types, size, count),
            behind("1000 priorities, due later", priorities, size, count // 10),
        )
        targets = tuple((name, "nothing", 0.8) for name in BACKLOGS)
        return Workload("W6", f"claim and complete behind {size:,} jobs", sides, targets)

    def w4(self, url: str, processes: int) -> tuple[Sample, list[int]]:
        """Drain with worker processes: the sample, and how many jobs each of them took."""
        count = self.scale.bulk // 2
        side = self.ours(url)
        side.enqueue_many(payloads(count), 1000)
        side.close()
        seconds, shares = drain_in_processes(url, self.synchronous, processes, 1 if self.postgres else 100)
        return Sample(count, seconds), shares

    def w8(self, url: str, rows: int) -> tuple[Sample, Sample]:
        """Enqueue and drain on a table that already has ``rows`` finished jobs."""
        fill(url, repeat(BACKLOGS["finished"]), rows)
        side = self.ours(url)
        try:
            enqueued = timed(self.scale.claims, lambda: side.enqueue(payloads(self.scale.claims)))
            return enqueued, side.drain_calls(self.scale.claims)
        finally:
            side.close()
