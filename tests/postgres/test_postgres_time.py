"""Time is the server's: a client whose clock is wrong harms nothing (B21). A clock that a test gives is used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobqueue import Status
from jobqueue.clock import SystemClock
from tests.clock import START_US, ManualClock
from tests.postgres.conftest import OpenPostgres, OpenSession


class WrongClock(SystemClock):
    """The system's clock, minutes off."""

    def __init__(self, minutes: float) -> None:
        self._off_us = round(minutes * 60_000_000)

    def now_us(self) -> int:
        return super().now_us() + self._off_us


@pytest.mark.parametrize("minutes", [-10, 10])
def test_b21_a_wrong_clock_neither_steals_a_lease_nor_runs_a_job_early(
    open_postgres: OpenPostgres, minutes: float
) -> None:
    right, wrong = open_postgres(), open_postgres(clock=WrongClock(minutes))
    right.enqueue("held")
    right.enqueue("soon", delay=300)
    held = right.dequeue()
    assert held is not None
    assert wrong.expired() == []
    assert wrong.sweep() == []
    assert wrong.dequeue() is None
    right.complete(held)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_b21_a_wrong_clock_stores_the_servers_instants(
    open_postgres: OpenPostgres, session: OpenSession, minutes: float
) -> None:
    wrong, connection = open_postgres(clock=WrongClock(minutes)), session()
    wrong.enqueue("t", delay=20)
    wrong.enqueue("t")
    job = wrong.dequeue(lease=30)
    assert job is not None
    wrong.extend(job, lease=40)
    [(most,)] = connection.execute(
        "select max(abs(extract(epoch from at - now()))) from jobs,"
        " lateral (values (scheduled_at), (created_at), (started_at), (lease_expires_at)) as instants (at)"
    ).fetchall()
    assert most < 100  # Seconds; a wrong clock would make it 560 and more.
    wrong.fail(job, "e", delay=20)
    assert wrong.counts()[Status.FAILED] == 1
    assert wrong.dequeue() is None


def test_a_manual_clock_is_the_now_of_every_statement(open_postgres: OpenPostgres, clock: ManualClock) -> None:
    queue = open_postgres(clock=clock)
    queue.enqueue("t")
    clock.advance(5)
    job = queue.dequeue(lease=10)
    assert job is not None
    assert (job.created_at_us, job.started_at_us) == (START_US, START_US + 5_000_000)
    clock.advance(9.999999)
    assert queue.expired() == []
    clock.advance(0.000001)
    assert [look.id for look in queue.expired()] == [job.id]


@pytest.mark.parametrize("micros", [0, 1, 999_999, 253_402_300])
@pytest.mark.parametrize("year", [1970, 1999, 2000, 2026, 2999])
def test_b84_instants_are_exact_to_the_microsecond(
    open_postgres: OpenPostgres, session: OpenSession, clock: ManualClock, year: int, micros: int
) -> None:
    queue = open_postgres(clock=clock)
    at = datetime(year, 2, 28, 23, 59, 59, tzinfo=UTC) + timedelta(microseconds=micros)
    id = queue.enqueue("t", scheduled_at=at)
    view = queue.get(id)
    assert view is not None
    assert view.scheduled_at == at
    [(stored,)] = session().execute("select extract(epoch from scheduled_at) * 1000000 from jobs").fetchall()
    assert int(stored) == (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.direct
def test_another_time_zone_of_the_session_reads_the_same_instants(
    postgres_url: str, open_postgres: OpenPostgres
) -> None:
    elsewhere = postgres_url.replace("options=", "options=-ctimezone%3DAsia/Kolkata%20")
    here, there = open_postgres(), open_postgres(url=elsewhere)
    id = here.enqueue("t", delay=0.25)
    assert here.get(id) == there.get(id)
