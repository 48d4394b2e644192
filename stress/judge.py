"""Verdict (a), one job at a time, or one unique key at a time: its jobs share a state of the model."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from model import EMPTY, Job, State
from stress.clauses import Setting, at_a_glance, backoffs
from stress.explode import ANSWERED, OPEN, Part
from stress.findings import Finding, excerpt
from stress.history import FOREVER
from stress.measure import Measures
from stress.moves import Facts, Op, Outcome, moves, shown
from stress.search import Search

SETTLE_TIME = 1_000_000  # A server may take a moment to commit what a lost client had sent.
CLEANUPS = 2
CLEANERS = 3  # Cleanups that may be under way at one time, one of a cleaner that was killed among them.
MOST_KEPT = 50  # Findings that one process keeps; the rest is counted.


@dataclass(slots=True)
class Judged:
    """What the judgement of some jobs gave; can be added up over processes."""

    jobs: int = 0
    ops: int = 0
    searched: int = 0
    undecided: int = 0
    violations: int = 0
    findings: list[Finding] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    measures: Measures = field(default_factory=Measures)

    def found(self, finding: Finding) -> None:
        self.violations += 1
        if len(self.findings) < MOST_KEPT:
            self.findings.append(finding)

    def add(self, other: Judged) -> None:
        self.jobs += other.jobs
        self.ops += other.ops
        self.searched += other.searched
        self.undecided += other.undecided
        self.violations += other.violations
        self.findings += other.findings
        self.statuses += other.statuses
        self.measures.add(other.measures)


@dataclass(frozen=True, slots=True)
class Context:
    """What every job's judge knows of the run: calls that are about any job, and when the last look was."""

    setting: Setting
    enqueues: dict[str, list[Any]]
    dequeues: list[list[Any]]
    cleanups: list[list[Any]]
    looked: tuple[int, int]


