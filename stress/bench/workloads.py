"""The workloads W1 to W8: what each side does, on fresh ground, and which ratio is the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle, repeat
from typing import Any

from stress.bench.ground import BACKLOGS, fill, payloads
from stress.bench.measure import Sample, timed
from stress.bench.ours import Ours, Synchronous, drain_in_processes
from stress.bench.raw_sqlite import BareSqlite, RawSqlite

Ground = Callable[[], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much each workload does."""

    single: int  # One by one.
    bulk: int
    backlog: int  # Rows of each unwanted kind.
    claims: int  # Claims in front of a backlog.
    growth: tuple[int, ...]
    wakeups: int  # Jobs that an idle worker is woken for.
    idle: float  # Seconds.


QUICK = Scale(
    single=1_000, bulk=20_000, backlog=50_000, claims=500, growth=(1_000, 10_000, 100_000), wakeups=50, idle=5.0
)
FULL = Scale(
    single=5_000,
    bulk=100_000,
    backlog=1_000_000,
    claims=2_000,
    growth=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    wakeups=200,
    idle=20.0,
)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a workload. ``run`` gets the URL of fresh ground and returns one sample."""

    name: str
    run: Callable[[str], Sample]


@dataclass(frozen=True, slots=True)
class Workload:
    """Sides that are measured in turn; ``targets`` are (side over side, least ratio)."""

    name: str
    what: str
    sides: tuple[Side, ...]
    targets: tuple[tuple[str, str, float], ...]
    rounds: int = 3


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
        count, items = self.scale.claims, payloads(self.scale.claims)

        def behind(kinds: Iterator[tuple[str, str, int, int]] | None) -> Callable[[Ours], object]:
            def prepare(side: Ours) -> object:
                if kinds is not None:
                    fill(side.url, kinds, self.scale.backlog)
                return side.enqueue_many(items, 1000)

            return prepare

        backlogs = {name: repeat(kind) for name, kind in BACKLOGS.items()}
        wide: dict[str, Iterator[tuple[str, str, int, int]]] = {
            "1000 other types": cycle([("pending", f"type{n}", 9, -60) for n in range(1000)]),
            "1000 priorities, due later": cycle([("pending", "job", n, 86_400) for n in range(1, 1001)]),
        }
        sides = [self.side("nothing", self.ours, lambda side: side.drain_calls(count), behind(None))]
        for name, kinds in {**backlogs, **wide}.items():
            sides.append(self.side(name, self.ours, lambda side: side.drain_calls(count), behind(kinds)))
        return Workload(
            "W6",
            f"claim and complete behind {self.scale.backlog:,} jobs",
            tuple(sides),
            tuple((name, "nothing", 0.8) for name in backlogs),
            rounds=1 if self.scale.backlog > 100_000 else 2,
        )

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
