"""One run of a worker: threads that perform what the core decides (spec §9).

- The *watcher* (the thread that calls ``run``) sleeps until the next deadline and takes the stops. It never waits for
  the database, so a signal or a timeout is served while the database is busy.
- The *books* are the orders of the core: exchanges, one after the other, and questions. A slot that has run dry keeps
  them by itself, as nothing else can give it work: that saves two changes of thread for each job.
- The *clerk* keeps the books when no slot does, and sleeps until handlers or the database have something new.
- The *pulse* renews leases, so that neither a long exchange nor a long cleanup holds a heartbeat up; on SQLite it waits
  for the same write lock as the clerk at worst.
- The *janitor* looks, sweeps and cleans up.
- The crew (threads.py) runs the handlers.

Whoever has an event feeds it to the core under one lock, and performs at once what does not wait; the rest goes to its
thread. No thread holds that lock, or a transaction, while it waits or a handler runs (W-1).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from queue import SimpleQueue
from typing import Any

from jobqueue import events
from jobqueue.alarms import Bell, Timer
from jobqueue.core import Core, Settings
from jobqueue.errors import DatabaseUnavailable, OutcomeUnknown
from jobqueue.events import Effect, Event
from jobqueue.queue import Queue
from jobqueue.threads import Crew, Seat
from jobqueue.types import Complete, Expired, Fail, Job, Lost, Reply, Settled, Settlement, Status

log = logging.getLogger("jobqueue.worker")
PATIENCE = 1.0  # Seconds for the threads to end when all is done.
NAP = 0.2  # Seconds: the longest sleep of a thread that serves signals.
UNTIL_RUNG = events.Rest(inf, False)
COMPLETED = Status.COMPLETED  # Looked up once: an enum's member costs more than the comparison with it.


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of. ``eager``: start every slot at once; ``after`` is called, with patience, at the end."""

    queue: Queue
    types: tuple[str, ...] | None
    settings: Settings
    seat: Callable[[str], Seat]
    after: Callable[[float], None]
    retention: float | None = None
    eager: bool = False


class _Errands:
    """A thread for calls that may have to wait for the database."""

    def __init__(self, name: str, broken: Callable[[BaseException], None]) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._broken = broken
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def send(self, task: Callable[[], None] | None) -> None:
        self._tasks.put(task)

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except BaseException as error:
                self._broken(error)


