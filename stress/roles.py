"""The processes of a run. Each runs one role until it is told to end, is killed, or breaks.

Every role opens the queue anew, records every call (recording.py), and ends in good order at SIGTERM. A database that
is busy or away is waited for; anything else that goes wrong is written down and ends the process: it is a finding.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from ctypes import Array, c_int64
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from jobqueue import (
    Backoff,
    DatabaseUnavailable,
    Discard,
    DuplicateKey,
    Job,
    OutcomeUnknown,
    Retry,
    Snooze,
    Status,
    Worker,
)
from stress import faults
from stress.history import History
from stress.options import SECOND, Options
from stress.plan import block, fails
from stress.recording import RecordingQueue

# What the processes count, for the eyes of whoever watches; no verdict uses it.
ENQUEUED, CLAIMED, SETTLED, LOST, ERRORS, BLOCK = range(6)
COUNTERS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a process sits: its role and number stay the same when it is started again after a kill."""

    role: str
    number: int
    url: str
    name: str
    histories: Path
    options: Options


class Ended(Exception):
    """The process was asked to end."""


class Life:
    """One process in its seat: its queue, its chance, its counters."""

    def __init__(self, seat: Seat, life: int, counters: Array[c_int64]) -> None:
        self.seat, self.options, self.counters = seat, seat.options, counters
        self.random = Random(f"{seat.options.seed}/{seat.role}/{seat.number}/{life}")
        self.ending = threading.Event()
        jumps = seat.role == "worker" and seat.number == 0 and not seat.options.on_postgres
        self.jump = 3 * SECOND if jumps and not seat.options.long else 0
        header = {"role": seat.role, "seat": seat.number, "pid": os.getpid(), "jump": 2 * self.jump}
        self.history = History(seat.histories / f"{seat.role}{seat.number}.{life}.jsonl", header)

    def opened(self) -> RecordingQueue:
        """The queue, as soon as the database is there."""
        options = self.options
        backoff = Backoff(round(options.base * SECOND), round(options.cap * SECOND), options.jitter)
        queue: RecordingQueue = self.patiently(
            lambda: RecordingQueue.recorded(
                self.seat.url, self.history, name=self.seat.name, lease=options.lease, backoff=backoff
            )
        )
        if options.fault is not None:
            faults.seed(options.fault, queue)
        return queue

    def count(self, what: int, more: int = 1) -> None:
        self.counters[what] += more

    def patiently(self, call: Callable[[], Any]) -> Any:
        """What the call returns, tried again while the database is away. An unknown outcome is not tried again."""
        while True:
            try:
                return call()
            except OutcomeUnknown:
                self.count(ERRORS)
                return None
            except DatabaseUnavailable as error:
                self.count(ERRORS)
                if not error.transient:
                    raise
                self.rest(0.05)

    def rest(self, seconds: float) -> None:
        if self.ending.wait(seconds):
            raise Ended


