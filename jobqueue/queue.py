"""The queue as its users see it: arguments checked here, rules in transitions, writes in store (spec §5)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar

from jobqueue import arguments, store, values
from jobqueue.backoff import Backoff
from jobqueue.clock import Clock, SystemClock
from jobqueue.commits import Commits, never
from jobqueue.errors import DuplicateKey, InvalidArgument, LeaseLost, WrongUse
from jobqueue.protocols import CommitUnknown, Database, Transaction, Wakeup
from jobqueue.store import Claim, Filter, KeyTaken, NewJob
from jobqueue.transitions import Event, sources
from jobqueue.types import (
    TERMINAL,
    Complete,
    Exchange,
    Expired,
    Extended,
    Fail,
    Job,
    JobView,
    Lost,
    Release,
    Reply,
    Requeued,
    Settled,
    Settlement,
    Status,
    Swept,
)
from jobqueue.values import Duration, Json
from jobqueue.waiting import Wait

T = TypeVar("T")
OnDuplicate = Literal["raise", "keep"]
CLEANUP_BATCH = 1000
SWEEP_BATCH = 500


class Queue:
    """A durable queue: one table in an SQLite file or a PostgreSQL database. Safe to share between threads."""

    def __init__(
        self,
        database: Database,
        *,
        name: str = "jobs",
        lease: Duration = 30,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Use ``Queue.open``; this takes a database that is open already."""
        self.name = name
        self.lease_us = values.duration(lease, "lease")
        self.backoff = backoff or Backoff()
        self.clock = clock or SystemClock()
        self.database = database
        self._commits = Commits(database, self.backoff, self.clock)
        self.worker = f"{socket.gethostname()}:{os.getpid()}:{self.clock.entropy(6).hex()}"

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        name: str = "jobs",
        lease: Duration = 30,
        backoff: Backoff | None = None,
        synchronous: Literal["full", "normal"] = "full",
        busy_timeout: Duration = 30,
        listen: bool | str = True,
        create: bool = True,
        clock: Clock | None = None,
    ) -> Queue:
        """Open a queue, creating its table at the first use, unless ``create`` is False: then SchemaMismatch is raised.

        ``url`` is the path of an SQLite file, ``:memory:``, or a ``postgresql://`` URL. ``lease`` is how long a claim
        lasts without a heartbeat. ``synchronous='normal'`` (SQLite) is faster; a power cut may then undo the last
        commits. ``busy_timeout`` is how long a call waits while another process writes, before DatabaseUnavailable.
        ``listen`` (PostgreSQL; SQLite takes nothing but True): False leaves idle workers to their polling; a URL is
        where they listen for new jobs instead, past a pooler that passes no notifications on.
        """
        values.queue_name(name)
        clock = clock or SystemClock()
        wait_us = values.duration(busy_timeout, "busy_timeout", zero=True)
        database = _connect(os.fspath(url), name, synchronous, wait_us, listen, create, clock)
        try:
            return cls(database, name=name, lease=lease, backoff=backoff, clock=clock)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Release every connection; the handle cannot be used afterwards."""
        self.database.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Enqueue (T-1)

    def enqueue(
        self,
        type: str,
        payload: Json = None,
        *,
        priority: int = 0,
        scheduled_at: datetime | None = None,
        delay: Duration | None = None,
        max_attempts: int = 3,
        timeout: Duration | None = None,
        unique_key: str | None = None,
        on_duplicate: OnDuplicate = "raise",
        transaction: Any = None,
    ) -> str:
        """Store a job; its id (T-1). When this returns the job is durable, or part of ``transaction``.

        Raises InvalidArgument before anything is stored, and DuplicateKey where ``unique_key`` is taken, unless
        ``on_duplicate='keep'``: then the id of the job that holds it is returned.
        """
        job = arguments.new_job(
            self.clock,
            type=type,
            payload=payload,
            priority=priority,
            scheduled_at=scheduled_at,
            delay=delay,
            max_attempts=max_attempts,
            timeout=timeout,
            unique_key=unique_key,
        )
        arguments.require_duplicate(on_duplicate)
        taken = self._commits.write(lambda tx: store.enqueue(tx, job, alone=True), transaction)
        return values.id_text(job["id"]) if taken is None else _kept(taken, on_duplicate)

    def enqueue_many(
        self,
        jobs: Iterable[Mapping[str, Any]],
        *,
        on_duplicate: OnDuplicate = "raise",
        transaction: Any = None,
    ) -> list[str]:
        """Store several jobs, all or none; their ids in order.

        Each item holds the arguments of ``enqueue`` by name: ``{"type": "resize", "payload": {...}, "priority": 5}``.
        """
        arguments.require_duplicate(on_duplicate)
        new = [arguments.new_job(self.clock, **arguments.job_fields(item)) for item in jobs]
        taken = self._commits.write(lambda tx: _all_or_none(tx, new, on_duplicate), transaction)
        return [
            values.id_text(job["id"]) if held is None else _kept(held, on_duplicate)
            for job, held in zip(new, taken, strict=True)
        ]

    # Dequeue (T-2)

    def dequeue(self, *types: str, worker: str | None = None, lease: Duration | None = None) -> Job | None:
        """Claim the first due job (T-2, §6), of these types or of any; None where none is due.

        The caller is then its holder until ``lease`` (default: the queue's) runs out and another sweeps it: settle it
        with complete, fail or release, and extend it while it takes long.
        """
        jobs = self.dequeue_many(1, *types, worker=worker, lease=lease)
        return jobs[0] if jobs else None

    def dequeue_many(self, n: int, *types: str, worker: str | None = None, lease: Duration | None = None) -> list[Job]:
        """Claim up to ``n`` due jobs, in order, in one transaction."""
        values.whole(n, "n", 1, values.MAX_INT32)
        wanted = values.types(types) or None
        name = self.worker if worker is None else values.text(worker, "worker", values.TYPE_LIMIT)
        claim = Claim(wanted, n, name, self._lease_us(lease))
        return self._commits.write(lambda tx: store.dequeue(tx, claim))

    # The holder's operations (T-3 to T-7)

    def complete(self, job: Job, result: Json = None, *, transaction: Any = None) -> None:
        """The job is done (T-3). Raises LeaseLost if the caller is not its holder any more.

        A result that cannot be stored makes the job dead (T-5), for finished work is not run again; then
        InvalidArgument is raised, which names the value.
        """
        settled = self._settle(Complete(job, result), transaction)
        if settled.status is not Status.COMPLETED:
            values.json_text(result, "result")

    def fail(
        self,
        job: Job,
        error: object,
        *,
        delay: Duration | None = None,
        for_good: bool = False,
        transaction: Any = None,
    ) -> Status:
        """The attempt failed: retry after the backoff, or ``delay``, or dead after the last attempt or ``for_good``.

        ``error`` is text or an exception. Returns the job's status: failed (T-4) or dead (T-5). Raises LeaseLost.
        """
        delay_us = None if delay is None else values.duration(delay, "delay", zero=True)
        return self._settle(Fail(job, values.error_text(error), delay_us, for_good), transaction).status

    def release(
        self, job: Job, *, begun: bool = True, delay: Duration | None = None, transaction: Any = None
    ) -> Status:
        """Give the job back without counting the attempt (T-6), at once or after ``delay``.

        Say ``begun=False`` if its work has certainly not started. A begun job with max_attempts 1 becomes dead instead:
        it must not start twice (G-20). Returns the job's status: pending or dead. Raises LeaseLost.
        """
        delay_us = None if delay is None else values.duration(delay, "delay", zero=True)
        return self._settle(Release(job, begun, delay_us), transaction).status

    def extend(self, job: Job, lease: Duration | None = None, *, transaction: Any = None) -> datetime:
        """Renew the lease (T-7, a heartbeat); the new end of it, never an earlier one. Raises LeaseLost."""
        arguments.require_claim(job)
        lease_us = self._lease_us(lease)
        reply = self._commits.write(lambda tx: store.extend(tx, job, lease_us, alone=True), transaction)
        if isinstance(reply, Lost):
            raise _lease_lost(job)
        return values.moment(reply.lease_expires_at_us)

    def complete_many(self, items: Iterable[tuple[Job, Json]]) -> list[Reply]:
        """complete for (job, result) pairs in one transaction, each answered by itself."""
        return self.settle_many([Complete(job, result) for job, result in items])

    def fail_many(self, items: Iterable[tuple[Job, object]]) -> list[Reply]:
        """fail for (job, error) pairs in one transaction, each answered by itself."""
        return self.settle_many([Fail(job, values.error_text(error)) for job, error in items])

    def release_many(self, jobs: Iterable[Job], *, begun: bool = True) -> list[Reply]:
        """release for several jobs in one transaction, each answered by itself."""
        return self.settle_many([Release(job, begun) for job in jobs])

    def settle_many(self, settlements: Iterable[Settlement]) -> list[Reply]:
        """Settle several claims, in order, in one transaction; each is answered by itself."""
        return self.exchange(tuple(settlements), 0, None).replies

    def extend_many(self, jobs: Iterable[Job], lease: Duration | None = None) -> list[Extended | Lost]:
        """extend for several jobs in one transaction, each answered by itself."""
        jobs, lease_us = tuple(jobs), self._lease_us(lease)
        # One order of locks for every writer of several rows (spec §3 of the backends: deadlocks).
        ordered = sorted(range(len(jobs)), key=lambda index: jobs[index].raw_id)

        def work(tx: Transaction) -> list[Extended | Lost]:
            replies = {index: store.extend(tx, jobs[index], lease_us) for index in ordered}
            return [replies[index] for index in range(len(jobs))]

        return self._commits.write(work)

    def exchange(
        self,
        settlements: Sequence[Settlement],
        n: int,
        types: Collection[str] | None,
        *,
        worker: str | None = None,
        lease_us: int | None = None,
    ) -> Exchange:
        """Settle what has ended, in order, then claim up to ``n`` jobs, in one transaction (spec §5)."""
        for settlement in settlements:
            if not isinstance(settlement, Complete) and settlement.delay_us is not None:
                values.whole(settlement.delay_us, "delay_us", 0, values.MAX_DURATION)
        if types is not None and (not types or isinstance(types, str)):
            raise InvalidArgument(f"types are several texts, or None for every type, not {types!r}")
        values.whole(n, "n", 0, values.MAX_INT32)
        name = self.worker if worker is None else values.text(worker, "worker", values.TYPE_LIMIT)
        lease = self.lease_us if lease_us is None else values.whole(lease_us, "lease_us", 1, values.MAX_DURATION)

        return self._commits.exchange(settlements, Claim(types, n, name, lease) if n else None)

    def _settle(self, settlement: Settlement, transaction: Any) -> Settled:
        job = arguments.require_claim(settlement.job)
        if transaction is None:
            reply = self.exchange([settlement], 0, None).replies[0]
        else:
            draw = self.clock.draw()
            reply = self._commits.write(lambda tx: store.settle(tx, settlement, self.backoff, draw), transaction)
        if isinstance(reply, Lost):
            raise _lease_lost(job)
        if transaction is None:  # Otherwise nobody knows yet whether it will be committed.
            job.settled = True
        return reply

    @contextmanager
    def completing(self, job: Job, result: Json = None) -> Iterator[Any]:
        """The caller's own writes and the job's completion in one transaction: effects exactly once (N-1).

        Yields a connection to the queue's database for the caller's writes. The completion (T-3) is the last
        statement; if the lease is lost, or the block raises, everything is rolled back. Queue calls inside need
        ``transaction=``. A block that commits or rolls back by itself gets WrongUse, and the job is not completed.
        """
        arguments.require_claim(job)
        values.json_text(result, "result")  # Refused before anything is written.
        settlement, pid = Complete(job, result), os.getpid()
        try:
            with self.database.own_transaction() as (connection, same):
                yield connection
                if os.getpid() != pid:
                    raise WrongUse("this process was forked inside completing(); only its parent can end the block")
                if isinstance(store.settle(same(), settlement, self.backoff, 0.0), Lost):
                    raise _lease_lost(job)
        except CommitUnknown as unknown:
            self._commits.require_completed(settlement, unknown)
        job.settled = True

    # Recovery (T-8)

    def expired(self, limit: int = SWEEP_BATCH) -> list[Expired]:
        """Look for expired leases, inside a write transaction (spec §5, W-3): the first half of a careful sweep."""
        values.whole(limit, "limit", 1, values.MAX_INT32)
        return self._commits.write(lambda tx: store.expired(tx, limit))

    def sweep(self, looked: Sequence[Expired] | None = None) -> list[Swept]:
        """Take expired claims from their holders (T-8): failed with backoff, or dead after the last attempt.

        Given what ``expired`` saw earlier, only claims that have not moved since are swept. Without it one look
        decides: for operators who know that no holder lives. Workers sweep by themselves.
        """
        if looked is not None:
            return self._sweep(looked)
        swept: list[Swept] = []
        while True:
            batch = self._commits.write(self._look_and_sweep, sure=never)
            swept += batch
            if len(batch) < SWEEP_BATCH:
                return swept

    def _sweep(self, looked: Sequence[Expired]) -> list[Swept]:
        drawn = [(look, self.clock.draw()) for look in sorted(looked, key=lambda look: look.id)]
        return self._commits.write(lambda tx: store.sweep(tx, drawn, self.backoff), sure=never)

    def _look_and_sweep(self, tx: Transaction) -> list[Swept]:
        looked = sorted(store.expired(tx, SWEEP_BATCH), key=lambda look: look.id)
        return store.sweep(tx, [(look, self.clock.draw()) for look in looked], self.backoff)

    # Operators (T-9 to T-11)

    def cancel(self, id: str, *, transaction: Any = None) -> bool:
        """End a job that is pending, running or failed (T-9); False if it is not, or does not exist.

        A running handler is told at its next heartbeat; its outcome is dropped.
        """
        key = values.id_bytes(id)
        return self._commits.write(lambda tx: store.cancel(tx, key, alone=True), transaction, sure=bool)

    def requeue(self, id: str, *, transaction: Any = None) -> bool:
        """Start a dead or failed job afresh (T-10); False if it is neither. Raises DuplicateKey."""
        key = values.id_bytes(id)
        done = self._commits.write(lambda tx: store.requeue(tx, key), transaction, sure=bool)
        if isinstance(done, KeyTaken):
            raise DuplicateKey(done.key, done.holder)
        return done

    def cancel_many(
        self,
        ids: Iterable[str] | None = None,
        *,
        status: Status | str | None = None,
        type: str | None = None,
        unique_key: str | None = None,
    ) -> int:
        """cancel by ids, or every job that the filter names; how many were really cancelled."""
        which = arguments.job_filter(status, type, unique_key)
        pages = self._pages(ids, which, sources(Event.CANCEL))
        return sum(self._commits.write(partial(store.cancel_many, ids=page), sure=never) for page in pages)

    def requeue_many(
        self,
        ids: Iterable[str] | None = None,
        *,
        status: Status | str | None = None,
        type: str | None = None,
        unique_key: str | None = None,
    ) -> Requeued:
        """requeue by ids, or every job that the filter names, decided job by job."""
        which = arguments.job_filter(status, type, unique_key)
        count, duplicates = 0, []
        for page in self._pages(ids, which, sources(Event.REQUEUE)):
            done = self._commits.write(partial(store.requeue_many, ids=page), sure=never)
            count += sum(reply is True for reply in done)
            duplicates += [
                values.id_text(id) for id, reply in zip(page, done, strict=True) if isinstance(reply, KeyTaken)
            ]
        return Requeued(count, duplicates)

    def _pages(self, ids: Iterable[str] | None, which: Filter, allowed: frozenset[Status]) -> Iterator[list[bytes]]:
        """The ids that a bulk operation is about, in pages of one transaction each, each page in id order."""
        if ids is not None:
            if which != Filter():
                raise InvalidArgument("give ids or a filter, not both")
            keys = sorted({values.id_bytes(id) for id in ids})
            yield from (keys[start : start + store.PAGE] for start in range(0, len(keys), store.PAGE))
            return
        after = -1
        while True:
            page = self.database.read(partial(store.select_ids, which=which, allowed=allowed, after=after))
            if not page:
                return
            after = page[-1][0]
            yield sorted(id for _, id in page)

    def cleanup(
        self,
        older_than: Duration,
        *,
        statuses: Collection[Status | str] = TERMINAL,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete jobs that ended at least ``older_than`` ago (T-11), in batches; how many.

        ``progress`` is called after each batch with the number so far. Jobs that can still run are never deleted.
        """
        retention_us = values.duration(older_than, "older_than", zero=True)
        chosen = [arguments.status(status) for status in ((statuses,) if isinstance(statuses, str) else statuses)]
        if not chosen or not TERMINAL.issuperset(chosen):
            raise InvalidArgument("cleanup takes completed and dead only: other jobs can still run")
        deleted = 0
        for status in sorted(set(chosen)):
            while True:
                work = partial(store.cleanup, status=status, retention_us=retention_us, n=CLEANUP_BATCH)
                batch = self._commits.write(work, sure=never)
                deleted += batch
                if batch and progress:
                    progress(deleted)
                if batch < CLEANUP_BATCH:
                    break
        return deleted

    # Looking

    def counts(self) -> dict[Status, int]:
        """The number of jobs in each status."""
        return self.database.read(store.counts)

    def get(self, id: str) -> JobView | None:
        """One job with payload and result; None if there is none."""
        key = values.id_bytes(id)
        return self.database.read(lambda tx: store.get(tx, key))

    def wait(self, id: str, timeout: Duration | None = None) -> JobView | None:
        """Wait until a job has ended; its view. None if there is no such job.

        Raises TimeoutError when ``timeout`` has passed.
        """
        return self.new_wait(id, timeout).result()

    def new_wait(self, id: str, timeout: Duration | None = None) -> Wait:
        """A wait that another thread may give up; ``wait`` is its ``result()``."""
        key = values.id_bytes(id)
        seconds = None if timeout is None else values.duration(timeout, "timeout", zero=True) / 1_000_000
        look = partial(self.database.read, lambda tx: store.get(tx, key))
        return Wait(look, self.database.wakeup(), self.clock, seconds)

    def due_in_us(self, types: Collection[str] | None = None) -> int | None:
        """Microseconds until the next job of ``types`` is due, by the database's clock; None where there is none."""
        return self.database.read(lambda tx: store.due_in_us(tx, types))

    def wakeup(self) -> Wakeup:
        """A sleep that ends when the database changes; for workers."""
        return self.database.wakeup()

    def audit(self, limit: int = 100) -> list[tuple[str, str]]:
        """Rows of the live table that break an invariant of spec §10, as (id, what is broken).

        Empty when all is well.
        """
        values.whole(limit, "limit", 1, values.MAX_INT32)
        return self.database.read(lambda tx: store.broken_rows(tx, limit))

    def list(
        self,
        *,
        status: Status | str | None = None,
        type: str | None = None,
        unique_key: str | None = None,
        after: JobView | int | None = None,
        limit: int = 100,
        payloads: bool = False,
    ) -> list[JobView]:
        """A page of jobs in order of enqueue; pass the last one as ``after`` for the next page.

        ``payloads`` asks for payload and result, which are not read otherwise.
        """
        which = arguments.job_filter(status, type, unique_key)
        values.whole(limit, "limit", 1, values.MAX_INT32)
        position = (
            -1
            if after is None
            else after.seq
            if isinstance(after, JobView)
            else values.whole(after, "after", -1, 2**63 - 1)
        )
        return self.database.read(lambda tx: store.list_page(tx, which, position, limit, wide=payloads))

    def _lease_us(self, lease: Duration | None) -> int:
        return self.lease_us if lease is None else values.duration(lease, "lease")


def _connect(
    url: str, name: str, synchronous: str, wait_us: int, listen: bool | str, create: bool, clock: Clock
) -> Database:
    # Imported here, so that neither backend's driver is needed for the other.
    if url.startswith(("postgresql://", "postgres://")):
        from jobqueue.postgres import PostgresDatabase

        return PostgresDatabase(url, name, busy_timeout_us=wait_us, listen=listen, clock=clock, create=create)
    scheme = values.URL.match(url)
    if scheme:  # Not the rest of it, which may hold a password.
        raise InvalidArgument(
            f"a {scheme[0]} URL is not known; give the path of an SQLite file, or a postgresql:// URL"
        )
    if listen is not True:
        raise InvalidArgument("listen= is for PostgreSQL; on SQLite workers watch the file itself")
    from jobqueue.sqlite import SqliteDatabase

    return SqliteDatabase(url, name, synchronous=synchronous, busy_timeout_us=wait_us, clock=clock, create=create)


def _lease_lost(job: Job) -> LeaseLost:
    return LeaseLost(f"job {job.id}: claim {job.fence} is not held any more; the job is unchanged, drop the outcome")


def _kept(taken: KeyTaken, on_duplicate: OnDuplicate) -> str:
    if on_duplicate == "keep" and taken.holder is not None:
        return taken.holder
    raise DuplicateKey(taken.key, taken.holder)


def _all_or_none(tx: Transaction, new: list[NewJob], on_duplicate: OnDuplicate) -> list[KeyTaken | None]:
    """Raise at the first taken key unless it may be kept; raising inside the transaction undoes the whole batch."""
    taken = store.enqueue_many(tx, new, alone=True)
    for held in taken:
        if held is not None and (on_duplicate == "raise" or held.holder is None):
            twice = any(values.id_text(job["id"]) == held.holder for job in new)
            raise DuplicateKey(held.key, None if twice else held.holder, twice=twice)
    return taken
