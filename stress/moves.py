"""What one operation of a history does to the model's state: the calls of `model.step`, with what was observed.

The model judges; this only translates. Where the page leaves a choice (a backoff, the now of a call whose client does
not know it) the value is taken from what was seen of the job later, and `model.step` says whether it is allowed. An
operation whose answer nobody got may have any effect that it could have had, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from model import HIDDEN, Claim, Job, Rules, State, Violation, step
from model import calls as m
from stress.explode import ANSWERED
from stress.history import FOREVER


@dataclass(slots=True)
class Op:
    """What one call says about one job. `certain` is ANSWERED, OPEN or PHANTOM: only the first must have happened."""

    id: str
    kind: str
    client: str
    inv: int
    ret: int
    low: int
    high: int
    args: Any
    reply: Any
    certain: int

    @property
    def required(self) -> bool:
        return self.certain == ANSWERED


@dataclass(slots=True)
class Facts:
    """What was seen of one job, at whatever time: it tells what had been chosen before."""

    id: str
    claims: dict[int, list[Op]] = field(default_factory=dict)
    leases: dict[int, set[int]] = field(default_factory=dict)
    row: dict[str, Any] | None = None

    def learn(self, op: Op) -> None:
        if op.kind == "claim":
            self.claims.setdefault(op.reply[1], []).append(op)
        elif op.kind in ("look", "sweep"):
            self.leases.setdefault(op.args[0], set()).add(op.args[1])

    def of_row(self, name: str) -> Any:
        return None if self.row is None else self.row[name]

    @property
    def first(self) -> list[Any] | None:
        """Any claim of the job: it shows the columns that never change."""
        return next((ops[0].reply for ops in self.claims.values()), None)

    @property
    def seq(self) -> int | None:
        seq: int | None = self.first[7] if self.first else self.of_row("seq")
        return seq

    @property
    def created_at(self) -> int | None:
        at: int | None = self.first[9] if self.first else self.of_row("created_at")
        return at

    @property
    def payload(self) -> str | None:
        payload: str | None = self.first[15] if self.first else self.of_row("payload")
        return payload

    @property
    def unique_key(self) -> str | None:
        key: str | None = self.first[13] if self.first else self.of_row("unique_key")
        return key

    def schedules(self, fence: int) -> list[int]:
        """What scheduled_at was seen to be after the claim of this fence: in the next claim, and at the end."""
        later = min((other for other in self.claims if other > fence), default=None)
        found = [] if later is None else [self.claims[later][0].reply[8]]
        at = self.of_row("scheduled_at")
        return found if at is None else [*found, at]

    def lease_values(self, fence: int) -> list[int]:
        found = set(self.leases.get(fence, ()))
        if self.of_row("lease_expires_at") is not None:
            found.add(self.of_row("lease_expires_at"))
        return sorted(found)


def between(value: int | None, op: Op) -> int:
    """`value` if it can have been the now of this call, else the earliest that can."""
    return value if value is not None and op.low <= value <= op.high else op.low


Outcome = State | Violation


def moves(state: State, op: Op, facts: Facts, rules: Rules) -> Iterator[Outcome]:
    """Every state that the operation can lead to, as it was answered; a Violation says why one is impossible."""
    match op.kind:
        case "enqueue":
            yield from _enqueue(state, op, facts, rules)
        case "claim" | "lost claim":
            yield from _claim(state, op, facts, rules)
        case "settle":
            yield from _settle(state, op, facts, rules)
        case "extend":
            yield from _extend(state, op, facts, rules)
        case "look":
            look = m.Look(op.id, *op.args)
            now = op.high if op.high < FOREVER else op.low
            yield step(state, m.Expired(), frozenset({look}), now, rules)
        case "sweep":
            yield from _sweep(state, op, facts, rules)
        case "cancel" | "requeue":
            yield from _operate(state, op, facts, rules)
        case "cleanup":
            yield from _cleanup(state, op, rules)
        case "row":
            yield step(state, m.Get(op.id), op.reply, op.low, rules)
        case _:
            raise AssertionError(op.kind)


def _enqueue(state: State, op: Op, facts: Facts, rules: Rules) -> Iterator[Outcome]:
    keep, (payload, type, priority, scheduled_at, delay, max_attempts, timeout, key) = op.args
    new = m.New(type=type, payload=payload, priority=priority, scheduled_at=scheduled_at, delay=delay,
                max_attempts=max_attempts, timeout=timeout, unique_key=key)  # fmt: skip
    now = between(facts.created_at, op)
    if isinstance(op.reply, list):
        yield step(state, m.Enqueue((new,), keep), m.DuplicateKey(op.reply[1]), now, rules)
        return
    answer: m.Enqueued = m.Enqueued(op.id, facts.seq)
    yield step(state, m.Enqueue((new,), keep), (answer,), now, rules)


def _claim(state: State, op: Op, facts: Facts, rules: Rules) -> Iterator[Outcome]:
    if op.kind == "claim":
        lease, types = op.args
        wanted = None if types is None else frozenset(types)
        call = m.Dequeue(op.reply[2], lease, wanted)
        yield step(state, call, (running(op.reply),), op.reply[10], rules)
        return
    worker, lease, types = op.args
    job = state.get(op.id)
    if job is None or job.status not in ("pending", "failed") or (types is not None and job.type not in types):
        yield Violation("T-2", "not claimable")
        return
    seen = [at - lease for at in facts.lease_values(job.fence + 1)] or [facts.of_row("started_at")]
    nows = {between(at, op) for at in seen}
    for now in nows:
        call = m.Dequeue(worker, lease)
        claim = Claim(op.id, job.fence + 1, worker)
        yield step(state, call, (claim,), max(now, job.scheduled_at), rules)


def running(claim: list[Any]) -> Job:
    """The row as dequeue showed it: the model judges every column."""
    (id, fence, worker, type, priority, attempts, most, seq, scheduled, created, started, lease, timeout, key, error,
     payload) = claim  # fmt: skip
    return Job(
        seq=seq, id=id, type=type, payload=payload, status="running", priority=priority, attempts=attempts,
        max_attempts=most, fence=fence, scheduled_at=scheduled, created_at=created, started_at=started,
        lease_expires_at=lease, worker=worker, timeout=timeout, unique_key=key, error=error,
    )  # fmt: skip


def _settle(state: State, op: Op, facts: Facts, rules: Rules) -> Iterator[Outcome]:
    kind, id, fence, worker, *rest = op.args
    claim = Claim(id, fence, worker)
    job = state.get(id)
    held = job is not None and job.status == "running" and job.claim == claim
    if not op.required and (not held or job is None):
        yield Violation("G-3", "no effect")
        return
    ended = between(facts.of_row("completed_at"), op)
    call = _settlement(kind, claim, rest)
    if op.required and op.reply is None:
        yield step(state, call, m.LeaseLost(), op.low, rules)
    elif isinstance(call, m.Complete):
        yield step(state, call, m.Settled("completed" if op.reply is None else op.reply), ended, rules)
    elif isinstance(call, m.Release):
        dies = call.begun and job is not None and job.max_attempts == 1
        status = op.reply or ("dead" if dies else "pending")
        for at in facts.schedules(fence) if call.delay is not None else []:
            now = between(at - call.delay, op) if call.delay is not None else op.low
            if now + (call.delay or 0) == at:
                yield step(state, call, m.Settled(status), now, rules)
        yield step(state, call, m.Settled(status), ended, rules)
    else:
        yield from _fail(state, op, call, job, facts, rules)


def _settlement(kind: str, claim: Claim, rest: list[Any]) -> m.Complete | m.Fail | m.Release:
    match kind:
        case "c":
            return m.Complete(claim, rest[0])
        case "f":
            return m.Fail(claim, *rest)
        case _:
            return m.Release(claim, *rest)


def _fail(state: State, op: Op, call: m.Fail, job: Job | None, facts: Facts, rules: Rules) -> Iterator[Outcome]:
    dies = call.for_good or (job is not None and job.attempts >= job.max_attempts)
    status = op.reply or ("dead" if dies else "failed")
    if status != "failed" or job is None:
        yield step(state, call, m.Settled(status), between(facts.of_row("completed_at"), op), rules)
        return
    for now, at in retries(op, job, call.delay, facts, rules):
        yield step(state, call, m.Settled("failed", at), now, rules)


def retries(op: Op, job: Job, delay: int | None, facts: Facts, rules: Rules) -> Iterator[tuple[int, int]]:
    """When the failure can have happened and the retry be scheduled: as was seen, else as if nobody had looked."""
    plain = rules.plain(job.attempts) if delay is None else delay
    most = plain if delay is not None else plain + int(rules.jitter * plain)
    low = max(op.low, op.args[1]) if op.kind == "sweep" else op.low  # No lease is expired before its end.
    for at in dict.fromkeys(facts.schedules(job.fence)):
        now = min(max(at - plain, low), op.high)
        if now + plain <= at <= now + most:
            yield now, at
    yield low, low + plain


def _extend(state: State, op: Op, facts: Facts, rules: Rules) -> Iterator[Outcome]:
    id, fence, worker, lease = op.args
    call = m.Extend(Claim(id, fence, worker), lease)
    if op.required:
        answer: m.HolderReply = m.LeaseLost() if op.reply is None else m.Extended(op.reply)
        now = op.low if op.reply is None else between(op.reply - lease, op)
        yield step(state, call, answer, now, rules)
        return
    for at in facts.lease_values(fence):
        if op.low <= at - lease <= op.high:
            yield step(state, call, m.Extended(at), at - lease, rules)


def _sweep(state: State, op: Op, facts: Facts, rules: Rules) -> Iterator[Outcome]:
    look = m.Look(op.id, *op.args)
    job = state.get(op.id)
    call = m.Sweep(frozenset({look}))
    if op.required and op.reply is None:
        yield step(state, call, frozenset(), op.low, rules)
        return
    if job is None or job.status != "running":
        yield Violation("T-8", f"{op.id} was swept, and is {job.status if job else 'not there'}")
        return
    status = op.reply or ("dead" if job.attempts >= job.max_attempts else "failed")
    if status == "failed":
        for now, at in retries(op, job, None, facts, rules):
            yield step(state, call, frozenset({m.Swept(op.id, status, at)}), now, rules)
    else:
        now = max(between(facts.of_row("completed_at"), op), min(op.args[1], op.high))
        yield step(state, call, frozenset({m.Swept(op.id, status)}), now, rules)


def _operate(state: State, op: Op, facts: Facts, rules: Rules) -> Iterator[Outcome]:
    answer: object = m.DuplicateKey(op.reply[1]) if isinstance(op.reply, list) else op.reply
    if not op.required:
        answer = True
    call = m.Cancel(op.id) if op.kind == "cancel" else m.Requeue(op.id)
    yield step(state, call, answer, between(facts.of_row("completed_at"), op), rules)


def _cleanup(state: State, op: Op, rules: Rules) -> Iterator[Outcome]:
    """It has several nows: what was old enough at the last may be gone, what was at the first is."""
    retention, statuses = op.args
    call = m.Cleanup(retention, frozenset(statuses))
    latest = op.high if op.high < FOREVER else FOREVER - retention
    for now in dict.fromkeys((latest, op.low)):
        old = sum(
            job.status in statuses and job.completed_at is not None and job.completed_at <= now - retention
            for job in state.jobs
        )
        if old:
            yield step(state, call, old, now, rules)


def shown(row: dict[str, Any]) -> Job:
    """A row of the last look, as Get replies it."""
    return Job(**row, fence=HIDDEN)
