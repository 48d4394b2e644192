"""Each rule accepts every legal answer, says what follows, and names the clause that a wrong answer breaks."""

from dataclasses import replace
from fractions import Fraction

import pytest

from model import EMPTY, Claim, Job, Rules, State, Unobserved, Violation, shown, step
from model.calls import (
    Bulk,
    Call,
    Cancel,
    CancelWhere,
    Cleanup,
    Complete,
    Counts,
    Dequeue,
    DuplicateKey,
    Enqueue,
    Enqueued,
    Exchange,
    Exchanged,
    Expired,
    Extend,
    Extended,
    Fail,
    Get,
    LeaseLost,
    List,
    Look,
    Many,
    New,
    Refused,
    Release,
    Requeue,
    RequeueWhere,
    Settled,
    Sweep,
    Swept,
    Table,
    Where,
)

RULES = Rules(base=10, cap=35, jitter=Fraction(1, 2))
LOST = LeaseLost()


def after(state: State, call: Call, result: object, now: int, rules: Rules = RULES) -> State:
    judged = step(state, call, result, now, rules)
    assert isinstance(judged, State), str(judged)
    return judged


def clause(state: State, call: Call, result: object, now: int, rules: Rules = RULES) -> str:
    judged = step(state, call, result, now, rules)
    assert isinstance(judged, Violation), "accepted"
    assert str(judged).startswith(judged.clause + ": ")
    return judged.clause


def the(state: State, id: str = "a") -> Job:
    job = state.get(id)
    assert job is not None
    return job


def queue(*jobs: New, now: int = 100) -> State:
    return after(EMPTY, Enqueue(jobs), tuple(Enqueued(job.id or "") for job in jobs), now)


def claimed(state: State, id: str = "a", now: int = 100, lease: int = 50) -> tuple[State, Claim]:
    claim = Claim(id, the(state, id).fence + 1, "w")
    return after(state, Dequeue("w", lease), (claim,), now, Rules(unseen=None)), claim


def running(max_attempts: int = 3, now: int = 100) -> tuple[State, Claim]:
    return claimed(queue(New(id="a", max_attempts=max_attempts), now=now), now=now)


# Enqueue


def test_t1_a_new_job_is_pending_with_nothing_of_a_past() -> None:
    job = the(queue(New(id="a", type="mail", payload="[1]", priority=-4, max_attempts=2, timeout=9, unique_key="k")))
    assert job == Job(
        seq=1, id="a", type="mail", payload="[1]", status="pending", priority=-4, attempts=0, max_attempts=2,
        fence=0, scheduled_at=100, created_at=100, timeout=9, unique_key="k",
    )  # fmt: skip


def test_t1_scheduled_at_is_what_was_given_else_now_and_the_delay() -> None:
    state = queue(New(id="a", scheduled_at=3), New(id="b", delay=7))
    assert (the(state, "a").scheduled_at, the(state, "b").scheduled_at) == (3, 107)


def test_t1_any_new_id_and_any_higher_seq_are_accepted() -> None:
    state = after(queue(New(id="a")), Enqueue((New(), New())), (Enqueued("x", 5), Enqueued("y", 9)), 100)
    assert [job.seq for job in state.jobs] == [1, 5, 9]
    assert clause(state, Enqueue((New(),)), (Enqueued("z", 8),), 100) == "§6"
    assert clause(state, Enqueue((New(),)), (Enqueued("z", 9),), 100, Rules(unseen=None)) == "§6"
    after(state, Enqueue((New(),)), (Enqueued("z", 8),), 100, Rules(unseen=frozenset({"y"})))


def test_t1_another_id_than_the_callers_is_a_violation() -> None:
    assert clause(EMPTY, Enqueue((New(id="a"),)), (Enqueued("b"),), 0) == "T-1"
    assert clause(EMPTY, Enqueue((New(),)), (), 0) == "T-1"
    assert clause(EMPTY, Enqueue((New(),)), (True,), 0) == "T-1"


def test_an_existing_id_counts_as_success_and_stores_nothing() -> None:
    state = queue(New(id="a", unique_key="k"))
    assert after(state, Enqueue((New(id="a", unique_key="k"),)), (Enqueued("a"),), 200) == state
    assert clause(state, Enqueue((New(id="a", unique_key="k"),)), DuplicateKey("a"), 200) == "T-1"
    assert clause(state, Enqueue((New(id="a"),)), (Enqueued("b"),), 200) == "§5"


