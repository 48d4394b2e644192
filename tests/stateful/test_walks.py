"""Walks over all operations that Hypothesis chooses, and shrinks when the model does not allow what the queue did."""

from __future__ import annotations

from contextlib import ExitStack, closing

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

import jobqueue
from tests.clock import ManualClock
from tests.stateful.machine import BACKOFF, QueueMachine
from tests.tables import caller_of, table_of


def test_every_answer_on_every_walk_is_one_that_the_model_allows(backend: str, url: str) -> None:
    def open_queue(clock: ManualClock) -> jobqueue.Queue:
        queue = jobqueue.Queue.open(url, clock=clock, backoff=BACKOFF, synchronous="normal")
        opened.callback(queue.close)  # Hypothesis makes one machine that it neither runs nor tears down.
        return queue

    jobqueue.Queue.open(url).close()
    caller = caller_of(backend, url)
    with closing(caller()) as connection:
        connection.execute("create table effects (n integer)")
        connection.commit()
    with closing(table_of(backend, url)) as table, ExitStack() as opened:

        class Walk(QueueMachine):
            def __init__(self) -> None:
                super().__init__(open_queue, table, caller)

        most = settings().max_examples // (1 if backend == "sqlite" else 2)
        run_state_machine_as_test(Walk, settings=settings(max_examples=most))
