"""The worker core: what it promises, over fleets in virtual time (spec W-1 to W-9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue import core
from jobqueue.core import Core, Effect, End, Outcome, Settings
from jobqueue.types import Complete, Expired, Extended, Fail, Job, Lost, Release, Settled, Status
from tests.worker.fleet import Hand, Row, Table, World

DAY = 86_400.0
SETTINGS = Settings(lease=3.0, heartbeat=1.0, concurrency=2, batch=10)


def job(name: str = "a", *, fence: int = 1, timeout: float | None = None, max_attempts: int = 3) -> Job:
    timeout_us = None if timeout is None else round(timeout * 1e6)
    return Job(name, fence, "w", "x", 0, 1, max_attempts, 0, 0, 0, 0, 0, timeout_us, None, None, "null")


def working(jobs: Sequence[Job], settings: Settings = SETTINGS) -> Core:
    """A core at time 0 whose first exchange has brought ``jobs``; they fill its slots and, above two, its line."""
    settings = replace(settings, concurrency=min(len(jobs), settings.concurrency))
    worker = Core(settings, 0.0)
    worker.handle(core.Tick(0.0))
    worker.handle(core.Exchanged(0.0, [], jobs))
    running = [(job.key, 0.0) for job in jobs[: settings.concurrency]]
    worker.handle(core.Progress(0.0, running, []))
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
    assert hand.finished == core.Finish(0)


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
    jobs = [Row(str(number), seconds) for number, seconds in enumerate(takes)]
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
    jobs = [Row(str(number), 60.0, max_attempts=1) for number in range(2 * workers)]
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
    assert only(worker.handle(core.Tick(0.0)), core.Exchange) == [core.Exchange((), 2)]
    worker = working([job("a"), job("b")])
    done = [Outcome(job("a"), Complete(job("a")), 10.0)]
    [exchange] = only(worker.handle(core.Progress(10.0, [(job("b").key, 0.0)], done)), core.Exchange)
    assert isinstance(exchange, core.Exchange)
    assert exchange.n == 1


def test_w1_the_line_grows_only_while_handlers_are_quick() -> None:
    worker, names, asked = Core(replace(SETTINGS, batch=100), 0.0), iter(range(10_000)), []
    [exchange] = only(worker.handle(core.Tick(0.0)), core.Exchange)
    for cycle in range(1, 9):
        at = cycle / 1000
        assert isinstance(exchange, core.Exchange)
        asked.append(exchange.n)
        jobs = [job(str(next(names))) for _ in range(exchange.n)]
        worker.handle(core.Exchanged(at, [Settled(Status.COMPLETED)] * len(exchange.settlements), jobs))
        done = [Outcome(each, Complete(each), 0.00001) for each in jobs]
        [exchange] = only(worker.handle(core.Progress(at, [], done)), core.Exchange)
    assert asked[:4] == [2, 6, 14, 30]
    assert asked[-1] == 100


def test_w1_a_claim_that_stands_in_line_for_a_heartbeat_is_given_back() -> None:
    waiting = job("c")
    worker = working([job("a"), job("b"), waiting])
    assert only(worker.handle(core.Tick(0.9)), core.Withdraw) == []
    assert only(worker.handle(core.Tick(1.0)), core.Withdraw) == [core.Withdraw((waiting.key,))]
    [exchange] = only(worker.handle(core.Withdrawn(1.0, [waiting.key])), core.Exchange)
    assert exchange == core.Exchange((Release(waiting, begun=False),), 0)


def test_w1_a_claim_that_had_begun_when_it_was_withdrawn_is_not_given_back() -> None:
    waiting = job("c", timeout=5.0)
    worker = working([job("a"), job("b"), waiting])
    worker.handle(core.Tick(1.0))
    assert only(worker.handle(core.Withdrawn(1.0, [])), core.Exchange) == []
    assert only(worker.handle(core.Tick(6.0)), core.Abandon) == [core.Abandon(waiting, core.TIMEOUT)]


def test_w2_a_lost_lease_is_told_once_and_its_outcome_dropped() -> None:
    mine, other = job("a"), job("b")
    worker = working([mine, other])
    assert only(worker.handle(core.Tick(1.0)), core.Renew) == [core.Renew((mine, other))]
    effects = worker.handle(core.Renewed(1.0, [Lost(), Extended(4_000_000)]))
    assert only(effects, core.Tell) == [core.Tell(mine, core.LOST)]
    assert only(worker.handle(core.Tick(2.0)), core.Renew) == [core.Renew((other,))]
    effects = worker.handle(core.Progress(2.1, [(other.key, 0.0)], [Outcome(mine, Complete(mine), 2.0)]))
    assert only(effects, core.Dropped) == [core.Dropped(mine, core.LOST)]
    [exchange] = only(effects, core.Exchange)
    assert exchange == core.Exchange((), 1)  # Its slot is free again, and nothing is settled.


def test_w2_a_failed_renewal_is_tried_again_soon() -> None:
    worker = working([job("a")])
    assert only(worker.handle(core.Tick(1.0)), core.Renew)
    assert only(worker.handle(core.RenewFailed(1.5)), core.Renew) == []
    assert only(worker.handle(core.Tick(1.6)), core.Renew) == [core.Renew((job("a"),))]


def test_w2_a_renewal_that_crosses_the_settlement_tells_nobody_anything() -> None:
    mine = job("a")
    worker = working([mine])
    assert only(worker.handle(core.Tick(1.0)), core.Renew)
    worker.handle(core.Progress(1.1, [], [Outcome(mine, Complete(mine), 1.0)]))
    assert only(worker.handle(core.Renewed(1.2, [Lost()])), core.Tell, core.Dropped) == []


def test_w3_only_the_second_look_sweeps_and_only_what_did_not_move() -> None:
    still, moved = Expired("a", 1, 1, 0, 1, 3), Expired("b", 2, 1, 0, 1, 3)
    worker = Core(SETTINGS, 0.0)
    assert only(worker.handle(core.Tick(0.0)), core.Look)
    assert only(worker.handle(core.Looked(0.0, [still, moved])), core.Sweep, core.Look) == []
    assert only(worker.handle(core.Tick(1.0)), core.Look) == []
    assert only(worker.handle(core.Tick(1.25)), core.Look)
    effects = worker.handle(core.Looked(1.25, [still, replace(moved, lease_expires_at_us=1)]))
    assert only(effects, core.Sweep) == [core.Sweep((still,))]


def test_w3_a_failed_look_is_no_look() -> None:
    found = Expired("a", 1, 1, 0, 1, 3)
    worker = Core(SETTINGS, 0.0)
    worker.handle(core.Tick(0.0))
    worker.handle(core.LookFailed(0.0))
    assert only(worker.handle(core.Tick(1.0)), core.Look)
    assert only(worker.handle(core.Looked(1.0, [found])), core.Sweep) == []


def test_w3_what_this_worker_holds_is_not_swept_by_it() -> None:
    found = Expired("a", 1, 1, 0, 1, 3)
    worker = working([job("a")])
    worker.handle(core.Looked(0.0, [found]))
    worker.handle(core.Tick(2.0))
    assert only(worker.handle(core.Looked(2.0, [found])), core.Sweep) == []


def test_w5_an_old_claim_of_the_same_job_does_not_settle_the_new_one() -> None:
    old, new = job("a", timeout=0.5), job("a", fence=2)
    worker = working([old], replace(SETTINGS, batch=1))
    assert only(worker.handle(core.Tick(0.5)), core.Abandon) == [core.Abandon(old, core.TIMEOUT)]
    [exchange] = only(worker.handle(core.Progress(0.5, [], [Outcome(old, End.STOPPED, 0.5)])), core.Exchange)
    assert exchange == core.Exchange((Fail(old, core.TIMEOUT),), 1)
    worker.handle(core.Exchanged(0.6, [Settled(Status.FAILED)], [new]))
    effects = worker.handle(core.Progress(0.7, [(new.key, 0.6)], [Outcome(old, Complete(old), 0.7)]))
    assert only(effects, core.Exchange) == []
    assert len(only(effects, core.Dropped)) == 1
    [exchange] = only(worker.handle(core.Progress(0.8, [], [Outcome(new, Complete(new), 0.2)])), core.Exchange)
    assert exchange == core.Exchange((Complete(new),), 1)


def test_w6_a_handler_that_ends_just_before_its_slot_is_asked_back_keeps_its_outcome() -> None:
    mine = job("a", timeout=0.5)
    worker = working([mine])
    assert only(worker.handle(core.Tick(0.5)), core.Abandon)
    outcomes = [Outcome(mine, Complete(mine), 0.499), Outcome(mine, End.STOPPED, 0.5)]
    [exchange] = only(worker.handle(core.Progress(0.5, [], outcomes)), core.Exchange)
    assert exchange == core.Exchange((Complete(mine),), 1)


@pytest.mark.parametrize(("max_attempts", "begun"), [(1, True), (3, True)])
def test_w7_what_runs_after_the_grace_time_is_given_back_as_begun(max_attempts: int, begun: bool) -> None:
    mine = job("a", max_attempts=max_attempts)
    worker = working([mine])
    worker.handle(core.StopAsked(1.0))
    assert only(worker.handle(core.Tick(8.9)), core.Abandon) == []
    assert only(worker.handle(core.Tick(9.0)), core.Abandon) == [core.Abandon(mine, core.INTERRUPTED)]
    [exchange] = only(worker.handle(core.Progress(9.0, [], [Outcome(mine, End.STOPPED, 9.0)])), core.Exchange)
    assert exchange == core.Exchange((Release(mine, begun=begun),), 0)
    assert only(worker.handle(core.Exchanged(9.1, [Settled(Status.PENDING)], [])), core.Finish) == [core.Finish(0)]


def test_w7_claims_that_arrive_after_the_stop_are_given_back_unbegun() -> None:
    late = job("late")
    worker = Core(SETTINGS, 0.0)
    worker.handle(core.Tick(0.0))
    worker.handle(core.StopAsked(0.1))
    effects = worker.handle(core.Exchanged(0.2, [], [late]))
    assert only(effects, core.Start) == []
    assert only(effects, core.Exchange) == [core.Exchange((Release(late, begun=False),), 0)]


def test_w7_a_worker_ends_even_if_the_database_never_comes_back() -> None:
    mine = job("a")
    worker = working([mine])
    worker.handle(core.StopAsked(1.0))
    worker.handle(core.Progress(2.0, [], [Outcome(mine, Complete(mine), 1.0)]))
    at = 2.0
    while not worker.finished:
        at += 0.1
        worker.handle(core.ExchangeFailed(at) if worker._sent is not None else core.Tick(at))
    assert at <= 1.0 + SETTINGS.grace + core.LAST_WORD + 0.2


def test_w8_the_same_settlements_are_sent_again_until_they_are_answered() -> None:
    mine, other = job("a"), job("b")
    worker = working([mine, other])
    effects = worker.handle(core.Progress(1.1, [], [Outcome(mine, Complete(mine), 1.0)]))
    [first] = only(effects, core.Exchange)
    assert only(effects, core.Renew) == [core.Renew((mine, other))]  # A claim is renewed until it is answered.
    worker.handle(core.Renewed(1.2, [Extended(0), Extended(0)]))
    effects = worker.handle(core.ExchangeFailed(31.0))
    assert only(effects, core.Exchange) == []
    assert only(effects, core.Renew) == [core.Renew((mine, other))]
    worker.handle(core.Progress(31.0, [], [Outcome(other, Complete(other), 1.0)]))
    [again] = only(worker.handle(core.Tick(31.05)), core.Exchange)
    assert isinstance(first, core.Exchange)
    assert isinstance(again, core.Exchange)
    assert again.settlements == (*first.settlements, Complete(other))


def test_w9_the_interval_doubles_to_its_ceiling_and_the_first_job_resets_it() -> None:
    worker, at, rests = Core(SETTINGS, 0.0), 0.0, []
    effects = worker.handle(core.Tick(at))
    for _ in range(8):
        assert only(effects, core.Exchange)
        assert only(worker.handle(core.Exchanged(at, [], [])), core.AskDue)
        [rest] = only(worker.handle(core.DueKnown(at, None)), core.Rest)
        assert isinstance(rest, core.Rest)
        assert rest.listen
        rests.append(round(rest.until - at, 6))
        at = rest.until
        effects = worker.handle(core.Tick(at))
    assert rests == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    [rest] = only(worker.handle(core.Exchanged(at, [], [job()])), core.Rest)
    assert isinstance(rest, core.Rest)
    assert round(rest.until - at, 6) == 0.05


def test_w9_sleep_ends_at_the_next_due_time() -> None:
    worker = Core(replace(SETTINGS, poll_interval=2.0), 0.0)
    worker.handle(core.Tick(0.0))
    worker.handle(core.Exchanged(0.0, [], []))
    [rest] = only(worker.handle(core.DueKnown(0.0, 0.013)), core.Rest)
    assert rest == core.Rest(0.013, True)


def test_w9_a_clock_that_disagrees_about_what_is_due_makes_no_busy_loop() -> None:
    worker, at, polls = Core(SETTINGS, 0.0), 0.0, 0
    effects = worker.handle(core.Tick(at))
    while at < 60.0:
        if only(effects, core.Exchange):
            polls += 1
            effects = worker.handle(core.Exchanged(at, [], []))
        elif only(effects, core.AskDue):
            effects = worker.handle(core.DueKnown(at, -3600.0))
        else:
            rest = only(effects, core.Rest)[-1]
            assert isinstance(rest, core.Rest)
            at = rest.until
            effects = worker.handle(core.Tick(at))
    assert polls < 40


def test_a_drain_goes_on_while_a_due_job_is_locked_by_another() -> None:
    """On PostgreSQL a claim passes over it (§6), and whoever holds the lock may be a claim that is never committed."""
    worker = Core(replace(SETTINGS, drain=True), 0.0)
    worker.handle(core.Tick(0.0))
    assert only(worker.handle(core.Exchanged(0.0, [], [])), core.AskDue)
    assert only(worker.handle(core.DueKnown(0.0, -1.0)), core.Exchange)
    assert only(worker.handle(core.Exchanged(0.0, [], [])), core.AskDue)
    [rest] = only(worker.handle(core.DueKnown(0.0, -1.0)), core.Rest)
    assert isinstance(rest, core.Rest)
    assert only(worker.handle(core.Tick(rest.until)), core.Exchange)
    assert only(worker.handle(core.Exchanged(rest.until, [], [])), core.AskDue)
    assert only(worker.handle(core.DueKnown(rest.until, 60.0)), core.Finish)


def test_a_drain_goes_on_while_it_is_not_known_whether_a_job_is_due() -> None:
    worker = Core(replace(SETTINGS, drain=True), 0.0)
    worker.handle(core.Tick(0.0))
    assert only(worker.handle(core.Exchanged(0.0, [], [])), core.AskDue)
    [rest] = only(worker.handle(core.DueUnknown(0.0)), core.Rest)
    assert isinstance(rest, core.Rest)
    assert only(worker.handle(core.Tick(rest.until)), core.Exchange)


def test_w9_wake_ups_that_bring_nothing_are_looked_at_less_and_less_often() -> None:
    worker, at, polls = Core(SETTINGS, 0.0), 0.0, 0
    effects = worker.handle(core.Tick(at))
    while at < 1.0:
        if only(effects, core.Exchange):
            polls += 1
            effects = worker.handle(core.Exchanged(at, [], []))
        elif only(effects, core.AskDue):
            effects = worker.handle(core.DueKnown(at, None))
        else:
            rest = only(effects, core.Rest)[-1]
            assert isinstance(rest, core.Rest)
            if rest.listen:  # The other workers never pause.
                at += 1e-6
                effects = worker.handle(core.Changed(at))
            else:
                at = rest.until
                effects = worker.handle(core.Tick(at))
    assert polls < 30


def test_a_broken_database_ends_the_worker_at_once_and_tells_the_handlers() -> None:
    mine = job("a")
    worker = working([mine])
    effects = worker.handle(core.Broken(1.0))
    assert only(effects, core.Abandon) == [core.Abandon(mine, core.INTERRUPTED)]
    assert only(effects, core.Finish) == [core.Finish(1)]
    assert worker.handle(core.Tick(2.0)) == []


def test_a_job_that_its_handler_completed_itself_is_not_settled_again() -> None:
    mine = job("a", timeout=2.0)
    worker = working([mine])
    mine.settled = True
    assert only(worker.handle(core.Tick(1.0)), core.Renew) == []
    assert only(worker.handle(core.Tick(2.0)), core.Abandon) == [core.Abandon(mine, core.TIMEOUT)]
    [exchange] = only(worker.handle(core.Progress(2.0, [], [Outcome(mine, End.STOPPED, 2.0)])), core.Exchange)
    assert exchange == core.Exchange((), 1)
