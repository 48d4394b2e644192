"""Small worlds of which everything is tried: in every reachable state every call, allowed or not.

A world is a function from a state to its moves, a move a call and its instant. Holders' calls are moves for every claim
(id, fence, worker) that the scope can name, whether it is held, stale or was never given. Instants and durations are a
few microseconds, so that every deadline is met before, at and after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from uuid import UUID

from model import EMPTY, Claim, Job, Rules, State, answers
from model.calls import (
    Call,
    Cancel,
    CancelWhere,
    Cleanup,
    Complete,
    Dequeue,
    DuplicateKey,
    Enqueue,
    Enqueued,
    Exchange,
    Exchanged,
    Extend,
    Fail,
    Look,
    Many,
    New,
    Release,
    Requeue,
    RequeueWhere,
    Settlement,
    Sweep,
    Where,
)

Move = tuple[Call, int]


def job_id(number: int) -> str:
    """The id that jobqueue makes in the first millisecond of 1970 from the entropy ``number``."""
    return str(UUID(int=0x7000_8000_0000_0000_0000 | number))


A, B, C = job_id(1), job_id(2), job_id(3)
WORKERS = ("u", "v")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One world. It ends where a job would get a fence beyond ``fences``: such states are replayed, not left."""

    name: str
    moves: Callable[[State], Iterable[Move]]
    base: int = 1
    cap: int = 2
    fences: int
    small: bool = False
    start: State = EMPTY

    @property
    def rules(self) -> Rules:
        return Rules(base=self.base, cap=self.cap, jitter=Fraction(0))


