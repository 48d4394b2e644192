"""The operations and their results, as plain values. Each call says which result it has.

Enqueue and Dequeue are the `_many` forms; the single form is the one of one job. Many is every other `_many` form. An
operation in the caller's transaction is a step when that transaction commits, and no step when it does not.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from model.state import Claim, Job


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of any call that breaks section 8: an error at the call, before anything is stored."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The result of a holder's operation by anyone but the holder."""


@dataclass(frozen=True, slots=True)
class DuplicateKey:
    """The unique key is taken: by this job, or None where that could not be told."""

    holder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """A job to enqueue. The id is set where the caller chose it (a retry after an unknown outcome does)."""

    type: str = "t"
    payload: Hashable = None
    priority: int = 0
    scheduled_at: int | None = None
    delay: int | None = None
    max_attempts: int = 3
    timeout: int | None = None
    unique_key: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The id of the reply, whether it was stored now or was there already. seq: as observed; None: the next one."""

    id: str
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """T-1. Result: an Enqueued for each job in the order given, or one DuplicateKey. keep: on_duplicate = keep."""

    jobs: tuple[New, ...]
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Dequeue:
    """T-2. Result: a tuple in order of Claims, or of Jobs (running, fence shown) which are judged in every column."""

    worker: str
    lease: int
    types: frozenset[str] | None = None
    n: int = 1


@dataclass(frozen=True, slots=True)
class Settled:
    """The status that the holder's operation replied. scheduled_at is what was observed when the job is failed; it may
    be None where the clause leaves one value only (a given delay, a jitter of nothing, and always when pending)."""

    status: str
    scheduled_at: int | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """T-3. Result: Settled('completed') or LeaseLost. (A result that cannot be stored: a Fail for good, section 8.)"""

    claim: Claim
    result: Hashable = None


@dataclass(frozen=True, slots=True)
class Fail:
    """T-4, T-5. Result: Settled('failed', when) or Settled('dead') or LeaseLost."""

    claim: Claim
    error: str
    delay: int | None = None
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """T-6. Result: Settled('pending') or, when interrupted, Settled('dead'), or LeaseLost."""

    claim: Claim
    begun: bool = False
    delay: int | None = None


@dataclass(frozen=True, slots=True)
class Extended:
    lease_expires_at: int


@dataclass(frozen=True, slots=True)
class Extend:
    """T-7. Result: Extended or LeaseLost."""

    claim: Claim
    lease: int


Settlement = Complete | Fail | Release
HolderCall = Settlement | Extend
HolderReply = Settled | Extended | LeaseLost


@dataclass(frozen=True, slots=True)
class Many:
    """One transaction of a holder's operations under one now. Result: a reply for each, in order."""

    items: tuple[HolderCall, ...]


@dataclass(frozen=True, slots=True)
class Exchanged:
    settled: tuple[HolderReply, ...]
    claimed: tuple[Claim | Job, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Settlements, then dequeue, under one now. Result: Exchanged. (Two nows: judge it as a Many and a Dequeue.)"""

    settlements: tuple[Settlement, ...]
    dequeue: Dequeue


@dataclass(frozen=True, slots=True)
class Look:
    """What a look saw of a running job whose lease is expired."""

    id: str
    fence: int
    lease_expires_at: int


@dataclass(frozen=True, slots=True)
class Expired:
    """The look. Result: a frozenset of Looks."""


@dataclass(frozen=True, slots=True)
class Swept:
    """A job that was swept: its new status and, when failed, the scheduled_at observed (as in Settled)."""

    id: str
    status: str
    scheduled_at: int | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """T-8 for each job looked at; None: look and sweep at once. Result: a frozenset of Swept, of those swept only."""

    looked: frozenset[Look] | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """T-9. Result: bool."""

    id: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """T-10. Result: bool or DuplicateKey."""

    id: str


@dataclass(frozen=True, slots=True)
class Where:
    """The jobs that a bulk form, list or counts is about: all that is given must match; None matches everything."""

    ids: frozenset[str] | None = None
    statuses: frozenset[str] | None = None
    type: str | None = None
    unique_key: str | None = None


@dataclass(frozen=True, slots=True)
class Bulk:
    """How often it really happened. ids: to which jobs; needed only where two dead jobs compete for one unique key."""

    count: int
    ids: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class CancelWhere:
    """T-9 job by job. Result: Bulk."""

    where: Where


@dataclass(frozen=True, slots=True)
class RequeueWhere:
    """T-10 job by job. Result: Bulk."""

    where: Where


@dataclass(frozen=True, slots=True)
class Cleanup:
    """T-11 until none is left. Result: int, the number deleted."""

    retention: int
    statuses: frozenset[str] = frozenset({"completed", "dead"})


@dataclass(frozen=True, slots=True)
class Get:
    """Result: the Job with its fence HIDDEN, or None."""

    id: str


@dataclass(frozen=True, slots=True)
class List:
    """Result: a tuple of Jobs with their fences HIDDEN, in any order; not more than the limit."""

    where: Where = Where()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Result: a frozenset of (status, number); a status that no job has may be missing or 0."""

    where: Where = Where()


@dataclass(frozen=True, slots=True)
class Table:
    """No operation: the test read the table itself. Result: a frozenset of Jobs, which must be the state's (G-22)."""


Call = (
    Enqueue | Dequeue | HolderCall | Many | Exchange | Expired | Sweep | Cancel | Requeue | CancelWhere | RequeueWhere
    | Cleanup | Get | List | Counts | Table
)  # fmt: skip
