"""K1, a job that runs twice: leases, and writes by holders that are none any more. Each case, on both backends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from jobqueue import (
    Complete,
    Discard,
    Fail,
    InvalidArgument,
    Job,
    LeaseLost,
    Lost,
    Queue,
    Release,
    Retry,
    Settled,
    Snooze,
    Status,
    Worker,
)
from jobqueue.protocols import Transaction
from jobqueue.values import EPOCH, MICROSECOND
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults.conftest import Hire, StartActor
from tests.faults.scene import SteppedClock, claim, row, together, until
from tests.tables import Table

LEASE = 30.0
EXPIRED = LEASE + 1


def lost_to_another(queue: Queue, clock: ManualClock) -> tuple[Job, Job]:
    """A claim whose lease ended, and the claim that another worker then was given."""
    queue.enqueue("t", max_attempts=9)
    stale = claim(queue, worker="a")
    clock.advance(EXPIRED)
    assert len(queue.sweep()) == 1
    clock.advance(10)
    return stale, claim(queue, worker="b")


def test_b01_four_processes_drain_one_database_and_each_job_once(
    url: str, open_live: OpenQueue, actor: StartActor, full: bool
) -> None:
    jobs, rounds = (20_000, 20) if full else (150, 2)
    queue = open_live()
    for number in range(rounds):
        synchronous = ("full", "normal")[number % 2]
        ids = queue.enqueue_many([{"type": f"t{number % 3}", "priority": number % 2} for number in range(jobs)])
        done = [id for each in actor("crowd", "drain", 4, [url, synchronous]).says(600) for id in each["returned"]]
        assert Counter(done) == Counter(ids)
        assert queue.counts()[Status.COMPLETED] == len(ids) == queue.cleanup(0)


def test_b02_a_claim_that_changed_no_row_gives_no_job(
    backend: str, queue: Queue, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A is paused between finding and marking. B gets nothing of A's, and A nothing of B's."""
    first, second = queue.enqueue_many([{"type": "t"}, {"type": "t"}])
    other = open_queue(busy_timeout=0.01)
    seen: list[Any] = []

    def paused(tx: Transaction) -> list[Any]:
        wanted = {"type": "t", "below": 1, "n": 1, "worker": "a", "lease": 1_000_000, "now": tx.now_us}
        found = tx.rows("first", wanted)
        with suppress(Exception):
            seen.append(other.dequeue())  # SQLite: the write lock is A's, so B waits until its patience ends.
        return found

    if backend == "sqlite":
        assert len(queue.database.write(paused)) == 1
        assert seen == []
        assert claim(other).id == first
        assert claim(queue).id == second
    else:  # One statement finds and marks: what it marked and has not committed is passed over.

        def half(tx: Transaction) -> Any:
            rows = tx.claim(("t",), {"n": 1, "worker": "a", "lease": 1_000_000, "now": tx.now_us})
            assert claim(other).id == second
            assert other.dequeue() is None
            return rows

        assert len(queue.database.write(half)) == 1
    assert queue.dequeue() is None
    assert other.dequeue() is None


def test_b03_threads_on_one_handle_get_each_job_once(live: Queue, full: bool) -> None:
    ids = live.enqueue_many([{"type": "t"} for _ in range(5000 if full else 200)])

    def drain(_: int) -> list[str]:
        done = []
        while (job := live.dequeue()) is not None:
            live.complete(job)
            done.append(job.id)
        return done

    with ThreadPoolExecutor(16) as threads:
        done = [id for each in threads.map(drain, range(16)) for id in each]
    assert Counter(done) == Counter(ids)


@pytest.mark.parametrize("meanwhile", ["completes", "completes late and is claimed anew", "extends"])
def test_b05_a_sweep_tests_again_what_it_looked_at(
    queue: Queue, clock: ManualClock, table: Table, meanwhile: str
) -> None:
    id = queue.enqueue("t", max_attempts=9)
    holder = claim(queue, worker="a")
    clock.advance(EXPIRED)
    looked = queue.expired()
    if meanwhile == "completes":
        queue.complete(holder, "x")
    elif meanwhile == "extends":
        queue.extend(holder)
    else:
        queue.sweep()
        clock.advance(10)
        claim(queue, worker="b")
        clock.advance(EXPIRED)  # Expired as well: only the fence tells the two claims apart.
    before = table.read()
    assert queue.sweep(looked) == []
    assert table.read() == before
    assert row(queue, id).status is (Status.COMPLETED if meanwhile == "completes" else Status.RUNNING)