class Shift:
    """One run of a worker under a name of its own."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.queue, self.clock = plan.queue, plan.queue.clock
        self.name = f"{plan.queue.worker}.{self.clock.entropy(3).hex()}"
        self._lock = threading.Lock()
        self._timer = Timer(self.clock)
        self._bell = Bell(plan.queue.wakeup(), self.clock)
        self._core = Core(plan.settings, self.clock.monotonic())
        self._crew = Crew(
            "jobqueue",
            plan.settings.concurrency,
            lambda: plan.seat(self.name),
            self.clock,
            ring=self._bell.ring,
            dry=self._keep_books,
            expect=self._timer.announce,
            broken=self._slot_broken,
        )
        self._books = threading.Lock()  # Held by the thread that serves the core's orders.
        self._keeper: int | None = None
        self._wanted = False  # There may be something new for the books.
        self._order: events.Exchange | events.AskDue | events.Rest = UNTIL_RUNG
        self._resting: events.Rest | None = None  # What the clerk's sleep is for; None while it is awake.
        self._flowing = False  # The last exchange found jobs.
        self._wake_at = -inf
        self._stops = 0
        self._stops_taken = 0
        self._over = False
        self._away = False
        self._error: BaseException | None = None
        self._clerk: threading.Thread | None = None
        self._pulse: _Errands | None = None
        self._janitor: _Errands | None = None

    # Called by the worker

    def stop(self) -> None:
        """Ask for the end: first with grace, then at once. From any thread, and from a signal handler."""
        self._stops += 1
        self._timer.ring()

    def run(self) -> None:
        """Work until the core says that it is over."""
        log.info("worker %s starts", self.name)
        self._pulse = _Errands("jobqueue pulse", self._broken)
        self._janitor = _Errands("jobqueue janitor", self._broken)
        self._clerk = threading.Thread(target=self._serve, name="jobqueue clerk", daemon=True)
        try:
            if self.plan.eager:
                self._crew.open()
            self._clerk.start()
            while not self._over:
                self._watch()
        finally:
            self._close()
        if self._error is not None:
            raise self._error

    # The watcher

    def _watch(self) -> None:
        while self._stops_taken < self._stops:
            self._stops_taken += 1
            log.info("worker %s is asked to stop%s", self.name, "" if self._stops_taken == 1 else " at once")
            self._feed(events.StopAsked)
        self._report()
        if not self._over and self._stops_taken == self._stops:
            # Python serves a signal that comes just before a thread goes to sleep only when that thread wakes.
            nap = NAP if threading.current_thread() is threading.main_thread() else inf
            self._timer.sleep(min(self._wake_at, self.clock.monotonic() + nap))

    def _close(self) -> None:
        self._over = True
        self._bell.ring()
        self._crew.close(PATIENCE)
        self.plan.after(PATIENCE)
        threads = [self._clerk]
        for errands in (self._pulse, self._janitor):
            if errands is not None:
                errands.send(None)
                threads.append(errands.thread)
        until = self.clock.monotonic() + PATIENCE
        for thread in threads:
            if thread is not None and thread.ident is not None:
                thread.join(max(0.0, until - self.clock.monotonic()))
        if self._clerk is None or not self._clerk.is_alive():
            self._bell.close()
        log.info("worker %s has ended", self.name)

    # Events in, effects out

    def _report(self) -> None:
        with self._lock:
            # What runs is looked at first: a handler that ends in between is then in both, and counts as ended.
            running = self._crew.running()
            self._handle(events.Progress(self.clock.monotonic(), running, self._crew.ended()))

    def _feed(self, kind: Callable[..., Event], *arguments: Any) -> None:
        with self._lock:
            self._handle(kind(self.clock.monotonic(), *arguments))

    def _handle(self, event: Event) -> None:
        told = [event]
        for each in told:  # It grows: what comes of a withdrawal is an event, too.
            for effect in self._core.handle(each):
                if isinstance(effect, events.Withdraw):
                    told.append(events.Withdrawn(self.clock.monotonic(), self._crew.withdraw(effect.jobs)))
                else:
                    self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case events.Exchange() | events.AskDue():
                self._order = effect
                if self._keeper != threading.get_ident() and threading.current_thread() is not self._clerk:
                    self._bell.ring()
            case events.Rest():
                self._order = effect
                clerk = self._resting
                if clerk is not None and (effect.until < clerk.until or effect.listen != clerk.listen):
                    self._bell.ring()
            case events.Start(jobs, until):
                self._crew.start(jobs, until)
            case events.Recorded(settlements, replies):
                _log_outcomes(settlements, replies)
            case events.Sleep(until):
                earlier, self._wake_at = until < self._wake_at, until
                if earlier:
                    self._timer.ring()
            case _:
                self._perform_rarely(effect)

    def _perform_rarely(self, effect: Effect) -> None:
        assert self._pulse is not None
        assert self._janitor is not None
        match effect:
            case events.Renew(jobs):
                self._pulse.send(lambda: self._renew(jobs))
            case events.Look():
                self._janitor.send(self._look)
            case events.Sweep(looked):
                self._janitor.send(lambda: self._sweep(looked))
            case events.Cleanup():
                self._janitor.send(self._cleanup)
            case events.Tell(job, reason):
                _log_job(logging.WARNING, job, "%s; its outcome will be dropped", reason)
                self._crew.tell(job, reason)
            case events.Abandon(job, reason):
                _log_job(logging.WARNING, job, "given up: %s", reason)
                self._crew.abandon(job, reason)
            case events.Dropped(job, why):
                _log_job(logging.WARNING, job, "its outcome is dropped: %s", why)
            case events.Finish(unsettled):
                if unsettled:
                    log.error("worker %s ends with %d claims unsettled; they will be swept", self.name, unsettled)
                self._over = True
                self._timer.ring()
                self._bell.ring()

    # The clerk

    def _serve(self) -> None:
        while not self._over:
            self._keep_books()
            if not self._over:
                self._rest()

    def _rest(self) -> None:
        with self._lock:
            order = self._order
            if not isinstance(order, events.Rest):  # Whoever keeps the books has it, and will ring.
                order = UNTIL_RUNG
            self._resting = order
        changed = self._bell.sleep(order.until, listen=order.listen)
        self._resting = None
        if changed:
            self._feed(events.Changed)

    # The books

    def _keep_books(self) -> None:
        """Report what has ended and serve the core's orders; if another thread does so, it will look once more."""
        self._wanted = True
        while self._wanted and self._books.acquire(blocking=False):
            self._keeper = threading.get_ident()
            try:
                self._wanted = False
                self._report()
                self._obey()
            except BaseException as error:
                self._broken(error)
            finally:
                self._keeper = None
                self._books.release()

    def _obey(self) -> None:
        while not self._over:
            order = self._order
            if isinstance(order, events.Rest):
                return
            self._order = UNTIL_RUNG  # Until this one is answered the core gives no other.
            if isinstance(order, events.Exchange):
                self._exchange(order)
            else:
                self._ask_due()

    def _exchange(self, order: events.Exchange) -> None:
        if order.n and not self._flowing:
            self._bell.arm()  # Before the poll that may find nothing (W-9).
        try:
            done = self.queue.exchange(order.settlements, order.n, self.plan.types, worker=self.name)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            if _hopeless(error):
                raise
            if not self._away:
                log.warning("the database is busy or away, outcomes wait: %s", error)
            self._away = True
            self._feed(events.ExchangeFailed)
        else:
            if self._away:
                log.info("the database is back")
            self._away = False
            self._flowing = bool(done.jobs)
            self._feed(events.Exchanged, done.replies, done.jobs)

    def _ask_due(self) -> None:
        self._bell.arm()  # While jobs flow no exchange does: what came since the last one is seen by this look.
        try:
            due_us = self.queue.due_in_us(self.plan.types)
        except DatabaseUnavailable as error:
            log.debug("the next due time is not known: %s", error)
            self._feed(events.DueUnknown)
        else:
            self._feed(events.DueKnown, None if due_us is None else due_us / 1_000_000)

    # The pulse and the janitor

    def _renew(self, jobs: Sequence[Job]) -> None:
        try:
            replies = self.queue.extend_many(jobs)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            log.warning("%d leases could not be renewed yet: %s", len(jobs), error)
            self._feed(events.RenewFailed)
        else:
            self._feed(events.Renewed, replies)

    def _look(self) -> None:
        try:
            found = self.queue.expired()
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            log.debug("no look at expired leases: %s", error)
            self._feed(events.LookFailed)
        else:
            self._feed(events.Looked, found)

    def _sweep(self, looked: Sequence[Expired]) -> None:
        try:
            for swept in self.queue.sweep(looked):
                log.warning(
                    "job %s: the lease of its holder expired; it is now %s", swept.id, swept.status,
                    extra={"job_id": swept.id, "fence": swept.fence},
                )  # fmt: skip
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            log.warning("expired leases could not be swept; they will be looked at again: %s", error)

    def _cleanup(self) -> None:
        assert self.plan.retention is not None
        try:
            count = self.queue.cleanup(self.plan.retention)
            if count:
                log.info("%d jobs that ended long ago were deleted", count)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            log.warning("no cleanup this time: %s", error)
        self._feed(events.Cleaned)

    def _slot_broken(self, error: BaseException) -> None:
        """A slot cannot go on; the database can: end with grace, give back what has not begun, and raise it then."""
        if self._error is None:
            self._error = error
        self.stop()

    def _broken(self, error: BaseException) -> None:
        """Something that waiting does not mend: end the run, and raise it there."""
        if self._error is None:
            self._error = error
        try:
            self._feed(events.Broken)
        except BaseException:  # The core itself is at fault, and would never say that it is over.
            self._over = True
            self._timer.ring()


