"""Every legal answer, and the reachable graph of a small scope, to be compared as sets with what TLC finds.

Only `step` decides what is legal: `candidates` offers more answers than that, and `answers` keeps the legal ones.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations, permutations, product
from typing import TypeVar

from model.calls import (
    Bulk,
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
    Expired,
    Extend,
    Extended,
    Fail,
    HolderReply,
    LeaseLost,
    Many,
    Refused,
    Release,
    Requeue,
    RequeueWhere,
    Settled,
    Sweep,
    Swept,
)
from model.refusals import refused
from model.state import EMPTY, Claim, Job, State
from model.step import DEFAULT, Rules, look, matches, step, window


def answers(state: State, call: Call, now: int, rules: Rules = DEFAULT) -> Iterator[tuple[object, State]]:
    """Every legal result of the call, with the state that follows. Of a backoff the earliest and the latest are
    offered; of a DuplicateKey the one that tells no holder; of new ids only those that the call gives. Get, List,
    Counts and Table have one answer, which changes nothing, and are not offered."""
    if refused(call) is not None:
        yield Refused(), state
        return
    match call:
        case Many(items) if items:
            for reply, after in answers(state, items[0], now, rules):
                for rest, end in answers(after, Many(items[1:]), now, rules):
                    yield (reply, *(rest if isinstance(rest, tuple) else ())), end
        case Exchange(settlements, dequeue):
            for settled, after in answers(state, Many(settlements), now, rules):
                for claimed, end in answers(after, dequeue, now, rules):
                    assert isinstance(settled, tuple)
                    assert isinstance(claimed, tuple)
                    yield Exchanged(settled, claimed), end
        case _:
            for result in dict.fromkeys(candidates(state, call, now, rules)):
                judged = step(state, call, result, now, rules)
                if isinstance(judged, State):
                    yield result, judged


def candidates(state: State, call: Call, now: int, rules: Rules) -> Iterable[object]:
    match call:
        case Enqueue(jobs):
            live = [Enqueued(job.id) for job in state.jobs]
            own = [Enqueued(new.id) for new in jobs if new.id is not None]
            return chain([DuplicateKey()], product(dict.fromkeys(own + live), repeat=len(jobs)))
        case Dequeue(worker, _, _, n):
            claims = [Claim(job.id, job.fence + 1, worker) for job in state.jobs]
            return chain.from_iterable(permutations(claims, size) for size in range(min(n, len(claims)) + 1))
        case Complete() | Fail() | Release() | Extend():
            return replies(state.get(call.claim.id), call, now, rules)
        case Many():
            return [()]
        case Expired():
            return [look(state, now)]
        case Sweep():
            expired = {seen.id for seen in look(state, now)}
            return map(frozenset, subsets(swept(job, now, rules) for job in state.jobs if job.id in expired))
        case Cancel() | Requeue():
            return [True, False, DuplicateKey()]
        case CancelWhere(where) | RequeueWhere(where):
            ids = [[job.id] for job in state.jobs if matches(job, where)]
            return (Bulk(len(chosen), frozenset(chosen)) for chosen in subsets(ids))
        case Cleanup():
            return range(len(state.jobs) + 1)
        case _:
            return []


def replies(job: Job | None, call: Complete | Fail | Release | Extend, now: int, rules: Rules) -> list[HolderReply]:
    found: list[HolderReply] = [LeaseLost(), Settled("completed"), Settled("dead"), Settled("pending")]
    if job is not None and job.status == "running":
        if isinstance(call, Fail):
            found += [Settled("failed", at) for at in window(job, call.delay, now, rules)[:2]]
        if isinstance(call, Extend):
            found += [Extended(at) for at in (now + call.lease, job.lease_expires_at) if at is not None]
    return found


def swept(job: Job, now: int, rules: Rules) -> list[Swept]:
    return [Swept(job.id, "dead"), *(Swept(job.id, "failed", at) for at in window(job, None, now, rules)[:2])]


T = TypeVar("T")


def subsets(choices: Iterable[Iterable[T]]) -> Iterator[tuple[T, ...]]:
    """Of every group of choices one or none."""
    groups = [list(group) for group in choices]
    for size in range(len(groups) + 1):
        for chosen in combinations(groups, size):
            yield from product(*chosen)


@dataclass(frozen=True, slots=True)
class Edge:
    """At this instant the call was answered so, and the one state followed the other."""

    before: State
    call: Call
    result: object
    now: int
    after: State


@dataclass(slots=True)
class Graph:
    states: set[State] = field(default_factory=set)
    edges: set[Edge] = field(default_factory=set)


def graph(
    calls: Callable[[State], Iterable[Call]],
    instants: Iterable[int],
    rules: Rules = DEFAULT,
    *,
    start: State = EMPTY,
    monotonic: bool = False,
    within: Callable[[State], bool] = lambda state: True,
) -> Graph:
    """Breadth first, all that can be reached. Every call may happen at every instant, or, if monotonic, at none before
    that of the call before it. A state that is not `within` is kept and not gone on from (TLC's CONSTRAINT)."""
    times = sorted(set(instants))
    found, seen = Graph({start}), {(start, times[0])}
    queue = deque(seen)
    while queue:
        state, clock = queue.popleft()
        if not within(state):
            continue
        for call, now in product(calls(state), (time for time in times if time >= clock)):
            for result, after in answers(state, call, now, rules):
                found.states.add(after)
                found.edges.add(Edge(state, call, result, now, after))
                node = (after, now if monotonic else times[0])
                if node not in seen:
                    seen.add(node)
                    queue.append(node)
    return found