@dataclass(slots=True)
class World:
    """Every state of a scope with what each move may lead to: plain reply → the state after."""

    edges: dict[State, dict[Move, dict[object, State]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(moves) for moves in self.edges.values())


def explore(scope: Scope) -> World:
    """Breadth first from the start, by the model alone."""
    world, queue, rules = World(), deque([scope.start]), scope.rules
    world.edges[scope.start] = {}
    while queue:
        state = queue.popleft()
        if any(job.fence > scope.fences for job in state.jobs):
            continue
        for call, now in scope.moves(state):
            found = {plain(result): after for result, after in answers(state, call, now, rules)}
            assert found, f"the model has no answer to {call} at {now} in {state}"
            world.edges[state][call, now] = found
            for after in found.values():
                if after not in world.edges:
                    world.edges[after] = {}
                    queue.append(after)
    return world


def plain(result: object) -> object:
    """A result without what ``answers`` leaves out: the seq of a new job, the holder of a key, a claim's columns."""
    match result:
        case tuple() if result and isinstance(result[0], Enqueued):
            return tuple(Enqueued(one.id) for one in result)
        case tuple() if result and isinstance(result[0], Job):
            return tuple(job.claim for job in result)
        case DuplicateKey():
            return DuplicateKey()
        case Exchanged(settled, claimed):
            return Exchanged(settled, tuple(one.claim if isinstance(one, Job) else one for one in claimed))
    return result


def at(instants: Iterable[int], *calls: Call) -> Iterator[Move]:
    return product(calls, instants)


def unused(state: State, *new: New) -> list[New]:
    """Those whose id was never used: an id never comes back (G-15)."""
    return [one for one in new if state.get(one.id or "") is None and one.id not in state.deleted]


def claims(ids: Iterable[str], fences: int, workers: Iterable[str] = WORKERS) -> list[Claim]:
    return [Claim(id, fence, worker) for id, fence, worker in product(ids, range(1, fences + 1), workers)]


def one_job(max_attempts: int, instants: tuple[int, ...], fences: int) -> Callable[[State], Iterator[Move]]:
    """One job at every instant: each deadline, stale holders, looks that have become stale."""

    def moves(state: State) -> Iterator[Move]:
        for new in unused(state, New(id=A, payload="null", max_attempts=max_attempts)):
            yield from at(instants, Enqueue((new,)))
        yield from at(instants, Dequeue("u", 1), Dequeue("v", 2), Cancel(A), Requeue(A))
        yield from at(instants, Sweep(), Cleanup(0), Cleanup(1), Cleanup(0, frozenset({"dead"})))
        for claim in claims([A], fences):
            yield from at(instants, Complete(claim, "1"), Fail(claim, "e"), Extend(claim, 1))
            yield from at(instants[-1:], Fail(claim, "e", 0), Fail(claim, "e", for_good=True))
            yield from at(instants[-1:], Release(claim), Release(claim, begun=True), Release(claim, delay=1))
        for fence, lease in product(range(1, fences + 1), (1, 2)):
            yield from at(instants, Sweep(frozenset({Look(A, fence, lease)})))

    return moves


def two_jobs(key: str | None) -> Callable[[State], Iterator[Move]]:
    """Two jobs, claims of two workers: what happens to one must leave the other alone."""
    ids = (A, B)
    jobs = [New(id=id, payload="null", max_attempts=most, unique_key=key) for id, most in zip(ids, (2, 1), strict=True)]

    def moves(state: State) -> Iterator[Move]:
        yield from at([1], *(Enqueue((new,)) for new in unused(state, *jobs)))
        if len(unused(state, *jobs)) == 2:
            yield from at([1], Enqueue(tuple(jobs)), Enqueue(tuple(reversed(jobs))), Enqueue(tuple(jobs), keep=True))
        for new in unused(state, *jobs):
            yield Enqueue((new,), keep=True), 1
        # A type that nobody has makes SQLite walk the levels, as one type alone does not.
        dequeues = (Dequeue("u", 1), Dequeue("u", 1, frozenset({jobs[0].type, "no such type"})))
        yield from at([1], *dequeues, *map(Cancel, ids), *map(Requeue, ids), Cleanup(0))
        for claim in claims(ids, 2, "u"):
            yield from at([1], Complete(claim), Fail(claim, "e", 0), Release(claim), Release(claim, True))
            yield from at([1], Extend(claim, 2))
        yield from at([1], *map(Complete, claims(ids, 2, "v")), *(Fail(claim, "e") for claim in claims(ids, 2, "v")))
        looks = [Look(id, fence, 2) for id, fence in product(ids, (1, 2))]
        yield from at([2], Sweep(), Sweep(frozenset(looks)), *(Sweep(frozenset({look})) for look in looks))

    return moves


def crowd(state: State) -> Iterator[Move]:
    """Three jobs of two types, the most urgent of them for later: order, wanted types, batches."""
    jobs = (
        New(id=A, payload="null", type="s"),
        New(id=B, payload="null", type="t", priority=1),
        New(id=C, payload="null", type="t", priority=2, delay=1, max_attempts=1),
    )
    yield from at([1], *(Enqueue((new,)) for new in unused(state, *jobs)))
    for types, n in product((None, frozenset("s"), frozenset("t"), frozenset("st")), (1, 2, 3)):
        yield from at([1, 2], Dequeue("u", 1, types, n))
    yield from at([1], *(Release(Claim(job.id, 1, "u")) for job in state.jobs))


def bulk(state: State) -> Iterator[Move]:
    """Three jobs, two of which want one key: the bulk forms decide job by job, cleanup takes what is old."""
    jobs = [
        New(id=A, payload="null", type="s", unique_key="k"),
        New(id=B, payload="null", type="t", unique_key="k"),
        New(id=C, payload="null", type="t"),
    ]
    yield from at([1], *(Enqueue((new,)) for new in unused(state, *jobs)))
    yield from at([1], Dequeue("u", 1, frozenset("s")), Complete(Claim(A, 1, "u")))
    ids = frozenset({A, C})
    for where in (Where(), Where(ids=ids), Where(type="t"), Where(unique_key="k"), Where(statuses=frozenset({"dead"}))):
        yield from at([1], CancelWhere(where), RequeueWhere(where))
    yield from at([1, 2], Cleanup(1))
    yield from at([1], Cleanup(0, frozenset({"completed"})))


def exchanges(state: State) -> Iterator[Move]:
    """Two jobs and settlements of both, right or lost, followed by a claim in the same transaction."""
    ids = (A, B)
    jobs = [New(id=id, payload="null", max_attempts=2) for id in ids]
    if not state.jobs and not state.deleted:
        yield Enqueue(tuple(jobs)), 1
    yield from at([1], Dequeue("u", 1, n=2), *map(Cancel, ids))
    of_a, of_b = ([call for claim in claims([id], 2, "u") for call in settled(claim)] for id in ids)
    for types in (
        None,
        frozenset({jobs[0].type}),
    ):  # Workers name theirs; then one settlement goes along.
        yield from at([1], *(Exchange((one,), Dequeue("u", 1, types, 2)) for one in of_a + of_b))
    for one, other in zip(of_a, reversed(of_b), strict=True):
        yield from at([1], Many((other, one)), Exchange((one, other, one), Dequeue("u", 1, n=2)))
    for first, second in product(claims(ids, 2, "u"), repeat=2):
        yield from at([1], Many((Extend(first, 2), Extend(second, 2))))


def settled(claim: Claim) -> list[Settlement]:
    return [Complete(claim, "1"), Fail(claim, "e", 0), Fail(claim, "e", for_good=True), Release(claim)]


SCOPES = [
    Scope(name="one job, max_attempts 2", moves=one_job(2, (0, 1, 2), 2), fences=2),
    Scope(name="one job, max_attempts 1", moves=one_job(1, (0, 1), 2), fences=2, small=True),
    Scope(name="one job, three claims", moves=one_job(2, (0, 1), 3), fences=3),
    Scope(name="two jobs", moves=two_jobs(None), fences=1),
    Scope(name="two jobs, one key", moves=two_jobs("k"), fences=1),
    Scope(name="three jobs in order", moves=crowd, fences=1, small=True),
    Scope(name="three jobs in bulk", moves=bulk, fences=1),
    Scope(name="exchange", moves=exchanges, fences=2),
]