def test_g21_a_taken_key_is_a_duplicate() -> None:
    state, call = queue(New(id="a", unique_key="k")), Enqueue((New(id="b", unique_key="k"),))
    assert after(state, call, DuplicateKey("a"), 100) == after(state, call, DuplicateKey(), 100) == state
    assert clause(state, call, (Enqueued("b"),), 100) == "G-21"
    assert clause(state, call, DuplicateKey("b"), 100) == "§5"
    assert clause(state, Enqueue((New(id="b"),)), DuplicateKey(), 100) == "T-1"


def test_keep_replies_the_id_that_holds_the_key() -> None:
    state, call = queue(New(id="a", unique_key="k")), Enqueue((New(unique_key="k"), New()), keep=True)
    assert [job.id for job in after(state, call, (Enqueued("a"), Enqueued("b")), 100).jobs] == ["a", "b"]
    assert clause(state, call, (Enqueued("c"), Enqueued("b")), 100) == "G-21"
    assert clause(state, call, DuplicateKey("a"), 100) == "T-1"


def test_a_key_twice_in_one_call_is_taken_by_its_first_occurrence() -> None:
    twice = (New(id="a", unique_key="k"), New(id="b", unique_key="k"))
    assert after(EMPTY, Enqueue(twice), DuplicateKey("a"), 0) == EMPTY
    assert clause(EMPTY, Enqueue(twice), DuplicateKey("b"), 0) == "§5"
    assert [job.id for job in after(EMPTY, Enqueue(twice, keep=True), (Enqueued("a"), Enqueued("a")), 0).jobs] == ["a"]
    assert clause(EMPTY, Enqueue(twice, keep=True), (Enqueued("a"), Enqueued("b")), 0) == "G-21"


def test_a_terminal_job_leaves_its_key_free() -> None:
    state = after(queue(New(id="a", unique_key="k")), Cancel("a"), True, 100)
    assert len(after(state, Enqueue((New(id="b", unique_key="k"),)), (Enqueued("b"),), 100).jobs) == 2
    assert clause(state, Enqueue((New(id="b", unique_key="k"),)), DuplicateKey("a"), 100) == "T-1"


def test_g15_g16_an_id_is_never_given_twice() -> None:
    state = queue(New(id="a"))
    assert clause(state, Enqueue((New(),)), (Enqueued("a"),), 100) == "G-16"
    gone = after(after(state, Cancel("a"), True, 100), Cleanup(0), 1, 100)
    assert clause(gone, Enqueue((New(),)), (Enqueued("a"),), 100) == "G-15"


# Dequeue


def test_t2_a_claim_counts_an_attempt_and_a_fence_and_runs() -> None:
    before = queue(New(id="a"))
    wanted = replace(
        the(before), status="running", attempts=1, fence=1, started_at=120, worker="w", lease_expires_at=170
    )
    for reply in (wanted, wanted.claim):
        assert the(after(before, Dequeue("w", 50), (reply,), 120)) == wanted
    assert clause(before, Dequeue("w", 50), (replace(wanted, lease_expires_at=171),), 120) == "T-2"
    assert clause(before, Dequeue("w", 50), (replace(wanted, fence=2),), 120) == "G-2"
    assert clause(before, Dequeue("w", 50), (Claim("a", 1, "v"),), 120) == "T-2"
    assert clause(before, Dequeue("w", 50), (Claim("b", 1, "w"),), 120) == "G-16"


def test_t2_a_running_or_terminal_job_or_another_type_is_not_claimed() -> None:
    state, _ = running()
    assert clause(state, Dequeue("w", 50), (Claim("a", 2, "w"),), 100) == "T-2"
    state = after(state, Cancel("a"), True, 100)
    assert clause(state, Dequeue("w", 50), (Claim("a", 2, "w"),), 100) == "T-2"
    assert clause(queue(New(id="a")), Dequeue("w", 50, frozenset({"u"})), (Claim("a", 1, "w"),), 100) == "T-2"
    assert (
        clause(queue(New(id="a"), New(id="b")), Dequeue("w", 50), (Claim("a", 1, "w"), Claim("b", 1, "w")), 100)
        == "T-2"
    )


