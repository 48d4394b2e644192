"""Every operation, written once for both backends: pure code decides, named SQL finds and stores (spec §3-§5).

Each function runs inside one transaction that its caller holds. None of them commits, retries or reads a clock.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypedDict

from jobqueue import transitions
from jobqueue.backoff import Backoff
from jobqueue.protocols import Args, Row, Transaction
from jobqueue.transitions import Decision, Event
from jobqueue.types import Expired, Extended, Job, JobView, Lost, Reply, Settled, Settlement, Status, Swept
from jobqueue.values import MICROSECOND, id_raw, id_text, moment, types_text

PAGE = 500
LOST = Lost()
SETTLED = {event: Settled(status) for (source, event), status in transitions.TABLE.items() if source is Status.RUNNING}


class NewJob(TypedDict):
    """A checked job, ready to be stored; instants and durations are microseconds.

    ``delay`` counts only where ``scheduled_at`` is None.
    """

    id: bytes
    type: str
    payload: str
    priority: int
    scheduled_at: int | None
    delay: int
    max_attempts: int
    timeout: int | None
    unique_key: str | None


@dataclass(frozen=True, slots=True)
class KeyTaken:
    """The unique key of a new job is held by another; ``holder`` is its id where it can be told."""

    key: str
    holder: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs a list or a bulk operation is about; None leaves a part open."""

    status: Status | None = None
    type: str | None = None
    unique_key: str | None = None


class Claim(NamedTuple):
    """What a dequeue asks for. ``types`` None means every type."""

    types: Collection[str] | None
    n: int
    worker: str
    lease_us: int


def enqueue(tx: Transaction, job: NewJob, *, alone: bool = False) -> KeyTaken | None:
    """T-1. None means stored; the constraint decides, and only then is the holder looked up.

    ``alone``, here and below: this is all that its transaction does.
    """
    args = {**job, "now": tx.now_us}
    key = job["unique_key"]
    if key is None:
        tx.run("enqueue", args, last=alone)  # Refused by its own id only: then an earlier try has stored it.
        return None
    for _ in range(3):  # The holder may end between the refused insert and the look: then the key is free again.
        if tx.run("enqueue", args) == 1 or tx.rows("exists", {"id": job["id"]}):
            return None
        holder = tx.rows("key_holder", {"unique_key": key})
        if holder:
            return KeyTaken(key, id_text(holder[0][0]))
    return KeyTaken(key, None)


def enqueue_many(tx: Transaction, jobs: Sequence[NewJob], *, alone: bool = False) -> list[KeyTaken | None]:
    """T-1 for each, in order. Jobs without a unique key cannot be refused, so they go in as one batch."""
    if all(job["unique_key"] is None for job in jobs):
        now_us = tx.now_us
        tx.run_many("enqueue", [{**job, "now": now_us} for job in jobs], last=alone)
        return [None] * len(jobs)
    return [enqueue(tx, job) for job in jobs]


def dequeue(tx: Transaction, claim: Claim) -> list[Job]:
    """T-2 for up to ``n`` jobs, in order (§6)."""
    types = _wanted(tx, claim.types)
    return _jobs(tx.claim(types, _claiming(tx, claim))) if types else []


def _claiming(tx: Transaction, claim: Claim) -> Args:
    return {"n": claim.n, "worker": claim.worker, "lease": claim.lease_us, "now": tx.now_us}


def _jobs(rows: Iterable[Row]) -> list[Job]:
    return [Job(*row) for row in rows]


def due_in_us(tx: Transaction, types: Collection[str] | None) -> int | None:
    """How long until the next claimable job of ``types`` is due, by the database's clock; None where there is none."""
    due: int | None = tx.rows("due_in", {"types": types_text(_wanted(tx, types)), "now": tx.now_us})[0][0]
    return due


def _wanted(tx: Transaction, types: Collection[str] | None) -> tuple[str, ...]:
    """The wanted types; None means every type that has claimable jobs."""
    return tuple(row[0] for row in tx.rows("waiting_types", {})) if types is None else tuple(types)


def settle(tx: Transaction, settlement: Settlement, backoff: Backoff, draw: float, *, alone: bool = False) -> Reply:
    """T-3 to T-6: one compare-and-set on (id, fence, worker). Nothing changed: the lease is lost (G-3)."""
    decision = transitions.decide(settlement, backoff, draw)
    return SETTLED[decision.event] if tx.run(*_writing(tx, settlement.job, decision), last=alone) else LOST


