"""A bare client: it dequeues, and then does with its claims whatever a holder may do, and some things too late.

It sends no heartbeats of its own accord. What it keeps beyond the lease is swept and given to others; when it comes
back it is a zombie, whose every operation must be LeaseLost and change nothing (G-3).
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count

from jobqueue import Job, LeaseLost
from stress.recording import RecordingQueue
from stress.roles import CLAIMED, LOST, SETTLED, Life


class Holder:
    def __init__(self, me: Life, queue: RecordingQueue) -> None:
        self._me, self._queue, self._random = me, queue, me.random
        self._held: list[tuple[float, int, Callable[[Job], object], Job]] = []
        self._order = count()

    def run(self) -> None:
        while not self._me.ending.is_set():
            self._do_what_is_due()
            if len(self._held) < 12 and self._random.random() < 0.5:
                self._claim()
            self._me.ending.wait(self._random.uniform(0.0, 0.03))
        for _, _, deed, job in self._held:
            begun = deed == self._complete  # Perhaps: then it must not be said that it is not.
            self._attempt(self._complete if begun else self._give_back, job)

    def _claim(self) -> None:
        number = self._random.choice((1, 1, 2, 5))
        everything = [f"type{number}" for number in range(self._me.options.types)]
        types = self._random.choice(((), tuple(everything[:2]), tuple(everything[1:])))
        jobs = self._me.patiently(lambda: self._queue.dequeue_many(number, *types)) or []
        self._me.count(CLAIMED, len(jobs))
        for job in jobs:
            self._intend(job)

    def _intend(self, job: Job) -> None:
        """What will be done with this claim, and when: at once, late in its lease, or long after it."""
        lease = self._me.options.lease
        chance = self._random.random()
        late = self._random.uniform(0, 0.9) if chance < 0.8 else self._random.uniform(1, 2)
        wait = 0.0 if chance < 0.5 else lease * late
        deeds = [self._complete] * 6 + [self._fail, self._release, self._give_back, self._extend, self._complete_later]
        heapq.heappush(self._held, (time.monotonic() + wait, next(self._order), self._random.choice(deeds), job))

    def _do_what_is_due(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            _, _, deed, job = heapq.heappop(self._held)
            self._attempt(deed, job)

    def _attempt(self, deed: Callable[[Job], object], job: Job) -> None:
        def once() -> object:
            try:
                done = deed(job)
            except LeaseLost:
                self._me.count(LOST)
                return None
            self._me.count(SETTLED)
            return done

        self._me.patiently(once)

    def _begin(self, job: Job) -> None:
        self._me.history.begun(job.id, job.fence)

    def _complete(self, job: Job) -> object:
        self._begin(job)
        self._queue.complete(job, job.fence)
        return None

    def _fail(self, job: Job) -> object:
        self._begin(job)
        delay, for_good = self._random.choice((None, None, 0, 0.3)), self._random.random() < 0.2
        text = f"fence {job.fence}: bare" + (", for good" if for_good else "")
        return self._queue.fail(job, text, delay=delay, for_good=for_good)

    def _release(self, job: Job) -> object:
        self._begin(job)
        return self._queue.release(job, delay=self._random.choice((None, 0.2)))

    def _give_back(self, job: Job) -> object:
        return self._queue.release(job, begun=False)

    def _extend(self, job: Job) -> object:
        until = self._queue.extend(job)
        self._intend(job)
        return until

    def _complete_later(self, job: Job) -> object:
        """As a worker that goes on after its lease was extended by nobody: a zombie, more often than not."""
        self._begin(job)
        due = time.monotonic() + self._me.options.lease * self._random.uniform(1.5, 2.5)
        heapq.heappush(self._held, (due, next(self._order), self._complete, job))
        return None
