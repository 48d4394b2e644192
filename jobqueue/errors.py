"""Every error of the library: one small tree. Expected outcomes are values or the first three.

The rest says what to do.
"""

from __future__ import annotations


class JobQueueError(Exception):
    """Root of all errors that jobqueue raises."""


class InvalidArgument(JobQueueError, ValueError):
    """A value that cannot be accepted (spec §8). Nothing was stored."""


class WrongUse(JobQueueError, RuntimeError):
    """A call that the handle or connection does not allow: closed, used after fork, or inside ``completing``."""


class LeaseLost(JobQueueError):
    """The caller no longer holds this claim (spec G-3). The job is unchanged; write nothing more for it."""


class DuplicateKey(JobQueueError):
    """Another job that is pending, running or failed holds the unique key (spec G-21).

    ``holder`` is that job's id, or None where it could not be told; ``key`` is the key; ``twice`` tells that the other
    job is one of the same call, so that nothing was stored of either.
    """

    def __init__(self, key: str, holder: str | None, twice: bool = False) -> None:
        held = f"held by job {holder or '(already gone; try again)'}"
        super().__init__(f"unique_key {key!r} is {'given to two jobs of this call' if twice else held}")
        self.key = key
        self.holder = holder
        self.twice = twice

    def __reduce__(self) -> tuple[type[DuplicateKey], tuple[str, str | None, bool]]:
        return DuplicateKey, (self.key, self.holder, self.twice)


class DatabaseUnavailable(JobQueueError):
    """The database cannot be used: busy, full, read-only, moved, away, or on a file system where WAL cannot work.

    ``transient`` tells whether waiting can help. Nothing was stored by the call that raised this.
    """

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient

    def __reduce__(self) -> tuple[object, ...]:
        return _unavailable, (str(self), self.transient)


def _unavailable(message: str, transient: bool) -> DatabaseUnavailable:
    return DatabaseUnavailable(message, transient=transient)


class SchemaMismatch(JobQueueError):
    """The queue's table was made by a newer jobqueue, or is none of a queue, or ``create=False`` found no queue."""


class OutcomeUnknown(JobQueueError):
    """The connection was lost at commit and the database did not tell afterwards what happened (spec §5)."""
