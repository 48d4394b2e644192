"""Wait until a job has ended: looks at its row, ever further apart, and at once when the database has changed."""

from __future__ import annotations

from collections.abc import Callable

from jobqueue.clock import Clock
from jobqueue.protocols import Wakeup
from jobqueue.types import TERMINAL, JobView

SOON, LATER = 0.002, 0.01  # Seconds from the first look to the second: after a change, without one.
LONGEST = 1.0  # Seconds between two looks at most.
GROWTH = 1.25  # So an end that wakes nobody is seen a quarter late: a fifth of a second for a job of one second.


class Wait:
    """One wait, which another thread may give up."""

    def __init__(self, look: Callable[[], JobView | None], wakeup: Wakeup, clock: Clock, timeout: float | None) -> None:
        self._look, self._wakeup, self._clock = look, wakeup, clock
        self._deadline = None if timeout is None else clock.monotonic() + timeout
        self._given_up = False

    def result(self) -> JobView | None:
        """The job's view once it has ended; None if there is no such job, or the wait was given up.

        Raises TimeoutError when the time is up. Called once.
        """
        pause = LATER
        try:
            while not self._given_up:
                self._wakeup.arm()
                view = self._look()
                if view is None or view.status in TERMINAL:
                    return view
                left = LONGEST if self._deadline is None else self._deadline - self._clock.monotonic()
                if left <= 0:
                    raise TimeoutError(f"job {view.id} is still {view.status}")
                # SQLite writes a commit, which wakes this, before it can be read: so look again soon after a change.
                changed = self._wakeup.wait(min(left, pause))
                pause = SOON if changed else min(GROWTH * pause, LONGEST)
            return None
        finally:
            self._wakeup.close()

    def give_up(self) -> None:
        """End ``result`` soon, from any thread."""
        self._given_up = True
        self._wakeup.wake()
