"""The worker core: what it promises, over fleets in virtual time (spec W-1 to W-9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue import core, events
from jobqueue.core import Core, Settings
from jobqueue.events import Effect, End, Outcome
from jobqueue.types import Complete, Expired, Extended, Fail, Job, Lost, Release, Settled, Status
from tests.worker.fleet import Hand, Row, Table, World

DAY = 86_400.0
SETTINGS = Settings(lease=3.0, heartbeat=1.0, concurrency=2, batch=10)


def job(name: str = "a", *, fence: int = 1, timeout: float | None = None, max_attempts: int = 3) -> Job:
    timeout_us = None if timeout is None else round(timeout * 1e6)
    id = name.encode().ljust(16)
    return Job(id, fence, "w", "x", 0, 1, max_attempts, 0, 0, 0, 0, 0, timeout_us, None, None, "null")


def working(jobs: Sequence[Job], settings: Settings = SETTINGS) -> Core:
    """A core at time 0 whose first exchange has brought ``jobs``; they fill its slots and, above two, its line."""
    settings = replace(settings, concurrency=min(len(jobs), settings.concurrency))
    worker = Core(settings, 0.0)
    worker.handle(events.Tick(0.0))
    worker.handle(events.Exchanged(0.0, [], jobs))
    running = [(job, 0.0) for job in jobs[: settings.concurrency]]
    worker.handle(events.Progress(0.0, running, []))
    return worker


def only(effects: Sequence[Effect], *kinds: type) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kinds)]


# Not st.randoms: under a latency of 0 for ever, or answers that are all lost, nothing can be promised.
randoms = st.integers(0, 2**32).map(Random)
rows = st.builds(
    Row,
    id=st.uuids().map(str),
    takes=st.sampled_from([0.0, 0.001, 0.01, 0.3, 2.0, 10.0]),
    max_attempts=st.sampled_from([1, 2, 3]),
    timeout=st.sampled_from([None, None, 0.5, 5.0]),
    due=st.sampled_from([0.0, 0.0, 0.0, 0.7, 10.0]),
)
fleets = st.builds(
    replace,
    st.just(SETTINGS),
    concurrency=st.sampled_from([1, 2, 5]),
    batch=st.sampled_from([1, 10, 100]),
    poll_interval=st.sampled_from([0.1, 2.0]),
)


def world_of(jobs: Sequence[Row], random: Random, failing: float = 0.0) -> World:
    return World(Table(jobs, SETTINGS.lease), random, failing=failing)


@given(
    st.lists(rows, max_size=25, unique_by=lambda row: row.id),
    st.lists(fleets, min_size=1, max_size=3),
    randoms,
    st.sampled_from([0.0, 0.2]),
)
@settings(deadline=None, max_examples=40)
def test_g25_a_fleet_that_loses_answers_ends_every_job(
    jobs: list[Row], fleet: list[Settings], random: Random, failing: float
) -> None:
    world = world_of(jobs, random, failing=failing)
    for number, options in enumerate(fleet):
        Hand(world, f"w{number}", options)
    world.run(DAY, world.table.over)
    for row in jobs:
        assert row.attempts <= row.max_attempts
        assert row.max_attempts > 1 or row.begun <= 1  # G-20
        assert failing or not row.swept, "a live claim was swept, though every call was answered"


@given(
    st.lists(rows, min_size=1, max_size=20, unique_by=lambda row: row.id),
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=4),
    randoms,
)
@settings(deadline=None, max_examples=40)
def test_g24_jobs_of_crashed_workers_are_recovered(jobs: list[Row], crashes: list[float], random: Random) -> None:
    world = world_of(jobs, random)
    for number, instant in enumerate(crashes):
        victim = Hand(world, f"victim{number}", replace(SETTINGS, batch=100))
        world.at(instant, victim.crash)
    Hand(world, "heir", SETTINGS)
    world.run(DAY, world.table.over)
    assert all(row.attempts <= row.max_attempts for row in jobs)
    assert all(row.begun <= 1 for row in jobs if row.max_attempts == 1)


@given(
    st.lists(rows, min_size=1, max_size=20, unique_by=lambda row: row.id),
    st.floats(0.0, 3.0),
    st.one_of(st.none(), st.floats(0.0, 9.0)),
    randoms,
)
@settings(deadline=None, max_examples=40)
def test_w7_a_stop_ends_in_time_and_leaves_nothing_running(
    jobs: list[Row], stop: float, again: float | None, random: Random
) -> None:
    world = world_of(jobs, random)
    hand = Hand(world, "w", SETTINGS)
    world.at(stop, hand.stop)
    if again is not None:
        world.at(stop + again, hand.stop)
    world.run(DAY, lambda: hand.finished is not None)
    grace = SETTINGS.grace if again is None else min(again, SETTINGS.grace)
    assert world.now <= stop + grace + core.LAST_WORD + 1e-6
    assert not [row for row in jobs if row.status is Status.RUNNING]
    assert hand.finished == events.Finish(0)


@given(st.lists(rows, max_size=20, unique_by=lambda row: row.id), fleets, randoms)
@settings(deadline=None, max_examples=40)
def test_a_drain_ends_when_no_job_is_due(jobs: list[Row], options: Settings, random: Random) -> None:
    world = world_of(jobs, random)
    hand = Hand(world, "w", replace(options, drain=True))
    world.run(DAY, lambda: hand.finished is not None)
    assert not [row for row in jobs if row.status is Status.RUNNING]
    waiting = [row for row in jobs if row.status in (Status.PENDING, Status.FAILED)]
    assert all(row.due > world.now - 1.0 for row in waiting), "a job was due, and left"


@given(st.lists(st.sampled_from([0.001, 0.1, 2.0, 20.0]), min_size=1, max_size=10), randoms)
@settings(deadline=None, max_examples=40)
def test_w2_every_held_claim_is_renewed_long_before_its_lease_ends(takes: list[float], random: Random) -> None:
    jobs = [Row(str(UUID(int=number)), seconds) for number, seconds in enumerate(takes)]
    world = world_of(jobs, random)
    Hand(world, "w", SETTINGS)

    def watch() -> None:
        for row in jobs:
            if row.status is Status.RUNNING:
                left = row.lease_at - world.now
                assert left >= SETTINGS.lease - SETTINGS.heartbeat - 0.1
        world.at(world.now + 0.05, watch)

    watch()
    world.run(DAY, world.table.over)


@given(randoms, st.floats(3.0, 30.0), st.integers(2, 4))
@settings(deadline=None, max_examples=40)
def test_w3_a_lock_held_for_longer_than_a_lease_gets_no_live_job_swept(
    random: Random, locked: float, workers: int
) -> None:
    jobs = [Row(str(UUID(int=number)), 60.0, max_attempts=1) for number in range(2 * workers)]
    world = world_of(jobs, random)
    for number in range(workers):
        Hand(world, f"w{number}", SETTINGS)

    def lock() -> None:
        world.locked_until = world.now + locked

    for instant in (1.0, 1.0 + locked + 2.0):
        world.at(instant, lock)
    world.run(DAY, world.table.over)
    assert [row.status for row in jobs] == [Status.COMPLETED] * len(jobs)


def test_w1_slow_handlers_are_never_claimed_for_in_advance() -> None:
    worker = Core(SETTINGS, 0.0)
    assert only(worker.handle(events.Tick(0.0)), events.Exchange) == [events.Exchange((), 2)]
    a, b = job("a"), job("b")
    worker = working([a, b])
    done = [Outcome(a, Complete(a), 10.0)]
    [exchange] = only(worker.handle(events.Progress(10.0, [(b, 0.0)], done)), events.Exchange)
    assert isinstance(exchange, events.Exchange)
    assert exchange.n == 1


def test_w1_the_line_grows_only_while_handlers_are_quick() -> None:
    worker, names, asked = Core(replace(SETTINGS, batch=100), 0.0), iter(range(10_000)), []
    [exchange] = only(worker.handle(events.Tick(0.0)), events.Exchange)
    for cycle in range(1, 9):
        at = cycle / 1000
        assert isinstance(exchange, events.Exchange)
        asked.append(exchange.n)
        jobs = [job(str(next(names))) for _ in range(exchange.n)]
        worker.handle(events.Exchanged(at, [Settled(Status.COMPLETED)] * len(exchange.settlements), jobs))
        done = [Outcome(each, Complete(each), 0.00001) for each in jobs]
        [exchange] = only(worker.handle(events.Progress(at, [], done)), events.Exchange)
    assert asked[:4] == [2, 6, 14, 30]
    assert asked[-1] == 100


def test_w1_a_claim_that_stands_in_line_for_a_heartbeat_is_given_back() -> None:
    waiting = job("c")
    worker = working([job("a"), job("b"), waiting])
    assert only(worker.handle(events.Tick(0.9)), events.Withdraw) == []
    assert only(worker.handle(events.Tick(1.0)), events.Withdraw) == [events.Withdraw((waiting,))]
    [exchange] = only(worker.handle(events.Withdrawn(1.0, [waiting])), events.Exchange)
    assert exchange == events.Exchange((Release(waiting, begun=False),), 0)


def test_w1_a_claim_that_had_begun_when_it_was_withdrawn_is_not_given_back() -> None:
    waiting = job("c", timeout=5.0)
    worker = working([job("a"), job("b"), waiting])
    worker.handle(events.Tick(1.0))
    assert only(worker.handle(events.Withdrawn(1.0, [])), events.Exchange) == []
    assert only(worker.handle(events.Tick(6.0)), events.Abandon) == [events.Abandon(waiting, events.TIMEOUT)]


def test_w2_a_lost_lease_is_told_once_and_its_outcome_dropped() -> None:
    mine, other = job("a"), job("b")
    worker = working([mine, other])
    assert only(worker.handle(events.Tick(1.0)), events.Renew) == [events.Renew((mine, other))]
    effects = worker.handle(events.Renewed(1.0, [Lost(), Extended(4_000_000)]))
    assert only(effects, events.Tell) == [events.Tell(mine, events.LOST)]
    assert only(worker.handle(events.Tick(2.0)), events.Renew) == [events.Renew((other,))]
    effects = worker.handle(events.Progress(2.1, [(other, 0.0)], [Outcome(mine, Complete(mine), 2.0)]))
    assert only(effects, events.Dropped) == [events.Dropped(mine, events.LOST)]
    [exchange] = only(effects, events.Exchange)
    assert exchange == events.Exchange((), 1)  # Its slot is free again, and nothing is settled.


def test_w2_a_failed_renewal_is_tried_again_soon() -> None:
    mine = job("a")
    worker = working([mine])
    assert only(worker.handle(events.Tick(1.0)), events.Renew)
    assert only(worker.handle(events.RenewFailed(1.5)), events.Renew) == []
    assert only(worker.handle(events.Tick(1.6)), events.Renew) == [events.Renew((mine,))]


def test_w2_a_renewal_that_crosses_the_settlement_tells_nobody_anything() -> None:
    mine = job("a")
    worker = working([mine])
    assert only(worker.handle(events.Tick(1.0)), events.Renew)
    worker.handle(events.Progress(1.1, [], [Outcome(mine, Complete(mine), 1.0)]))
    assert only(worker.handle(events.Renewed(1.2, [Lost()])), events.Tell, events.Dropped) == []


def test_w3_only_the_second_look_sweeps_and_only_what_did_not_move() -> None:
    still, moved = Expired("a", 1, 1, 0, 1, 3), Expired("b", 2, 1, 0, 1, 3)
    worker = Core(SETTINGS, 0.0)
    assert only(worker.handle(events.Tick(0.0)), events.Look)
    assert only(worker.handle(events.Looked(0.0, [still, moved])), events.Sweep, events.Look) == []
    assert only(worker.handle(events.Tick(1.0)), events.Look) == []
    assert only(worker.handle(events.Tick(1.25)), events.Look)
    effects = worker.handle(events.Looked(1.25, [still, replace(moved, lease_expires_at_us=1)]))
    assert only(effects, events.Sweep) == [events.Sweep((still,))]


def test_w3_a_failed_look_is_no_look() -> None:
    found = Expired("a", 1, 1, 0, 1, 3)
    worker = Core(SETTINGS, 0.0)
    worker.handle(events.Tick(0.0))
    worker.handle(events.LookFailed(0.0))
    assert only(worker.handle(events.Tick(1.0)), events.Look)
    assert only(worker.handle(events.Looked(1.0, [found])), events.Sweep) == []


def test_w3_what_this_worker_holds_is_not_swept_by_it() -> None:
    mine = job("a")
    found = Expired(mine.id, 1, mine.fence, 0, 1, 3)
    worker = working([mine])
    worker.handle(events.Looked(0.0, [found]))
    worker.handle(events.Tick(2.0))
    assert only(worker.handle(events.Looked(2.0, [found])), events.Sweep) == []


def test_w5_an_old_claim_of_the_same_job_does_not_settle_the_new_one() -> None:
    old, new = job("a", timeout=0.5), job("a", fence=2)
    worker = working([old], replace(SETTINGS, batch=1))
    assert only(worker.handle(events.Tick(0.5)), events.Abandon) == [events.Abandon(old, events.TIMEOUT)]
    [exchange] = only(worker.handle(events.Progress(0.5, [], [Outcome(old, End.STOPPED, 0.5)])), events.Exchange)
    assert exchange == events.Exchange((Fail(old, events.TIMEOUT),), 1)
    worker.handle(events.Exchanged(0.6, [Settled(Status.FAILED)], [new]))
    effects = worker.handle(events.Progress(0.7, [(new, 0.6)], [Outcome(old, Complete(old), 0.7)]))
    assert only(effects, events.Exchange) == []
    assert len(only(effects, events.Dropped)) == 1
    [exchange] = only(worker.handle(events.Progress(0.8, [], [Outcome(new, Complete(new), 0.2)])), events.Exchange)
    assert exchange == events.Exchange((Complete(new),), 1)


def test_w6_a_handler_that_ends_just_before_its_slot_is_asked_back_keeps_its_outcome() -> None:
    mine = job("a", timeout=0.5)
    worker = working([mine])
    assert only(worker.handle(events.Tick(0.5)), events.Abandon)
    outcomes = [Outcome(mine, Complete(mine), 0.499), Outcome(mine, End.STOPPED, 0.5)]
    [exchange] = only(worker.handle(events.Progress(0.5, [], outcomes)), events.Exchange)
    assert exchange == events.Exchange((Complete(mine),), 1)


@pytest.mark.parametrize(("max_attempts", "begun"), [(1, True), (3, True)])
def test_w7_what_runs_after_the_grace_time_is_given_back_as_begun(max_attempts: int, begun: bool) -> None:
    mine = job("a", max_attempts=max_attempts)
    worker = working([mine])
    worker.handle(events.StopAsked(1.0))
    assert only(worker.handle(events.Tick(8.9)), events.Abandon) == []
    assert only(worker.handle(events.Tick(9.0)), events.Abandon) == [events.Abandon(mine, events.INTERRUPTED)]
    [exchange] = only(worker.handle(events.Progress(9.0, [], [Outcome(mine, End.STOPPED, 9.0)])), events.Exchange)
    assert exchange == events.Exchange((Release(mine, begun=begun),), 0)
    assert only(worker.handle(events.Exchanged(9.1, [Settled(Status.PENDING)], [])), events.Finish) == [
        events.Finish(0)
    ]


def test_w7_claims_that_arrive_after_the_stop_are_given_back_unbegun() -> None:
    late = job("late")
    worker = Core(SETTINGS, 0.0)
    worker.handle(events.Tick(0.0))
    worker.handle(events.StopAsked(0.1))
    effects = worker.handle(events.Exchanged(0.2, [], [late]))
    assert only(effects, events.Start) == []
    assert only(effects, events.Exchange) == [events.Exchange((Release(late, begun=False),), 0)]


def test_w7_a_worker_ends_even_if_the_database_never_comes_back() -> None:
    mine = job("a")
    worker = working([mine])
    worker.handle(events.StopAsked(1.0))
    worker.handle(events.Progress(2.0, [], [Outcome(mine, Complete(mine), 1.0)]))
    at = 2.0
    while not worker.finished:
        at += 0.1
        worker.handle(events.ExchangeFailed(at) if worker._sent is not None else events.Tick(at))
    assert at <= 1.0 + SETTINGS.grace + core.LAST_WORD + 0.2


def test_w8_the_same_settlements_are_sent_again_until_they_are_answered() -> None:
    mine, other = job("a"), job("b")
    worker = working([mine, other])
    effects = worker.handle(events.Progress(1.1, [], [Outcome(mine, Complete(mine), 1.0)]))
    [first] = only(effects, events.Exchange)
    assert only(effects, events.Renew) == [events.Renew((mine, other))]  # A claim is renewed until it is answered.
    worker.handle(events.Renewed(1.2, [Extended(0), Extended(0)]))
    effects = worker.handle(events.ExchangeFailed(31.0))
    assert only(effects, events.Exchange) == []
    assert only(effects, events.Renew) == [events.Renew((mine, other))]
    worker.handle(events.Progress(31.0, [], [Outcome(other, Complete(other), 1.0)]))
    [again] = only(worker.handle(events.Tick(31.05)), events.Exchange)
    assert isinstance(first, events.Exchange)
    assert isinstance(again, events.Exchange)
    assert again.settlements == (*first.settlements, Complete(other))


def test_w9_the_interval_doubles_to_its_ceiling_and_the_first_job_resets_it() -> None:
    worker, at, rests = Core(SETTINGS, 0.0), 0.0, []
    effects = worker.handle(events.Tick(at))
    for _ in range(8):
        assert only(effects, events.Exchange)
        assert only(worker.handle(events.Exchanged(at, [], [])), events.AskDue)
        [rest] = only(worker.handle(events.DueKnown(at, None)), events.Rest)
        assert isinstance(rest, events.Rest)
        assert rest.listen
        rests.append(round(rest.until - at, 6))
        at = rest.until
        effects = worker.handle(events.Tick(at))
    assert rests == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    [rest] = only(worker.handle(events.Exchanged(at, [], [job()])), events.Rest)
    assert isinstance(rest, events.Rest)
    assert round(rest.until - at, 6) == 0.05


def test_w9_sleep_ends_at_the_next_due_time() -> None:
    worker = Core(replace(SETTINGS, poll_interval=2.0), 0.0)
    worker.handle(events.Tick(0.0))
    worker.handle(events.Exchanged(0.0, [], []))
    [rest] = only(worker.handle(events.DueKnown(0.0, 0.013)), events.Rest)
    assert rest == events.Rest(0.013, True)


def test_w9_a_clock_that_disagrees_about_what_is_due_makes_no_busy_loop() -> None:
    worker, at, polls = Core(SETTINGS, 0.0), 0.0, 0
    effects = worker.handle(events.Tick(at))
    while at < 60.0:
        if only(effects, events.Exchange):
            polls += 1
            effects = worker.handle(events.Exchanged(at, [], []))
        elif only(effects, events.AskDue):
            effects = worker.handle(events.DueKnown(at, -3600.0))
        else:
            rest = only(effects, events.Rest)[-1]
            assert isinstance(rest, events.Rest)
            at = rest.until
            effects = worker.handle(events.Tick(at))
    assert polls < 40


def test_a_drain_goes_on_while_a_due_job_is_locked_by_another() -> None:
    """On PostgreSQL a claim passes over it (§6), and whoever holds the lock may be a claim that is never committed."""
    worker = Core(replace(SETTINGS, drain=True), 0.0)
    worker.handle(events.Tick(0.0))
    assert only(worker.handle(events.Exchanged(0.0, [], [])), events.AskDue)
    assert only(worker.handle(events.DueKnown(0.0, -1.0)), events.Exchange)
    assert only(worker.handle(events.Exchanged(0.0, [], [])), events.AskDue)
    [rest] = only(worker.handle(events.DueKnown(0.0, -1.0)), events.Rest)
    assert isinstance(rest, events.Rest)
    assert only(worker.handle(events.Tick(rest.until)), events.Exchange)
    assert only(worker.handle(events.Exchanged(rest.until, [], [])), events.AskDue)
    assert only(worker.handle(events.DueKnown(rest.until, 60.0)), events.Finish)


def test_a_drain_goes_on_while_it_is_not_known_whether_a_job_is_due() -> None:
    worker = Core(replace(SETTINGS, drain=True), 0.0)
    worker.handle(events.Tick(0.0))
    assert only(worker.handle(events.Exchanged(0.0, [], [])), events.AskDue)
    [rest] = only(worker.handle(events.DueUnknown(0.0)), events.Rest)
    assert isinstance(rest, events.Rest)
    assert only(worker.handle(events.Tick(rest.until)), events.Exchange)


def test_w9_wake_ups_that_bring_nothing_are_looked_at_less_and_less_often() -> None:
    worker, at, polls = Core(SETTINGS, 0.0), 0.0, 0
    effects = worker.handle(events.Tick(at))
    while at < 1.0:
        if only(effects, events.Exchange):
            polls += 1
            effects = worker.handle(events.Exchanged(at, [], []))
        elif only(effects, events.AskDue):
            effects = worker.handle(events.DueKnown(at, None))
        else:
            rest = only(effects, events.Rest)[-1]
            assert isinstance(rest, events.Rest)
            if rest.listen:  # The other workers never pause.
                at += 1e-6
                effects = worker.handle(events.Changed(at))
            else:
                at = rest.until
                effects = worker.handle(events.Tick(at))
    assert polls < 30


def test_a_broken_database_ends_the_worker_at_once_and_tells_the_handlers() -> None:
    mine = job("a")
    worker = working([mine])
    effects = worker.handle(events.Broken(1.0))
    assert only(effects, events.Abandon) == [events.Abandon(mine, events.INTERRUPTED)]
    assert only(effects, events.Finish) == [events.Finish(1)]
    assert worker.handle(events.Tick(2.0)) == []


def test_a_job_that_its_handler_completed_itself_is_not_settled_again() -> None:
    mine = job("a", timeout=2.0)
    worker = working([mine])
    mine.settled = True
    assert only(worker.handle(events.Tick(1.0)), events.Renew) == []
    assert only(worker.handle(events.Tick(2.0)), events.Abandon) == [events.Abandon(mine, events.TIMEOUT)]
    [exchange] = only(worker.handle(events.Progress(2.0, [], [Outcome(mine, End.STOPPED, 2.0)])), events.Exchange)
    assert exchange == events.Exchange((), 1)
