"""One guarded rule for each operation: may a queue in this state answer this call like that, and what follows?"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import NamedTuple

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
    HolderCall,
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
from model.refusals import refused
from model.state import CLAIMABLE, HIDDEN, STATUSES, TERMINAL, Job, State, Violation


class Unobserved(Exception):
    """The clause leaves a choice and the result does not say what was chosen: the test has to observe it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is configured. unseen are the jobs that a dequeue may pass over 'as if they were not there' (section 6,
    PostgreSQL: not committed yet, or locked by another transaction); None means any job, the default none."""

    base: int = 5_000_000
    cap: int = 3_600_000_000
    jitter: Fraction = Fraction(1, 10)
    unseen: frozenset[str] | None = frozenset()

    def plain(self, attempts: int) -> int:
        """Section 7. The exponent is bounded: a base doubled 60 times is beyond every cap."""
        return min(self.cap, self.base << min(attempts - 1, 60))

    def may_miss(self, job: Job) -> bool:
        return self.unseen is None or job.id in self.unseen


DEFAULT = Rules()


def step(state: State, call: Call, result: object, now: int, rules: Rules = DEFAULT) -> State | Violation:
    """The state after the call was answered so at this instant, or the clause that forbids the answer."""
    reason = refused(call)
    if reason is not None:
        return state if result == Refused() else Violation("§8", f"must be refused ({reason}), got {result}")
    if result == Refused():
        return Violation("§8", f"a call within every bound was refused: {call}")
    match call:
        case Enqueue():
            return enqueue(state, call, result, now, rules)
        case Dequeue():
            return dequeue(state, call, result, now, rules)
        case Complete() | Fail() | Release() | Extend():
            return by_holder(state, call, result, now, rules)
        case Many(items):
            return many(state, items, result, now, rules)
        case Exchange():
            return exchange(state, call, result, now, rules)
        case Sweep():
            return sweep(state, call, result, now, rules)
        case Cancel():
            return cancel(state, call, result, now)
        case Requeue():
            return requeue(state, call, result)
        case CancelWhere() | RequeueWhere():
            return bulk(state, call, result, now)
        case Cleanup():
            return cleanup(state, call, result, now)
        case _:
            return read(state, call, result, now)


def legal(state: State, call: Call, result: object, now: int, rules: Rules = DEFAULT) -> bool:
    return isinstance(step(state, call, result, now, rules), State)


# Enqueue


def enqueue(state: State, call: Enqueue, result: object, now: int, rules: Rules) -> State | Violation:
    """T-1 for each job, in the order given; all or nothing (section 5)."""
    if isinstance(result, DuplicateKey):
        return duplicate(state, call, result)
    if not isinstance(result, tuple) or len(result) != len(call.jobs):
        return Violation("T-1", f"{len(call.jobs)} jobs, answered with {result}")
    after: State | Violation = state
    for new, reply in zip(call.jobs, result, strict=True):
        if isinstance(after, State):
            after = enqueue_one(after, new, reply, call.keep, now, rules)
    return after


def enqueue_one(state: State, new: New, reply: object, keep: bool, now: int, rules: Rules) -> State | Violation:
    if not isinstance(reply, Enqueued):
        return Violation("T-1", f"not an id: {reply}")
    if new.id is not None and state.get(new.id) is not None:  # section 5: 'an existing id counts as success'
        return state if reply.id == new.id else Violation("§5", f"{new.id} is stored, the reply is {reply.id}")
    holder = state.key_holder(new.unique_key)
    if holder is not None:
        kept = keep and reply.id == holder.id
        return state if kept else Violation("G-21", f"{new.unique_key!r} is taken by {holder.id}, reply {reply}")
    if state.get(reply.id) is not None:
        return Violation("G-16", f"the new job got the id of another: {reply.id}")
    if reply.id in state.deleted:
        return Violation("G-15", f"a deleted id came back: {reply.id}")
    if new.id not in (None, reply.id):
        return Violation("T-1", f"the caller chose {new.id}, the reply is {reply.id}")
    seq = reply.seq if reply.seq is not None else 1 + max((job.seq for job in state.jobs), default=0)
    if any(job.seq == seq or (job.seq > seq and not rules.may_miss(job)) for job in state.jobs):
        return Violation("§6", f"seq {seq} does not exceed that of every row")
    return state.put(pending(new, reply.id, seq, now))


def pending(new: New, id: str, seq: int, now: int) -> Job:
    """T-1: scheduled_at is what was given, else now + the delay given, else now."""
    at = new.scheduled_at if new.scheduled_at is not None else now + (new.delay or 0)
    return Job(
        seq=seq, id=id, type=new.type, payload=new.payload, status="pending", priority=new.priority,
        attempts=0, max_attempts=new.max_attempts, fence=0, scheduled_at=at, created_at=now,
        timeout=new.timeout, unique_key=new.unique_key,
    )  # fmt: skip


def duplicate(state: State, call: Enqueue, reply: DuplicateKey) -> State | Violation:
    """Section 5: one key taken, by a row or by its first occurrence in the call, and nothing is stored."""
    taken = {job.unique_key: job.id for job in state.jobs if job.status not in TERMINAL}
    holders: set[str | None] = set()
    for new in call.jobs:
        if new.unique_key is None or (new.id is not None and state.get(new.id) is not None):
            continue
        if new.unique_key in taken:
            holders.add(taken[new.unique_key])
        taken.setdefault(new.unique_key, new.id or "")
    if call.keep or not holders:
        return Violation("T-1", "DuplicateKey, but no key is taken" if not call.keep else "DuplicateKey, but keep")
    if reply.holder is not None and reply.holder not in holders and "" not in holders:
        return Violation("§5", f"the key is not held by {reply.holder}")
    return state


# Dequeue


def dequeue(state: State, call: Dequeue, result: object, now: int, rules: Rules) -> State | Violation:
    """T-2 for each claim of the reply; G-12 and G-13 for the reply as a whole."""
    if not isinstance(result, tuple) or len(result) > max(call.n, 0):
        return Violation("T-2", f"at most {call.n} claims, got {result}")
    after, claimed = state, []
    for reply in result:
        job = state.get(getattr(reply, "id", ""))
        running = claim(job, call, reply, now) if job is not None else Violation("G-16", f"invented: {reply}")
        if isinstance(running, Violation):
            return running
        assert job is not None
        claimed.append(job)
        after = after.put(running)
    return out_of_order(state, call, claimed, now, rules) or after


def claim(job: Job, call: Dequeue, reply: object, now: int) -> Job | Violation:
    """T-2: due and of a wanted type; attempts + 1, fence + 1, started_at = now, lease_expires_at = now + lease."""
    if job.status not in CLAIMABLE:
        return Violation("T-2", f"{job.id} is {job.status} and was claimed")
    if job.scheduled_at > now:
        return Violation("G-10", f"{job.id} is not due before {job.scheduled_at}, claimed at {now}")
    if call.types is not None and job.type not in call.types:
        return Violation("T-2", f"{job.id} is of type {job.type!r}, which is not wanted")
    running = replace(
        job, status="running", attempts=job.attempts + 1, fence=job.fence + 1, started_at=now,
        worker=call.worker, lease_expires_at=now + call.lease,
    )  # fmt: skip
    if reply in (running, running.claim):
        return running
    if getattr(reply, "fence", None) != running.fence:
        return Violation("G-2", f"{job.id} has the fence {job.fence}, the claim is {reply}")
    return Violation("T-2", f"the claim is not {running if isinstance(reply, Job) else running.claim}: {reply}")


def out_of_order(state: State, call: Dequeue, claimed: list[Job], now: int, rules: Rules) -> Violation | None:
    """Section 6. A job that stayed behind must come after every claim, and none stays if there was room."""
    if len({job.id for job in claimed}) < len(claimed):
        return Violation("G-2", "one job was claimed twice by one call")
    if claimed != sorted(claimed, key=lambda job: job.place):
        return Violation("G-12", f"not in order: {[job.id for job in claimed]}")
    for job in state.jobs:
        due = job.status in CLAIMABLE and job.scheduled_at <= now and (call.types is None or job.type in call.types)
        if not due or job in claimed or rules.may_miss(job):
            continue
        if claimed and job.place < claimed[-1].place:
            return Violation("G-12", f"{job.id} comes before {claimed[-1].id} and was passed over")
        if len(claimed) < call.n:
            return Violation("G-13", f"{job.id} is due and was not claimed, though there was room")
    return None


# The holder's operations


class Window(NamedTuple):
    """When the retry of a failure may be scheduled, both ends included."""

    low: int
    high: int
    clause: str


def window(job: Job, delay: int | None, now: int, rules: Rules) -> Window:
    """T-4: now + the delay given, else the backoff of section 7: never before plain, nor after plain and jitter."""
    if delay is not None:
        return Window(now + delay, now + delay, "T-4")
    plain = rules.plain(job.attempts)
    return Window(now + plain, now + plain + int(rules.jitter * plain), "G-11")


def by_holder(state: State, call: HolderCall, reply: object, now: int, rules: Rules) -> State | Violation:
    """The law: one compare-and-set on (id, fence, worker) and running. G-3: anyone else changes nothing."""
    job = state.get(call.claim.id)
    if job is None or job.status != "running" or job.claim != call.claim:
        return state if reply == LeaseLost() else Violation("G-3", f"{call.claim} is no holder's, reply {reply}")
    match call:
        case Complete():
            after = complete(job, call, reply, now)
        case Fail():
            after = fail(job, call, reply, now, rules)
        case Release():
            after = release(job, call, reply, now)
        case Extend():
            after = extend(job, call, reply, now)
    return after if isinstance(after, Violation) else state.put(after)


def left(job: Job, status: str, now: int) -> Job:
    """The frame: leaving running sets lease and worker to null. Completed_at is set exactly while terminal (G-1)."""
    at = now if status in TERMINAL else None
    return replace(job, status=status, completed_at=at, lease_expires_at=None, worker=None)


def complete(job: Job, call: Complete, reply: object, now: int) -> Job | Violation:
    """T-3: result = given. The error of an earlier attempt survives."""
    if reply != Settled("completed"):
        return Violation("T-3", f"the holder of {job.id} completed it, reply {reply}")
    return replace(left(job, "completed", now), result=call.result)


def fail(job: Job, call: Fail, reply: object, now: int, rules: Rules) -> Job | Violation:
    """T-4, T-5: error = given, which section 8 cuts and cleans: recording a failure cannot fail."""
    if not isinstance(reply, Settled):
        return Violation("T-4", f"the holder of {job.id} failed it, reply {reply}")
    error = "".join("\ufffd" if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in call.error[:10_000])
    return failed(job, reply, error, window(job, call.delay, now, rules), now, call.for_good)


def failed(
    job: Job, reply: Settled | Swept, error: str, retry: Window, now: int, for_good: bool = False
) -> Job | Violation:
    """T-4, T-5 and T-8 in common. G-7: dead when the attempts are used up (or for good), and never else."""
    dying = for_good or job.attempts >= job.max_attempts
    if reply.status != ("dead" if dying else "failed"):
        return Violation("G-7", f"{job.id} had {job.attempts} of {job.max_attempts} attempts and became {reply.status}")
    if dying:
        return replace(left(job, "dead", now), error=error)
    at = retry.low if reply.scheduled_at is None else reply.scheduled_at
    if reply.scheduled_at is None and retry.low < retry.high:
        raise Unobserved(f"{job.id}: the scheduled_at that the backoff chose")
    if not retry.low <= at <= retry.high:
        return Violation(retry.clause, f"{job.id} failed at {now}, retry at {at}, not in {retry.low}…{retry.high}")
    return replace(left(job, "failed", now), error=error, scheduled_at=at)


def release(job: Job, call: Release, reply: object, now: int) -> Job | Violation:
    """T-6: the attempt is given back. The exception: what may be begun only once is `interrupted` (G-20)."""
    if call.begun and job.max_attempts == 1:
        dead = replace(left(job, "dead", now), error="interrupted")
        return dead if reply == Settled("dead") else Violation("G-20", f"{job.id} was begun, its release is {reply}")
    at = job.scheduled_at if call.delay is None else now + call.delay
    if reply not in (Settled("pending"), Settled("pending", at)):
        return Violation("T-6", f"the holder of {job.id} released it until {at}, reply {reply}")
    return replace(left(job, "pending", now), attempts=job.attempts - 1, scheduled_at=at)


def extend(job: Job, call: Extend, reply: object, now: int) -> Job | Violation:
    """T-7: lease_expires_at = max(old, now + lease). An expired lease that nobody swept is still the holder's."""
    assert job.lease_expires_at is not None
    if isinstance(reply, Extended) and reply.lease_expires_at < job.lease_expires_at:
        return Violation("G-17", f"the lease of {job.id} was shortened to {reply}")
    until = max(job.lease_expires_at, now + call.lease)
    if reply != Extended(until):
        return Violation("T-7", f"the lease of {job.id} is extended to {until}, reply {reply}")
    return replace(job, lease_expires_at=until)