def test_g2_one_call_claims_a_job_once() -> None:
    assert clause(queue(New(id="a")), Dequeue("w", 50, n=2), (Claim("a", 1, "w"), Claim("a", 1, "w")), 100) == "G-2"
    assert clause(queue(New(id="a")), Dequeue("w", 50, n=2), (Claim("a", 1, "w"), Claim("a", 2, "w")), 100) == "G-2"


def test_g10_a_job_is_due_at_equality_and_not_before() -> None:
    state = queue(New(id="a", delay=10))
    assert clause(state, Dequeue("w", 50), (Claim("a", 1, "w"),), 109) == "G-10"
    assert after(state, Dequeue("w", 50), (), 109) == state
    after(state, Dequeue("w", 50), (Claim("a", 1, "w"),), 110)


def test_g12_the_first_is_of_highest_priority_then_earliest_then_lowest_seq() -> None:
    state = queue(New(id="a"), New(id="b"), New(id="c", scheduled_at=5), New(id="d", priority=1))
    order = tuple(Claim(id, 1, "w") for id in "dcab")
    after(state, Dequeue("w", 50, n=4), order, 100)
    after(state, Dequeue("w", 50, n=3), order[:3], 100)
    assert clause(state, Dequeue("w", 50), order[1:2], 100) == "G-12"
    assert clause(state, Dequeue("w", 50, n=2), (order[1], order[0]), 100) == "G-12"
    assert clause(state, Dequeue("w", 50, n=2), (order[0], order[3]), 100) == "G-12"


def test_g13_nothing_that_is_due_stays_if_there_was_room() -> None:
    state = queue(New(id="a"), New(id="b", type="u"))
    assert clause(state, Dequeue("w", 50), (), 100) == "G-13"
    assert clause(state, Dequeue("w", 50, n=2), (Claim("a", 1, "w"),), 100) == "G-13"
    after(state, Dequeue("w", 50, frozenset({"t"}), n=2), (Claim("a", 1, "w"),), 100)


def test_s6_the_weak_order_passes_over_the_unseen_and_no_others() -> None:
    state = queue(New(id="a"), New(id="b"), New(id="c"))
    weak = Rules(unseen=frozenset({"a"}))
    after(state, Dequeue("w", 50), (Claim("b", 1, "w"),), 100, weak)
    after(state, Dequeue("w", 50), (), 100, Rules(unseen=None))
    assert clause(state, Dequeue("w", 50), (Claim("c", 1, "w"),), 100, weak) == "G-12"
    assert clause(state, Dequeue("w", 50, n=3), (Claim("b", 1, "w"),), 100, weak) == "G-13"
    two = (Claim("b", 1, "w"), Claim("a", 1, "w"))
    assert clause(state, Dequeue("w", 50, n=2), two, 100, Rules(unseen=None)) == "G-12"


# The holder's operations


def test_t3_completion_keeps_the_error_and_ends_the_lease() -> None:
    state, claim = running()
    state = after(state, Fail(claim, "boom", 0), Settled("failed"), 100)
    state, claim = claimed(state)
    done = the(after(state, Complete(claim, "1"), Settled("completed"), 130))
    assert (done.status, done.result, done.error, done.completed_at) == ("completed", "1", "boom", 130)
    assert (done.worker, done.lease_expires_at, done.attempts, done.fence, done.started_at) == (None, None, 2, 2, 100)
    assert clause(state, Complete(claim), LOST, 130) == clause(state, Complete(claim), Settled("dead"), 130) == "T-3"


@pytest.mark.parametrize("now", [100, 149, 150, 10_000])
def test_an_expired_lease_that_nobody_swept_still_belongs_to_its_holder(now: int) -> None:
    state, claim = running()
    after(state, Complete(claim), Settled("completed"), now)
    after(state, Extend(claim, 1), Extended(max(150, now + 1)), now)