def test_b06_two_sweeps_at_once_take_each_job_once(live: Queue, open_live: OpenQueue, full: bool) -> None:
    jobs = 500 if full else 60
    ids = live.enqueue_many([{"type": "t", "max_attempts": 9} for _ in range(jobs)])
    live.dequeue_many(jobs, lease=0.001)
    other = open_live()
    looked = until(lambda: found if len(found := live.expired(jobs)) == jobs else None)
    starts: Counter[str] = Counter()
    stop = threading.Event()

    def work() -> int:
        while not stop.is_set():
            for job in live.dequeue_many(5):
                starts[f"{job.id} {job.fence}"] += 1
        return 0

    def sweep(queue: Queue) -> int:
        return len(queue.sweep(looked))

    def last() -> int:
        until(lambda: len(starts) == jobs)
        stop.set()
        return 0

    done = together(lambda: sweep(live), lambda: sweep(other), work, work, last)
    assert done[0] + done[1] == jobs  # type: ignore[operator]
    assert set(starts.values()) == {1}
    assert {row(live, id).attempts for id in ids} == {2}


REFUSED: dict[str, Callable[[Queue, Job], object]] = {
    "fail": lambda queue, job: queue.fail(job, "e"),
    "fail for good": lambda queue, job: queue.fail(job, "e", for_good=True),
    "complete": lambda queue, job: queue.complete(job, "x"),
    "complete with what cannot be stored": lambda queue, job: queue.complete(job, {1}),  # type: ignore[arg-type]
    "release": lambda queue, job: queue.release(job),
    "release unbegun": lambda queue, job: queue.release(job, begun=False, delay=9),
    "extend": lambda queue, job: queue.extend(job, 999),
}


@pytest.mark.parametrize("operation", REFUSED)
def test_b07_a_stale_holder_is_refused_and_changes_nothing(
    queue: Queue, clock: ManualClock, table: Table, operation: str
) -> None:
    stale, holder = lost_to_another(queue, clock)
    before = table.read()
    with pytest.raises(LeaseLost):
        REFUSED[operation](queue, stale)
    assert table.read() == before
    queue.complete(holder, "by b")
    assert row(queue, holder.id).result == "by b"


def test_b07_the_forms_for_many_and_completing_refuse_a_stale_holder_too(
    queue: Queue, clock: ManualClock, table: Table
) -> None:
    stale, holder = lost_to_another(queue, clock)
    before = table.read()
    assert queue.settle_many([Complete(stale), Fail(stale, "e"), Release(stale)]) == [Lost()] * 3
    assert queue.extend_many([stale]) == [Lost()]
    assert queue.exchange([Complete(stale)], 1, None).replies == [Lost()]
    with pytest.raises(LeaseLost), queue.completing(stale):
        pass
    assert table.read() == before
    assert queue.settle_many([Complete(stale), Complete(holder)]) == [Lost(), Settled(Status.COMPLETED)]


def ends(how: str) -> object:
    """What a handler does in the end."""
    if how == "returns what cannot be stored":
        return {1, 2}
    errors: dict[str, BaseException] = {
        "raises": ValueError("late"), "retries": Retry(0), "snoozes": Snooze(0), "discards": Discard("late"),
        "exits": SystemExit(3),
    }  # fmt: skip
    if how in errors:
        raise errors[how]
    return "late"


@pytest.mark.parametrize(
    "how", ["returns", "returns what cannot be stored", "raises", "retries", "snoozes", "discards", "exits"]
)
@pytest.mark.parametrize("coroutine", [False, True], ids=["thread", "coroutine"])
def test_b08_a_late_outcome_of_a_worker_writes_nothing_at_all(
    open_queue: OpenQueue, table: Table, hire: Hire, how: str, coroutine: bool
) -> None:
    clock = SteppedClock()
    live, other = open_queue(clock=clock), open_queue(clock=clock)
    begun, go = threading.Event(), threading.Event()

    def handler(job: Job) -> object:
        begun.set()
        go.wait()
        return ends(how)

    async def handler_async(job: Job) -> object:
        return handler(job)

    id = live.enqueue("t", max_attempts=9)
    worker = hire(live, handler_async if coroutine else handler)
    begun.wait()
    _take_away(other, clock)
    stolen = claim(other, worker="b")
    before = table.read()
    go.set()
    worker.stop()
    assert table.read() == before
    other.complete(stolen, "by b")
    assert row(other, id).result == "by b"


