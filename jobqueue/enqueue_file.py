"""Enqueue a file of jobs: all of it is checked before the first is stored, then stored in batches with progress."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import IO, Any

from jobqueue.cli_show import progress
from jobqueue.cli_values import jobs_in
from jobqueue.errors import InvalidArgument, JobQueueError
from jobqueue.queue import Queue

BATCH = 500  # Jobs in one transaction: large enough for speed, short enough for others that want to write.


def enqueue_file(queue: Queue, source: str, *, keep: bool) -> int:
    """Store the jobs of the JSON-lines file ``source`` (``-``: stdin); how many. ``keep`` passes over taken keys.

    A line that is not a job refuses the file with nothing stored. What can still stop it half-way – a taken key, a
    lost database – is raised with the number of the last line that is stored.
    """
    name = "stdin" if source == "-" else source
    with _twice_readable(source) as file, progress() as shown:
        task = shown.add_task("checking", total=None)
        total = 0
        for total, _ in enumerate(jobs_in(file, name, queue.clock), 1):
            shown.update(task, completed=total)
        file.seek(0)
        shown.update(task, description="enqueueing", completed=0, total=total)
        jobs = jobs_in(file, name, queue.clock)
        stored = last = 0
        while batch := list(islice(jobs, BATCH)):
            _store(queue, [job for _, job in batch], keep, name, last)
            stored, last = stored + len(batch), batch[-1][0]
            shown.update(task, completed=stored)
    return stored


def _store(queue: Queue, batch: list[dict[str, Any]], keep: bool, name: str, last: int) -> None:
    try:
        queue.enqueue_many(batch, on_duplicate="keep" if keep else "raise")
    except JobQueueError as error:
        raise JobQueueError(f"{error}; {_so_far(name, last)}") from error
    except KeyboardInterrupt:
        raise JobQueueError(f"interrupted; {_so_far(name, last)}, perhaps the next {BATCH}") from None


def _so_far(name: str, last: int) -> str:
    return f"{name} is stored up to line {last}" if last else f"nothing of {name} is stored"


@contextmanager
def _twice_readable(source: str) -> Iterator[IO[bytes]]:
    """The file; a copy of it where it is a pipe: both the check and the storing read it."""
    with ExitStack() as closing:
        try:
            file = sys.stdin.buffer if source == "-" else closing.enter_context(open(source, "rb"))
        except OSError as error:
            raise InvalidArgument(f"--from {source}: {error.strerror}") from None
        if source == "-" or not file.seekable():
            copy = closing.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, copy)
            copy.seek(0)
            file = copy
        yield file