@pytest.mark.parametrize("call", [Complete, lambda c: Fail(c, "e"), Release, lambda c: Extend(c, 9)])
@pytest.mark.parametrize("stale", [Claim("a", 0, "w"), Claim("a", 2, "w"), Claim("a", 1, "v"), Claim("b", 1, "w")])
def test_g3_a_stale_holder_changes_nothing(call, stale) -> None:  # type: ignore[no-untyped-def]
    state, claim = running()
    assert after(state, call(stale), LOST, 110) == state
    for reply in (Settled("completed"), Settled("failed", 120), Settled("dead"), Settled("pending"), Extended(150)):
        assert clause(state, call(stale), reply, 110) == "G-3"
    done = after(state, Complete(claim), Settled("completed"), 110)
    assert after(done, call(claim), LOST, 110) == done


def test_t4_a_failure_is_retried_within_the_bounds_of_the_backoff() -> None:
    state, claim = running()
    call = Fail(claim, "boom")
    for at in (110, 115):
        job = the(after(state, call, Settled("failed", at), 100))
        assert (job.status, job.scheduled_at, job.error, job.attempts, job.worker) == ("failed", at, "boom", 1, None)
    assert (
        clause(state, call, Settled("failed", 109), 100) == clause(state, call, Settled("failed", 116), 100) == "G-11"
    )
    assert clause(state, call, LOST, 100) == "T-4"
    with pytest.raises(Unobserved):
        step(state, call, Settled("failed"), 100, RULES)


def test_t4_a_given_delay_replaces_the_backoff() -> None:
    state, claim = running()
    assert the(after(state, Fail(claim, "e", 1), Settled("failed"), 100)).scheduled_at == 101
    assert clause(state, Fail(claim, "e", 1), Settled("failed", 110), 100) == "T-4"


def test_g11_the_plain_backoff_doubles_to_the_cap() -> None:
    assert [RULES.plain(n) for n in (1, 2, 3, 4, 10**9)] == [10, 20, 35, 35, 35]
    assert [Rules().plain(n) for n in (1, 2, 99)] == [5_000_000, 10_000_000, 3_600_000_000]


def test_g7_a_failure_is_dead_exactly_when_exhausted_or_for_good() -> None:
    state, claim = running(max_attempts=1)
    job = the(after(state, Fail(claim, "e", 5), Settled("dead"), 100))
    assert (job.status, job.error, job.completed_at, job.scheduled_at) == ("dead", "e", 100, 100)
    assert clause(state, Fail(claim, "e", 5), Settled("failed", 105), 100) == "G-7"
    state, claim = running(max_attempts=2)
    assert clause(state, Fail(claim, "e"), Settled("dead"), 100) == "G-7"
    assert the(after(state, Fail(claim, "e", for_good=True), Settled("dead"), 100)).status == "dead"


def test_s8_an_error_is_cut_and_cleaned_and_never_refused() -> None:
    state, claim = running(max_attempts=1)
    error = the(after(state, Fail(claim, "\0\ud800" + "x" * 20_000), Settled("dead"), 100)).error
    assert error is not None
    assert error == "\ufffd\ufffd" + "x" * 9_998


def test_t6_a_release_gives_the_attempt_back_and_keeps_the_place_or_snoozes() -> None:
    state, claim = running()
    job = the(after(state, Release(claim, begun=True), Settled("pending"), 130))
    assert (job.status, job.attempts, job.fence, job.scheduled_at, job.started_at) == ("pending", 0, 1, 100, 100)
    assert the(after(state, Release(claim, delay=9), Settled("pending", 139), 130)).scheduled_at == 139
    assert clause(state, Release(claim), LOST, 130) == clause(state, Release(claim), Settled("dead"), 130) == "T-6"
    assert clause(state, Release(claim, delay=9), Settled("pending", 138), 130) == "T-6"


def test_g20_what_may_be_begun_once_is_interrupted_and_not_released() -> None:
    state, claim = running(max_attempts=1)
    job = the(after(state, Release(claim, begun=True, delay=5), Settled("dead"), 130))
    assert (job.status, job.error, job.attempts, job.scheduled_at) == ("dead", "interrupted", 1, 100)
    assert clause(state, Release(claim, begun=True), Settled("pending"), 130) == "G-20"
    assert the(after(state, Release(claim), Settled("pending"), 130)).status == "pending"


