"""K17, cleanup, cancel and requeue: each touches what its clause allows and nothing else, by every way to call it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from jobqueue import Complete, InvalidArgument, Job, LeaseLost, Lost, Queue, Status
from tests.cli.conftest import Cli, bare_cli, cli
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults.scene import claim, row, together
from tests.tables import Table

__all__ = ["bare_cli", "cli"]  # Fixtures of the command line's tests, used here as well.


def test_b36_retention_counts_from_the_end_of_a_job_and_never_takes_what_can_still_run(
    queue: Queue, clock: ManualClock
) -> None:
    later = queue.enqueue("t", delay=timedelta(days=10))
    failed = queue.enqueue("t")
    queue.fail(claim(queue), "e", delay=timedelta(days=30))
    running = queue.enqueue("t")
    job = claim(queue, lease=timedelta(days=20))
    clock.advance(timedelta(days=8))
    assert queue.cleanup(timedelta(days=7)) == 0
    assert {view.id for view in queue.list()} == {later, failed, running}
    queue.complete(job)  # It was created, and started, eight days ago; it ends now.
    assert queue.cleanup(timedelta(days=7)) == 0
    clock.advance(timedelta(days=2))
    assert claim(queue).id == later
    clock.advance(timedelta(days=5))
    assert queue.cleanup(timedelta(days=7)) == 1
    assert queue.get(running) is None


@pytest.mark.parametrize("rival", ["complete", "fail", "fail for good", "release", "sweep"])
def test_b101_cancel_and_its_rival_at_one_moment_have_one_winner(
    queue: Queue, open_queue: OpenQueue, clock: ManualClock, full: bool, rival: str
) -> None:
    other = open_queue()
    acts: dict[str, Callable[[Job], Any]] = {
        "complete": lambda job: queue.complete(job, "x"),
        "fail": lambda job: queue.fail(job, "e"),
        "fail for good": lambda job: queue.fail(job, "e", for_good=True),
        "release": queue.release,
        "sweep": lambda job: queue.sweep(),
    }
    for _ in range(1000 if full else 12):
        id = queue.enqueue("t")
        job = claim(queue)
        clock.advance(31)
        cancelled, done = together(partial(other.cancel, id), partial(acts[rival], job))
        view = row(queue, id)
        if cancelled is True:
            # Cancelled first, or cancelled after it had gone back to waiting: in both cases it never runs again.
            assert (view.status, view.error, view.result) == (Status.DEAD, "cancelled", None)
            assert isinstance(done, LeaseLost) or rival in ("fail", "release", "sweep")
        else:
            assert rival in ("complete", "fail for good")
            assert (view.status, view.result) in ((Status.COMPLETED, "x"), (Status.DEAD, None))
        clock.advance(3600)
        assert queue.sweep() == []
        assert queue.dequeue() is None


STATES = ("pending", "running", "completed", "failed", "dead", "cancelled", "none")
ALLOWED: dict[str, set[str]] = {
    "cancel": {"pending", "running", "failed"},
    "requeue": {"failed", "dead", "cancelled"},
    "complete": {"running"}, "fail": {"running"}, "release": {"running"}, "extend": {"running"},
    "cleanup": {"completed", "dead", "cancelled"},
    "sweep": set(),
}  # fmt: skip
NO_ID = "00000000-0000-7000-8000-000000000000"


def brought_to(queue: Queue, state: str) -> tuple[str, Job]:
    """The id of a job in that state, and the claim that it had last."""
    id = queue.enqueue("t")
    job = claim(queue)
    if state == "pending":
        queue.release(job)
    elif state in ("completed",):
        queue.complete(job, "x")
    elif state in ("failed", "dead"):
        queue.fail(job, "e", for_good=state == "dead")
    elif state in ("cancelled", "none"):
        queue.cancel(id)
    if state == "none":
        queue.cleanup(0)
    return id, job


def happened(call: Callable[[], object]) -> bool:
    try:
        said = call()
    except LeaseLost:
        return False
    return said not in (False, 0, [])


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("operation", ALLOWED)
def test_b102_every_operation_in_every_state(queue: Queue, table: Table, state: str, operation: str) -> None:
    id, job = brought_to(queue, state)
    calls: dict[str, Callable[[], object]] = {
        "cancel": lambda: queue.cancel(id),
        "requeue": lambda: queue.requeue(id),
        "complete": lambda: queue.settle_many([Complete(job)]) != [Lost()],
        "fail": lambda: queue.fail(job, "e2"),
        "release": lambda: queue.release(job),
        "extend": lambda: queue.extend(job, 600),
        "cleanup": lambda: queue.cleanup(0),
        "sweep": queue.sweep,
    }
    before = table.read()
    assert happened(calls[operation]) is (state in ALLOWED[operation])
    assert (table.read() != before) is (state in ALLOWED[operation])


@pytest.mark.parametrize("operation", ["cancel", "requeue"])
def test_b102_the_command_line_and_the_bulk_forms_count_what_really_changed(
    queue: Queue, table: Table, cli: Cli, operation: str
) -> None:
    allowed = ALLOWED[operation]
    for state in STATES:
        id, _ = brought_to(queue, state)
        before = table.read()
        answer = cli(operation, id, "--json")
        assert (answer.code, answer.json["count"]) == ((0, 1) if state in allowed else (1, 0))
        assert (table.read() != before) is (state in allowed)
        queue.cancel_many()
        queue.cleanup(0)
        for each in queue.dequeue_many(99):
            queue.complete(each)
        queue.cleanup(0)
    ids = [brought_to(queue, state)[0] for state in STATES if state not in ("none", "pending")]
    count: Any = getattr(queue, f"{operation}_many")([*ids, *ids, NO_ID])
    assert getattr(count, "count", count) == len(allowed - {"pending"})


def test_b104_cleanup_goes_in_batches_each_of_which_stays_done(
    queue: Queue, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Stopped half-way it has deleted what it told; between two batches others write; run again it goes on."""
    from jobqueue import queue as module

    monkeypatch.setattr(module, "CLEANUP_BATCH", 1000 if full else 30)
    batch = module.CLEANUP_BATCH
    number = 200 * batch if full else 4 * batch
    other = open_queue(busy_timeout=0.05)
    for _ in range(number // batch):
        queue.enqueue_many([{"type": "t"} for _ in range(batch)])
    assert queue.cancel_many() == number
    told: list[int] = []

    def progress(deleted: int) -> None:
        told.append(deleted)
        other.enqueue("meanwhile")
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.cleanup(0, progress=progress)
    assert told == [batch, 2 * batch]
    assert queue.counts()[Status.DEAD] == number - 2 * batch
    assert queue.cleanup(0, progress=told.append) == number - 2 * batch
    assert queue.counts() == {**dict.fromkeys(Status, 0), Status.PENDING: 2}


@pytest.mark.parametrize("statuses", [["pending"], ["failed"], ["running"], ["completed", "failed"], [], ["cancelled"]])
def test_b36_b104_what_can_still_run_cannot_be_named_for_deletion(queue: Queue, cli: Cli, statuses: list[str]) -> None:
    queue.enqueue("t")
    with pytest.raises(InvalidArgument):
        queue.cleanup(0, statuses=statuses)
    if statuses:
        assert cli("cleanup", "--older-than", "0s", *(f"--status={status}" for status in statuses)).code == 2
    assert sum(queue.counts().values()) == 1


def test_u4_a_requeued_job_starts_afresh(queue: Queue, clock: ManualClock, cli: Cli) -> None:
    id = queue.enqueue("t", max_attempts=3)
    for _ in range(3):
        queue.fail(claim(queue), "e")
        clock.advance(3600)
    assert row(queue, id).status is Status.DEAD
    assert cli("requeue", id).code == 0
    view = row(queue, id)
    assert (view.status, view.attempts, view.completed_at, view.error) == (Status.PENDING, 0, None, "e")
    fences = []
    while (job := queue.dequeue()) is not None:
        fences.append((job.attempts, job.fence))
        queue.fail(job, "e")
        clock.advance(3600)
    assert fences == [(1, 4), (2, 5), (3, 6)]
    assert row(queue, id).status is Status.DEAD
