"""Handlers on threads: slots that each run one handler at a time, from one line (spec W-4 to W-7).

A slot asks its *seat* to run a handler: in this thread, on an event loop (coroutines.py) or in a child process
(processes.py). A handler that a seat cannot stop keeps its thread, which then is no slot any more: another takes over.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Protocol

from jobqueue.clock import Clock
from jobqueue.events import TIMEOUT, End, Outcome
from jobqueue.handlers import Handlers, attempt
from jobqueue.types import Job, Release, Settlement

log = logging.getLogger("jobqueue.worker")
REPORT_EVERY = 0.02  # Seconds: handlers in a row report at least this often.


class Seat(Protocol):
    """Where one slot's handlers run, one at a time."""

    def ready(self) -> bool:
        """Whether a handler can run here now. Asked before a job is taken from the line."""

    def prepare(self) -> None:
        """Become ready; may take a while."""

    def run(self, job: Job) -> Settlement | End:
        """Run the job's handler to its end. Raises nothing. Called by the slot's own thread."""

    def interrupt(self, job: Job) -> bool:
        """Stop the handler of ``job`` if it runs here, so that ``run`` returns soon; False if that is not possible."""

    def close(self) -> None:
        """Release what the seat holds. Called by the slot's own thread, when it ends."""


class ThreadSeat:
    """Runs plain handlers in the slot's thread. Nothing can stop them there (N-3)."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def ready(self) -> bool:
        return True

    def prepare(self) -> None:
        return

    def run(self, job: Job) -> Settlement | End:
        return attempt(self._handlers.handler(job.type), job)

    def interrupt(self, job: Job) -> bool:
        return False

    def close(self) -> None:
        return


class _Slot:
    """One thread and what it runs."""

    __slots__ = ("abandoned", "job", "seat", "since", "thread")

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.job: Job | None = None
        self.since = 0.0
        self.abandoned = False
        self.thread: threading.Thread | None = None


class Crew:
    """Up to ``size`` slots, and the line from which they take claims in order.

    ``ring`` is called when there is something to report; ``dry`` by a slot that finds the line empty, and may fill it;
    ``expect`` with the instant at which a handler that has begun will be overdue; ``broken`` when a slot cannot go on.
    """

    def __init__(
        self,
        name: str,
        size: int,
        seat: Callable[[], Seat],
        clock: Clock,
        *,
        ring: Callable[[], None],
        dry: Callable[[], None],
        expect: Callable[[float], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        self._name, self._size, self._seat, self._clock = name, size, seat, clock
        self._ring, self._dry, self._expect, self._broken = ring, dry, expect, broken
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._line: deque[tuple[Job, float]] = deque()
        self._ended: deque[Outcome] = deque()
        self._slots: list[_Slot] = []
        self._idle = 0  # Slots that wait for work.
        self._looking = 0  # Slots that found the line empty, and will look again.
        self._left = 0  # Threads whose handlers did not end when their slots were asked back.
        self._rung = 0.0
        self._closed = False

    # Called by the shell

    def open(self) -> None:
        """Start every slot now, where readiness takes time; otherwise they start when there is work for them."""
        with self._lock:
            while len(self._slots) < self._size:
                self._hire()

    def start(self, jobs: Sequence[Job], until: float) -> None:
        """Put claims in line; one that has not begun at ``until`` never will (its lease may be over)."""
        with self._lock:
            if self._closed:
                return
            self._line.extend(zip(jobs, repeat(until)))
            unserved = len(self._line) - self._looking
            wanted = unserved - self._idle
            while wanted > 0 and len(self._slots) < self._size:
                self._hire()
                wanted -= 1
            if self._idle and unserved > 0:
                self._work.notify(unserved)

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        """Take claims out of the line; those that were still in it. They have not begun, and never will."""
        wanted = set(jobs)
        with self._lock:
            kept = [entry for entry in self._line if entry[0] not in wanted]
            gone = [job for job, _ in self._line if job in wanted]
            self._line.clear()
            self._line.extend(kept)
        return gone

    def running(self) -> list[tuple[Job, float]]:
        """The claims whose handlers run, and since when."""
        with self._lock:
            return [(slot.job, slot.since) for slot in self._slots if slot.job is not None]

    def ended(self) -> list[Outcome]:
        """What has ended since the last call, in order."""
        ended, taken = self._ended, []
        while ended:
            taken.append(ended.popleft())
        return taken

    def tell(self, job: Job, reason: str) -> None:
        """Let the handler know that its outcome does not count, and stop it if its seat can."""
        with self._lock:
            job.lost = reason
            slot = self._slot_of(job)
        if slot is not None:
            slot.seat.interrupt(job)

    def abandon(self, job: Job, reason: str) -> None:
        """Free the slot of ``job``, whatever its handler does; an outcome will follow, unless it has come already."""
        with self._lock:
            slot = self._slot_of(job)
            if slot is None:
                return  # It has just ended: its real outcome is on its way.
            job.lost = reason
        if slot.seat.interrupt(job):
            return
        with self._lock:
            if slot.job is not job:
                return
            slot.abandoned, slot.job = True, None
            self._slots.remove(slot)
            self._left += 1
            self._ended.append(Outcome(job, End.STOPPED, self._clock.monotonic() - slot.since))
            if self._line and not self._closed:
                self._hire()
            left = self._left
        if reason == TIMEOUT:
            log.warning("%d handler thread(s) run on after their timeout; they cannot be stopped", left)
        self._ring()

    def close(self, patience: float) -> None:
        """End: nothing more is begun. Waits up to ``patience`` seconds for idle slots to end."""
        with self._lock:
            self._closed = True
            self._line.clear()
            slots = list(self._slots)
            self._work.notify_all()
        until = self._clock.monotonic() + patience
        for slot in slots:
            if slot.thread is not None and slot.thread is not threading.current_thread():
                slot.thread.join(max(0.0, until - self._clock.monotonic()))

    def _slot_of(self, job: Job) -> _Slot | None:
        return next((slot for slot in self._slots if slot.job is job), None)

    def _hire(self) -> None:
        slot = _Slot(self._seat())
        self._slots.append(slot)
        slot.thread = threading.Thread(target=self._serve, args=(slot,), name=f"{self._name} slot", daemon=True)
        try:
            slot.thread.start()
        except RuntimeError as error:  # The system gives no more threads; go on with those that there are.
            self._slots.remove(slot)
            if not self._slots:
                raise
            log.warning("only %d of %d handler threads could be started: %s", len(self._slots), self._size, error)
            self._size = len(self._slots)

    # On a slot's thread

    def _serve(self, slot: _Slot) -> None:
        monotonic, seat, ended = self._clock.monotonic, slot.seat, self._ended
        try:
            while True:
                if not seat.ready():
                    self._ring()  # What has just ended here does not wait for that.
                    seat.prepare()
                entry = self._take(slot)
                if entry is None:
                    return
                job, until = entry
                what: Settlement | End
                if job.lost is not None:
                    what = End.SKIPPED
                elif slot.since >= until:
                    what = Release(job, begun=False)
                else:
                    if job.timeout_us is not None:
                        self._expect(slot.since + job.timeout_us / 1_000_000)
                    what = seat.run(job)
                ended.append(Outcome(job, what, monotonic() - slot.since))
        except BaseException as error:  # Handlers raise nothing through their seats: this is ours, or the system's.
            self._broken(error)
        finally:
            self._leave(slot)

    def _take(self, slot: _Slot) -> tuple[Job, float] | None:
        """The next claim in line, for which this waits; None when this slot is to end."""
        looked = False
        while True:
            with self._lock:
                slot.job = None
                if looked:
                    self._looking -= 1
                    self._await_work(slot)
                if slot.abandoned or self._closed:
                    return None
                if self._line:
                    entry = self._line.popleft()
                    slot.job, slot.since = entry[0], self._clock.monotonic()
                    due = slot.since - self._rung > REPORT_EVERY
                    if due:
                        self._rung = slot.since
                    break
                looked = True
                self._looking += 1
            self._dry()  # What has ended can be settled, and more be claimed.
        if due:
            self._ring()
        return entry

    def _await_work(self, slot: _Slot) -> None:
        self._idle += 1
        while not self._line and not self._closed and not slot.abandoned:
            self._work.wait()
        self._idle -= 1

    def _leave(self, slot: _Slot) -> None:
        with self._lock:
            if slot in self._slots:
                self._slots.remove(slot)
            elif slot.abandoned:
                self._left -= 1
        slot.seat.close()
        if slot.abandoned:
            log.info("a handler thread that was given up has ended")
            self._ring()