class Judge:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.judged = Judged()

    def judge(self, parts: Iterable[Part], rows: dict[str, dict[str, Any]]) -> None:
        """One group of jobs: the parts of every call about them, and their rows at the end."""
        ops = [Op(*part) for part in parts]
        facts: dict[str, Facts] = {}
        for op in ops:
            if op.id.startswith("key:"):
                continue
            facts.setdefault(op.id, Facts(op.id, row=rows.get(op.id))).learn(op)
        for id in rows:
            facts.setdefault(id, Facts(id, row=rows[id]))
        for one in facts.values():
            self._glance(one, [op for op in ops if op.id == one.id])
            ops += self._enqueued(one, ops)
        known = [op for op in ops if op.kind != "begin"]
        self._linearize(facts, known)

    def _glance(self, facts: Facts, ops: list[Op]) -> None:
        judged = self.judged
        judged.jobs += 1
        judged.ops += len(ops)
        judged.statuses[facts.of_row("status") or "deleted"] += 1
        for finding in at_a_glance(facts, ops, self.context.setting):
            judged.found(finding)
        self._measure(facts, ops)

    def _measure(self, facts: Facts, ops: list[Op]) -> None:
        measures, first = self.judged.measures, facts.claims.get(1)
        if first and first[0].reply[8] == first[0].reply[9]:  # Due at once.
            measures.took("enqueue to start", first[0].reply[10] - first[0].reply[9])
        measures.attempts[max((claim[0].reply[5] for claim in facts.claims.values()), default=0)] += 1
        for failure, attempts, at, delay in backoffs(facts, ops):
            if delay is None:
                measures.backed_off(attempts, at - failure.low)

    def _enqueued(self, facts: Facts, ops: list[Op]) -> list[Op]:
        """The enqueue of a job whose producer never got its answer: its payload says which it was."""
        if any(op.id == facts.id and op.kind == "enqueue" and op.args[1][0] == facts.payload for op in ops):
            return []
        if facts.payload is None and any(op.id == facts.id and op.kind == "enqueue" for op in ops):
            return []  # Deleted before anyone claimed it.
        found = self.context.enqueues.get(facts.payload or "")
        if found is None:
            seen = [op for op in ops if op.id == facts.id]
            self.judged.found(Finding("a", "G-16", facts.id, "invented: nobody enqueued it", excerpt(seen, seen[:1])))
            return []
        return [Op(facts.id, *found[1:])]

    # Linearizability

    def _linearize(self, facts: dict[str, Facts], ops: list[Op]) -> None:
        rules = self.context.setting.rules

        def each(state: State, op: Op) -> Iterator[Outcome]:
            return moves(state, op, facts.get(op.id) or Facts(op.id), rules)

        end = [self._row(one) for one in facts.values()]
        cleanups = self._cleanups(facts, ops)
        found = Search([*ops, *cleanups, *end], each, EMPTY).run()
        lost: list[Op] = []
        if found.path is None and not found.undecided:
            lost = self._lost_claims(facts, ops)
            if lost:
                self.judged.searched += 1
                found = Search([*ops, *cleanups, *lost, *end], each, EMPTY).run()
        if found.path is None:
            self.judged.undecided += found.undecided
            if not found.undecided:
                self._refused(next(iter(facts)), [*ops, *end], found.refusals)
        elif len(facts) == 1 and not lost and all(op.required for op in ops):
            self.judged.waits += waits(found.path, next(iter(facts.values())), self.context.looked[0])

    def _refused(self, id: str, ops: list[Op], refusals: list[tuple[Op, Any]]) -> None:
        told = [(op, why) for op, why in refusals if op.required] or refusals
        clause = told[0][1].clause if told else "G-16"
        if told and told[0][0].kind == "row" and told[0][0].reply is None:
            clause = "G-16"  # It is not there any more, and no cleanup can have deleted it.
        message = "no order of these calls is allowed; after the longest one: "
        message += "; ".join(f"{why}" for _, why in told[:3])
        self.judged.found(Finding("a", clause, id, message, excerpt(ops, [op for op, _ in told])))

    def _row(self, facts: Facts) -> Op:
        began, ended = self.context.looked
        reply = None if facts.row is None else shown(facts.row)
        return Op(facts.id, "row", "the last look", began, ended, 0, 0, None, reply, ANSWERED)

    def _cleanups(self, facts: dict[str, Facts], ops: list[Op]) -> list[Op]:
        """For jobs that are gone: cleanups that may have deleted them. One is enough, so not all of a long run."""
        gone = {one.id for one in facts.values() if one.row is None}
        ending = [op for op in ops if op.id in gone and op.kind in ("settle", "sweep", "cancel")]
        if not ending:
            return []
        since, last = min(op.inv for op in ending), max(op.inv for op in ops)
        oldest, newest = min(op.low for op in ending), max(op.low for op in ending)
        chosen: list[list[Any]] = []
        enough = {"completed": 0, "dead": 0}  # Cleanups of each status that could delete what ended last.
        for one in self._since(since):
            _, ret, _, high, retention, statuses, _ = one
            if ret < since or high - retention < oldest:
                continue
            chosen.append(one)
            for status in statuses if ret >= last and high - retention >= newest else ():
                enough[status] += 1
            if min(enough.values()) >= CLEANUPS:
                break
        return [
            Op(next(iter(gone)), "cleanup", "cleaner", inv, ret, low, high, [retention, statuses], None, OPEN)
            for inv, ret, low, high, retention, statuses, _ in chosen
        ]

    def _since(self, at: int) -> Iterator[list[Any]]:
        """The cleanups of the run, in order, from those that were under way at that time."""
        cleanups = self.context.cleanups
        start = bisect_left(cleanups, at, key=lambda one: int(one[0]))
        for index in range(max(0, start - CLEANERS), len(cleanups)):
            yield cleanups[index]

    def _lost_claims(self, facts: dict[str, Facts], ops: list[Op]) -> list[Op]:
        """Dequeues that may have claimed one of these jobs and told nobody: they explain fences that nobody got."""
        first = min((op.inv for op in ops), default=0)
        return [
            Op(one.id, "lost claim", client, inv, min(ret + SETTLE_TIME, FOREVER), low, FOREVER,
               [worker, lease, types], None, OPEN)
            for one in facts.values() if self._has_gap(one)
            for client, inv, ret, low, worker, lease, types in self.context.dequeues
            if ret + SETTLE_TIME >= first
        ]  # fmt: skip

    def _has_gap(self, facts: Facts) -> bool:
        """Whether some claim of it may be hidden: a fence that nobody got, or what looks and the row tell of one."""
        last = max(facts.claims, default=0)
        missing = len(facts.claims) < last or any(fence > last for fence in facts.leases)
        return missing or facts.of_row("started_at") not in (None, last and facts.claims[last][0].reply[10])


def waits(path: list[tuple[Op, State]], facts: Facts, looked: int) -> list[tuple[int, ...]]:
    """When a job certainly was claimable: from the answer that made it so to the call that ended it (order.py).

    Only with a scheduled_at that was seen: what the search assumed where nobody had looked is not certain.
    """
    found = []
    seen = {claim.reply[8] for claims in facts.claims.values() for claim in claims} | {facts.of_row("scheduled_at")}
    since: tuple[int, Job] | None = None
    for op, state in path:
        job = state.get(op.id)
        if since is not None and (job is None or job != since[1]):
            found.append(_wait(since, op.inv))
            since = None
        if job is not None and job.status in ("pending", "failed") and since is None and job.scheduled_at in seen:
            since = (op.ret, job)
    if since is not None:
        found.append(_wait(since, looked))
    return [wait for wait in found if wait[0] < wait[1]]


def _wait(since: tuple[int, Job], until: int) -> tuple[int, ...]:
    start, job = since
    return (start, until, int(job.type.removeprefix("type")), -job.priority, job.scheduled_at, job.seq)
