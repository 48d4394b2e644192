"""Fixtures of the worker tests: queues on a real clock, with leases and backoffs that are short enough to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobqueue import Backoff, Queue
from jobqueue.clock import SystemClock
from tests.conftest import OpenQueue

QUICK = Backoff(base_us=1000, cap_us=1000, jitter=0.0)
OpenLive = Callable[..., Queue]


@pytest.fixture
def open_live(open_queue: OpenQueue) -> OpenLive:
    """Opens handles on the test's database that live in real time."""

    def open_one(lease: float = 30.0, **options: Any) -> Queue:
        return open_queue(clock=SystemClock(), lease=lease, backoff=QUICK, **options)

    return open_one


@pytest.fixture
def live(open_live: OpenLive) -> Queue:
    return open_live()