def many(state: State, items: tuple[HolderCall, ...], result: object, now: int, rules: Rules) -> State | Violation:
    """Section 5: answered one by one, in order; a lost lease of one does not stop the rest."""
    if not isinstance(result, tuple) or len(result) != len(items):
        return Violation("§5", f"{len(items)} items, answered with {result}")
    after: State | Violation = state
    for item, reply in zip(items, result, strict=True):
        if isinstance(after, State):
            after = by_holder(after, item, reply, now, rules)
    return after


def exchange(state: State, call: Exchange, result: object, now: int, rules: Rules) -> State | Violation:
    """Section 5: the settlements, then the dequeue, which may claim what was just settled, with its new fence."""
    if not isinstance(result, Exchanged):
        return Violation("§5", f"exchange answers with both parts, got {result}")
    settled = many(state, call.settlements, result.settled, now, rules)
    return settled if isinstance(settled, Violation) else dequeue(settled, call.dequeue, result.claimed, now, rules)


# The look and the sweep


def look(state: State, now: int) -> frozenset[Look]:
    """Section 5: id, fence and lease_expires_at of the running jobs whose lease is expired (at equality, section 7)."""
    leases = ((job, job.lease_expires_at) for job in state.jobs if job.status == "running")
    return frozenset(Look(job.id, job.fence, at) for job, at in leases if at is not None and at <= now)


