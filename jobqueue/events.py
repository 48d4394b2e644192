"""What a worker's core is told, and what it asks for: events in, effects out. Times are seconds, monotonic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from jobqueue.types import Expired, Extended, Job, Lost, Reply, Settlement

LOST, TIMEOUT, INTERRUPTED = "lease lost", "timeout", "interrupted"


class End(Enum):
    """Ways for a handler's turn to end that leave the shell nothing to settle."""

    SETTLED = "completed inside the handler, with its own writes"
    SKIPPED = "told before it began that its lease is lost"
    STOPPED = "given up on request: killed and reaped, cancelled, or left to itself"


@dataclass(slots=True)
class Outcome:
    """How one claim's turn ended, and how many seconds its handler took."""

    job: Job
    what: Settlement | End
    seconds: float


# Events: what happened, and when. Each of them is also a tick.


@dataclass(frozen=True, slots=True)
class Tick:
    """The time has come that a Sleep or Rest named, or anything else worth a thought."""

    at: float


@dataclass(frozen=True, slots=True)
class Progress:
    """What the handlers do: what runs, since when (looked at first), and what has ended since the last report."""

    at: float
    running: Sequence[tuple[Job, float]]
    outcomes: Sequence[Outcome]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The exchange was answered: a reply for each settlement, in order, and the new claims."""

    at: float
    replies: Sequence[Reply]
    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class ExchangeFailed:
    """The database was busy or away; nobody knows of claims that this exchange may have made."""

    at: float


@dataclass(frozen=True, slots=True)
class DueKnown:
    """The next wanted job is due in so many seconds; None: there is none."""

    at: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class DueUnknown:
    """The database was busy or away, and did not tell when the next wanted job is due."""

    at: float


@dataclass(frozen=True, slots=True)
class Changed:
    """The database has changed since the last poll began."""

    at: float


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Of the claims to be withdrawn these have not begun, and never will; the others have."""

    at: float
    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class Renewed:
    """The renewal was answered, claim by claim, in the order of the Renew."""

    at: float
    replies: Sequence[Extended | Lost]


@dataclass(frozen=True, slots=True)
class RenewFailed:
    at: float


@dataclass(frozen=True, slots=True)
class Looked:
    """The look was answered."""

    at: float
    found: Sequence[Expired]


@dataclass(frozen=True, slots=True)
class LookFailed:
    at: float


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The cleanup has ended, one way or the other."""

    at: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A first stop: end with grace. A second: at once (W-7)."""

    at: float


@dataclass(frozen=True, slots=True)
class Broken:
    """The database cannot be used any more, and waiting does not help."""

    at: float


Event: TypeAlias = (
    Tick
    | Progress
    | Exchanged
    | ExchangeFailed
    | DueKnown
    | DueUnknown
    | Changed
    | Withdrawn
    | Renewed
    | RenewFailed
    | Looked
    | LookFailed
    | Cleaned
    | StopAsked
    | Broken
)


# Effects: what to do now.


@dataclass(frozen=True, slots=True)
class Exchange:
    """Settle these, in order, and claim up to ``n``, in one transaction; answer by Exchanged or ExchangeFailed."""

    settlements: tuple[Settlement, ...]
    n: int


@dataclass(frozen=True, slots=True)
class AskDue:
    """Ask when the next wanted job is due; answer by DueKnown or DueUnknown."""


@dataclass(frozen=True, slots=True)
class Rest:
    """No exchange until then. Report a change of the database before, if ``listen``, and Progress, always."""

    until: float
    listen: bool


@dataclass(frozen=True, slots=True)
class Start:
    """Run the handlers of these claims, in this order; one that has not begun at ``until`` is released unbegun."""

    jobs: tuple[Job, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take those of these that have not begun out of the line; answer by Withdrawn."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Let the handler know why its outcome no longer counts, and stop it where a handler can be stopped."""

    job: Job
    reason: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """Tell the handler, stop it if that is possible, and free its slot. An Outcome answers: STOPPED, or a real one."""

    job: Job
    reason: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend the leases of these; answer by Renewed or RenewFailed."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """Look for expired leases; answer by Looked or LookFailed."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sweep these: two looks have found them the same. No answer is needed."""

    looked: tuple[Expired, ...]


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Delete what has ended longer ago than the retention; answer by Cleaned."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """For the log: these settlements were answered."""

    settlements: tuple[Settlement, ...]
    replies: Sequence[Reply]


@dataclass(frozen=True, slots=True)
class Dropped:
    """For the log: this outcome does not count."""

    job: Job
    why: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Send a Tick then, if nothing has happened before."""

    until: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The worker has ended; ``unsettled`` claims are left to the sweep."""

    unsettled: int


Effect: TypeAlias = (
    Exchange
    | AskDue
    | Rest
    | Start
    | Withdraw
    | Tell
    | Abandon
    | Renew
    | Look
    | Sweep
    | Cleanup
    | Recorded
    | Dropped
    | Sleep
    | Finish
)
