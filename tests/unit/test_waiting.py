"""How soon a wait sees an end that wakes nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobqueue import JobView, Queue, Status
from jobqueue.waiting import Wait
from tests.clock import ManualClock

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])


class Asleep:
    """A wake-up that nothing wakes: time passes."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.closed = clock, False

    def arm(self) -> None:
        return

    def wait(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        return False

    def wake(self) -> None:
        return

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("takes", [0.001, 0.1, 0.9, 10.0, 1000.0])
def test_s5_an_end_that_wakes_nobody_is_seen_a_quarter_late_and_never_a_second(
    queue: Queue, clock: ManualClock, takes: float
) -> None:
    running = queue.get(queue.enqueue("a"))
    assert running is not None
    start, looks = clock.monotonic(), 0

    def look() -> JobView:
        nonlocal looks
        looks += 1
        over = clock.monotonic() - start >= takes
        return replace(running, status=Status.COMPLETED) if over else running

    wakeup = Asleep(clock)
    assert Wait(look, wakeup, clock, None).result() is not None
    late = clock.monotonic() - start - takes
    assert late <= min(takes / 4 + 0.01, 1.0) + 1e-6
    assert looks <= 25 + takes
    assert wakeup.closed