def test_t7_g17_extend_is_never_shorter() -> None:
    state, claim = running()
    assert the(after(state, Extend(claim, 30), Extended(150), 110)).lease_expires_at == 150
    assert the(after(state, Extend(claim, 41), Extended(151), 110)).lease_expires_at == 151
    assert clause(state, Extend(claim, 30), Extended(140), 110) == "G-17"
    assert clause(state, Extend(claim, 41), Extended(152), 110) == "T-7"
    assert clause(state, Extend(claim, 41), LOST, 110) == "T-7"


def test_many_answers_one_by_one_and_a_lost_lease_does_not_stop_the_rest() -> None:
    state, claim = running()
    call = Many((Complete(Claim("a", 9, "w")), Extend(claim, 60), Complete(claim), Complete(claim)))
    assert the(after(state, call, (LOST, Extended(160), Settled("completed"), LOST), 100)).status == "completed"
    assert clause(state, call, (LOST, Extended(160), Settled("completed"), Settled("completed")), 100) == "G-3"
    assert clause(state, call, (LOST,), 100) == "§5"


def test_an_exchange_may_claim_what_it_settled_with_a_new_fence() -> None:
    state, claim = running()
    call = Exchange((Fail(claim, "e", 0),), Dequeue("v", 50))
    again = Exchanged((Settled("failed"),), (Claim("a", 2, "v"),))
    assert the(after(state, call, again, 100)).claim == Claim("a", 2, "v")
    assert clause(state, call, replace(again, claimed=(claim,)), 100) == "G-2"
    assert clause(state, call, replace(again, claimed=()), 100) == "G-13"
    assert clause(state, call, replace(again, settled=(LOST,)), 100) == "T-4"
    assert clause(state, call, (), 100) == "§5"


# The look and the sweep


def test_the_look_shows_exactly_the_expired_leases() -> None:
    state, _ = running()
    seen = frozenset({Look("a", 1, 150)})
    after(state, Expired(), frozenset(), 149)
    after(state, Expired(), seen, 150)
    assert clause(state, Expired(), seen, 149) == clause(state, Expired(), frozenset(), 150) == "§5"


def test_t8_a_sweep_is_a_failure_of_what_is_expired_and_as_looked_at() -> None:
    state, claim = running()
    swept = frozenset({Swept("a", "failed", 162)})
    for call in (Sweep(), Sweep(frozenset({Look("a", 1, 150)}))):
        job = the(after(state, call, swept, 150))
        assert (job.status, job.error, job.scheduled_at, job.worker) == ("failed", "lease expired", 162, None)
        assert clause(state, call, frozenset(), 150) == "T-8"
        assert clause(state, call, frozenset({Swept("a", "failed", 159)}), 150) == "G-11"
        assert clause(state, call, frozenset({Swept("a", "dead")}), 150) == "G-7"
        assert clause(state, call, swept, 149) == "T-8"
    for seen in (Look("a", 1, 149), Look("a", 0, 150), Look("b", 1, 150)):
        assert after(state, Sweep(frozenset({seen})), frozenset(), 150) == state
        assert clause(state, Sweep(frozenset({seen})), swept, 150) == "T-8"
    extended = after(state, Extend(claim, 60), Extended(200), 140)
    assert after(extended, Sweep(frozenset({Look("a", 1, 150)})), frozenset(), 300) == extended


def test_t8_the_last_attempt_is_swept_to_dead() -> None:
    state, _ = running(max_attempts=1)
    job = the(after(state, Sweep(), frozenset({Swept("a", "dead")}), 150))
    assert (job.status, job.error, job.completed_at) == ("dead", "lease expired", 150)
    assert clause(state, Sweep(), frozenset({Swept("a", "failed", 160)}), 150) == "G-7"


# Cancel, requeue, cleanup


def test_t9_what_is_not_terminal_is_cancelled() -> None:
    state, claim = running()
    job = the(after(state, Cancel("a"), True, 120))
    assert (job.status, job.error, job.completed_at, job.attempts, job.worker) == ("dead", "cancelled", 120, 1, None)
    assert clause(state, Cancel("a"), False, 120) == clause(state, Cancel("b"), True, 120) == "T-9"
    done = after(state, Complete(claim), Settled("completed"), 120)
    assert after(done, Cancel("a"), False, 130) == done
    assert clause(done, Cancel("a"), True, 130) == "T-9"


