"""Transitions of one job (spec §3, T-1…T-10). Pure: no clock, no I/O, no chance of its own.

``TABLE`` is the whole state machine; nothing else in the library knows an edge. The functions below decide which event
a call is for the job at hand, and what is written. SQL re-tests the from-status and the holder in the statement that
writes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, assert_never

from jobqueue.backoff import Backoff
from jobqueue.errors import InvalidArgument
from jobqueue.types import Complete, Fail, JsonText, Release, Settlement, Status
from jobqueue.values import error_text, json_text

LEASE_EXPIRED = "lease expired"
CANCELLED = "cancelled"
INTERRUPTED = "interrupted"


class Event(StrEnum):
    """What can happen to a job. fail and sweep are split by what the limit says, so that TABLE has no conditions."""

    DEQUEUE = "dequeue"
    COMPLETE = "complete"
    RETRY = "retry"
    BURY = "bury"
    RELEASE = "release"
    EXTEND = "extend"
    CANCEL = "cancel"
    REQUEUE = "requeue"


TABLE: dict[tuple[Status, Event], Status] = {
    (Status.PENDING, Event.DEQUEUE): Status.RUNNING,  # T-2
    (Status.FAILED, Event.DEQUEUE): Status.RUNNING,  # T-2
    (Status.RUNNING, Event.COMPLETE): Status.COMPLETED,  # T-3
    (Status.RUNNING, Event.RETRY): Status.FAILED,  # T-4, T-8
    (Status.RUNNING, Event.BURY): Status.DEAD,  # T-5, T-8
    (Status.RUNNING, Event.RELEASE): Status.PENDING,  # T-6
    (Status.RUNNING, Event.EXTEND): Status.RUNNING,  # T-7
    (Status.PENDING, Event.CANCEL): Status.DEAD,  # T-9
    (Status.FAILED, Event.CANCEL): Status.DEAD,  # T-9
    (Status.RUNNING, Event.CANCEL): Status.DEAD,  # T-9
    (Status.DEAD, Event.REQUEUE): Status.PENDING,  # T-10
    (Status.FAILED, Event.REQUEUE): Status.PENDING,  # T-10
}


class Decision(NamedTuple):
    """What is written: the event, which names its statement, and the values that are not the claim's own.

    ``result`` belongs to T-3, ``error`` to T-4 and T-5; ``delay_us`` is how long after the now of the write a job is
    claimable again (T-4, T-6; None with T-6 leaves scheduled_at as it is).
    """

    event: Event
    result: str | None = None
    error: str | None = None
    delay_us: int | None = None


DONE = Decision(Event.COMPLETE)


def decide(settlement: Settlement, backoff: Backoff, draw: float) -> Decision:
    """What a holder's settlement writes, decided from what dequeue gave it: no look at the row is needed (the law)."""
    match settlement:
        case Complete():
            return complete(settlement)
        case Fail(job, error, delay_us, for_good):
            # Cleaned here too, for whoever made the settlement: recording a failure cannot fail (spec §8).
            text = error_text(error)
            return fail(job.attempts, job.max_attempts, text, backoff, draw, delay_us=delay_us, for_good=for_good)
        case Release(job, begun, delay_us):
            # T-6, the exception: a job that may be begun only once is not given back after it was (G-20).
            once = begun and job.max_attempts == 1
            return _burial(INTERRUPTED) if once else Decision(Event.RELEASE, delay_us=delay_us)
        case _:
            assert_never(settlement)


def complete(settlement: Complete) -> Decision:
    """T-3; a result that cannot be stored is T-5, for finished work is not run again (spec §8)."""
    if settlement.result is None:
        return DONE
    if isinstance(settlement.result, JsonText):
        return Decision(Event.COMPLETE, result=str(settlement.result))
    try:
        return Decision(Event.COMPLETE, result=json_text(settlement.result, "result"))
    except InvalidArgument as refused:
        return _burial(error_text(f"completed, but its result cannot be stored: {refused}"))


def fail(
    attempts: int,
    max_attempts: int,
    error: str,
    backoff: Backoff,
    draw: float,
    *,
    delay_us: int | None = None,
    for_good: bool = False,
) -> Decision:
    """T-4 or T-5: a retry while attempts remain, else dead (G-7)."""
    if for_good or attempts >= max_attempts:
        return _burial(error)
    again_us = backoff.delay(attempts, draw) if delay_us is None else delay_us
    return Decision(Event.RETRY, error=error, delay_us=again_us)


def _burial(error: str) -> Decision:
    return Decision(Event.BURY, error=error)


def sweep(attempts: int, max_attempts: int, backoff: Backoff, draw: float) -> Decision:
    """T-8: a lost attempt is a failed one."""
    return fail(attempts, max_attempts, LEASE_EXPIRED, backoff, draw)


def requeued_at(attempts: int, scheduled_at_us: int, created_at_us: int) -> int:
    """T-10: a job that was never claimed keeps its schedule; any other its place in line, ahead of later jobs."""
    return scheduled_at_us if attempts == 0 else created_at_us


def sources(event: Event) -> frozenset[Status]:
    """The statuses from which ``event`` is allowed."""
    return frozenset(status for status, on in TABLE if on is event)