def _take_away(queue: Queue, clock: SteppedClock) -> None:
    """Sweep the one running job, whoever renews it, and let its retry be due."""
    clock.ahead += 3600
    assert len(queue.sweep()) == 1
    clock.ahead += 60


def test_b09_complete_and_sweep_at_one_moment_have_one_winner(
    queue: Queue, open_queue: OpenQueue, clock: ManualClock, full: bool
) -> None:
    other = open_queue()
    for _ in range(1000 if full else 40):
        id = queue.enqueue("t", max_attempts=1)
        job = claim(queue)
        clock.advance(EXPIRED)
        completed, swept = together(lambda job=job: queue.complete(job, "x"), other.sweep)  # type: ignore[misc]
        view = row(queue, id)
        if view.status is Status.COMPLETED:
            assert (completed, swept, view.result, view.error) == (None, [], "x", None)
        else:
            assert isinstance(completed, LeaseLost)
            assert (view.status, view.result, view.error) == (Status.DEAD, None, "lease expired")


def test_b10_what_has_ended_is_never_swept(queue: Queue, clock: ManualClock, table: Table) -> None:
    queue.enqueue_many([{"type": "t"}, {"type": "t", "max_attempts": 1}, {"type": "t"}])
    queue.complete(claim(queue), "kept")
    queue.fail(claim(queue), "kept")
    queue.release(claim(queue))
    before = table.read()
    clock.advance(10 * LEASE)
    assert [queue.sweep() for _ in range(3)] == [[]] * 3
    assert queue.cleanup(86_400) == 0
    assert table.read() == before


def test_b12_a_handler_that_outlives_many_leases_starts_once(open_live: OpenQueue, hire: Hire) -> None:
    """With a timeout of its own, and with none: both are renewed for as long as their handlers live."""
    queue = open_live(lease=1.5)
    starts, go = [], threading.Event()

    def handler(job: Job) -> None:
        starts.append(job.attempts)
        go.wait()

    ids = [queue.enqueue("t"), queue.enqueue("t", timeout=600)]
    hire(queue, handler, concurrency=2)
    until(lambda: len(starts) == 2)
    hire(open_live(lease=1.5), handler, concurrency=2)
    before = [_microseconds(row(queue, id).lease_expires_at) for id in ids]

    def renewed_for_long() -> bool:
        after = [_microseconds(row(queue, id).lease_expires_at) for id in ids]
        return all(new - old > 3_000_000 for old, new in zip(before, after, strict=True))

    until(renewed_for_long)
    go.set()
    until(lambda: queue.counts()[Status.COMPLETED] == 2)
    assert starts == [1, 1]


def test_b13_leases_are_renewed_well_before_they_end_whatever_the_handlers_do(
    open_live: OpenQueue, hire: Hire, full: bool
) -> None:
    """Twenty at once, one of which burns the processor in pure Python; what counts is the row, not the intention."""
    queue = open_live(lease=3)
    done = threading.Event()

    def handler(job: Job) -> None:
        while not done.is_set():
            if job.payload != "burn":
                done.wait()

    ids = queue.enqueue_many([{"type": "t", "payload": "burn" if number == 7 else None} for number in range(20)])
    hire(queue, handler, concurrency=20)
    until(lambda: queue.counts()[Status.RUNNING] == len(ids))
    first = {id: row(queue, id).lease_expires_at for id in ids}
    margins = []

    def renewed_twice() -> bool:
        views = queue.list(status="running")
        now_us = queue.clock.now_us()
        margins.append(min(_microseconds(view.lease_expires_at) for view in views) - now_us)
        return all(_microseconds(view.lease_expires_at) > _microseconds(first[view.id]) + 1_100_000 for view in views)

    until(renewed_twice)
    done.set()
    assert min(margins) > 500_000


def _microseconds(moment: datetime | None) -> int:
    assert moment is not None
    return (moment - EPOCH) // MICROSECOND


