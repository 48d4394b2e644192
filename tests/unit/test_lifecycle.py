"""Each clause and guarantee of spec/lifecycle.md by example, through the public API, on both backends."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest

from jobqueue import (
    Complete,
    DuplicateKey,
    Fail,
    InvalidArgument,
    Job,
    LeaseLost,
    Lost,
    Queue,
    Release,
    Settled,
    Status,
    WrongUse,
    status_summary,
)
from jobqueue.values import moment
from tests.clock import ManualClock
from tests.conftest import OpenQueue

LEASE = 30.0


def claim(queue: Queue, *types: str) -> Job:
    job = queue.dequeue(*types)
    assert job is not None
    return job


def row(queue: Queue, id: str) -> Any:
    view = queue.get(id)
    assert view is not None
    return view


def now(clock: ManualClock) -> datetime:
    return moment(clock.now_us())


def test_t1_enqueue_stores_a_pending_job_with_its_defaults(queue: Queue, clock: ManualClock) -> None:
    view = row(queue, queue.enqueue("send", {"to": "ana"}))
    assert (view.type, view.payload, view.status) == ("send", {"to": "ana"}, Status.PENDING)
    assert (view.priority, view.attempts, view.max_attempts) == (0, 0, 3)
    assert view.scheduled_at == view.created_at == now(clock)
    assert {view.started_at, view.completed_at, view.lease_expires_at, view.worker, view.result, view.error} == {None}


def test_t1_scheduled_at_and_delay_say_when_a_job_is_due(queue: Queue, clock: ManualClock) -> None:
    at = datetime(2031, 1, 1, 3, tzinfo=UTC)
    assert row(queue, queue.enqueue("a", scheduled_at=at)).scheduled_at == at
    assert row(queue, queue.enqueue("a", delay=0.2)).scheduled_at == now(clock) + timedelta(milliseconds=200)
    with pytest.raises(InvalidArgument, match="not both"):
        queue.enqueue("a", scheduled_at=at, delay=1)


def test_t1_enqueue_many_keeps_the_order_given(queue: Queue) -> None:
    ids = queue.enqueue_many({"type": "a", "payload": n} for n in range(50))
    assert [job.id for job in queue.dequeue_many(100)] == ids


def test_t1_enqueue_many_is_all_or_nothing(queue: Queue) -> None:
    items: list[dict[str, Any]] = [{"type": "a", "payload": n} for n in range(100)]
    items[57]["payload"] = float("nan")
    with pytest.raises(InvalidArgument):
        queue.enqueue_many(items)
    with pytest.raises(InvalidArgument, match="colour"):
        queue.enqueue_many([{"type": "a"}, {"type": "a", "colour": "red"}])
    with pytest.raises(DuplicateKey, match="unique_key 'k' is given to two jobs of this call") as raised:
        queue.enqueue_many([{"type": "a"}, {"type": "a", "unique_key": "k"}, {"type": "a", "unique_key": "k"}])
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.key, again.holder, again.twice) == (str(raised.value), "k", None, True)
    assert sum(queue.counts().values()) == 0


def test_t2_dequeue_claims_the_first_due_job(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a", [1], unique_key="k", timeout=7, max_attempts=5, priority=2)
    clock.advance(1)
    job = claim(queue)
    assert (job.id, job.type, job.payload, job.priority) == (id, "a", [1], 2)
    assert (job.attempts, job.max_attempts, job.fence, job.worker) == (1, 5, 1, queue.worker)
    assert (job.started_at, job.lease_expires_at) == (now(clock), now(clock) + timedelta(seconds=LEASE))
    assert (job.timeout, job.unique_key, job.error, job.lost) == (timedelta(seconds=7), "k", None, None)
    view = row(queue, id)
    assert (view.status, view.attempts, view.worker) == (Status.RUNNING, 1, queue.worker)
    assert (view.started_at, view.lease_expires_at) == (job.started_at, job.lease_expires_at)


def test_t2_dequeue_takes_only_the_wanted_types(queue: Queue) -> None:
    queue.enqueue("other", priority=9)
    wanted = queue.enqueue("wanted")
    assert queue.dequeue("neither") is None
    assert claim(queue, "wanted", "neither").id == wanted
    assert claim(queue).type == "other"


def test_t3_complete_stores_the_result(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a")
    job = claim(queue)
    clock.advance(3)
    queue.complete(job, {"rows": 12})
    view = row(queue, id)
    assert (view.status, view.result, view.completed_at) == (Status.COMPLETED, {"rows": 12}, now(clock))
    assert (view.worker, view.lease_expires_at, view.attempts) == (None, None, 1)


def test_t4_fail_schedules_a_retry_after_the_backoff(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a")
    clock.advance(100)
    assert queue.fail(claim(queue), ValueError("boom")) is Status.FAILED
    view = row(queue, id)
    assert (view.status, view.error, view.completed_at) == (Status.FAILED, "boom", None)
    assert timedelta(seconds=5) <= view.scheduled_at - now(clock) <= timedelta(seconds=5.5)


def test_t4_a_delay_of_the_handlers_own_replaces_the_backoff(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a")
    queue.fail(claim(queue), "busy", delay=timedelta(minutes=2))
    assert row(queue, id).scheduled_at == now(clock) + timedelta(minutes=2)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_t5_a_job_that_always_fails_starts_exactly_max_attempts_times(
    queue: Queue, clock: ManualClock, limit: int
) -> None:
    id = queue.enqueue("a", max_attempts=limit)
    starts = 0
    while (job := queue.dequeue()) is not None:
        starts += 1
        queue.fail(job, f"failure {starts}")
        clock.advance(3600 * 2)
    assert starts == limit
    assert (row(queue, id).status, row(queue, id).error) == (Status.DEAD, f"failure {limit}")
    assert row(queue, id).completed_at is not None


def test_t5_for_good_is_dead_with_attempts_left(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a")
    assert queue.fail(claim(queue), "no such customer", for_good=True) is Status.DEAD
    assert (row(queue, id).status, row(queue, id).completed_at) == (Status.DEAD, now(clock))


def test_t5_a_result_that_cannot_be_stored_makes_the_job_dead_not_run_again(queue: Queue) -> None:
    id = queue.enqueue("a")
    with pytest.raises(InvalidArgument, match=r"result\['x'\] is nan"):
        queue.complete(claim(queue), {"x": float("nan")})
    assert row(queue, id).status is Status.DEAD
    assert "result cannot be stored" in row(queue, id).error


def test_t6_release_gives_the_attempt_back(queue: Queue) -> None:
    id = queue.enqueue("a")
    before = row(queue, id)
    assert queue.release(claim(queue)) is Status.PENDING
    after = row(queue, id)
    assert (after.status, after.attempts, after.scheduled_at) == (Status.PENDING, 0, before.scheduled_at)
    assert claim(queue).fence == 2


def test_t6_a_snooze_sets_the_next_time(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a")
    queue.release(claim(queue), delay=60)
    assert row(queue, id).scheduled_at == now(clock) + timedelta(seconds=60)


@pytest.mark.parametrize(("begun", "status"), [(True, Status.DEAD), (False, Status.PENDING)])
def test_g20_a_begun_job_with_max_attempts_1_is_never_started_again(queue: Queue, begun: bool, status: Status) -> None:
    id = queue.enqueue("a", max_attempts=1)
    assert queue.release(claim(queue), begun=begun) is status
    assert row(queue, id).error == ("interrupted" if begun else None)


def test_t7_extend_moves_the_end_of_the_lease_only_forward(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue("a")
    job = claim(queue)
    clock.advance(10)
    assert queue.extend(job) == now(clock) + timedelta(seconds=LEASE)
    assert queue.extend(job, 1) == now(clock) + timedelta(seconds=LEASE)  # G-17
    clock.advance(-3600)
    assert queue.extend(job) == now(clock) + timedelta(seconds=3600 + LEASE)


def test_t8_sweep_takes_an_expired_claim_as_a_failure(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a", max_attempts=2)
    claim(queue)
    clock.advance(LEASE - 0.000001)
    assert queue.sweep() == []
    clock.advance(0.000001)  # Reached at equality.
    [swept] = queue.sweep()
    assert (swept.id, swept.status) == (id, Status.FAILED)
    view = row(queue, id)
    assert (view.error, view.attempts, view.worker) == ("lease expired", 1, None)
    assert timedelta(seconds=5) <= view.scheduled_at - now(clock) <= timedelta(seconds=5.5)
    clock.advance(60)
    claim(queue)
    clock.advance(LEASE)
    assert [swept.status for swept in queue.sweep()] == [Status.DEAD]
    assert row(queue, id).completed_at == now(clock)


def test_t8_a_claim_extended_since_the_look_is_not_swept(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue("a")
    job = claim(queue)
    clock.advance(LEASE)
    looked = queue.expired()
    queue.extend(job)
    clock.advance(LEASE)
    assert queue.sweep(looked) == []
    assert [swept.fence for swept in queue.sweep(queue.expired())] == [1]


def test_t8_a_sweep_after_the_clock_was_set_back_takes_nothing(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue("a")
    claim(queue)
    clock.advance(LEASE)
    looked = queue.expired()
    clock.advance(-1)
    assert queue.sweep(looked) == []


@pytest.mark.parametrize("status", ["pending", "failed", "running"])
def test_t9_cancel_ends_a_job_that_has_not_ended(queue: Queue, clock: ManualClock, status: str) -> None:
    id = queue.enqueue("a")
    job = None if status == "pending" else claim(queue)
    if job and status == "failed":
        queue.fail(job, "boom")
    assert queue.cancel(id)
    view = row(queue, id)
    assert (view.status, view.error, view.completed_at) == (Status.DEAD, "cancelled", now(clock))
    assert not queue.cancel(id)
    if job and status == "running":
        with pytest.raises(LeaseLost):
            queue.complete(job)
        assert row(queue, id) == view


def test_t10_requeue_starts_a_dead_job_afresh_and_keeps_the_fence(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a", max_attempts=1)
    queue.fail(claim(queue), "boom")
    clock.advance(5)
    later = queue.enqueue("a")
    assert queue.requeue(id)
    view = row(queue, id)
    assert (view.status, view.attempts, view.completed_at, view.error) == (Status.PENDING, 0, None, "boom")
    job = claim(queue)
    assert (job.id, job.fence, job.attempts) == (id, 2, 1)  # Ahead of the later job, and a claim of its own.
    assert claim(queue).id == later


def test_t10_a_job_cancelled_before_it_was_due_keeps_its_schedule(queue: Queue) -> None:
    at = datetime(2031, 1, 1, tzinfo=UTC)
    id = queue.enqueue("a", scheduled_at=at)
    queue.cancel(id)
    assert queue.requeue(id)
    assert row(queue, id).scheduled_at == at


def test_t10_requeue_of_any_other_job_changes_nothing(queue: Queue) -> None:
    id = queue.enqueue("a")
    assert not queue.requeue(id)
    job = claim(queue)
    assert not queue.requeue(id)
    queue.complete(job)
    assert not queue.requeue(id)
    assert not queue.requeue("00000000-0000-7000-8000-000000000000")


def test_t11_cleanup_deletes_what_ended_long_enough_ago(queue: Queue, clock: ManualClock) -> None:
    done, dead = queue.enqueue("a"), queue.enqueue("a")
    queue.complete(claim(queue))
    queue.cancel(dead)
    failed = queue.enqueue("a")
    queue.fail(claim(queue), "boom")
    queue.enqueue("a", delay=86400 * 10)
    clock.advance(86400 * 7 - 0.000001)
    assert queue.cleanup(timedelta(days=7)) == 0
    clock.advance(0.000001)
    assert queue.cleanup(timedelta(days=7), statuses=["completed"]) == 1
    assert queue.cleanup(timedelta(days=7)) == 1
    assert queue.get(done) is queue.get(dead) is None
    assert row(queue, failed).status is Status.FAILED
    assert queue.counts()[Status.PENDING] == 1


@pytest.mark.parametrize("statuses", [["failed"], ["pending"], ["completed", "running"], [], ["cancelled"]])
def test_t11_cleanup_never_takes_what_can_still_run(queue: Queue, statuses: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        queue.cleanup(0, statuses=statuses)


def test_t11_cleanup_works_in_batches_and_tells_its_progress(queue: Queue) -> None:
    queue.enqueue_many({"type": "a"} for _ in range(2500))
    queue.cancel_many()
    told: list[int] = []
    assert queue.cleanup(0, progress=told.append) == 2500
    assert told == [1000, 2000, 2500]


def test_g3_a_stale_holder_cannot_finish_a_later_attempt(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a")
    stale = claim(queue)
    clock.advance(LEASE)
    queue.sweep()
    clock.advance(60)
    job = claim(queue)
    before = row(queue, id)
    attempts = (queue.complete, lambda j: queue.fail(j, "x"), queue.release, queue.extend)
    for attempt in attempts:
        with pytest.raises(LeaseLost, match="unchanged"):
            attempt(stale)
    assert queue.settle_many([Complete(stale), Fail(stale, "x"), Release(stale)]) == [Lost(), Lost(), Lost()]
    assert row(queue, id) == before
    queue.complete(job)
    assert row(queue, id).status is Status.COMPLETED


def test_g3_an_expired_lease_that_nobody_swept_still_belongs_to_its_holder(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a")
    job = claim(queue)
    clock.advance(10 * LEASE)
    queue.extend(job)
    clock.advance(10 * LEASE)
    queue.complete(job)
    assert row(queue, id).status is Status.COMPLETED
    clock.advance(10 * LEASE)
    assert queue.sweep() == []


def test_g3_another_worker_with_the_same_fence_is_not_the_holder(queue: Queue) -> None:
    queue.enqueue("a")
    job = claim(queue)
    job.worker = "another"
    with pytest.raises(LeaseLost):
        queue.complete(job)


def test_g4_a_claim_has_one_outcome(queue: Queue) -> None:
    queue.enqueue("a")
    job = claim(queue)
    queue.complete(job)
    for attempt in (queue.complete, queue.release, queue.extend):
        with pytest.raises(LeaseLost):
            attempt(job)
    assert not queue.cancel(job.id)


def test_g3_many_items_are_answered_one_by_one(queue: Queue) -> None:
    queue.enqueue_many([{"type": "a"}] * 4)
    first, second, third, fourth = queue.dequeue_many(4)
    queue.cancel(second.id)
    assert queue.complete_many([(first, 1), (second, 2), (third, 3)]) == [
        Settled(Status.COMPLETED),
        Lost(),
        Settled(Status.COMPLETED),
    ]
    assert queue.fail_many([(first, "late"), (fourth, "boom")]) == [Lost(), Settled(Status.FAILED)]
    assert queue.release_many([third]) == [Lost()]


def test_t7_extend_many_answers_one_by_one(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many([{"type": "a"}] * 3)
    jobs = queue.dequeue_many(3)
    queue.cancel(jobs[1].id)
    clock.advance(1)
    replies = queue.extend_many(list(reversed(jobs)))
    assert [type(reply).__name__ for reply in replies] == ["Extended", "Lost", "Extended"]


def test_g10_no_job_is_claimed_before_it_is_due(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue("a", delay=30, priority=100)
    clock.advance(29.999999)
    assert queue.dequeue() is None
    clock.advance(0.000001)
    assert queue.dequeue() is not None


def test_g12_higher_priority_first_then_earlier_schedule_then_enqueue_order(queue: Queue, clock: ManualClock) -> None:
    base = now(clock)
    jobs = [(0, 0), (5, -1), (5, -2), (5, -2), (-32768, -9), (32767, 0)]
    ids = [
        queue.enqueue("ab"[n % 2], priority=p, scheduled_at=base + timedelta(seconds=s))
        for n, (p, s) in enumerate(jobs)
    ]
    assert [job.id for job in queue.dequeue_many(10)] == [ids[n] for n in (5, 2, 3, 1, 0, 4)]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_g12_what_is_due_comes_in_order_whatever_is_due_later_in_between(
    queue: Queue, clock: ManualClock, n: int
) -> None:
    """Four priorities of one type, each with jobs that are due, due later, or both."""
    levels = {"due": [-2, -1], "later": [60], "both": [-1, 60]}
    for number, kinds in enumerate(product(levels, repeat=4)):
        type, base = f"t{number}", now(clock)
        given = [(-place, seconds) for place, kind in enumerate(kinds) for seconds in levels[kind]]
        queue.enqueue_many(
            {"type": type, "priority": priority, "scheduled_at": base + timedelta(seconds=seconds)}
            for priority, seconds in given
        )
        taken = iter(partial(queue.dequeue_many, n, type), [])
        found = [(job.priority, job.scheduled_at - base) for batch in taken for job in batch]
        assert found == [(priority, timedelta(seconds=seconds)) for priority, seconds in given if seconds < 0]


def test_g12_jobs_of_one_instant_come_in_order_of_enqueue_also_after_deletions(
    queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many([{"type": "a"}] * 3)
    for job in queue.dequeue_many(3):
        queue.complete(job)
    queue.cleanup(0)
    ids = [queue.enqueue("a") for _ in range(20)]
    assert [claim(queue).id for _ in range(20)] == ids


@pytest.mark.parametrize("copied", [copy, deepcopy, lambda job: pickle.loads(pickle.dumps(job))])
def test_a_copy_of_a_claim_has_its_payload_and_can_settle_it(queue: Queue, copied: Callable[[Job], Job]) -> None:
    queue.enqueue("a", {"x": [1]})
    job = claim(queue)
    other = copied(job)
    assert (other.id, other.fence, other.payload, other.lost) == (job.id, job.fence, {"x": [1]}, None)
    assert other != job
    queue.complete(other)


def test_a_claim_is_shown_without_its_payload(queue: Queue) -> None:
    queue.enqueue("a", "secret", max_attempts=2)
    job = claim(queue)
    assert repr(job) == f"<Job {job.id}, a, attempt 1 of 2, fence 1>"


def test_g13_empty_means_that_nothing_was_due(queue: Queue) -> None:
    assert queue.dequeue() is None
    assert queue.dequeue_many(5, "a", "b") == []


def test_g21_a_key_is_held_while_the_job_can_still_run(queue: Queue, clock: ManualClock) -> None:
    id = queue.enqueue("a", unique_key="k")

    def taken() -> bool:
        kept = queue.enqueue("b", unique_key="k", on_duplicate="keep")
        if kept != id:
            assert queue.cancel(kept)
            return False
        with pytest.raises(DuplicateKey) as refused:
            queue.enqueue("b", unique_key="k")
        assert (refused.value.holder, refused.value.key) == (id, "k")
        return True

    assert taken()
    job = claim(queue)
    assert taken()
    queue.fail(job, "boom")
    assert taken()
    clock.advance(60)
    queue.complete(claim(queue))
    assert not taken()


def test_g21_requeue_of_a_job_whose_key_was_taken_since_is_refused(queue: Queue) -> None:
    first = queue.enqueue("a", unique_key="k")
    queue.cancel(first)
    second = queue.enqueue("a", unique_key="k")
    with pytest.raises(DuplicateKey) as refused:
        queue.requeue(first)
    assert refused.value.holder == second
    assert row(queue, first).status is Status.DEAD


def test_g21_bulk_requeue_decides_job_by_job(queue: Queue) -> None:
    ids = [queue.enqueue("a", unique_key=f"k{n}") for n in range(100)]
    assert queue.cancel_many() == 100
    queue.enqueue("a", unique_key="k57")
    done = queue.requeue_many(status="dead")
    assert (done.count, done.duplicates) == (99, [ids[57]])


def test_g21_enqueue_many_keeps_the_holder_where_asked(queue: Queue) -> None:
    items = [{"type": "a", "unique_key": key} for key in ("k", "k", "k2")]
    first, second, third = queue.enqueue_many(items, on_duplicate="keep")
    assert first == second != third
    assert sum(queue.counts().values()) == 2


def test_s5_an_exchange_settles_then_claims_in_one_call(queue: Queue) -> None:
    queue.enqueue_many([{"type": "a", "payload": n} for n in range(3)])
    one, two = queue.dequeue_many(2)
    queue.cancel(two.id)
    got = queue.exchange([Complete(one), Complete(two)], 5, ("a",))
    assert got.replies == [Settled(Status.COMPLETED), Lost()]
    assert [job.payload for job in got.jobs] == [2]


@pytest.mark.parametrize("types", [("a",), None], ids=["types named", "every type"])
def test_s5_an_exchange_can_claim_what_it_settled(queue: Queue, types: tuple[str, ...] | None) -> None:
    queue.enqueue("a")
    job = claim(queue)
    got = queue.exchange([Release(job)], 1, types)
    assert got.replies == [Settled(Status.PENDING)]
    assert [(again.id, again.fence) for again in got.jobs] == [(job.id, 2)]


@pytest.mark.parametrize("types", [("a",), None], ids=["types named", "every type"])
def test_s5_an_exchange_says_that_its_only_settlement_is_lost_and_claims_all_the_same(
    queue: Queue, types: tuple[str, ...] | None
) -> None:
    gone, next_in_line = queue.enqueue_many([{"type": "a"}, {"type": "a"}])
    job = claim(queue)
    queue.cancel(gone)
    got = queue.exchange([Complete(job)], 1, types)
    assert got.replies == [Lost()]
    assert [each.id for each in got.jobs] == [next_in_line]


def test_s5_list_pages_through_everything_without_payloads(queue: Queue) -> None:
    ids = queue.enqueue_many({"type": "ab"[n % 2], "payload": n} for n in range(25))
    seen: list[str] = []
    page = queue.list(limit=10)
    while page:
        seen += [view.id for view in page]
        assert {view.payload for view in page} == {None}
        page = queue.list(limit=10, after=page[-1])
    assert seen == ids
    assert [view.payload for view in queue.list(type="b", limit=2, payloads=True)] == [1, 3]
    assert queue.list(status="running") == queue.list(unique_key="k") == []


def test_s5_wait_returns_the_view_of_a_job_that_has_ended(queue: Queue) -> None:
    id = queue.enqueue("a")
    with pytest.raises(TimeoutError, match="still pending"):
        queue.wait(id, timeout=0)
    queue.complete(claim(queue), 42)
    view = queue.wait(id)
    assert view is not None
    assert (view.status, view.result) == (Status.COMPLETED, 42)
    assert queue.wait("00000000-0000-7000-8000-000000000000") is None


def test_status_summary_names_every_status(queue: Queue) -> None:
    assert status_summary(queue.counts()) == "pending: 0, running: 0, completed: 0, failed: 0, dead: 0"
    counts = {Status.PENDING: 5, Status.RUNNING: 2, Status.COMPLETED: 100, Status.FAILED: 3, Status.DEAD: 1}
    assert status_summary(counts) == "pending: 5, running: 2, completed: 100, failed: 3, dead: 1"


def test_due_in_looks_at_the_heads_of_every_level(queue: Queue, clock: ManualClock) -> None:
    assert queue.due_in_us() is None
    queue.enqueue("a", delay=50, priority=9)
    queue.enqueue("b", delay=20)
    queue.enqueue("c", delay=90)
    assert queue.due_in_us() == 20_000_000
    assert queue.due_in_us(("a", "c")) == 50_000_000


@pytest.mark.parametrize(
    "bad",
    [
        {"type": ""},
        {"type": "x" * 201},
        {"type": "\ud800"},
        {"type": None},
        {"priority": 32768},
        {"priority": -32769},
        {"priority": 1.5},
        {"priority": True},
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": True},
        {"max_attempts": "3"},
        {"max_attempts": 2**63},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": 10**18},
        {"timeout": 0},
        {"timeout": float("inf")},
        {"scheduled_at": datetime(2030, 1, 1)},
        {"unique_key": ""},
        {"unique_key": "k\0"},
        {"payload": {"a": b"x"}},
    ],
    ids=str,
)
def test_s8_bad_input_is_refused_before_anything_is_stored(queue: Queue, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        queue.enqueue(**{"type": "a", **bad})
    assert sum(queue.counts().values()) == 0


def test_s8_bad_arguments_of_the_other_calls_are_refused(queue: Queue, open_queue: OpenQueue) -> None:
    queue.enqueue("a")
    with pytest.raises(InvalidArgument, match="status"):
        queue.list(status="cancelled")
    with pytest.raises(InvalidArgument, match="not a job id"):
        queue.cancel("17")
    with pytest.raises(InvalidArgument, match="not both"):
        queue.cancel_many([], type="a")
    for lease in (0, -1, float("nan")):
        with pytest.raises(InvalidArgument):
            queue.dequeue(lease=lease)
        with pytest.raises(InvalidArgument):
            open_queue(lease=lease)
    with pytest.raises(InvalidArgument):
        queue.dequeue_many(0)
    with pytest.raises(InvalidArgument):
        open_queue(name="My Queue")
    assert claim(queue).attempts == 1


@pytest.mark.parametrize("other", ["fence", "worker", "raw_id"])
def test_g3_among_many_completions_those_that_differ_from_the_holder_in_one_thing_are_lost(
    queue: Queue, other: str
) -> None:
    """The claims of a batch are compared together on PostgreSQL, and each must be compared whole."""
    queue.enqueue_many([{"type": "a"}] * 4)
    first, second, third, fourth = queue.dequeue_many(4)
    strange: dict[str, Any] = {"fence": second.fence + 1, "worker": "another", "raw_id": fourth.raw_id}
    stale = copy(second)
    setattr(stale, other, strange[other])
    assert queue.complete_many([(first, 1), (stale, 2), (third, 3)]) == [
        Settled(Status.COMPLETED),
        Lost(),
        Settled(Status.COMPLETED),
    ]
    assert [row(queue, job.id).result for job in (first, second, third, fourth)] == [1, None, 3, None]
    assert row(queue, second.id).status is Status.RUNNING
    queue.complete(second)


def test_two_queues_in_one_database_do_not_share_jobs(open_queue: OpenQueue) -> None:
    one, two = open_queue(name="order"), open_queue(name="select")
    one.enqueue("a")
    assert two.dequeue() is None
    assert open_queue(name="order").dequeue() is not None


@pytest.mark.parametrize("again", [False, True], ids=["and no more", "and began another"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_s5_completing_refuses_a_block_that_ended_its_transaction(queue: Queue, end: str, again: bool) -> None:
    queue.enqueue("a")
    job = claim(queue)
    with pytest.raises(WrongUse, match="ended inside the block"), queue.completing(job) as connection:  # noqa: PT012
        kept = queue.enqueue("kept", transaction=connection)
        connection.execute(end)
        if again:
            connection.execute("begin")
            undone = queue.enqueue("undone", transaction=connection)
    assert row(queue, job.id).status is Status.RUNNING
    assert not job.settled
    assert (queue.get(kept) is None) == (end == "rollback")
    assert not again or queue.get(undone) is None
    with queue.completing(job):
        pass
    assert row(queue, job.id).status is Status.COMPLETED


def test_a_claim_tells_whether_it_was_settled(queue: Queue) -> None:
    settling = (queue.complete, partial(queue.fail, error="no"), queue.release)
    for settle in settling:
        queue.enqueue("a")
        job = claim(queue)
        assert not job.settled
        settle(job)
        assert job.settled
        with pytest.raises(LeaseLost):
            settle(job)
        queue.cancel(job.id)


def test_s8_what_is_no_claim_is_refused(queue: Queue) -> None:
    id = queue.enqueue("a")
    wrong: tuple[Any, ...] = (id, queue.get(id), None)
    for thing in wrong:
        for call in (queue.complete, queue.release, queue.extend, partial(queue.fail, error="no")):
            with pytest.raises(InvalidArgument, match="a claim is the Job that dequeue returned"):
                call(thing)
        with pytest.raises(InvalidArgument, match="a claim is"), queue.completing(thing):
            pass


def test_s8_the_forms_for_many_take_any_iterable(queue: Queue) -> None:
    queue.enqueue_many([{"type": "a"}] * 3)
    jobs = queue.dequeue_many(3)
    assert len(queue.extend_many(job for job in jobs)) == 3
    assert len(queue.settle_many(Complete(job) for job in jobs)) == 3
    assert queue.cleanup(0, statuses="completed") == 3


@pytest.mark.parametrize(
    "bad", [{"n": -1}, {"n": 1.5}, {"n": True}, {"types": "ab"}, {"types": ()}, {"worker": ""}, {"worker": 5}], ids=str
)
def test_s8_an_exchange_refuses_what_a_dequeue_refuses(queue: Queue, bad: dict[str, Any]) -> None:
    queue.enqueue_many([{"type": "a"}, {"type": "b"}])
    with pytest.raises(InvalidArgument):
        queue.exchange([], **{"n": 1, "types": None, **bad})
    assert queue.counts()[Status.PENDING] == 2


@pytest.mark.parametrize("limit", [0, -1, "x", True])
def test_s8_an_audit_of_nothing_is_refused(queue: Queue, limit: Any) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        queue.audit(limit)


def test_s8_a_mistyped_on_duplicate_is_refused_before_a_key_collides(queue: Queue) -> None:
    wrong: Any = "ignore"
    for call in (partial(queue.enqueue, "a"), partial(queue.enqueue_many, [{"type": "a"}])):
        with pytest.raises(InvalidArgument, match="on_duplicate is 'raise' or 'keep', not 'ignore'"):
            call(on_duplicate=wrong)
    assert queue.counts()[Status.PENDING] == 0