def test_t10_g19_a_requeued_job_starts_afresh_in_its_old_place() -> None:
    state, claim = running()
    for call, reply in ((Fail(claim, "e"), Settled("failed", 110)), (Fail(claim, "e", None, True), Settled("dead"))):
        ended = after(state, call, reply, 100)
        job = the(after(ended, Requeue("a"), True, 200))
        assert (job.status, job.attempts, job.fence, job.scheduled_at, job.error) == ("pending", 0, 1, 100, "e")
        assert (job.completed_at, job.started_at) == (None, 100)
        assert clause(ended, Requeue("a"), False, 200) == "T-10"
    assert clause(state, Requeue("a"), True, 200) == clause(state, Requeue("b"), True, 200) == "T-10"


def test_t10_a_job_that_was_never_tried_keeps_its_schedule() -> None:
    state = after(queue(New(id="a", delay=900)), Cancel("a"), True, 100)
    assert the(after(state, Requeue("a"), True, 100)).scheduled_at == 1000


def test_t10_g21_a_requeue_needs_its_key_free_of_others() -> None:
    state = after(queue(New(id="a", unique_key="k")), Cancel("a"), True, 100)
    state = after(state, Enqueue((New(unique_key="k"),)), (Enqueued("b"),), 100)
    assert after(state, Requeue("a"), DuplicateKey("b"), 100) == state
    assert clause(state, Requeue("a"), True, 100) == clause(state, Requeue("a"), DuplicateKey("a"), 100) == "G-21"
    state, claim = claimed(state, "b")
    state = after(state, Fail(claim, "e"), Settled("failed", 110), 100)
    assert the(after(state, Requeue("b"), True, 100), "b").status == "pending"
    assert clause(state, Requeue("b"), DuplicateKey(), 100) == "T-10"


def test_bulk_forms_decide_job_by_job_and_count_what_happened() -> None:
    state = queue(New(id="a"), New(id="b", type="u"), New(id="c"))
    state = after(state, Cancel("c"), True, 100)
    every = CancelWhere(Where())
    assert {job.status for job in after(state, every, Bulk(2), 100).jobs} == {"dead"}
    for wrong in (Bulk(3), Bulk(1), Bulk(1, frozenset("a")), Bulk(2, frozenset("ac")), 2):
        assert clause(state, every, wrong, 100) == "T-9"
    assert the(after(state, CancelWhere(Where(type="u")), Bulk(1), 100), "a").status == "pending"
    after(state, CancelWhere(Where(ids=frozenset("ax"), statuses=frozenset({"pending"}))), Bulk(1), 100)
    assert clause(state, RequeueWhere(Where()), Bulk(2), 100) == "T-10"


def test_a_bulk_requeue_gives_a_key_to_exactly_one_of_those_that_compete() -> None:
    state = EMPTY
    for id in "ab":
        state = after(state, Enqueue((New(unique_key="k"),)), (Enqueued(id),), 100)
        state = after(state, Cancel(id), True, 100)
    call = RequeueWhere(Where(unique_key="k"))
    for id in "ab":
        assert the(after(state, call, Bulk(1, frozenset(id)), 100), id).status == "pending"
    assert clause(state, call, Bulk(0), 100) == clause(state, call, Bulk(2, frozenset("ab")), 100) == "T-10"
    with pytest.raises(Unobserved):
        step(state, call, Bulk(1), 100)


def test_t11_g14_cleanup_deletes_what_is_old_enough_and_nothing_else() -> None:
    state = after(queue(New(id="a"), New(id="b")), Cancel("a"), True, 100)
    assert after(state, Cleanup(50), 0, 149) == state
    gone = after(state, Cleanup(50), 1, 150)
    assert ([job.id for job in gone.jobs], gone.deleted) == (["b"], frozenset("a"))
    assert after(state, Cleanup(0, frozenset({"completed"})), 0, 150) == state
    assert clause(state, Cleanup(50), 0, 150) == "T-11"
    assert clause(state, Cleanup(50), 1, 149) == clause(state, Cleanup(50), 2, 150) == "G-14"


