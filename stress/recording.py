"""A Queue that writes down each call before it is made and each answer after it; the library knows nothing of it.

On SQLite now is the client's clock, read once per transaction: the recording clock remembers what it said, so the
history holds the exact now of each call. On PostgreSQL now is the server's, and the call's two ends bound it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from jobqueue import DatabaseUnavailable, DuplicateKey, Expired, Extended, Job, LeaseLost, Lost, Queue
from jobqueue.clock import SystemClock
from jobqueue.types import Complete, Exchange, Fail, JsonText, Reply, Settlement, Swept
from stress.history import History

T = TypeVar("T")


class RecordingClock(SystemClock):
    """The machine's clock, set off by `offset` microseconds; it remembers the nows that each thread was told."""

    def __init__(self) -> None:
        self.offset = 0
        self._told = threading.local()

    def now_us(self) -> int:
        now = super().now_us() + self.offset
        told = getattr(self._told, "nows", None)
        if told is not None:
            told.append(now)
        return now

    def watch(self) -> list[int]:
        """The list in which this thread's nows are kept from here on, until it watches again."""
        nows: list[int] = []
        self._told.nows = nows
        return nows


class RecordingQueue(Queue):
    """A Queue whose calls are in a history. Every operation of the library passes through one of these methods."""

    history: History
    exact: bool

    @classmethod
    def recorded(cls, url: str, history: History, **arguments: Any) -> RecordingQueue:
        queue = cls.open(url, clock=RecordingClock(), **arguments)
        assert isinstance(queue, RecordingQueue)
        queue.history = history
        queue.exact = not url.startswith("postgres")
        return queue

    @property
    def recording_clock(self) -> RecordingClock:
        assert isinstance(self.clock, RecordingClock)
        return self.clock

    def _wall(self) -> int:
        """The clock that bounds now: the client's own on SQLite, the true one where the server's counts."""
        return self.clock.now_us() - (0 if self.exact else self.recording_clock.offset)

    def _recorded(self, kind: str, args: Any, call: Callable[[], T], shown: Callable[[T], Any]) -> T:
        number = self.history.invoked(kind, self._wall(), args)
        nows = self.recording_clock.watch()
        try:
            reply = call()
        except BaseException as error:
            self._refused(number, self._nows(kind, nows), kind, error)
            raise
        exact = self._nows(kind, nows)
        self.history.answered(number, self._wall(), exact, shown(reply))
        return reply

    def _nows(self, kind: str, nows: list[int]) -> tuple[int, int] | None:
        """The now of the last transaction, which is the one that counts; all of them where a call has several."""
        if not self.exact or not nows:
            return None
        return (nows[0] if kind == "cleanup" else nows[-1], nows[-1])

    def _refused(self, number: int, exact: tuple[int, int] | None, kind: str, error: BaseException) -> None:
        match error:
            case DuplicateKey():
                self.history.answered(number, self._wall(), exact, ["dup", error.holder])
            case LeaseLost() if kind == "extend":
                self.history.answered(number, self._wall(), exact, [None])
            case DatabaseUnavailable() if kind != "cleanup":  # It has many transactions: some may have happened.
                self.history.refused(number, self._wall(), "none", str(error))
            case _:
                self.history.refused(number, self._wall(), "unknown", repr(error))

    # Enqueue

    def enqueue(self, type: str, payload: Any = None, **rest: Any) -> str:
        new = {"type": type, "payload": payload, **rest}
        keep = new.pop("on_duplicate", "raise") == "keep"
        return self._recorded(
            "enqueue", [keep, [_spec(new)]], lambda: super(RecordingQueue, self).enqueue(type, payload, **rest),
            lambda id: ["ids", [id]],
        )  # fmt: skip

    def enqueue_many(self, jobs: Iterable[Mapping[str, Any]], **rest: Any) -> list[str]:
        jobs = list(jobs)
        return self._recorded(
            "enqueue", [False, [_spec(job) for job in jobs]],
            lambda: super(RecordingQueue, self).enqueue_many(jobs, **rest), lambda ids: ["ids", ids],
        )  # fmt: skip

    # Claims and their holders

    def dequeue_many(self, n: int, *types: str, worker: str | None = None, lease: Any = None) -> list[Job]:
        args = [worker or self.worker, self._lease_us(lease), sorted(types) or None, n, []]
        return self._recorded(
            "exchange", args,
            lambda: super(RecordingQueue, self).dequeue_many(n, *types, worker=worker, lease=lease),
            lambda jobs: [[], [_claim(job) for job in jobs]],
        )  # fmt: skip

    def exchange(
        self,
        settlements: Sequence[Settlement],
        n: int,
        types: Collection[str] | None,
        *,
        worker: str | None = None,
        lease_us: int | None = None,
    ) -> Exchange:
        args = [worker or self.worker, lease_us or self.lease_us, sorted(types) if types else None, n,
                [_settlement(one) for one in settlements]]  # fmt: skip
        return self._recorded(
            "exchange", args,
            lambda: super(RecordingQueue, self).exchange(settlements, n, types, worker=worker, lease_us=lease_us),
            lambda done: [[_reply(reply) for reply in done.replies], [_claim(job) for job in done.jobs]],
        )  # fmt: skip

    def extend(self, job: Job, lease: Any = None, *, transaction: Any = None) -> datetime:
        from jobqueue.values import EPOCH, MICROSECOND

        return self._recorded(
            "extend", [self._lease_us(lease), [_holder(job)]],
            lambda: super(RecordingQueue, self).extend(job, lease, transaction=transaction),
            lambda until: [(until - EPOCH) // MICROSECOND],
        )  # fmt: skip

    def extend_many(self, jobs: Iterable[Job], lease: Any = None) -> list[Extended | Lost]:
        jobs = tuple(jobs)
        return self._recorded(
            "extend", [self._lease_us(lease), [_holder(job) for job in jobs]],
            lambda: super(RecordingQueue, self).extend_many(jobs, lease),
            lambda replies: [one.lease_expires_at_us if isinstance(one, Extended) else None for one in replies],
        )  # fmt: skip

    # Recovery

    def expired(self, limit: int = 500) -> list[Expired]:
        return self._recorded(
            "look", [], lambda: super(RecordingQueue, self).expired(limit),
            lambda found: [[one.id, one.fence, one.lease_expires_at_us] for one in found],
        )  # fmt: skip

    def sweep(self, looked: Sequence[Expired] | None = None) -> list[Swept]:
        assert looked is not None, "nobody here knows that no holder lives"
        return self._recorded(
            "sweep", [[one.id, one.fence, one.lease_expires_at_us] for one in looked],
            lambda: super(RecordingQueue, self).sweep(looked),
            lambda swept: [[one.id, str(one.status)] for one in swept],
        )  # fmt: skip

    # Operators

    def cancel(self, id: str, *, transaction: Any = None) -> bool:
        return self._recorded(
            "cancel", [id], lambda: super(RecordingQueue, self).cancel(id, transaction=transaction), bool
        )

    def requeue(self, id: str, *, transaction: Any = None) -> bool:
        return self._recorded(
            "requeue", [id], lambda: super(RecordingQueue, self).requeue(id, transaction=transaction), bool
        )

    def cleanup(self, older_than: Any, **rest: Any) -> int:
        statuses = sorted(str(status) for status in rest.get("statuses", ("completed", "dead")))
        retention = round(float(older_than) * 1_000_000)
        return self._recorded(
            "cleanup", [retention, statuses], lambda: super(RecordingQueue, self).cleanup(older_than, **rest), int
        )


def _micros(seconds: Any) -> int | None:
    return None if seconds is None else round(float(seconds) * 1_000_000)


def _spec(new: Mapping[str, Any]) -> list[Any]:
    from jobqueue.values import EPOCH, MICROSECOND

    at = new.get("scheduled_at")
    return [
        new["payload"], new["type"], new.get("priority", 0), None if at is None else (at - EPOCH) // MICROSECOND,
        _micros(new.get("delay")), new.get("max_attempts", 3), _micros(new.get("timeout")), new.get("unique_key"),
    ]  # fmt: skip


def _claim(job: Job) -> list[Any]:
    return [
        job.id, job.fence, job.worker, job.type, job.priority, job.attempts, job.max_attempts, job.seq,
        job.scheduled_at_us, job.created_at_us, job.started_at_us, job.lease_expires_at_us, job.timeout_us,
        job.unique_key, job.error, job.payload,
    ]  # fmt: skip


def _holder(job: Job) -> list[Any]:
    return [job.id, job.fence, job.worker]


def _settlement(one: Settlement) -> list[Any]:
    match one:
        case Complete(job, result):
            text = str(result) if isinstance(result, JsonText) else None if result is None else json.dumps(result)
            return ["c", *_holder(job), text]
        case Fail(job, error, delay_us, for_good):
            return ["f", *_holder(job), error, delay_us, for_good]
        case _:
            return ["l", *_holder(one.job), one.begun, one.delay_us]


def _reply(reply: Reply) -> str | None:
    return None if isinstance(reply, Lost) else str(reply.status)
