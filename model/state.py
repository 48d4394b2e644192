"""A job, a set of jobs, a violation. All are immutable and hashable; instants and durations are whole microseconds."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

CLAIMABLE = frozenset({"pending", "failed"})
TERMINAL = frozenset({"completed", "dead"})
STATUSES = CLAIMABLE | TERMINAL | {"running"}

HIDDEN = -1
"""The fence of a job as get and list show it: section 5, 'they show no fence: only dequeue makes a holder'."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Section 1: the pair (id, fence) together with the worker it was given to."""

    id: str
    fence: int
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row: the columns of section 2. payload and result are opaque; canonical JSON text serves best."""

    seq: int
    id: str
    type: str
    payload: Hashable
    status: str
    priority: int
    attempts: int
    max_attempts: int
    fence: int
    scheduled_at: int
    created_at: int
    started_at: int | None = None
    completed_at: int | None = None
    lease_expires_at: int | None = None
    worker: str | None = None
    timeout: int | None = None
    unique_key: str | None = None
    result: Hashable = None
    error: str | None = None

    @property
    def claim(self) -> Claim:
        """The claim of the job while it is running: what the holder's operations take."""
        return Claim(self.id, self.fence, self.worker or "")

    @property
    def place(self) -> tuple[int, int, int]:
        """Section 6: highest priority first, then lowest scheduled_at, then lowest seq."""
        return (-self.priority, self.scheduled_at, self.seq)


@dataclass(frozen=True, slots=True)
class State:
    """The rows, by seq, and the ids of the rows that cleanup deleted: G-15 needs the memory of them."""

    jobs: tuple[Job, ...] = ()
    deleted: frozenset[str] = frozenset()

    def get(self, id: str) -> Job | None:
        return next((job for job in self.jobs if job.id == id), None)

    def put(self, job: Job) -> "State":
        """The state with this row in place of the row of the same id, if there was one."""
        rest = (other for other in self.jobs if other.id != job.id)
        return State(tuple(sorted((*rest, job), key=lambda row: row.seq)), self.deleted)

    def drop(self, ids: Iterable[str]) -> "State":
        gone = frozenset(ids)
        return State(tuple(job for job in self.jobs if job.id not in gone), self.deleted | gone)

    def key_holder(self, key: str | None) -> Job | None:
        """G-21: the one job, pending, running or failed, that has this unique key."""
        live = (job for job in self.jobs if job.status not in TERMINAL)
        return None if key is None else next((job for job in live if job.unique_key == key), None)


EMPTY = State()


@dataclass(frozen=True, slots=True)
class Violation:
    """What was seen is not what the clause says."""

    clause: str
    message: str

    def __str__(self) -> str:
        return f"{self.clause}: {self.message}"
