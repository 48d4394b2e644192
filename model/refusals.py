"""What is refused at the call, before anything is stored: section 8, and the 'is refused' of section 5.

The JSON of payload and result is not judged: those values are opaque here.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from model.calls import (
    Call,
    Cleanup,
    Dequeue,
    Enqueue,
    Exchange,
    Extend,
    Fail,
    Many,
    New,
    Release,
)
from model.state import TERMINAL

LONGEST = timedelta(days=3650) // timedelta(microseconds=1)
YEAR_3000 = (datetime(3000, 1, 1) - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def refused(call: Call) -> str | None:
    """Why the call must be refused, whatever the state; None if it must not be."""
    return next(reasons(call), None)


def reasons(call: Call) -> Iterator[str]:
    match call:
        case Enqueue(jobs):
            for new in jobs:
                yield from new_job(new)
        case Dequeue(_, lease, types, _):
            if types is not None and not types:
                yield "section 5: an empty set of types"
            yield from duration("lease", lease, 1)
        case Fail(_, _, delay, _) | Release(_, _, delay):
            yield from duration("delay", delay, 0)
        case Extend(_, lease):
            yield from duration("lease", lease, 1)
        case Many(items):
            for item in items:
                yield from reasons(item)
        case Exchange(settlements, dequeue):
            yield from reasons(Many(settlements))
            yield from reasons(dequeue)
        case Cleanup(retention, statuses):
            if retention < 0:
                yield "section 8: retention below 0"
            if not statuses <= TERMINAL:
                yield "section 5: cleanup of a status other than completed and dead"


def new_job(new: New) -> Iterator[str]:
    if new.scheduled_at is not None and new.delay is not None:
        yield "section 5: both scheduled_at and delay"
    if new.scheduled_at is not None and not 0 <= new.scheduled_at < YEAR_3000:
        yield "section 8: scheduled_at out of range"
    yield from duration("delay", new.delay, 0)
    yield from duration("timeout", new.timeout, 1)
    yield from text("type", new.type, 200)
    yield from text("unique_key", new.unique_key, 500)
    yield from whole("priority", new.priority, -(2**15), 2**15 - 1)
    yield from whole("max_attempts", new.max_attempts, 1, 2**31 - 1)


def duration(name: str, value: int | None, least: int) -> Iterator[str]:
    if value is not None and not least <= value <= LONGEST:
        yield f"section 8: {name} out of range"


def text(name: str, value: str | None, longest: int) -> Iterator[str]:
    if value is not None and not 1 <= len(value) <= longest:
        yield f"section 8: {name} too short or too long"
    if value is not None and any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value):
        yield f"section 8: {name} with a NUL or a lone surrogate"


def whole(name: str, value: int, least: int, most: int) -> Iterator[str]:
    if isinstance(value, bool) or not least <= value <= most:
        yield f"section 8: {name} is not a whole number in its range"