def sweep(state: State, call: Sweep, result: object, now: int, rules: Rules) -> State | Violation:
    """T-8: what is expired now, with the fence and the lease of the look; for every other job nothing follows."""
    if not isinstance(result, frozenset) or not all(isinstance(swept, Swept) for swept in result):
        return Violation("T-8", f"a sweep answers with those it swept, got {result}")
    expired = look(state, now)
    ids = {seen.id for seen in (expired if call.looked is None else expired & call.looked)}
    if ids != {swept.id for swept in result} or len(ids) != len(result):
        return Violation("T-8", f"expired and as looked at: {sorted(ids)}, swept: {result}")
    after = state
    for swept in result:
        job = state.get(swept.id)
        assert job is not None
        row = failed(job, swept, "lease expired", window(job, None, now, rules), now)
        if isinstance(row, Violation):
            return row
        after = after.put(row)
    return after


# Cancel, requeue, cleanup


def cancelled(job: Job, now: int) -> Job | None:
    """T-9, or None where section 4 has no such transition."""
    return None if job.status in TERMINAL else replace(left(job, "dead", now), error="cancelled")


def requeued(job: Job) -> Job | None:
    """T-10 (G-19): attempts 0, the fence kept; the place in line is created_at again if it was ever spent."""
    if job.status not in ("dead", "failed"):
        return None
    at = job.scheduled_at if job.attempts == 0 else job.created_at
    return replace(job, status="pending", attempts=0, completed_at=None, scheduled_at=at)


