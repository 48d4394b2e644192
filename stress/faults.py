"""Seeded faults: what the harness must be able to find. Each changes the queue inside one process of a run.

A fault is set in where the library has a seam: a named statement, the transaction that the operations are given, or
a method of the worker's shell. Nothing of this is reachable from a queue in use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from jobqueue.core import Core
from jobqueue.events import Looked
from jobqueue.protocols import Args, Row, Transaction
from jobqueue.shift import Shift
from jobqueue.types import Exchange, Job, Release, Reply, Settled, Settlement, Status
from stress.recording import RecordingQueue

T = TypeVar("T")
TYPES = 20  # More than any run of the self-test has.
GUARD = "and fence = :fence and worker = :worker and status = 'running'"


@dataclass(frozen=True, slots=True)
class Fault:
    """`clauses` are those by which it may be reported; `options` make it likely in a run of a few seconds."""

    name: str
    told: str
    seed: Callable[[RecordingQueue], None]
    clauses: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


def replace_in(queue: RecordingQueue, statement: str, old: str, new: str) -> None:
    """Change the text of a named statement, for this process only."""
    statements: dict[str, str] = queue.database._statements  # type: ignore[attr-defined]
    assert old in statements[statement], f"{statement} has changed: the fault does not apply any more"
    statements[statement] = statements[statement].replace(old, new)


def unfenced_complete(queue: RecordingQueue) -> None:
    replace_in(queue, "complete", GUARD, "")


def sweep_forgets_the_count(queue: RecordingQueue) -> None:
    replace_in(queue, "sweep_retry", "status = 'failed',", "status = 'failed', attempts = attempts - 1,")


def early_retry(queue: RecordingQueue) -> None:
    replace_in(queue, "retry", ":now + :delay", ":now + :delay / 2")


def one_look(queue: RecordingQueue) -> None:
    """The worker sweeps at once what a look has found."""

    def look(shift: Shift) -> None:
        found = shift.queue.expired()
        if found:
            shift.queue.sweep(found)
        shift._feed(Looked, [])

    Shift._look = look  # type: ignore[method-assign, assignment]


def keyed_by_id(queue: RecordingQueue) -> None:
    """All claims of a job are the same to the worker: what ends is taken for the claim that it holds now."""

    def same(job: Job, other: object) -> bool:
        return isinstance(other, Job) and job.raw_id == other.raw_id

    def hashed(job: Job) -> int:
        return hash(job.raw_id)

    def settle(core: Core, claim: Any, settlement: Any, at: float) -> None:
        honest(core, claim, replace(settlement, job=claim.job), at)

    honest = Core._settle
    Job.__eq__, Job.__hash__ = same, hashed  # type: ignore[assignment, method-assign]
    Core._settle = settle  # type: ignore[method-assign, assignment]


def lost_at_shutdown(queue: RecordingQueue) -> None:
    """What a worker gives back is dropped, and it is told that all is well."""
    exchange = queue.exchange

    def dropping(settlements: Sequence[Settlement], n: int, types: Any, **rest: Any) -> Exchange:
        kept = [one for one in settlements if not isinstance(one, Release)]
        done = exchange(kept, n, types, **rest) if kept or n else Exchange([], [])
        replies = iter(done.replies)
        given_back = Settled(Status.PENDING)
        told: list[Reply] = [given_back if isinstance(one, Release) else next(replies) for one in settlements]
        return Exchange(told, done.jobs)

    queue.exchange = dropping  # type: ignore[method-assign]


def non_atomic_claim(queue: RecordingQueue) -> None:
    """Look for due jobs without the lock, then mark them without looking again."""
    apart = Apart(queue.database)
    queue.database = queue._commits._database = apart


class Apart:
    """A database whose claims are found in a read of their own, a moment before the write that marks them."""

    def __init__(self, database: Any) -> None:
        self._database = database
        guard = "and fence = :fence - 1 and status in ('pending', 'failed') and scheduled_at <= :now"
        statements: dict[str, str] = database._statements
        assert guard in statements["dequeue"], "dequeue has changed: the fault does not apply any more"
        statements["dequeue"] = statements["dequeue"].replace(guard, "").replace("update ", "update or ignore ", 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self, work: Callable[[Transaction], T]) -> T:
        types = json.dumps([f"type{number}" for number in range(TYPES)])
        args = {"types": types, "n": 20, "worker": "", "lease": 0}
        found = self._database.read(lambda tx: tx.rows("due", {**args, "now": tx.now_us}))
        time.sleep(0.003)
        result: T = self._database.write(lambda tx: work(Stale(tx, found)))
        return result


class Stale:
    """A transaction that claims what was found due before it began."""

    def __init__(self, tx: Any, found: list[Row]) -> None:
        self._tx, self._found = tx, found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def claim(self, types: tuple[str, ...], args: Args) -> list[Row]:
        found = [row for row in self._found if row[3] in types][: args["n"]]
        self._tx.run_many("dequeue", [{"seq": row[7], "id": row[0], "fence": row[1], **args} for row in found])
        worker, now, until = args["worker"], args["now"], args["now"] + args["lease"]
        return [(*row[:2], worker, *row[3:10], now, until, *row[12:]) for row in found]

    def run_and_claim(self, statement: str, args: Args, types: tuple[str, ...], claim: Args) -> tuple[int, list[Row]]:
        return self._tx.run(statement, args), self.claim(types, claim)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("unfenced complete", "a holder completes whatever claim is running", unfenced_complete,
              ("G-3", "no step of JobQueueLease"), {"bare": 4}),
        Fault("non-atomic claim", "due jobs are found without the lock, and marked unseen", non_atomic_claim,
              ("G-2", "T-2"), {"bare": 4}),
        Fault("sweep forgets the count", "a swept attempt is given back", sweep_forgets_the_count,
              ("G-5", "T-2", "no step of JobQueueLease")),
        Fault("one look", "a worker sweeps after one look, under a long write lock", one_look, ("W-3",),
              {"lock_every": 2.5}),
        Fault("early retry", "a retry is due after half its backoff", early_retry, ("G-11",)),
        Fault("lost at shutdown", "a stopping worker gives nothing back", lost_at_shutdown, ("W-7",),
              {"stop_every": 1.0}),
        Fault("keyed by id", "a worker takes one claim of a job for another", keyed_by_id, ("W-5",),
              {"workers": 1, "bare": 0, "kill_every": 0, "stop_every": 0, "hanging": 0.1, "max_attempts": (5,)}),
    )
}  # fmt: skip


def seed(name: str, queue: RecordingQueue) -> None:
    FAULTS[name].seed(queue)
