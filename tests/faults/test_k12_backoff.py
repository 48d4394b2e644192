"""K12, delays and backoff: bounded before they are computed, spread, refused where they make no sense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from jobqueue import InvalidArgument, Queue, Retry, Snooze, Status
from jobqueue.backoff import Backoff
from jobqueue.values import EPOCH, MAX_DURATION, MICROSECOND
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults.scene import change, claim, row

ABSURD_DELAYS = [
    -1, -0.001, -(10**12), float("nan"), float("inf"), float("-inf"), 10**18, 1e308, -1e308, 10**400, -(10**400),
    timedelta.max, timedelta.min, timedelta(days=3650, microseconds=1), "1", True, None.__class__,
]  # fmt: skip
ABSURD_INSTANTS = [
    datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), datetime(300, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC), datetime(2030, 1, 1),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    1_900_000_000, "2030-01-01T00:00:00Z",
]  # fmt: skip


@pytest.mark.parametrize("delay", ABSURD_DELAYS, ids=lambda delay: str(delay)[:12])
def test_b78_an_absurd_delay_is_refused_everywhere_and_nothing_is_stored(queue: Queue, delay: Any) -> None:
    id = queue.enqueue("t")
    job = claim(queue)
    for call in (
        lambda: queue.enqueue("t", delay=delay),
        lambda: queue.enqueue_many([{"type": "t"}, {"type": "t", "delay": delay}]),
        lambda: queue.fail(job, "e", delay=delay),
        lambda: queue.release(job, delay=delay),
        lambda: queue.cleanup(delay),
        lambda: Retry(delay),
        lambda: Snooze(delay),
        lambda: queue.wait(id, timeout=delay),
    ):
        with pytest.raises(InvalidArgument):
            call()
    assert queue.counts() == {**dict.fromkeys(Status, 0), Status.RUNNING: 1}


@pytest.mark.parametrize("instant", ABSURD_INSTANTS, ids=str)
def test_b78_an_absurd_instant_is_refused_and_nothing_is_stored(queue: Queue, instant: Any) -> None:
    with pytest.raises(InvalidArgument):
        queue.enqueue("t", scheduled_at=instant)
    with pytest.raises(InvalidArgument):
        queue.enqueue_many([{"type": "t"}, {"type": "t", "scheduled_at": instant}])
    assert sum(queue.counts().values()) == 0


def test_b78_the_bounds_themselves_are_stored_and_harm_nobody(queue: Queue, clock: ManualClock) -> None:
    far = queue.enqueue("t", delay=timedelta(days=3650), priority=9)
    last = queue.enqueue("t", scheduled_at=datetime(2999, 12, 31, 23, 59, 59, 999_999, UTC), priority=9)
    first = queue.enqueue("t", scheduled_at=EPOCH)
    assert claim(queue).id == first
    assert queue.dequeue() is None
    assert (row(queue, far).scheduled_at - EPOCH) // MICROSECOND == clock.now_us() + MAX_DURATION
    assert row(queue, last).scheduled_at.year == 2999


@pytest.mark.parametrize("attempts", [1, 30, 62, 63, 64, 1024, 2000, 5000, 10**6])
def test_b79_no_number_of_attempts_overflows_or_exceeds_the_ceiling(
    backend: str, url: str, queue: Queue, clock: ManualClock, attempts: int
) -> None:
    """Through fail and through a sweep, with the attempts set by hand."""
    ids = queue.enqueue_many([{"type": "t", "max_attempts": 2**31 - 1} for _ in range(2)])
    change(backend, url, f"update jobs set attempts = {attempts - 1}, fence = {attempts - 1}")
    job, _ = queue.dequeue_many(2)
    queue.fail(job, "e")
    failed_at = clock.now_us()
    clock.advance(31)
    queue.sweep()
    plain = queue.backoff.plain(attempts)
    for id, at in zip(ids, (failed_at, clock.now_us()), strict=True):
        delay = (row(queue, id).scheduled_at - EPOCH) // MICROSECOND - at
        assert 0 < plain <= delay <= plain * 1.1 <= queue.backoff.cap_us * 1.1


def test_b79_the_delays_never_decrease() -> None:
    delays = [Backoff().plain(attempts) for attempts in (0, *range(1, 70), 1024, 2000, 10**6)]
    assert delays == sorted(delays)
    assert delays[-1] == Backoff().cap_us


@pytest.mark.parametrize(
    "options",
    [
        {"base_us": -1}, {"cap_us": -1}, {"cap_us": MAX_DURATION + 1}, {"base_us": 10**30, "cap_us": 10**30},
        {"jitter": -0.1}, {"jitter": float("nan")}, {"jitter": float("inf")}, {"jitter": 1e300}, {"base_us": 1.5},
        {"base_us": True}, {"jitter": "0.1"}, {"jitter": True},
    ],
    ids=str,
)  # fmt: skip
def test_b79_a_backoff_that_could_not_be_stored_is_refused_when_it_is_made(options: dict[str, Any]) -> None:
    """Later it would be the recording of a failure that fails."""
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        Backoff(**options)


def test_b100_a_crowd_that_fails_together_does_not_come_back_together(
    queue: Queue, clock: ManualClock, full: bool
) -> None:
    number = 1000 if full else 200
    queue.enqueue_many([{"type": "t"} for _ in range(number)])
    queue.fail_many([(job, "the provider is down") for job in queue.dequeue_many(number)])
    delays = [view.scheduled_at.timestamp() - clock.now_us() / 1e6 for view in queue.list(limit=number)]
    assert min(delays) >= 5 - 1e-6
    assert max(delays) <= 5.5
    assert max(delays) - min(delays) > 0.45
    assert len(set(delays)) > number * 0.99


def test_b100_a_crowd_that_is_swept_together_spreads_too(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many([{"type": "t"} for _ in range(100)])
    queue.dequeue_many(100)
    clock.advance(31)
    queue.sweep()
    due = {view.scheduled_at for view in queue.list(limit=100)}
    assert max(due) - min(due) > timedelta(seconds=0.4)


def test_b100_the_spread_can_be_repeated_or_switched_off(open_queue: OpenQueue) -> None:
    def delays(**options: Any) -> list[datetime]:
        queue = open_queue(clock=ManualClock(seed=7), **options)
        queue.enqueue_many([{"type": "t"} for _ in range(20)])
        queue.fail_many([(job, "e") for job in queue.dequeue_many(20)])
        found = [view.scheduled_at for view in queue.list()]
        queue.cancel_many()
        queue.cleanup(0)
        return found

    assert delays() == delays()
    assert len(set(delays(backoff=Backoff(jitter=0)))) == 1