def settle_many(
    tx: Transaction, settlements: Sequence[Settlement], backoff: Backoff, draws: Sequence[float]
) -> list[Reply]:
    """settle for each, in order, each answered by itself."""
    return [settle(tx, settlement, backoff, draw) for settlement, draw in zip(settlements, draws, strict=True)]


def settle_held(
    tx: Transaction, settlements: Sequence[Settlement], backoff: Backoff, draws: Sequence[float]
) -> list[Reply] | None:
    """settle_many in batches of one statement: fast where every claim is still held, as nearly always.

    None means that some lease is lost, and a batch does not tell which: roll back, and use settle_many.
    """
    decisions = [transitions.decide(one, backoff, draw) for one, draw in zip(settlements, draws, strict=True)]
    writes = [_writing(tx, one.job, decision) for one, decision in zip(settlements, decisions, strict=True)]
    replies: list[Reply] = []
    for event, batch in groupby(writes, key=itemgetter(0)):
        args = [write[1] for write in batch]
        if tx.run_many(event, args) != len(args):
            return None
        replies += [SETTLED[event]] * len(args)
    return replies


def settle_and_dequeue(
    tx: Transaction, settlement: Settlement, backoff: Backoff, draw: float, claim: Claim
) -> tuple[Reply, list[Job]]:
    """settle for one, then dequeue."""
    if claim.types is None:  # What is settled may be of a type that none is waiting of.
        return settle(tx, settlement, backoff, draw), dequeue(tx, claim)
    decision = transitions.decide(settlement, backoff, draw)
    writing = _writing(tx, settlement.job, decision)
    changed, rows = tx.run_and_claim(*writing, tuple(claim.types), _claiming(tx, claim))
    return SETTLED[decision.event] if changed else LOST, _jobs(rows)


def _writing(tx: Transaction, job: Job, decision: Decision) -> tuple[Event, Args]:
    """The statement that writes a decision if its claim is still held, and its arguments."""
    args = _holder(tx, job)
    event, args["result"], args["error"], args["delay"] = decision
    return event, args


def settled_as(tx: Transaction, settlement: Settlement, backoff: Backoff, draw: float) -> Reply | None:
    """What became of a settlement whose commit got no answer. None: it has not happened, and may be tried again.

    A row that tells neither raises LookupError (spec §5, unknown outcomes).
    """
    job, decision = settlement.job, transitions.decide(settlement, backoff, draw)
    found = tx.rows("settled_as", {"seq": job.seq, "id": job.raw_id})
    if not found:
        raise LookupError("the job is gone")
    status, fence, worker, result, error = found[0]
    if status == Status.RUNNING and (fence, worker) == (job.fence, job.worker):
        return None
    same = {Event.COMPLETE: result == decision.result, Event.RELEASE: True}
    written = same.get(decision.event, error == decision.error)
    if fence == job.fence and status == transitions.TABLE[Status.RUNNING, decision.event] and written:
        return Settled(Status(status))
    raise LookupError(f"the job is now {status} with fence {fence}")


def extend(tx: Transaction, job: Job, lease_us: int, *, alone: bool = False) -> Extended | Lost:
    """T-7."""
    rows = tx.rows("extend", {**_holder(tx, job), "lease": lease_us}, last=alone)
    return Extended(rows[0][0]) if rows else LOST


def _holder(tx: Transaction, job: Job) -> dict[str, Any]:
    """What a holder's compare-and-set compares, and its now (the law)."""
    return {"seq": job.seq, "id": job.raw_id, "fence": job.fence, "worker": job.worker, "now": tx.now_us}


def expired(tx: Transaction, n: int) -> list[Expired]:
    """The look of T-8: up to ``n`` expired leases, the longest expired first."""
    return [Expired(id_text(row[0]), *row[1:]) for row in tx.rows("expired", {"now": tx.now_us, "n": n})]


def sweep(tx: Transaction, looked: Iterable[tuple[Expired, float]], backoff: Backoff) -> list[Swept]:
    """T-8 for each look, with its draw for the jitter. A job that moved on since is left alone, and not reported."""
    swept = []
    for look, draw in looked:
        decision = transitions.sweep(look.attempts, look.max_attempts, backoff, draw)
        args = {
            "seq": look.seq,
            "id": id_raw(look.id),
            "fence": look.fence,
            "lease_expires_at": look.lease_expires_at_us,
            "error": decision.error,
            "delay": decision.delay_us,
            "now": tx.now_us,
        }
        if tx.run("sweep_retry" if decision.event is Event.RETRY else "sweep_bury", args):
            swept.append(Swept(look.id, look.fence, transitions.TABLE[Status.RUNNING, decision.event]))
    return swept


