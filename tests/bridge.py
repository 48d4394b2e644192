"""The model's calls, made through the public API of Queue; replies and rows come back as the model's values.

This is the only place where the two vocabularies meet. It decides nothing: what the page leaves open (an id, a seq,
when a retry is due) is observed in the table and put into the result, for the model to judge.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from typing import Any

import jobqueue
from jobqueue.values import EPOCH, MICROSECOND, id_raw, moment
from model import HIDDEN, Claim, Job, State
from model import calls as m
from tests.clock import ManualClock
from tests.tables import Table


class Bridge:
    """One queue, its table, and what the model has to know of both."""

    def __init__(self, queue: jobqueue.Queue, table: Table, clock: ManualClock, *, remember: bool) -> None:
        """``remember`` keeps each claim as dequeue gave it, for its holder; else claims are made up from the row."""
        self.queue, self.table, self.clock = queue, table, clock
        self._given: dict[Claim, jobqueue.Job] | None = {} if remember else None
        self.before: dict[str, Job] = {}
        self.rows: frozenset[Job] = frozenset()

    def ask(self, state: State, call: m.Call, now: int, transaction: Any = None) -> object:
        """Make the call at this instant; its reply, without what only the table tells."""
        self.clock.set(now)
        self.before = {job.id: job for job in state.jobs}
        try:
            return self._made(call, transaction)
        except jobqueue.InvalidArgument:
            return m.Refused()
        except jobqueue.LeaseLost:
            return m.LeaseLost()
        except jobqueue.DuplicateKey as taken:
            return m.DuplicateKey(taken.holder)

    def do(self, state: State, call: m.Call, now: int) -> object:
        """Make the call at this instant; its result, as observed. ``rows`` is the table after it."""
        reply = self.ask(state, call, now)
        self.rows = self.table.read()
        return self.observed(call, reply)

    def observed(self, call: m.Call, reply: object) -> object:
        """The reply with what only the table tells: seq, scheduled_at, and which jobs a bulk requeue was about."""
        after = {job.id: job for job in self.rows}
        match reply:
            case m.Settled("failed") | m.Swept(_, "failed"):
                assert isinstance(call, m.Fail), "the others are observed one by one"
                return m.Settled("failed", after[call.claim.id].scheduled_at)
            case m.Exchanged(settled, claimed):
                assert isinstance(call, m.Exchange)
                return m.Exchanged(self._each(call.settlements, settled), claimed)
            case m.Bulk(count):
                return m.Bulk(count, frozenset(id for id, job in self.before.items() if after.get(id) != job))
            case tuple() if isinstance(call, m.Many):
                return self._each(call.items, reply)
            case tuple() if isinstance(call, m.Enqueue):
                return tuple(m.Enqueued(one.id, after[one.id].seq if one.id in after else None) for one in reply)
            case frozenset() if isinstance(call, m.Sweep):
                return frozenset(
                    m.Swept(one.id, one.status, after[one.id].scheduled_at if one.status == "failed" else None)
                    for one in reply
                )
        return reply

    def _each(self, items: Iterable[m.HolderCall], replies: Iterable[m.HolderReply]) -> tuple[m.HolderReply, ...]:
        after = {job.id: job for job in self.rows}
        return tuple(
            m.Settled("failed", after[item.claim.id].scheduled_at) if reply == m.Settled("failed") else reply
            for item, reply in zip(items, replies, strict=True)
        )

    # Calls

    def _made(self, call: m.Call, transaction: Any) -> object:
        match call:
            case m.Enqueue():
                return self._enqueue(call, transaction)
            case m.Dequeue():
                return self._dequeue(call)
            case m.Complete() | m.Fail() | m.Release() | m.Extend():
                return self._held(call, transaction)
            case m.Many(items):
                return self._many(items)
            case m.Exchange():
                return self._exchange(call)
            case m.Sweep(looked):
                swept = self.queue.sweep(None if looked is None else [self._look(look) for look in looked])
                assert len({one.id for one in swept}) == len(swept), "a job was swept twice by one call"
                return frozenset(m.Swept(one.id, str(one.status)) for one in swept)
            case m.Cancel(id):
                return self.queue.cancel(id, transaction=transaction)
            case m.Requeue(id):
                return self.queue.requeue(id, transaction=transaction)
            case m.CancelWhere(where):
                return m.Bulk(self.queue.cancel_many(**_filter(where)))
            case m.RequeueWhere(where):
                return m.Bulk(self.queue.requeue_many(**_filter(where)).count)
            case m.Cleanup(retention, statuses):
                return self.queue.cleanup(retention * MICROSECOND, statuses=sorted(statuses))
            case _:
                return self._read(call)

    def _enqueue(self, call: m.Enqueue, transaction: Any) -> object:
        keep: Any = "keep" if call.keep else "raise"
        jobs = [_arguments(new) for new in call.jobs]
        if len(jobs) == 1:
            ids = [self.queue.enqueue(**jobs[0], on_duplicate=keep, transaction=transaction)]
        else:
            ids = self.queue.enqueue_many(jobs, on_duplicate=keep, transaction=transaction)
        return tuple(m.Enqueued(id) for id in ids)

    def _dequeue(self, call: m.Dequeue) -> object:
        types = sorted(call.types or ())
        if call.n == 1:
            job = self.queue.dequeue(*types, worker=call.worker, lease=call.lease * MICROSECOND)
            return self._claimed([] if job is None else [job])
        return self._claimed(
            self.queue.dequeue_many(call.n, *types, worker=call.worker, lease=call.lease * MICROSECOND)
        )

    def _claimed(self, jobs: Iterable[jobqueue.Job]) -> tuple[Job, ...]:
        found = []
        for job in jobs:
            found.append(_running(job))
            if self._given is not None:
                self._given[found[-1].claim] = job
        return tuple(found)

    def _held(self, call: m.HolderCall, transaction: Any) -> object:
        job = self.job(call.claim)
        match call:
            case m.Complete(_, result):
                self.queue.complete(job, _value(result), transaction=transaction)
                return m.Settled("completed")
            case m.Fail(_, error, delay, for_good):
                wait = _duration(delay)
                done = self.queue.fail(job, error, delay=wait, for_good=for_good, transaction=transaction)
                return m.Settled(str(done))
            case m.Release(_, begun, delay):
                return m.Settled(
                    str(self.queue.release(job, begun=begun, delay=_duration(delay), transaction=transaction))
                )
            case m.Extend(_, lease):
                return m.Extended(_micros(self.queue.extend(job, lease * MICROSECOND, transaction=transaction)))

    def _many(self, items: tuple[m.HolderCall, ...]) -> object:
        """One of the ``_many`` forms: the extends, or the settlements."""
        if items and isinstance(items[0], m.Extend):
            jobs = [self.job(item.claim) for item in items]
            replies: Iterable[Any] = self.queue.extend_many(jobs, items[0].lease * MICROSECOND)
        else:
            replies = self.queue.settle_many([self._settlement(item) for item in items])
        return tuple(_reply(reply) for reply in replies)

    def _exchange(self, call: m.Exchange) -> object:
        settlements = [self._settlement(item) for item in call.settlements]
        asked = call.dequeue
        done = self.queue.exchange(settlements, asked.n, asked.types, worker=asked.worker, lease_us=asked.lease)
        return m.Exchanged(tuple(_reply(reply) for reply in done.replies), self._claimed(done.jobs))

    def _settlement(self, call: m.HolderCall) -> jobqueue.Complete | jobqueue.Fail | jobqueue.Release:
        match call:
            case m.Complete(claim, result):
                return jobqueue.Complete(self.job(claim), _value(result))
            case m.Fail(claim, error, delay, for_good):
                return jobqueue.Fail(self.job(claim), error, delay, for_good)
            case m.Release(claim, begun, delay):
                return jobqueue.Release(self.job(claim), begun, delay)
        raise AssertionError(f"{call} settles nothing")

    def _read(self, call: m.Call) -> object:
        match call:
            case m.Expired():
                return frozenset(m.Look(one.id, one.fence, one.lease_expires_at_us) for one in self.queue.expired())
            case m.Get(id):
                view = self.queue.get(id)
                return None if view is None else _view(view)
            case m.List(where, limit):
                wanted = {name: value for name, value in _filter(where).items() if name != "ids"}
                views = self.queue.list(**wanted, limit=limit or 1000, payloads=True)
                return tuple(_view(view) for view in views)
            case m.Counts():
                return frozenset((str(status), number) for status, number in self.queue.counts().items())
        raise AssertionError(f"{call} has no form in the API")

    # Claims and looks

    def job(self, claim: Claim) -> jobqueue.Job:
        """The claim as its holder has it. Where it was not remembered: what a holder of the row has."""
        if self._given is not None and claim in self._given:
            return self._given[claim]
        row = self.before.get(claim.id)
        return jobqueue.Job(
            raw_id=id_raw(claim.id), fence=claim.fence, worker=claim.worker, type=row.type if row else "t", priority=0,
            attempts=row.attempts if row else 1, max_attempts=row.max_attempts if row else 1, seq=row.seq if row else 0,
            scheduled_at_us=0, created_at_us=0, started_at_us=0, lease_expires_at_us=0, timeout_us=None,
            unique_key=None, error=None, payload_text="null",
        )  # fmt: skip

    def _look(self, look: m.Look) -> jobqueue.Expired:
        row = self.before.get(look.id)
        seq, attempts, most = (row.seq, row.attempts, row.max_attempts) if row else (0, 1, 1)
        return jobqueue.Expired(look.id, seq, look.fence, look.lease_expires_at, attempts, most)


def _arguments(new: m.New) -> dict[str, Any]:
    return {
        "type": new.type,
        "payload": _value(new.payload),
        "priority": new.priority,
        "scheduled_at": None if new.scheduled_at is None else moment(new.scheduled_at),
        "delay": _duration(new.delay),
        "max_attempts": new.max_attempts,
        "timeout": _duration(new.timeout),
        "unique_key": new.unique_key,
    }


def _value(text: Hashable) -> Any:
    """The model keeps JSON as its text; None where there is none."""
    return None if text is None else json.loads(str(text))


def text_of(value: object) -> str:
    """JSON as it is stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _duration(micros: int | None) -> timedelta | None:
    return None if micros is None else micros * MICROSECOND


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // MICROSECOND


