"""The words of the queue as values: statuses, jobs, settlements and replies. Pure data; instants are microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from jobqueue import values
from jobqueue.values import MICROSECOND, moment


class Status(StrEnum):
    """The five statuses of a job (spec §1)."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"


TERMINAL = frozenset({Status.COMPLETED, Status.DEAD})
_UNREAD = ...  # No JSON reads as this, and in every copy of a job, also a pickled one, it is the same.


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """A claim: one job as one dequeue gave it to one worker. Only the holder of such a claim can settle it (G-3).

    It equals nothing but itself. ``raw_id`` are the 16 bytes of its id, for most claims are never shown as text.
    """

    raw_id: bytes
    fence: int
    worker: str
    type: str
    priority: int
    attempts: int
    max_attempts: int
    seq: int
    scheduled_at_us: int
    created_at_us: int
    started_at_us: int
    lease_expires_at_us: int
    timeout_us: int | None
    unique_key: str | None
    error: str | None
    payload_text: str | bytes
    lost: str | None = None
    """Why this claim's outcome no longer counts (lease lost, timed out, interrupted), as far as the worker knows."""
    settled: bool = False
    """Whether complete, fail, release or completing has settled this claim; what its handler returns then counts no
    more. A settlement with ``transaction=`` does not tell: nobody knows whether that commits."""
    _payload: Any = _UNREAD

    def __repr__(self) -> str:
        """Short, and without the payload, which may hold secrets."""
        return f"<Job {self.id}, {self.type}, attempt {self.attempts} of {self.max_attempts}, fence {self.fence}>"

    @property
    def id(self) -> str:
        """The id that enqueue returned."""
        return values.id_text(self.raw_id)

    @property
    def payload(self) -> Any:
        """What was enqueued. Raises ValueError if the stored text is not JSON.

        That ends the attempt, not the worker.
        """
        if self._payload is _UNREAD:
            text = self.payload_text
            # Bytes that are not UTF-8 end in UnicodeDecodeError, a ValueError as well.
            self._payload = values.from_json(text if isinstance(text, str) else text.decode())
        return self._payload

    @property
    def key(self) -> tuple[str, int]:
        """(id, fence): names this claim among all claims ever made (G-2). Also a fencing token to pass downstream."""
        return self.id, self.fence

    @property
    def scheduled_at(self) -> datetime:
        return moment(self.scheduled_at_us)

    @property
    def created_at(self) -> datetime:
        return moment(self.created_at_us)

    @property
    def started_at(self) -> datetime:
        return moment(self.started_at_us)

    @property
    def lease_expires_at(self) -> datetime:
        """When the lease ends as of the dequeue; a worker's heartbeat moves the row's, not this one."""
        return moment(self.lease_expires_at_us)

    @property
    def timeout(self) -> timedelta | None:
        return None if self.timeout_us is None else self.timeout_us * MICROSECOND


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as ``get`` and ``list`` show it. It has no fence: only dequeue makes a holder.

    ``payload`` and ``result`` are None unless they were asked for.
    """

    id: str
    seq: int
    type: str
    status: Status
    priority: int
    attempts: int
    max_attempts: int
    scheduled_at: datetime
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    lease_expires_at: datetime | None
    worker: str | None
    timeout: timedelta | None
    unique_key: str | None
    error: str | None
    payload: Any = None
    result: Any = None


class JsonText(str):
    """A result that was checked and encoded already: by a worker, beside its handler, outside every transaction."""

    __slots__ = ()


# Not frozen: there is one for every job, and freezing one costs more than making it.
@dataclass(slots=True)
class Complete:
    """Settle a claim by T-3. ``result`` is any storable JSON value, or such a value as JsonText."""

    job: Job
    result: Any = None


@dataclass(slots=True)
class Fail:
    """Settle a claim by T-4 or T-5. ``delay_us`` replaces the backoff; ``for_good`` makes the job dead."""

    job: Job
    error: str
    delay_us: int | None = None
    for_good: bool = False


@dataclass(slots=True)
class Release:
    """Settle a claim by T-6: the attempt is given back. ``delay_us`` snoozes; ``begun`` as spec §1 defines it."""

    job: Job
    begun: bool = True
    delay_us: int | None = None


Settlement: TypeAlias = Complete | Fail | Release


@dataclass(frozen=True, slots=True)
class Settled:
    """A settlement happened; the job now has ``status``."""

    status: Status


@dataclass(frozen=True, slots=True)
class Lost:
    """The claim was no longer held: nothing was written (G-3)."""


Reply: TypeAlias = Settled | Lost


@dataclass(frozen=True, slots=True)
class Extended:
    """The lease now ends at ``lease_expires_at_us`` (T-7)."""

    lease_expires_at_us: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one exchange gave: a reply for each settlement, in order, and the new claims, in order."""

    replies: list[Reply]
    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class Expired:
    """What one look saw of one expired lease (spec §5, 'expired'). Equal looks mean that nobody extended in between."""

    id: str
    seq: int
    fence: int
    lease_expires_at_us: int
    attempts: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Swept:
    """A job that a sweep took from its holder, and the status it then had: failed or dead (T-8)."""

    id: str
    fence: int
    status: Status


@dataclass(frozen=True, slots=True)
class Requeued:
    """What a bulk requeue did: how many jobs, and which were left because another job holds their unique key."""

    count: int
    duplicates: list[str]


def status_summary(counts: dict[Status, int]) -> str:
    """Counts as one line, every status named: ``pending: 5, running: 2, completed: 100, failed: 3, dead: 1``."""
    return ", ".join(f"{status}: {counts.get(status, 0)}" for status in Status)