# Reading


def test_reading_shows_what_is_there_and_no_fence() -> None:
    state, _ = running()
    state = after(state, Enqueue((New(),)), (Enqueued("b"),), 100)
    a, b = shown(the(state, "a")), shown(the(state, "b"))
    after(state, Get("a"), a, 100)
    after(state, Get("c"), None, 100)
    after(state, List(), (b, a), 100)
    after(state, List(limit=1), (b,), 100)
    after(state, List(Where(statuses=frozenset({"pending"}))), (b,), 100)
    after(state, Counts(), frozenset({("running", 1), ("pending", 1), ("dead", 0)}), 100)
    after(EMPTY, Counts(), frozenset(), 100)
    after(EMPTY, Counts(), frozenset((s, 0) for s in ("pending", "running", "completed", "failed", "dead")), 100)
    wrong: list[tuple[Call, object]] = [
        (Get("a"), the(state, "a")),
        (Get("a"), None),
        (Get("c"), a),
        (List(), (a,)),
        (List(), (a, a)),
        (List(limit=1), (a, b)),
        (Counts(), frozenset({("running", 1)})),
        (Counts(), frozenset({("running", 2), ("pending", 1)})),
        (Counts(), frozenset({("running", 1), ("pending", 1), ("lost", 0)})),
    ]
    for call, result in wrong:
        assert clause(state, call, result, 100) == "§5"


def test_g22_the_table_is_the_state_in_every_column() -> None:
    state = queue(New(id="a"))
    after(state, Table(), frozenset(state.jobs), 100)
    assert clause(state, Table(), frozenset({replace(the(state), error="x")}), 100) == "G-22"
    assert clause(state, Table(), frozenset(), 100) == "G-16"
    gone = after(after(state, Cancel("a"), True, 100), Cleanup(0), 1, 100)
    assert clause(gone, Table(), frozenset(state.jobs), 100) == "G-15"


# Refusals


LONG = 3650 * 86_400 * 10**6


@pytest.mark.parametrize(
    "call",
    [
        *(Enqueue((New(priority=p),)) for p in (-32769, 32768, True)),
        *(Enqueue((New(max_attempts=m),)) for m in (0, 2**31, True)),
        *(Enqueue((New(type=t),)) for t in ("", "x" * 201, "\0", "\ud800")),
        *(Enqueue((New(unique_key=k),)) for k in ("", "x" * 501, "\0")),
        *(Enqueue((New(delay=d),)) for d in (-1, LONG + 1)),
        *(Enqueue((New(timeout=d),)) for d in (0, LONG + 1)),
        *(Enqueue((New(scheduled_at=s),)) for s in (-1, 32_503_680_000 * 10**6)),
        Enqueue((New(), New(scheduled_at=1, delay=1))),
        Dequeue("w", 0),
        Dequeue("w", 1, frozenset()),
        Extend(Claim("a", 1, "w"), 0),
        Fail(Claim("a", 1, "w"), "e", -1),
        Release(Claim("a", 1, "w"), delay=LONG + 1),
        Many((Complete(Claim("a", 1, "w")), Extend(Claim("a", 1, "w"), 0))),
        Exchange((), Dequeue("w", 1, frozenset())),
        Cleanup(-1),
        Cleanup(0, frozenset({"failed"})),
    ],
)
def test_s8_what_breaks_a_bound_is_refused_and_nothing_else_is(call: Call) -> None:
    state, _ = running()
    assert after(state, call, Refused(), 100) == state
    assert clause(state, call, LOST, 100) == "§8"
    assert clause(state, Cancel("a"), Refused(), 100) == "§8"


def test_s8_the_bounds_themselves_are_not_refused() -> None:
    news = [New(priority=p, max_attempts=m) for p, m in ((-32768, 1), (32767, 2**31 - 1))]
    news += [New(type="x" * 200, unique_key="y" * 500), New(delay=0, timeout=1), New(delay=LONG, timeout=LONG)]
    news += [New(scheduled_at=s) for s in (0, 32_503_680_000 * 10**6 - 1)]
    assert len(after(EMPTY, Enqueue(tuple(news)), tuple(Enqueued(str(n)) for n in range(len(news))), 0).jobs) == 7