def test_b15_an_expired_claim_is_its_holders_until_it_is_taken(queue: Queue, clock: ManualClock) -> None:
    """One rule, the same on both backends: section 1 of the specification, G-3."""
    ids = queue.enqueue_many([{"type": "t"}, {"type": "t"}, {"type": "t"}])
    one, two, three = queue.dequeue_many(3)
    clock.advance(EXPIRED)
    assert queue.dequeue() is None  # Expired is not claimable: only a sweep makes it so.
    queue.extend(one)
    queue.complete(two)
    assert queue.fail(three, "e") is Status.FAILED
    clock.advance(EXPIRED)
    queue.sweep()
    clock.advance(10)
    claims = queue.dequeue_many(9)
    assert {job.id for job in claims} == {ids[0], ids[2]}
    for stale in (one, two, three):
        for refused in REFUSED.values():
            with pytest.raises(LeaseLost):
                refused(queue, stale)


def test_b16_a_sweep_never_sees_half_a_claim(live: Queue, open_live: OpenQueue, full: bool) -> None:
    other, stop = open_live(), threading.Event()

    def sweep() -> int:
        swept = 0
        while not stop.is_set():
            swept += len(other.sweep())
        return swept

    def work() -> int:
        for _ in range(3000 if full else 80):
            live.enqueue("t")
            live.complete(claim(live))
        stop.set()
        return 0

    assert together(sweep, work) == [0, 0]


def test_b17_a_job_is_neither_claimed_nor_held_before_it_is_due(open_queue: OpenQueue, hire: Hire) -> None:
    clock = SteppedClock()
    queue = open_queue(clock=clock, lease=2)
    starts: list[int] = []
    id = queue.enqueue("t", delay=21_600)
    for _ in range(4):
        hire(queue, lambda job: starts.append(job.fence), poll_interval=0.05)
    for ahead in (0, 10_800, 21_590):
        clock.ahead = ahead
        sign = queue.enqueue("t")  # Whoever looked for this one has looked at the other as well.
        until(lambda sign=sign: row(queue, sign).status is Status.COMPLETED)  # type: ignore[misc]
        assert (row(queue, id).status, row(queue, id).attempts) == (Status.PENDING, 0)
    starts.clear()
    clock.ahead = 21_600
    until(lambda: row(queue, id).status is Status.COMPLETED)
    assert starts == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"heartbeat": 30}, {"heartbeat": 31}, {"heartbeat": 0}, {"heartbeat": -1}, {"heartbeat": float("nan")},
        {"concurrency": 0}, {"concurrency": True}, {"poll_interval": 0}, {"grace": -1}, {"retention": -1},
        {"batch": 0}, {"types": ()}, {"mode": "fibres"}, {"heartbeat": 10**400},
    ],
    ids=lambda options: str(options)[:24],
)  # fmt: skip
def test_b18_settings_of_a_worker_that_contradict_each_other_are_refused(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Worker(queue, lambda job: None, **options)


@pytest.mark.parametrize(
    "lease", [0, -1, float("nan"), float("inf"), 10**18, 1e308, 10**400, True, "30"], ids=lambda lease: str(lease)[:9]
)
def test_b18_a_lease_or_timeout_that_makes_no_sense_is_refused(queue: Queue, open_queue: OpenQueue, lease: Any) -> None:
    queue.enqueue("t")
    for call in (
        lambda: open_queue(lease=lease), lambda: queue.dequeue(lease=lease),
        lambda: queue.enqueue("t", timeout=lease), lambda: queue.dequeue_many(1, lease=lease),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            call()
    assert queue.counts() == {**dict.fromkeys(Status, 0), Status.PENDING: 1}


@pytest.mark.parametrize("taken_away", ["sweep", "cancel"])
def test_b19_a_running_handler_learns_that_its_lease_is_gone(
    open_queue: OpenQueue, table: Table, hire: Hire, taken_away: str
) -> None:
    clock = SteppedClock()
    queue, other = open_queue(clock=clock, lease=1), open_queue(clock=clock)
    told: list[str | None] = []
    begun, ended = threading.Event(), threading.Event()

    def handler(job: Job) -> str:
        begun.set()
        told.append(until(lambda: job.lost))
        ended.set()
        return "late"

    id = queue.enqueue("t")
    worker = hire(queue, handler)
    begun.wait()
    if taken_away == "cancel":
        assert other.cancel(id)
    else:
        clock.ahead += 3600
        assert len(other.sweep()) == 1
        assert other.cancel(id)
    before = table.read()
    assert ended.wait(60)
    assert told == ["lease lost"]
    worker.stop()
    assert table.read() == before
