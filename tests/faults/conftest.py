"""Queues by the machine's own clock, processes to talk to, and workers that are stopped at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from jobqueue import Queue, Worker
from jobqueue.backoff import Backoff
from jobqueue.clock import SystemClock
from tests.conftest import OpenQueue
from tests.faults.scene import Actor
from tests.tables import Table, table_of

AT_ONCE = Backoff(base_us=1000, cap_us=1000)


class StartActor(Protocol):
    def __call__(self, part: str, *arguments: Any, user: int | None = None) -> Actor: ...


class Hire(Protocol):
    def __call__(self, queue: Queue, handlers: Any, **options: Any) -> Worker: ...


@pytest.fixture
def open_live(open_queue: OpenQueue) -> OpenQueue:
    """Opens handles by the machine's clock (the server's, on PostgreSQL), whose retries follow at once."""
    return lambda **options: open_queue(**{"clock": SystemClock(), "backoff": AT_ONCE, **options})


@pytest.fixture
def live(open_live: OpenQueue) -> Queue:
    return open_live()


@pytest.fixture
def table(backend: str, url: str, open_queue: OpenQueue) -> Iterator[Table]:
    """The queue's table, past the library."""
    open_queue()
    table = table_of(backend, url)
    yield table
    table.close()


@pytest.fixture
def actor(tmp_path: Path) -> Iterator[StartActor]:
    """Starts processes, which are gone when the test ends."""
    with ExitStack() as started:

        def start(part: str, *arguments: Any, user: int | None = None) -> Actor:
            one = Actor(part, *arguments, directory=tmp_path, user=user)
            started.callback(one.dismiss)
            return one

        yield start


@pytest.fixture
def hire() -> Iterator[Hire]:
    """Starts workers, each in a thread of its own, which are stopped when the test ends."""
    with ExitStack() as hired:

        def start(queue: Queue, handlers: Any, **options: Any) -> Worker:
            return hired.enter_context(Worker(queue, handlers, **{"grace": 0.2, "poll_interval": 0.2, **options}))

        yield start