def _filter(where: m.Where) -> dict[str, Any]:
    status = None if where.statuses is None else next(iter(where.statuses))
    asked = {"ids": where.ids, "status": status, "type": where.type, "unique_key": where.unique_key}
    return {name: value for name, value in asked.items() if value is not None}


def _reply(reply: object) -> m.HolderReply:
    match reply:
        case jobqueue.Settled(status):
            return m.Settled(str(status))
        case jobqueue.Extended(until):
            return m.Extended(until)
        case jobqueue.Lost():
            return m.LeaseLost()
    raise AssertionError(f"not a reply: {reply}")


def _running(job: jobqueue.Job) -> Job:
    """A claim in every column that dequeue shows; the model judges each."""
    payload = job.payload_text
    return Job(
        seq=job.seq, id=job.id, type=job.type, payload=payload if isinstance(payload, str) else payload.decode(),
        status="running", priority=job.priority, attempts=job.attempts, max_attempts=job.max_attempts, fence=job.fence,
        scheduled_at=job.scheduled_at_us, created_at=job.created_at_us, started_at=job.started_at_us,
        lease_expires_at=job.lease_expires_at_us, worker=job.worker, timeout=job.timeout_us, unique_key=job.unique_key,
        error=job.error,
    )  # fmt: skip


def _view(view: jobqueue.JobView) -> Job:
    def micros(instant: datetime | None) -> int | None:
        return None if instant is None else _micros(instant)

    return Job(
        seq=view.seq, id=view.id, type=view.type, payload=text_of(view.payload), status=str(view.status),
        priority=view.priority, attempts=view.attempts, max_attempts=view.max_attempts, fence=HIDDEN,
        scheduled_at=_micros(view.scheduled_at), created_at=_micros(view.created_at),
        started_at=micros(view.started_at),
        completed_at=micros(view.completed_at), lease_expires_at=micros(view.lease_expires_at), worker=view.worker,
        timeout=None if view.timeout is None else view.timeout // MICROSECOND, unique_key=view.unique_key,
        result=None if view.result is None else text_of(view.result), error=view.error,
    )  # fmt: skip
