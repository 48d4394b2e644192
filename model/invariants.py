"""The guarantees of section 10 that can be said of one state, or of two states of which one follows the other.

They are said again here, apart from the rules of step.py, so that each checks the other.
"""

from collections.abc import Iterator
from itertools import combinations

from model.state import CLAIMABLE, STATUSES, TERMINAL, Job, State, Violation

FIXED = ("seq", "type", "payload", "priority", "max_attempts", "created_at", "timeout", "unique_key")


def check(state: State) -> list[Violation]:
    """Every guarantee that this state breaks."""
    return [found for job in state.jobs for found in of_job(job)] + list(of_jobs(state))


def of_job(job: Job) -> Iterator[Violation]:
    def must(clause: str, holds: bool, message: str) -> Iterator[Violation]:
        if not holds:
            yield Violation(clause, f"{message}: {job}")

    running, terminal = job.status == "running", job.status in TERMINAL
    yield from must("G-1", job.status in STATUSES, "no such status")
    yield from must("G-1", (job.worker is not None) == running, "worker is set exactly while running")
    yield from must("G-1", (job.lease_expires_at is not None) == running, "a lease exactly while running")
    yield from must("G-1", (job.completed_at is not None) == terminal, "completed_at exactly while terminal")
    yield from must("G-2", (job.started_at is not None) == (job.fence > 0), "started exactly if ever claimed")
    yield from must("G-5", 0 <= job.attempts <= job.fence, "attempts are claims, of which fence has all")
    yield from must("G-5", job.attempts > 0 or job.status not in ("running", "completed", "failed"), "an attempt")
    yield from must("G-6", job.attempts <= job.max_attempts, "attempts ≤ max_attempts")
    yield from must("G-7", job.attempts < job.max_attempts or job.status not in CLAIMABLE, "nothing left to claim")
    yield from must("G-8", job.error is not None or job.status not in ("dead", "failed"), "a reason")
    yield from must("G-9", job.result is None or job.status == "completed", "only completion gives a result")


def of_jobs(state: State) -> Iterator[Violation]:
    for job in state.jobs:
        if job.id in state.deleted:
            yield Violation("G-15", f"deleted and back: {job.id}")
    for one, other in combinations(state.jobs, 2):
        if one.id == other.id or one.seq == other.seq:
            yield Violation("G-16", f"two rows of one id or one seq: {one} {other}")
        live = one.status not in TERMINAL and other.status not in TERMINAL
        if live and one.unique_key is not None and one.unique_key == other.unique_key:
            yield Violation("G-21", f"two live jobs with one key: {one.id} {other.id}")


def between(before: State, after: State) -> list[Violation]:
    """Every guarantee that this one step breaks, whatever the call was."""
    found = [
        Violation("G-16", f"lost: {job.id}")
        if job.id not in after.deleted
        else Violation("G-14", f"not terminal: {job}")
        for job in before.jobs
        if after.get(job.id) is None and (job.id not in after.deleted or job.status not in TERMINAL)
    ]
    if not before.deleted <= after.deleted:
        found.append(Violation("G-15", "a deleted id was forgotten"))
    pairs = [(old, new) for old in before.jobs if (new := after.get(old.id)) is not None]
    return found + [broken for old, new in pairs for broken in of_pair(old, new)]


def of_pair(old: Job, new: Job) -> Iterator[Violation]:
    claimed = new.fence == old.fence + 1
    if new.fence != old.fence and not (claimed and new.status == "running"):
        yield Violation("G-2", f"the fence went from {old.fence} to {new.fence}, {new.status}")
    if any(getattr(old, name) != getattr(new, name) for name in FIXED):
        yield Violation("G-22", f"a column changed that never does: {old} {new}")
    if old.status == "completed" and old != new:
        yield Violation("G-9", f"completed is left only by cleanup: {new}")
    if old.status == "dead" and old != new and (new.status != "pending" or new.attempts != 0):
        yield Violation("G-9", f"dead is left only by requeue or cleanup: {new}")
    kept = old.status == new.status == "running" and not claimed
    if kept and (new.lease_expires_at or 0) < (old.lease_expires_at or 0):
        yield Violation("G-17", f"a lease was shortened: {new}")
