"""The rules and the guarantees, said twice, agree: everywhere in a small scope, and along walks in a larger one."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from model import EMPTY, Claim, Job, Rules, State, answers, between, check, graph, legal
from model.calls import (
    Call,
    Cancel,
    CancelWhere,
    Cleanup,
    Complete,
    Dequeue,
    Enqueue,
    Exchange,
    Extend,
    Fail,
    LeaseLost,
    Look,
    Many,
    New,
    Release,
    Requeue,
    RequeueWhere,
    Settled,
    Sweep,
    Where,
)

RULES = Rules(base=1, cap=2, jitter=Fraction(0))
JOB = Job(
    seq=1, id="a", type="t", payload=None, status="pending", priority=0, attempts=0, max_attempts=2, fence=0,
    scheduled_at=0, created_at=0,
)  # fmt: skip
RUNNING = replace(JOB, status="running", attempts=1, fence=1, started_at=0, worker="w", lease_expires_at=1)


def small(state: State) -> Iterator[Call]:
    yield Enqueue((New(id="a", max_attempts=2),))
    yield Dequeue("w", 1)
    for fence in (1, 2, 3):
        claim = Claim("a", fence, "w")
        yield from (Complete(claim, "1"), Fail(claim, "e"), Fail(claim, "e", 0, True), Extend(claim, 1))
        yield from (Release(claim), Release(claim, begun=True), Release(claim, delay=1))
    yield from (Sweep(), Sweep(frozenset({Look("a", 1, 1)})), Cancel("a"), Requeue("a"), Cleanup(1))


def few_claims(state: State) -> bool:
    return all(job.fence < 3 for job in state.jobs)


def test_every_guarantee_holds_everywhere_in_a_small_scope() -> None:
    found = graph(small, (0, 1, 2), RULES, within=few_claims)
    assert {job.status for state in found.states for job in state.jobs} == {
        "pending", "running", "completed", "failed", "dead",
    }  # fmt: skip
    assert [broken for state in found.states for broken in check(state)] == []
    assert [broken for edge in found.edges for broken in between(edge.before, edge.after)] == []


def test_every_edge_of_the_graph_is_legal_and_every_call_has_an_answer() -> None:
    found = graph(small, (0, 1), RULES, within=few_claims)
    assert all(legal(edge.before, edge.call, edge.result, edge.now, RULES) for edge in found.edges)
    asked = {(edge.before, edge.now, edge.call) for edge in found.edges}
    for state in filter(few_claims, found.states):
        for call in small(state):
            came_back = isinstance(call, Enqueue) and "a" in state.deleted  # G-15 leaves no answer to that
            assert ((state, 0, call) in asked) is not came_back


def test_a_clock_that_never_steps_back_reaches_no_more() -> None:
    free = graph(small, (0, 1, 2), RULES, within=few_claims)
    forward = graph(small, (0, 1, 2), RULES, within=few_claims, monotonic=True)
    assert forward.states < free.states
    assert forward.edges < free.edges


def larger(state: State) -> list[Call]:
    claims = [Claim(job.id, fence, worker) for job in state.jobs for fence in (1, job.fence) for worker in "vw"]
    calls: list[Call] = [Dequeue("w", 2), Dequeue("v", 3, frozenset({"t"}), n=2), Sweep(), Cleanup(2)]
    for id in "abcd":
        calls += [Enqueue((New(id=id, unique_key="k", max_attempts=1, delay=1),), keep=id == "d")]
        calls += [Enqueue((New(id=id, type="u", priority=ord(id) % 2),)), Cancel(id), Requeue(id)]
    for claim in claims:
        calls += [Complete(claim), Fail(claim, "e"), Release(claim, True), Release(claim, False, 2), Extend(claim, 4)]
        calls += [Exchange((Fail(claim, "e", 0),), Dequeue("v", 1)), Many((Extend(claim, 1), Complete(claim)))]
    return [*calls, CancelWhere(Where(type="u")), RequeueWhere(Where())]


@settings(deadline=None)
@given(st.data())
def test_every_guarantee_holds_along_every_walk(data: st.DataObject) -> None:
    state, rules = (
        EMPTY,
        Rules(base=1, cap=5, jitter=Fraction(1, 2), unseen=data.draw(st.sampled_from([None, frozenset()]))),
    )
    for _ in range(data.draw(st.integers(1, 25))):
        call, now = data.draw(st.sampled_from(larger(state))), data.draw(st.integers(0, 9))
        found = list(answers(state, call, now, rules))
        if found:
            result, after = data.draw(st.sampled_from(found))
            assert legal(state, call, result, now, rules)
            assert check(after) + between(state, after) == []
            state = after
        else:
            assert isinstance(call, Enqueue)
            assert {new.id for new in call.jobs} & state.deleted


def broken(*jobs: Job, deleted: str = "") -> set[str]:
    return {found.clause for found in check(State(jobs, frozenset(deleted)))}


def test_each_guarantee_of_one_state_is_seen_to_break() -> None:
    assert broken(JOB) == broken(RUNNING) == set()
    assert broken(replace(JOB, status="lost")) == {"G-1"}
    assert broken(replace(RUNNING, worker=None)) == broken(replace(RUNNING, lease_expires_at=None)) == {"G-1"}
    assert broken(replace(JOB, completed_at=1)) == {"G-1"}
    assert broken(replace(JOB, started_at=1)) == {"G-2"}
    assert broken(replace(RUNNING, attempts=0)) == broken(replace(RUNNING, attempts=2)) == {"G-5"}
    assert broken(replace(RUNNING, attempts=3, fence=3)) == {"G-6"}
    assert broken(replace(JOB, attempts=2, fence=2, started_at=0)) == {"G-7"}
    assert broken(replace(JOB, status="dead", completed_at=1)) == {"G-8"}
    assert broken(replace(JOB, result="1")) == {"G-9"}
    assert broken(JOB, deleted="a") == {"G-15"}
    assert broken(JOB, replace(JOB, id="b")) == broken(JOB, replace(JOB, seq=2)) == {"G-16"}
    assert broken(replace(JOB, unique_key="k"), replace(JOB, unique_key="k", id="b", seq=2)) == {"G-21"}


def test_each_guarantee_of_one_step_is_seen_to_break() -> None:
    def clauses(old: Job, *new: Job, deleted: str = "") -> set[str]:
        return {found.clause for found in between(State((old,)), State(new, frozenset(deleted)))}

    done = replace(JOB, status="completed", attempts=1, fence=1, started_at=0, completed_at=1)
    dead = replace(done, status="dead", error="e")
    assert clauses(JOB, RUNNING) == clauses(done, deleted="a") == clauses(JOB, JOB) == set()
    assert clauses(JOB, replace(RUNNING, fence=2)) == clauses(RUNNING, replace(RUNNING, fence=0)) == {"G-2"}
    assert clauses(done, replace(done, result="2")) == clauses(dead, replace(dead, error="f")) == {"G-9"}
    assert clauses(JOB, deleted="a") == {"G-14"}
    assert clauses(JOB) == {"G-16"}
    assert clauses(RUNNING, replace(RUNNING, lease_expires_at=0)) == {"G-17"}
    assert clauses(JOB, replace(JOB, priority=1)) == {"G-22"}
    assert {found.clause for found in between(State((), frozenset("a")), EMPTY)} == {"G-15"}


def test_a_lost_lease_is_legal_for_a_stale_holder_only() -> None:
    state = State((RUNNING,))
    assert legal(state, Complete(Claim("a", 2, "w")), LeaseLost(), 0)
    assert not legal(state, Complete(RUNNING.claim), LeaseLost(), 0)
    assert legal(state, Complete(RUNNING.claim), Settled("completed"), 0)
