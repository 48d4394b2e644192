"""Verdict (a) on small histories written by hand: legal ones are accepted, each kind of violation is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stress.check import _outlasted, _strikes, _waits
from stress.history import FOREVER
from tests.stress.scripts import BASE, ID, LEASE, LEASE_EXPIRED, OPEN, PHANTOM, SECOND, Script


def done() -> Script:
    """Enqueued, claimed, completed."""
    script = Script()
    script.enqueue()
    started = script.claim(1, 1)
    ended = script.complete(1)
    script.ends("completed", 1, started_at=started, completed_at=ended, result="1")
    return script


def test_a_job_that_was_done_is_accepted() -> None:
    assert done().findings() == []


def test_a_retry_within_its_backoff_is_accepted() -> None:
    script = Script()
    script.enqueue()
    script.claim(1, 1)
    failed = script.fail(1)
    started = script.claim(2, 2, "w2", due=failed + BASE + BASE // 20, error="e")
    ended = script.complete(2, "w2")
    script.ends("completed", 2, started_at=started, completed_at=ended, result="2", error="e",
                scheduled_at=failed + BASE + BASE // 20)  # fmt: skip
    assert script.findings() == []


def test_a_zombie_that_is_told_so_is_accepted() -> None:
    script = Script()
    script.enqueue()
    lease = script.claim(1, 1) + LEASE
    script.wait(2 * LEASE)
    script.look(1, lease)
    script.wait(2 * SECOND)
    script.look(1, lease)
    swept = script.sweep(1, lease, "failed")
    script.complete(1, reply=None)
    started = script.claim(2, 2, "w2", due=swept + BASE, error=LEASE_EXPIRED)
    script.complete(1, reply=None)
    ended = script.complete(2, "w2")
    script.ends("completed", 2, started_at=started, completed_at=ended, result="2", error=LEASE_EXPIRED,
                scheduled_at=swept + BASE)  # fmt: skip
    assert script.findings() == []


@pytest.mark.parametrize("happened", [True, False])
def test_a_call_without_an_answer_may_have_happened_or_not(happened: bool) -> None:
    script = Script()
    script.enqueue()
    started = script.claim(1, 1)
    ended = script.complete(1, certain=OPEN, reply=None)
    if happened:
        script.ends("completed", 1, started_at=started, completed_at=ended + 5, result="1")
    else:
        script.ends("running", 1, started_at=started, worker="w1", lease_expires_at=started + LEASE)
    assert script.findings() == []


def test_overlapping_calls_may_have_happened_in_either_order() -> None:
    script = Script()
    script.enqueue()
    started = script.claim(1, 1)
    script.part("settle", "w1", ["c", ID, 1, "w1", "1"], None, took=5 * SECOND)  # LeaseLost, for it was cancelled.
    ended = script.operate("cancel", True)
    script.ends("dead", 1, started_at=started, completed_at=ended, error="cancelled")
    assert script.findings() == []


def test_a_dequeue_that_nobody_got_explains_a_fence_that_nobody_has() -> None:
    script = Script()
    script.enqueue()
    lost = script.now
    script.lost.append(["w9", lost, FOREVER, lost, "w9", LEASE, None])
    script.wait(2 * LEASE)
    lease = lost + 7 + LEASE
    script.look(1, lease)
    script.wait(2 * SECOND)
    script.look(1, lease)
    swept = script.sweep(1, lease, "failed")
    started = script.claim(2, 2, due=swept + BASE, error=LEASE_EXPIRED)
    ended = script.complete(2)
    script.ends("completed", 2, started_at=started, completed_at=ended, result="2", error=LEASE_EXPIRED,
                scheduled_at=swept + BASE)  # fmt: skip
    assert script.findings() == []
    script.lost.clear()
    assert script.findings() != []


def test_a_job_that_a_cleanup_can_have_deleted_may_be_gone() -> None:
    script = done()
    script.row = None
    assert script.clauses() == {"G-16"}
    script.cleanups.append([script.now, script.now + 10, script.now, script.now, SECOND, ["completed"], 1])
    assert script.findings() == []


def test_of_many_cleanups_the_one_that_can_have_deleted_a_job_is_found() -> None:
    script = done()
    script.row = None
    for number in range(100):  # Of the other status, or too early for the retention; then, at last, one that fits.
        at, statuses = script.now + number * SECOND, ["dead"] if number % 3 else ["completed", "dead"]
        script.cleanups.append([at, at + 10, at, at, 99 * SECOND, statuses, 0])
    script.wait(100 * SECOND)
    assert script.findings() == []
    script.cleanups[-1][5] = ["dead"]
    assert script.clauses() == {"G-16"}


def test_a_cancel_that_may_have_happened_twice_is_accepted() -> None:
    script = Script()
    script.enqueue()
    ended = script.operate("cancel", None, PHANTOM)
    script.parts[-1][4] = FOREVER
    script.operate("cancel", False)
    script.ends("dead", 0, completed_at=ended, error="cancelled")
    assert script.findings() == []


# Violations


def zombie_completes() -> Script:
    script = Script()
    script.enqueue()
    lease = script.claim(1, 1) + LEASE
    script.wait(2 * LEASE)
    script.look(1, lease)
    script.wait(2 * SECOND)
    script.look(1, lease)
    swept = script.sweep(1, lease, "failed")
    started = script.claim(2, 2, "w2", due=swept + BASE, error=LEASE_EXPIRED)
    ended = script.complete(1, "w1")
    script.ends("completed", 2, started_at=started, completed_at=ended, result="1", error=LEASE_EXPIRED)
    return script


def one_fence_for_two() -> Script:
    script = done()
    script.now = 2 * SECOND
    script.claim(1, 1, "w2")
    return script


def too_early() -> Script:
    script = Script()
    script.enqueue()
    script.claim(1, 1, due=5 * SECOND)
    return script


def early_retry(late: int = -1) -> Script:
    script = Script()
    script.enqueue()
    script.claim(1, 1)
    failed = script.fail(1)
    script.claim(2, 2, due=failed + BASE + late, error="e")
    return script


def late_retry() -> Script:
    return early_retry(BASE // 10 + 1)


def too_many_attempts() -> Script:
    script = Script(max_attempts=1)
    script.enqueue()
    script.claim(1, 1)
    script.fail(1)
    script.claim(2, 2)
    return script


def forgotten_attempt() -> Script:
    script = Script()
    script.enqueue()
    script.claim(1, 1)
    failed = script.fail(1)
    script.claim(2, 1, due=failed + BASE, error="e")
    return script


def begun_twice() -> Script:
    script = Script(max_attempts=1)
    script.enqueue()
    script.claim(1, 1)
    script.begin(1)
    script.release(1, begun=False)
    script.claim(2, 1)
    script.begin(2)
    return script


def one_look() -> Script:
    script = Script()
    script.enqueue()
    lease = script.claim(1, 1) + LEASE
    script.wait(2 * LEASE)
    script.look(1, lease)
    script.sweep(1, lease, "failed")
    return script


def two_looks_too_close() -> Script:
    script = Script()
    script.enqueue()
    lease = script.claim(1, 1) + LEASE
    script.wait(2 * LEASE)
    script.look(1, lease)
    script.look(1, lease)
    script.sweep(1, lease, "failed")
    return script


def outcome_of_another() -> Script:
    script = Script()
    script.enqueue()
    script.claim(1, 1)
    script.complete(1, result="7")
    return script


def left_behind() -> Script:
    script = Script(quits=frozenset({"w1"}))
    script.enqueue()
    script.claim(1, 1)
    return script


def dead_before_its_time() -> Script:
    script = Script()
    script.enqueue()
    script.claim(1, 1)
    script.fail(1, reply="dead")
    return script


def lost() -> Script:
    script = Script()
    script.enqueue()
    return script


def invented() -> Script:
    script = Script()
    script.claim(1, 1)
    return script


def shortened_lease() -> Script:
    script = Script()
    script.enqueue()
    started = script.claim(1, 1)
    script.extend(1, started + LEASE - 1)
    return script


def released_though_once() -> Script:
    script = Script(max_attempts=1)
    script.enqueue()
    script.claim(1, 1)
    script.release(1, begun=True)
    return script


def dead_without_reason() -> Script:
    script = done()
    assert script.row is not None
    script.row |= {"status": "dead", "result": None}
    return script


@pytest.mark.parametrize(
    ("violation", "clause"),
    [
        (zombie_completes, "G-3"), (one_fence_for_two, "G-2"), (too_early, "G-10"), (early_retry, "G-11"),
        (late_retry, "G-11"), (too_many_attempts, "G-6"), (forgotten_attempt, "G-5"), (begun_twice, "G-20"),
        (one_look, "W-3"), (two_looks_too_close, "W-3"), (outcome_of_another, "W-5"), (left_behind, "W-7"),
        (dead_before_its_time, "G-7"), (lost, "G-16"), (invented, "G-16"), (shortened_lease, "G-17"),
        (released_though_once, "G-20"), (dead_without_reason, "§5"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)  # fmt: skip
def test_a_violation_is_named_and_shown(violation: Callable[[], Script], clause: str) -> None:
    found = [finding for finding in violation().findings() if finding.clause == clause]
    assert found
    assert any(line.startswith(">> ") for line in found[0].excerpt)


def test_what_a_killed_client_had_sent_may_wait_for_a_lock_and_happen_after_its_end() -> None:
    events = [[5, "lock", "begin"], [6, "pause", "b"], [8, "resume", "b"], [9, "lock over"]]
    waits = list(_waits(events, _strikes(events)))
    assert sorted(waits) == [(5, 9 + SECOND), (6, 8 + SECOND)]
    assert [_outlasted(died, waits) for died in (4, 5, 7, 10 + SECOND)] == [4, 9 + SECOND, 9 + SECOND, 10 + SECOND]