def blocker(state: State, job: Job) -> Job | None:
    """The other job that has this job's unique key: 'a job does not block itself' (T-10)."""
    holder = state.key_holder(job.unique_key)
    return None if holder is None or holder.id == job.id else holder


def cancel(state: State, call: Cancel, result: object, now: int) -> State | Violation:
    job = state.get(call.id)
    row = None if job is None else cancelled(job, now)
    if result is not (row is not None):
        return Violation("T-9", f"cancel of {job.status if job else 'no such job'}, reply {result}")
    return state if row is None else state.put(row)


def requeue(state: State, call: Requeue, result: object) -> State | Violation:
    job = state.get(call.id)
    row = None if job is None else requeued(job)
    other = None if row is None else blocker(state, row)
    if other is not None:
        told = result in (DuplicateKey(), DuplicateKey(other.id))
        return state if told else Violation("G-21", f"{call.id} has the key of {other.id}, reply {result}")
    if result is not (row is not None):
        return Violation("T-10", f"requeue of {job.status if job else 'no such job'}, reply {result}")
    return state if row is None else state.put(row)


def matches(job: Job, where: Where) -> bool:
    return (
        (where.ids is None or job.id in where.ids)
        and (where.statuses is None or job.status in where.statuses)
        and where.type in (None, job.type)
        and where.unique_key in (None, job.unique_key)
    )