def cancel(tx: Transaction, id: bytes, *, alone: bool = False) -> bool:
    """T-9."""
    return tx.run("cancel", {"id": id, "error": transitions.CANCELLED, "now": tx.now_us}, last=alone) == 1


def requeue(tx: Transaction, id: bytes) -> bool | KeyTaken:
    """T-10. False: not dead or failed."""
    looked = tx.rows("requeue_look", {"id": id})
    if not looked:
        return False
    attempts, scheduled_at_us, created_at_us, unique_key, fence = looked[0]
    again_us = transitions.requeued_at(attempts, scheduled_at_us, created_at_us)
    if tx.run("requeue", {"id": id, "fence": fence, "attempts": attempts, "scheduled_at": again_us}) == 1:
        return True
    assert unique_key is not None, "the row is as looked at, so only its unique key can refuse"
    holder = tx.rows("key_holder", {"unique_key": unique_key})
    return KeyTaken(unique_key, id_text(holder[0][0]) if holder else None)


def select_ids(tx: Transaction, which: Filter, allowed: frozenset[Status], after: int) -> list[tuple[int, bytes]]:
    """A page of the jobs that a bulk operation is about, after seq ``after``: (seq, id)."""
    statuses = allowed if which.status is None else allowed & {which.status}
    args = {
        "after": after,
        "statuses": json.dumps(sorted(statuses)),
        "type": which.type,
        "unique_key": which.unique_key,
        "n": PAGE,
    }
    return [(row[0], row[1]) for row in tx.rows("select_ids", args)]


def cancel_many(tx: Transaction, ids: Iterable[bytes]) -> int:
    """T-9 for each; how many were cancelled."""
    return sum(cancel(tx, id) for id in ids)


def requeue_many(tx: Transaction, ids: Iterable[bytes]) -> list[bool | KeyTaken]:
    """T-10 for each, decided job by job."""
    return [requeue(tx, id) for id in ids]


def cleanup(tx: Transaction, status: Status, retention_us: int, n: int) -> int:
    """T-11 for up to ``n`` jobs of one terminal status; the number deleted."""
    return tx.run("cleanup", {"status": status, "retention": retention_us, "n": n, "now": tx.now_us})


def counts(tx: Transaction) -> dict[Status, int]:
    """The number of jobs in each status, every status named."""
    found = {Status(status): number for status, number in tx.rows("counts", {})}
    return {status: found.get(status, 0) for status in Status}


def get(tx: Transaction, id: bytes) -> JobView | None:
    """One job with its payload and result."""
    found = tx.rows("get", {"id": id})
    return _view(found[0]) if found else None


def list_page(tx: Transaction, which: Filter, after: int, n: int, *, wide: bool) -> list[JobView]:
    """Up to ``n`` jobs after seq ``after``, in order of seq; ``wide`` with payload and result."""
    args = {"after": after, "status": which.status, "type": which.type, "unique_key": which.unique_key, "n": n}
    return [_view(row) for row in tx.rows("list_wide" if wide else "list", args)]


def broken_rows(tx: Transaction, n: int) -> list[tuple[str, str]]:
    """Audit: up to ``n`` rows that break an invariant, as (id, what is broken)."""
    return [(id_text(row[0]), row[1]) for row in tx.rows("broken_rows", {"n": n})]


def _view(row: Row) -> JobView:
    id, seq, type, status, priority, attempts, max_attempts, scheduled, created, started, completed, lease, *rest = row
    worker, timeout, unique_key, error, *wide = rest
    return JobView(
        id_text(id),
        seq,
        type,
        Status(status),
        priority,
        attempts,
        max_attempts,
        moment(scheduled),
        moment(created),
        None if started is None else moment(started),
        None if completed is None else moment(completed),
        None if lease is None else moment(lease),
        worker,
        None if timeout is None else timeout * MICROSECOND,
        unique_key,
        error,
        *(_decoded(text) for text in wide),
    )


def _decoded(text: str | bytes | None) -> Any:
    """JSON as stored; what is not JSON (a row changed by hand) is shown as it is rather than hiding the job."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text if isinstance(text, str) else text.decode(errors="replace")
