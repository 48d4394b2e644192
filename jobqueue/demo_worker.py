"""The demo's worker process: hashes the file that a job names. It stays small, because every worker imports it."""

from __future__ import annotations

import hashlib
import logging
import os
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from jobqueue.backoff import Backoff
from jobqueue.clock import SystemClock
from jobqueue.handlers import Handlers
from jobqueue.queue import Queue
from jobqueue.types import Job
from jobqueue.worker import Worker

HASH = "hash_file"
LEASE = 2.0  # Seconds: short, so that the demo need not wait long for a dead worker's jobs.
BACKOFF = Backoff(base_us=200_000)
HANDLERS_AT_A_TIME = 4
LONGEST_HOLD = 30.0  # Seconds: nobody came to kill this worker, so it goes on.


def payload_for(path: str, *, hold: bool) -> dict[str, Any]:
    """A job's payload. File names are bytes, and not always text, so the path is percent-encoded."""
    return {"path": quote_from_bytes(os.fsencode(path)), "hold": hold}


def path_in(payload: dict[str, Any]) -> str:
    """The path that ``payload_for`` was given."""
    return os.fsdecode(unquote_to_bytes(payload["path"]))


def hash_file(job: Job) -> dict[str, Any]:
    """The SHA-256 of a file, or why it could not be read: a file that has gone is an answer, not a failed attempt."""
    try:
        with open(path_in(job.payload), "rb") as file:
            return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": file.tell()}
    except OSError as error:
        return {"unreadable": error.strerror}


def run(url: str, name: str, said: Connection) -> None:
    """Work until stopped. Once it is in the middle of the held job, it says its name in the database over ``said``."""
    logging.getLogger("jobqueue").setLevel(logging.CRITICAL)  # The demo itself tells of the lost lease and the sweep.
    handlers = Handlers()

    @handlers.register(HASH)
    def hold_or_hash(job: Job) -> dict[str, Any]:
        if job.payload["hold"] and job.attempts == 1:
            said.send(job.worker)
            _wait_to_be_killed(job)
        return hash_file(job)

    with Queue.open(url, name=name, lease=LEASE, backoff=BACKOFF) as queue:
        Worker(queue, handlers, concurrency=HANDLERS_AT_A_TIME).run()


def _wait_to_be_killed(job: Job) -> None:
    clock = SystemClock()
    end = clock.monotonic() + LONGEST_HOLD
    while clock.monotonic() < end and not job.lost:
        clock.sleep(0.05)