def bulk(state: State, call: CancelWhere | RequeueWhere, result: object, now: int) -> State | Violation:
    """Section 5: job by job, counting what really happened. Which of two dead jobs gets their key is not said."""
    clause = "T-9" if isinstance(call, CancelWhere) else "T-10"
    change: Callable[[Job], Job | None] = requeued if clause == "T-10" else lambda job: cancelled(job, now)
    rows = [row for job in state.jobs if matches(job, call.where) and (row := change(job)) is not None]
    if not isinstance(result, Bulk) or (result.ids is not None and len(result.ids) != result.count):
        return Violation(clause, f"a bulk form answers with its count, got {result}")
    after, stayed, happened = state, [], 0
    for row in rows:
        if (result.ids is None or row.id in result.ids) and (clause == "T-9" or blocker(after, row) is None):
            after, happened = after.put(row), happened + 1
        else:
            stayed.append(row)
    needless = [row.id for row in stayed if clause == "T-9" or blocker(after, row) is None]
    if happened != result.count or needless:
        return Violation(clause, f"it can happen to {[row.id for row in rows]}, it did not to {needless}: {result}")
    if result.ids is None and any(blocker(state, row) is None for row in stayed):
        raise Unobserved("which of the dead jobs with one unique key was requeued")
    return after


def cleanup(state: State, call: Cleanup, result: object, now: int) -> State | Violation:
    """T-11: terminal, of the statuses given, and completed_at ≤ now − retention (G-14); until none is left."""
    old = [
        job.id
        for job in state.jobs
        if job.status in call.statuses and job.completed_at is not None and job.completed_at <= now - call.retention
    ]
    if result != len(old):
        clause = "G-14" if isinstance(result, int) and result > len(old) else "T-11"
        return Violation(clause, f"{len(old)} jobs are old enough, deleted: {result}")
    return state.drop(old)


# Reading


def shown(job: Job) -> Job:
    return replace(job, fence=HIDDEN)


def read(state: State, call: Expired | Get | List | Counts | Table, result: object, now: int) -> State | Violation:
    """Section 5: these never change a row; what they say is what is there."""
    match call:
        case Expired():
            right = result == look(state, now)
        case Get(id):
            job = state.get(id)
            right = result == (None if job is None else shown(job))
        case List(where, limit):
            rows = {shown(job) for job in state.jobs if matches(job, where)}
            most = len(rows) if limit is None else min(limit, len(rows))
            right = isinstance(result, tuple) and len(result) == len(set(result)) == most and rows.issuperset(result)
        case Counts(where):
            statuses = [job.status for job in state.jobs if matches(job, where)]
            exact = {(status, statuses.count(status)) for status in STATUSES}
            right = isinstance(result, frozenset) and exact >= result and exact - result <= {(s, 0) for s in STATUSES}
        case Table():
            return same(state, result)
    return state if right else Violation("§5", f"{call} at {now} does not show what is there: {result}")


def same(state: State, rows: object) -> State | Violation:
    """G-22: after any call every column of every row is what the clauses said, or was before. G-16: of every job."""
    if not isinstance(rows, frozenset) or not all(isinstance(row, Job) for row in rows):
        raise TypeError("the table is a frozenset of jobs")
    for id in sorted({row.id for row in rows} ^ {job.id for job in state.jobs}):
        return Violation("G-15" if id in state.deleted else "G-16", f"{id} was lost, invented or came back")
    for row in sorted(rows - set(state.jobs), key=lambda row: row.seq):
        job = state.get(row.id)
        wrong = [name for name in (field.name for field in fields(Job)) if getattr(row, name) != getattr(job, name)]
        return Violation("G-22", f"{row.id} differs in {wrong}: {row}, not {job}")
    return state