def _end_with(parent: int) -> None:
    """Nobody is left behind, even if the run itself is killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(75)


def live(seat: Seat, life: int, counters: Array[c_int64]) -> None:
    """The whole life of a process."""
    os.setpgid(0, 0)  # Ctrl-C is for whoever judges; the judged end when they are told.
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    stderr = os.open(seat.histories.parent / "stderr.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(stderr, 2)  # Drivers complain of connections that the nemesis ends.
    logging.getLogger("jobqueue").setLevel(logging.CRITICAL)  # Failing is what many of these jobs are for.
    me = Life(seat, life, counters)
    signal.signal(signal.SIGTERM, lambda *_: me.ending.set())
    code = 0
    try:
        queue = me.opened()
        ROLES[seat.role](me, queue)
        me.history.note("q")
    except Ended:
        me.history.note("q")
    except BaseException as error:
        me.history.note("e", "".join(traceback.format_exception(error))[-3000:])
        code = 70
    sys.stdout.flush()
    os._exit(code)  # Threads that still run a slow handler are left behind, as at the end of any worker.


def produce(me: Life, queue: RecordingQueue) -> None:
    options = me.options
    share = None if options.jobs is None else -(-options.jobs // options.producers)
    while share is None or me.counters[ENQUEUED] < share:
        number = me.counters[BLOCK]
        me.counters[BLOCK] = number + 1  # Before the call: a block is never enqueued twice, whatever kills us.
        jobs = block(options, me.seat.number, number)
        keyed = [job for job in jobs if "unique_key" in job]
        plain = [job for job in jobs if "unique_key" not in job]
        if not options.long:
            keyed += plain[: len(plain) // 2]
            del plain[: len(plain) // 2]
        me.count(ENQUEUED, len(me.patiently(partial(queue.enqueue_many, plain)) or ()))
        for job in keyed:
            me.count(ENQUEUED, me.patiently(partial(_enqueue_keyed, queue, job, me.random)) or 0)
        _keep_pace(me, queue)


def _enqueue_keyed(queue: RecordingQueue, job: dict[str, Any], random: Random) -> int:
    """How many jobs this stored: none where the key is taken. (With 'keep' that is not told, and counted as one.)"""
    try:
        queue.enqueue(**job, on_duplicate=random.choice(("raise", "raise", "keep")))
    except DuplicateKey:
        return 0
    return 1


def _keep_pace(me: Life, queue: RecordingQueue) -> None:
    while True:
        counts = me.patiently(queue.counts)
        if counts[Status.PENDING] + counts[Status.FAILED] < me.options.backlog:
            return me.rest(0)
        me.rest(0.5 if me.options.long else 0.02)  # Counting many jobs takes a while.


def work(me: Life, queue: RecordingQueue) -> None:
    """The real Worker. Its handlers say when they begin, and return the fence they were given."""
    options = me.options

    def handle(job: Job) -> int:
        me.history.begun(job.id, job.fence)
        me.count(CLAIMED)
        return _done(me, job)

    types = [f"type{number}" for number in range(options.types)]
    if me.seat.number % 2:  # Some workers do not want everything.
        types = me.random.sample(types, max(1, options.types - 1))
    worker = Worker(
        queue, handle, concurrency=4, poll_interval=0.5, grace=options.lease / 2, types=types,
        heartbeat=options.heartbeat, batch=100 if options.long else 6,
    )  # fmt: skip
    if me.jump:
        threading.Thread(target=_jump, args=(me, queue), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: worker.stop(wait=False))
    worker.run()


def _done(me: Life, job: Job) -> int:
    tag, deed, duration = str(job.payload).split()
    seconds = int(duration) / 1000
    match deed:
        case "discard":
            raise Discard(f"fence {job.fence}: discarded")
        case "poison":
            raise ValueError(f"fence {job.fence}: poison")
        case "snooze" if job.fence < 3:
            raise Snooze(seconds / 3)
        case "retry" if job.fence < 3:
            raise Retry(seconds / 3, f"fence {job.fence}: again later")
    if seconds and (deed == "ok" or job.fence < 4):
        time.sleep(seconds)
    if fails(me.options, tag, job.fence):
        raise ValueError(f"fence {job.fence}: failed")
    me.count(SETTLED)
    return job.fence


def _jump(me: Life, queue: RecordingQueue) -> None:
    """A clock that is wrong, and changes its mind."""
    while not me.ending.wait(me.random.uniform(1.0, 4.0)):
        queue.recording_clock.offset = me.random.choice((0, me.random.randint(-me.jump, me.jump)))


def sweep(me: Life, queue: RecordingQueue) -> None:
    """Two looks, more than a heartbeat apart (W-3)."""
    seen: set[Any] = set()
    while True:
        found = me.patiently(queue.expired) or []
        twice = [look for look in found if look in seen]
        if twice:
            me.patiently(partial(queue.sweep, twice))
        seen = set(found)
        me.rest(me.options.heartbeat * 1.3)


def meddle(me: Life, queue: RecordingQueue) -> None:
    """Cancels and requeues jobs that it comes across, the recent ones above all."""
    while True:
        status = me.random.choice(("pending", "running", "failed", "dead", "dead", "completed"))
        after = me.random.choice((-1, _head(me, queue) - me.random.randrange(1, 300)))
        views = me.patiently(partial(queue.list, status=status, after=max(after, -1), limit=20))
        for view in me.random.sample(views, min(2, len(views))):
            call = queue.cancel if me.random.random() < 0.4 else queue.requeue
            me.patiently(partial(_meddled, call, view.id))
        me.rest(0.05 if not me.options.long else 0.5)


def _meddled(call: Callable[[str], bool], id: str) -> bool:
    try:
        return call(id)
    except DuplicateKey:
        return False


def _head(me: Life, queue: RecordingQueue) -> int:
    """The seq of the oldest job that waits: what happens now happens near it."""
    views = me.patiently(lambda: queue.list(status="pending", limit=1))
    return int(views[-1].seq) if views else 0


def clean(me: Life, queue: RecordingQueue) -> None:
    while True:
        statuses = me.random.choice((("completed",), ("dead",), ("completed", "dead")))
        retention = me.options.retention
        me.patiently(partial(queue.cleanup, retention, statuses=statuses))
        me.rest(1.0)


def hold(me: Life, queue: RecordingQueue) -> None:
    from stress.holder import Holder

    Holder(me, queue).run()


ROLES: dict[str, Callable[[Life, RecordingQueue], None]] = {
    "producer": produce, "worker": work, "bare": hold, "sweeper": sweep, "canceller": meddle, "cleaner": clean,
}  # fmt: skip
