"""The table at the end of a run, read through the library: a line for each job, in the columns of the model."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from jobqueue import JobView, Queue
from jobqueue.values import EPOCH, MICROSECOND
from stress.history import mono

PAGE = 1000


def write(queue: Queue, path: Path) -> None:
    """The first line tells when the look began and ended, on the monotonic clock."""
    began, after = mono(), -1
    with path.open("w", encoding="utf-8") as file:
        while page := queue.list(after=after, limit=PAGE, payloads=True):
            file.writelines(json.dumps(_row(view), ensure_ascii=False) + "\n" for view in page)
            after = page[-1].seq
        file.write(json.dumps([began, mono()]) + "\n")


def _row(view: JobView) -> dict[str, Any]:
    timeout = None if view.timeout is None else view.timeout // MICROSECOND
    return {
        "seq": view.seq, "id": view.id, "type": view.type, "payload": view.payload, "status": str(view.status),
        "priority": view.priority, "attempts": view.attempts, "max_attempts": view.max_attempts,
        "scheduled_at": _us(view.scheduled_at), "created_at": _us(view.created_at), "started_at": _us(view.started_at),
        "completed_at": _us(view.completed_at), "lease_expires_at": _us(view.lease_expires_at), "worker": view.worker,
        "timeout": timeout, "unique_key": view.unique_key, "error": view.error,
        "result": None if view.result is None else json.dumps(view.result),
    }  # fmt: skip


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // MICROSECOND
