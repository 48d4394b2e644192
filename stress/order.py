"""Verdict (a), over all jobs: the claimed job is the first (G-12), empty means empty (G-13), seq rises (section 6).

Only certainty counts: a job was passed over if it certainly was claimable and due during the whole of a dequeue. On
PostgreSQL a job that another transaction has locked may be passed over (section 6, N-4): there only those dequeues are
judged that overlap with no other call that can lock a row.
"""

from __future__ import annotations

import heapq
import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stress.findings import Finding

WAIT = 6  # Numbers of a wait: start, until, type, -priority, scheduled_at, seq.


@dataclass(slots=True)
class Ordered:
    judged: int = 0
    dequeues: int = 0
    waits: int = 0
    violations: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Dequeue:
    inv: int
    ret: int
    now: int
    types: frozenset[int] | None
    wanted: int
    got: int
    last: tuple[int, int, int] | None
    client: str


Heap = list[tuple[int, int, int, int]]


class Waiting:
    """The jobs that certainly wait, by type and priority, each level in order of scheduled_at and seq."""

    def __init__(self) -> None:
        self._levels: dict[tuple[int, int], Heap] = {}

    def add(self, start: int, until: int, type: int, level: int, scheduled_at: int, seq: int) -> None:
        heapq.heappush(self._levels.setdefault((level, type), []), (scheduled_at, seq, until, start))

    def passed_over(self, call: Dequeue) -> tuple[int, int, int] | None:
        """The place of a job that this dequeue should have claimed, if there is one."""
        for (level, type), heap in sorted(self._levels.items()):
            if call.types is not None and type not in call.types:
                continue
            found = self._first(heap, call)
            if found is None or found[0] > call.now:
                continue
            place = (level, found[0], found[1])
            if call.got < call.wanted or (call.last is not None and place < call.last):
                return place
        return None

    def _first(self, heap: Heap, call: Dequeue) -> tuple[int, int, int, int] | None:
        """The first of a level that waits during the whole call. Who waits no longer is forgotten for good."""
        aside: Heap = []
        found = None
        while heap:
            if heap[0][2] < call.inv:
                heapq.heappop(heap)
            elif heap[0][2] < call.ret or heap[0][3] > call.inv:
                aside.append(heapq.heappop(heap))
            else:
                found = heap[0]
                break
        for one in aside:
            heapq.heappush(heap, one)
        return found


def judge(waits: array[int], dequeues: list[Dequeue], ordered: Ordered) -> None:
    """`waits` holds WAIT numbers for each wait. The dequeues are taken in order of their calls."""
    starts = sorted(range(0, len(waits), WAIT), key=waits.__getitem__)
    waiting, taken = Waiting(), 0
    for call in sorted(dequeues, key=lambda call: call.inv):
        while taken < len(starts) and waits[starts[taken]] <= call.inv:
            at = starts[taken]
            waiting.add(*waits[at : at + WAIT])
            taken += 1
        ordered.judged += 1
        place = waiting.passed_over(call)
        if place is not None:
            ordered.violations += 1
            if len(ordered.findings) < 20:
                ordered.findings.append(_finding(call, place))


def _finding(call: Dequeue, place: tuple[int, int, int]) -> Finding:
    empty = call.got < call.wanted
    level, scheduled_at, seq = place
    said = f"{call.client} asked for {call.wanted} and got {call.got}"
    last = ""
    if call.last is not None:
        last = f", the last with priority {-call.last[0]}, due {call.last[1]}, seq {call.last[2]}"
    passed = f"the job with seq {seq}, priority {-level}, due {scheduled_at}, waited all the while"
    excerpt = (f"{call.inv} – {call.ret} µs, now {call.now}: {said}{last}", passed)
    return Finding("a", "G-13" if empty else "G-12", "", f"{said}{last}; {passed}", excerpt)


def read(files: Iterable[Path], quiet_only: bool) -> tuple[list[Dequeue], int]:
    """The dequeues to be judged, and the number of all."""
    calls, begins, ends = [], array("q"), array("q")
    for path in files:
        with path.open(encoding="utf-8") as file:
            for line in file:
                kind, inv, end, *rest = json.loads(line)
                begins.append(inv)
                ends.append(end)
                if kind == "claim":
                    calls.append(_dequeue(inv, end, rest))
    if not quiet_only:
        return calls, len(calls)
    begins, ends = array("q", sorted(begins)), array("q", sorted(ends))
    quiet = [call for call in calls
             if bisect_right(begins, call.ret) - bisect_left(ends, call.inv) == 1]  # fmt: skip
    return quiet, len(calls)


def _dequeue(inv: int, ret: int, rest: list[Any]) -> Dequeue:
    now, types, n, got, last, client = rest
    wanted = None if types is None else frozenset(int(type.removeprefix("type")) for type in types)
    return Dequeue(inv, ret, now, wanted, n, got, None if last is None else (-last[0], last[1], last[2]), client)


def rising(seqs: array[int]) -> Iterator[Finding]:
    """`seqs` holds (inv, ret, seq) of each job that is still there: who was enqueued later has the higher seq."""
    rows = sorted((seqs[at], seqs[at + 1], seqs[at + 2]) for at in range(0, len(seqs), 3))
    ended = sorted((ret, seq) for _, ret, seq in rows)
    highest, taken = -1, 0
    for inv, _, seq in rows:
        while taken < len(ended) and ended[taken][0] < inv:
            highest = max(highest, ended[taken][1])
            taken += 1
        if seq <= highest:
            yield Finding("a", "§6", "", f"seq {seq} was given after seq {highest} was there already")
            return
