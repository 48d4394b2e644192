"""TLC's reachable graph and the model's are one graph: the same states, the same labelled edges, compared as sets.

TLC's side is spec/tla/JobQueueGraph.tla; what it has beside the rows is what workers know: the claims that they hold.
Here that memory is kept beside the model's state: a claim is added by the dequeue that gave it and goes when the model
answers its holder. Everything that happens to a row is the model's own answer.

The model has a clock and the TLA+ has none; so each label is asked at an instant of its own, and instants are then left
out: a lease that is expired or not is all that remains of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import pytest

from model import EMPTY, Claim, Job, Rules, State, answers
from model import calls as m
from spec import graph
from spec.graph import canonical

# A lease is taken at 1 and lasts to 3; an expired one is told by its end. What is due is due at 1 already.
NOW, LEASE, EXPIRED, SWEEP = 1, 2, 0, 2
RULES = Rules(base=0, cap=0, jitter=Fraction(0), unseen=None)
CLAUSES = {
    "Enqueue": "T-1", "Dequeue": "T-2", "Complete": "T-3", "FailRetry": "T-4", "FailLast": "T-5", "Discard": "T-5",
    "Release": "T-6", "ReleaseBegun": "T-6", "Interrupt": "T-6", "Extend": "T-7", "LeaseLost": "G-3", "Expire": "T-8",
    "SweepRetry": "T-8", "SweepLast": "T-8", "Cancel": "T-9", "Requeue": "T-10", "Cleanup": "T-11", "Crash": "G-18",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The constants of a .cfg."""

    cfg: str
    limits: dict[str, int]
    key: str | None
    fences: int
    given: int
    slots: int = 2
    workers: tuple[str, ...] = ("u", "v")


SCOPES = [
    Scope(cfg="graph_one_job.cfg", limits={"a": 2}, key=None, fences=4, given=4),
    Scope(cfg="graph_two_jobs.cfg", limits={"a": 2, "b": 1}, key="k", fences=2, given=3),
]


@dataclass(frozen=True, slots=True)
class Node:
    """The rows, and the claims that workers hold."""

    state: State
    claims: frozenset[Claim] = frozenset()


def timeless(state: State) -> State:
    """The rows with every instant the same, but for the end of a lease that is expired."""
    return replace(state, jobs=tuple(
        replace(job, seq=ord(job.id), scheduled_at=0, created_at=0, started_at=0 if job.fence else None, error="",
                completed_at=None if job.completed_at is None else 0)
        for job in sorted(state.jobs, key=lambda job: job.id)
    ))  # fmt: skip


def moves(node: Node, scope: Scope) -> Iterator[tuple[str, Node]]:
    """Every labelled edge that leaves the node."""
    for label, call, now, kept in asked(node, scope):
        for result, after in answers(node.state, call, now, RULES):
            if named(label, result):
                new = {one for one in result if isinstance(one, Claim)} if isinstance(result, tuple) else set()
                yield label, Node(timeless(after), kept | new)
    for job in node.state.jobs:
        for result, after in answers(alone_old(node.state, job), m.Cleanup(0), NOW, RULES):
            if result == 1:
                yield "Cleanup", Node(timeless(after), node.claims)
    for job in node.state.jobs:
        if job.status == "running" and job.lease_expires_at != EXPIRED:
            yield "Expire", Node(node.state.put(replace(job, lease_expires_at=EXPIRED)), node.claims)
    for worker in scope.workers:
        kept = frozenset(claim for claim in node.claims if claim.worker != worker)
        if kept != node.claims:
            yield "Crash", Node(node.state, kept)


def alone_old(state: State, job: Job) -> State:
    """The same rows; of those that have ended only this one has ended long enough ago."""
    rows = (row if row == job or row.completed_at is None else replace(row, completed_at=NOW + 1) for row in state.jobs)
    return replace(state, jobs=tuple(rows))


def asked(node: Node, scope: Scope) -> Iterator[tuple[str, m.Call, int, frozenset[Claim]]]:
    """Label, call, instant, and the claims that are still held afterwards."""
    state, claims = node.state, node.claims
    for id, limit in scope.limits.items():
        if state.get(id) is None and id not in state.deleted:
            new = m.New(id=id, type=id, max_attempts=limit, unique_key=scope.key)
            yield "Enqueue", m.Enqueue((new,)), NOW, claims
        yield "Cancel", m.Cancel(id), NOW, claims
        yield "Requeue", m.Requeue(id), NOW, claims
    for job, worker in product(state.jobs, scope.workers):
        room = sum(claim.worker == worker for claim in claims) < scope.slots
        if room and job.fence < scope.fences and given(state) < scope.given:
            yield "Dequeue", m.Dequeue(worker, LEASE, frozenset({job.type})), NOW, claims
    for job in state.jobs:
        if job.lease_expires_at == EXPIRED:
            look = m.Sweep(frozenset({m.Look(job.id, job.fence, EXPIRED)}))
            yield "SweepRetry", look, SWEEP, claims
            yield "SweepLast", look, SWEEP, claims
    for claim in claims:
        yield from by_holder(claim, claims)


