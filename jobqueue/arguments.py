"""The arguments of a call, checked and put into the form that store takes.

Nothing is stored before all of them are good.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobqueue import values
from jobqueue.clock import Clock, new_id
from jobqueue.errors import InvalidArgument
from jobqueue.store import Filter, NewJob
from jobqueue.types import Job, Status
from jobqueue.values import Duration, Json

JOB_FIELDS = ("type", "payload", "priority", "scheduled_at", "delay", "max_attempts", "timeout", "unique_key")
FIELDS = frozenset(JOB_FIELDS)


def new_job(
    clock: Clock,
    *,
    type: str,
    payload: Json = None,
    priority: int = 0,
    scheduled_at: datetime | None = None,
    delay: Duration | None = None,
    max_attempts: int = 3,
    timeout: Duration | None = None,
    unique_key: str | None = None,
) -> NewJob:
    """A job to enqueue, with a new id."""
    if scheduled_at is not None and delay is not None:
        raise InvalidArgument("give scheduled_at or delay, not both")
    return NewJob(
        id=new_id(clock.now_us(), clock.entropy(10)),
        type=values.text(type, "type", values.TYPE_LIMIT),
        payload=values.json_text(payload, "payload"),
        priority=values.whole(priority, "priority", -32768, 32767),
        scheduled_at=None if scheduled_at is None else values.instant(scheduled_at, "scheduled_at"),
        delay=0 if delay is None else values.duration(delay, "delay", zero=True),
        max_attempts=values.whole(max_attempts, "max_attempts", 1, values.MAX_INT32),
        timeout=None if timeout is None else values.duration(timeout, "timeout"),
        unique_key=None if unique_key is None else values.text(unique_key, "unique_key", values.KEY_LIMIT),
    )


def job_fields(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """``item`` if it names arguments of enqueue only, the type among them."""
    if not item.keys() <= FIELDS or "type" not in item:
        unknown = sorted(set(item) - FIELDS)
        raise InvalidArgument(
            f"a job has a type and may have {', '.join(JOB_FIELDS[1:])}; not {', '.join(unknown) or 'no type'}"
        )
    return item


def require_duplicate(choice: object) -> None:
    """Refuse anything but the two answers to a taken unique key."""
    if choice not in ("raise", "keep"):
        raise InvalidArgument(f"on_duplicate is 'raise' or 'keep', not {choice!r}")


def require_claim(job: object) -> Job:
    """``job`` if it is what dequeue gives; an id or a view shows a job, and is no claim on it."""
    if isinstance(job, Job):
        return job
    raise InvalidArgument(f"a claim is the Job that dequeue returned, not {type(job).__name__}")


def status(value: object) -> Status:
    """One of the five statuses."""
    for known in Status:
        if known == value:
            return known
    raise InvalidArgument(f"unknown status {value!r}; one of {', '.join(Status)}")


def job_filter(wanted: Status | str | None, type: str | None, unique_key: str | None) -> Filter:
    """Which jobs a list or a bulk operation is about."""
    return Filter(
        None if wanted is None else status(wanted),
        None if type is None else values.text(type, "type", values.TYPE_LIMIT),
        None if unique_key is None else values.text(unique_key, "unique_key", values.KEY_LIMIT),
    )
