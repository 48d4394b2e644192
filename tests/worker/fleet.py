"""A fleet of worker cores over a simulated table, in one thread under virtual time.

The table knows the few rules that workers lean on (claims, leases, compare-and-set); handlers are durations. All chance
comes from one random source, so that a run can be repeated. What a core must never do is asserted as it happens.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

from jobqueue import events
from jobqueue.core import Core, Settings
from jobqueue.events import End, Outcome
from jobqueue.types import (
    Complete,
    Expired,
    Extended,
    Fail,
    Job,
    Lost,
    Release,
    Reply,
    Settled,
    Settlement,
    Status,
)
from jobqueue.values import id_raw

RING_EVERY = 0.02


@dataclass
class Row:
    """One job, and what its handler will do."""

    id: str
    takes: float
    max_attempts: int = 3
    timeout: float | None = None
    due: float = 0.0
    status: Status = Status.PENDING
    attempts: int = 0
    fence: int = 0
    worker: str | None = None
    lease_at: float = inf
    begun: int = 0
    swept: int = 0


class Table:
    """What the database answers, at one instant each."""

    def __init__(self, rows: Sequence[Row], lease: float) -> None:
        self.rows = {row.id: row for row in rows}
        self.lease = lease

    def over(self) -> bool:
        return all(row.status in (Status.COMPLETED, Status.DEAD) for row in self.rows.values())

    def held(self, job: Job) -> Row | None:
        row = self.rows[job.id]
        return row if row.status is Status.RUNNING and (row.fence, row.worker) == (job.fence, job.worker) else None

    def settle(self, now: float, settlement: Settlement) -> Reply:
        row = self.held(settlement.job)
        if row is None:
            return Lost()
        match settlement:
            case Complete():
                row.status = Status.COMPLETED
            case Release(_, begun, _) if not (begun and row.max_attempts == 1):
                row.status, row.attempts = Status.PENDING, row.attempts - 1
            case Release():
                row.status = Status.DEAD
            case Fail():
                self.fail(now, row)
        row.worker, row.lease_at = None, inf
        return Settled(row.status)

    def fail(self, now: float, row: Row) -> None:
        row.status = Status.DEAD if row.attempts >= row.max_attempts else Status.FAILED
        row.due, row.worker, row.lease_at = now + 1.0, None, inf

    def claim(self, now: float, n: int, worker: str) -> list[Job]:
        claims: list[Job] = []
        for row in self.rows.values():
            if len(claims) < n and row.status in (Status.PENDING, Status.FAILED) and row.due <= now:
                row.status, row.worker, row.lease_at = Status.RUNNING, worker, now + self.lease
                row.attempts, row.fence = row.attempts + 1, row.fence + 1
                claims.append(_job(row))
        return claims

    def extend(self, now: float, job: Job) -> Extended | Lost:
        row = self.held(job)
        if row is None:
            return Lost()
        row.lease_at = max(row.lease_at, now + self.lease)
        return Extended(round(row.lease_at * 1e6))

    def expired(self, now: float) -> list[Expired]:
        return [_look(row) for row in self.rows.values() if row.status is Status.RUNNING and row.lease_at <= now]

    def sweep(self, now: float, looked: Sequence[Expired]) -> list[Row]:
        swept = [
            row
            for look in looked
            if (row := self.rows[look.id]).status is Status.RUNNING and row.lease_at <= now and _look(row) == look
        ]
        for row in swept:
            row.swept += 1
            self.fail(now, row)
        return swept

    def next_due(self) -> float | None:
        due = [row.due for row in self.rows.values() if row.status in (Status.PENDING, Status.FAILED)]
        return min(due, default=None)


def _job(row: Row) -> Job:
    timeout_us = None if row.timeout is None else round(row.timeout * 1e6)
    assert row.worker is not None
    numbers = (0, row.attempts, row.max_attempts, 0, 0, 0, 0, 0)
    return Job(id_raw(row.id), row.fence, row.worker, "x", *numbers, timeout_us, None, None, "null")


def _look(row: Row) -> Expired:
    return Expired(row.id, 0, row.fence, round(row.lease_at * 1e6), row.attempts, row.max_attempts)


@dataclass
class World:
    """Virtual time, the table, and how long each thing takes. ``locked_until``: no call commits before."""

    table: Table
    random: Random
    latency: float = 0.002
    failing: float = 0.0  # The share of exchanges whose answer is lost, half of them after they happened.
    now: float = 0.0
    locked_until: float = 0.0
    hands: list[Hand] = field(default_factory=list)
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: int = 0

    def at(self, instant: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (max(instant, self.now), self._number, what))

    def soon(self) -> float:
        return self.now + self.random.uniform(0, self.latency)

    def call(self, hand: Hand, work: Callable[[], None]) -> None:
        """A call of the database: it commits after a while, in the order of arrival while someone holds the lock."""
        self.at(max(self.soon(), self.locked_until), lambda: work() if hand.alive else None)

    def changed(self, by: Hand) -> None:
        for hand in self.hands:
            if hand is not by:
                hand.database_changed()

    def run(self, until: float, done: Callable[[], bool]) -> None:
        while self._queue and not done():
            instant, _, what = heapq.heappop(self._queue)
            if instant > until:
                raise AssertionError(f"not done at {until}: {[vars(row) for row in self.table.rows.values()]}")
            self.now = instant
            what()
        assert done(), "everybody sleeps for ever"


class Hand:
    """One worker: a core, and slots whose handlers are durations."""

    def __init__(self, world: World, name: str, settings: Settings) -> None:
        self.world, self.name, self.settings = world, name, settings
        self.core = Core(settings, world.now)
        self.alive = True
        self.finished: events.Finish | None = None
        self.stopping_since = inf
        self.line: list[tuple[Job, float]] = []
        self.slots: dict[Job, float] = {}
        self.ended: list[Outcome] = []
        self.sent: defaultdict[Job, list[Settlement]] = defaultdict(list)
        self.looks: list[tuple[float, float, frozenset[Expired]]] = []
        self.rest: events.Rest | None = None
        self.dirty = False
        self.rung = 0.0
        world.hands.append(self)
        world.at(world.now, self.report)

    # What happens to it

    def crash(self) -> None:
        self.alive = False

    def stop(self) -> None:
        self.stopping_since = min(self.stopping_since, self.world.now)
        self.feed(events.StopAsked(self.world.now))

    def database_changed(self) -> None:
        self.dirty = True
        if self.rest is not None and self.rest.listen:
            self.world.at(self.world.soon(), lambda: self.feed(events.Changed(self.world.now)))

    def report(self) -> None:
        ended, self.ended = self.ended, []
        self.feed(events.Progress(self.world.now, list(self.slots.items()), ended))

    def feed(self, event: events.Event) -> None:
        if not self.alive or self.finished is not None:
            return
        for effect in self.core.handle(event):
            self.perform(effect)
        occupied = len(self.core.waiting) + len(self.core.running)
        assert occupied <= max(self.settings.concurrency, self.settings.batch), "W-1: claims that cannot start soon"
        assert len(self.slots) <= self.settings.concurrency, "more handlers at a time than were asked for"

    # What it does

    def perform(self, effect: events.Effect) -> None:
        world = self.world
        match effect:
            case events.Exchange(settlements, n):
                self.exchange(settlements, n)
            case events.AskDue():
                due = world.table.next_due()
                seconds = None if due is None else due - world.now
                world.at(world.soon(), lambda: self.feed(events.DueKnown(world.now, seconds)))
            case events.Rest(until, listen):
                self.rest = effect
                if until < inf:
                    world.at(until, lambda: self.report() if self.rest is effect else None)
                if listen and self.dirty:
                    self.database_changed()
            case events.Start(jobs, until):
                self.line += [(job, until) for job in jobs]
                self.fill()
            case events.Withdraw(jobs):
                gone = [job for job, _ in self.line if job in jobs]
                self.line = [entry for entry in self.line if entry[0] not in jobs]
                self.feed(events.Withdrawn(world.now, gone))
            case events.Abandon(job, reason) | events.Tell(job, reason):
                job.lost = reason
                if isinstance(effect, events.Abandon) and self.slots.pop(job, None) is not None:
                    self.ended.append(Outcome(job, End.STOPPED, 0.0))
                    self.fill()
                    world.at(world.now, self.report)
            case events.Renew(jobs):
                self.renew(jobs)
            case events.Look():
                self.look(world.now)
            case events.Sweep(looked):
                self.sweep(looked)
            case events.Sleep(until):
                if until < inf:
                    world.at(until, self.report)
            case events.Finish():
                self.finished = effect

    def exchange(self, settlements: Sequence[Settlement], n: int) -> None:
        world, self.rest, self.dirty = self.world, None, False
        assert n == 0 or self.stopping_since == inf, "W-1: no claims once stopping"
        for settlement in settlements:
            sent = self.sent[settlement.job]
            assert not sent or sent[0] is settlement, "W-4: each claim has one settlement"
            sent.append(settlement)

        def commit() -> None:
            draw = world.random.random()
            if draw < world.failing / 2:
                world.at(world.soon(), lambda: self.feed(events.ExchangeFailed(world.now)))
                return
            replies = [world.table.settle(world.now, settlement) for settlement in settlements]
            jobs = world.table.claim(world.now, n, self.name)
            if jobs or settlements:
                world.changed(self)
            if draw < world.failing:
                world.at(world.soon(), lambda: self.feed(events.ExchangeFailed(world.now)))
            else:
                world.at(world.soon(), lambda: self.feed(events.Exchanged(world.now, replies, jobs)))

        world.call(self, commit)

    def renew(self, jobs: Sequence[Job]) -> None:
        world = self.world

        def commit() -> None:
            replies = [world.table.extend(world.now, job) for job in jobs]
            world.at(world.soon(), lambda: self.feed(events.Renewed(world.now, replies)))

        world.call(self, commit)

    def look(self, since: float) -> None:
        world = self.world

        def commit() -> None:
            found = world.table.expired(world.now)
            self.looks.append((since, world.now, frozenset(found)))
            world.at(world.soon(), lambda: self.feed(events.Looked(world.now, found)))

        world.call(self, commit)

    def sweep(self, looked: Sequence[Expired]) -> None:
        (_, first, before), (_, second, after) = self.looks[-2:]
        assert second - first > self.settings.heartbeat, "W-3: two looks more than a heartbeat apart"
        assert before & after >= set(looked), "W-3: found expired twice, unmoved"
        self.world.call(self, lambda: self.swept(self.world.table.sweep(self.world.now, looked)))

    def swept(self, rows: Sequence[Row]) -> None:
        if rows:
            self.world.changed(self)

    # Its handlers

    def fill(self) -> None:
        while self.line and len(self.slots) < self.settings.concurrency:
            job, until = self.line.pop(0)
            if job.lost is not None:
                self.ended.append(Outcome(job, End.SKIPPED, 0.0))
            elif self.world.now >= until:
                self.ended.append(Outcome(job, Release(job, begun=False), 0.0))
            else:
                self.begin(job)
        if not self.line and self.ended:
            self.world.at(self.world.now, self.report)

    def begin(self, job: Job) -> None:
        world, row = self.world, self.world.table.rows[job.id]
        row.begun += 1
        self.slots[job] = world.now
        if row.timeout is not None:
            world.at(world.now + row.timeout, self.report)
        world.at(world.now + row.takes, lambda: self.end(job, row.takes))

    def end(self, job: Job, seconds: float) -> None:
        if not self.alive:
            return
        self.slots.pop(job, None)  # Gone already, if it was abandoned; the late outcome is reported all the same.
        self.ended.append(Outcome(job, Complete(job), seconds))
        self.fill()
        if not self.line or self.world.now - self.rung > RING_EVERY:
            self.rung = self.world.now
            self.report()