def by_holder(claim: Claim, claims: frozenset[Claim]) -> Iterator[tuple[str, m.Call, int, frozenset[Claim]]]:
    rest = claims - {claim}
    yield "Complete", m.Complete(claim), NOW, rest
    yield "FailRetry", m.Fail(claim, ""), NOW, rest
    yield "FailLast", m.Fail(claim, ""), NOW, rest
    yield "Discard", m.Fail(claim, "", for_good=True), NOW, rest
    yield "Release", m.Release(claim), NOW, rest
    yield "ReleaseBegun", m.Release(claim, begun=True), NOW, rest
    yield "Interrupt", m.Release(claim, begun=True), NOW, rest
    yield "Extend", m.Extend(claim, LEASE), NOW, claims
    yield "LeaseLost", m.Extend(claim, LEASE), NOW, rest


def named(label: str, result: object) -> bool:
    """Whether this answer is what the label stands for: a call has a label for each answer that it may get."""
    match label:
        case "FailRetry":
            return isinstance(result, m.Settled) and result.status == "failed"
        case "FailLast" | "Discard" | "Interrupt":
            return result == m.Settled("dead")
        case "Complete":
            return result == m.Settled("completed")
        case "Release" | "ReleaseBegun":
            return result == m.Settled("pending")
        case "SweepRetry" | "SweepLast":
            status = "failed" if label == "SweepRetry" else "dead"
            return isinstance(result, frozenset) and {one.status for one in result} == {status}
        case "Dequeue":
            return result != ()
        case "Cancel" | "Requeue":
            return result is True
        case "Extend":
            return isinstance(result, m.Extended)
        case "LeaseLost":
            return result == m.LeaseLost()
    return not isinstance(result, m.DuplicateKey)


def given(state: State) -> int:
    return sum(job.fence for job in state.jobs)


def models_graph(scope: Scope) -> tuple[set[str], set[tuple[str, str, str]]]:
    start = Node(EMPTY)
    names, edges, queue = {start: shown(start, scope)}, set(), deque([start])
    while queue:
        node = queue.popleft()
        for label, after in moves(node, scope):
            if after not in names:
                names[after] = shown(after, scope)
                queue.append(after)
            edges.add((names[node], label, names[after]))
    return set(names.values()), edges


def shown(node: Node, scope: Scope) -> str:
    """The node as TLC shows it. (An id that is not there is absent or deleted, with no attempts and no fence.)"""
    jobs: dict[str, Job | None] = {id: node.state.get(id) for id in scope.limits}
    gone = {id: "deleted" if id in node.state.deleted else "absent" for id in jobs}
    claims = [{"job": one.id, "fence": one.fence, "worker": one.worker} for one in node.claims]
    return canonical({
        "status": {id: job.status if job else gone[id] for id, job in jobs.items()},
        "attempts": {id: job.attempts if job else 0 for id, job in jobs.items()},
        "fence": {id: job.fence if job else 0 for id, job in jobs.items()},
        "worker": {id: (job.worker if job else None) or "none" for id, job in jobs.items()},
        "claims": sorted(claims, key=canonical),
        "expired": sorted(id for id, job in jobs.items() if job and job.lease_expires_at == EXPIRED),
    })  # fmt: skip


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.cfg)
def test_the_model_and_the_tla_are_one_graph(scope: Scope) -> None:
    tlc = graph.dumped(scope.cfg)
    theirs, their_edges = {canonical(state) for state in tlc.states.values()}, tlc.labelled_edges()
    ours, our_edges = models_graph(scope)
    for side, more in (("only TLC has", their_edges - our_edges), ("only the model has", our_edges - their_edges)):
        first = min(more, default=None)
        if first is not None:
            clauses = sorted({CLAUSES[label] for _, label, _ in more})
            shape = "\n".join(first)
            raise AssertionError(f"{', '.join(clauses)}: {side} {len(more)} edges, such as\n{shape}")
    assert ours == theirs
    assert len(our_edges) > 1000