def _hopeless(error: DatabaseUnavailable | OutcomeUnknown) -> bool:
    return isinstance(error, DatabaseUnavailable) and not error.transient


def _log_outcomes(settlements: Sequence[Settlement], replies: Sequence[Reply]) -> None:
    chatty = log.isEnabledFor(logging.DEBUG)
    if not chatty and all(type(reply) is Settled and reply.status is COMPLETED for reply in replies):
        return
    for settlement, reply in zip(settlements, replies, strict=True):
        if isinstance(reply, Lost):
            why = "its lease is lost, or it was settled elsewhere"
            _log_job(logging.WARNING, settlement.job, "its outcome is dropped: %s", why)
        elif isinstance(settlement, Complete) and reply.status is COMPLETED:
            if chatty:
                _log_job(logging.DEBUG, settlement.job, "completed")
        elif isinstance(settlement, Fail):
            level = logging.ERROR if reply.status is Status.DEAD else logging.WARNING
            _log_job(level, settlement.job, "%s: %s", reply.status, settlement.error.partition("\n")[0])
        else:
            _log_job(logging.INFO, settlement.job, "%s", reply.status)


def _log_job(level: int, job: Job, text: str, *arguments: object) -> None:
    """One line about a job. Its payload may hold secrets, and is never logged."""
    log.log(
        level,
        f"job %s (%s, attempt %d of %d): {text}",
        job.id,
        job.type,
        job.attempts,
        job.max_attempts,
        *arguments,
        extra={"job_id": job.id, "job_type": job.type, "attempt": job.attempts, "fence": job.fence},
    )
