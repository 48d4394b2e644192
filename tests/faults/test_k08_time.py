"""K8, time: one stored form of every instant, exact to the microsecond, and clocks that are wrong harm nobody."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from jobqueue import InvalidArgument, Job, Queue, Status
from jobqueue.sql import for_queue
from jobqueue.values import EPOCH, MICROSECOND
from tests.cli.conftest import Cli, bare_cli, cli
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults.conftest import Hire
from tests.faults.scene import SteppedClock, claim, row, until

__all__ = ["bare_cli", "cli"]  # Fixtures of the command line's tests, used here as well.
MIDNIGHT_US = (datetime(2030, 3, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
WHOLE_SECOND_US = (datetime(2030, 1, 1, 12, tzinfo=UTC) - EPOCH) // MICROSECOND


def at(micros: int) -> datetime:
    return EPOCH + micros * MICROSECOND


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_b20_no_statement_has_a_clock_or_a_text_form_of_time_of_its_own(dialect: str) -> None:
    """PostgreSQL's exceptions are the now of §7, in the two forms that the library gives it: a claim reads its own."""
    forbidden = r"datetime\(|julianday|unixepoch\(|current_timestamp|current_date|\bnow\(\)|clock_timestamp|localtime"
    for name, text in for_queue(dialect, "jobs").items():
        bare = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
        bare = bare.replace("due_at constant timestamptz := coalesce($5, clock_timestamp());", "", int(name == "due"))
        assert re.findall(forbidden, bare, re.IGNORECASE) == [], name
        if name not in ("schema", "due") and dialect == "sqlite":
            assert "strftime" not in bare, name


def test_b20_deadlines_around_midnight_are_told_apart(queue: Queue, clock: ManualClock) -> None:
    clock.set(MIDNIGHT_US - 3_000_000)
    queue.enqueue_many([{"type": "t"}, {"type": "t"}])
    later, sooner = claim(queue, lease=8), claim(queue, lease=2)
    early = queue.enqueue("t", scheduled_at=at(MIDNIGHT_US - 1))
    queue.enqueue("t", scheduled_at=at(MIDNIGHT_US + 1))
    clock.set(MIDNIGHT_US)
    assert [swept.id for swept in queue.sweep()] == [sooner.id]
    assert [job.id for job in queue.dequeue_many(9)] == [early]
    queue.complete(later)
    clock.set(MIDNIGHT_US + 5_000_000)
    assert queue.cleanup(5.000001) == 0
    assert queue.cleanup(5) == 1


@pytest.mark.parametrize("start_us", [WHOLE_SECOND_US, MIDNIGHT_US - 1])
def test_b84_order_and_due_are_those_of_the_instants(queue: Queue, clock: ManualClock, start_us: int) -> None:
    clock.set(start_us)
    fractions = [999_999, 1, 500_000, 0, 10, 1_000_000]
    ids = {us: queue.enqueue("t", scheduled_at=at(start_us + us)) for us in fractions}
    plain = queue.enqueue("t")
    first = [claim(queue).id, claim(queue).id]
    assert first == [ids[0], plain]
    for us in sorted(fractions)[1:]:
        clock.set(start_us + us - 1)
        assert queue.dequeue() is None
        clock.set(start_us + us)
        assert claim(queue).id == ids[us]


def test_b85_an_instant_on_a_whole_second_is_read_like_any_other(queue: Queue, clock: ManualClock, cli: Cli) -> None:
    clock.set(WHOLE_SECOND_US)
    ids = queue.enqueue_many([{"type": "t"}, {"type": "t", "delay": 60}, {"type": "t"}])
    queue.fail(claim(queue), "e", delay=1)
    queue.complete(claim(queue))
    for id in ids:
        assert row(queue, id).created_at == at(WHOLE_SECOND_US)
        shown = cli("show", id, "--json").json
        assert datetime.fromisoformat(shown["created_at"]) == at(WHOLE_SECOND_US)
        assert cli("show", id).code == 0
    assert len(cli("list", "--json").json["jobs"]) == len(queue.list()) == 3


@pytest.fixture(params=["Europe/Warsaw", "America/New_York", "Pacific/Chatham"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The machine's own time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_b86_aware_instants_are_exact_whatever_the_machines_zone_and_naive_ones_refused(
    queue: Queue, clock: ManualClock, zone: str
) -> None:
    instant = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # Warsaw sees half past two twice that night.
    warsaw = ZoneInfo("Europe/Warsaw")
    same = [instant, instant.astimezone(timezone(timedelta(hours=1))), datetime(2026, 10, 25, 2, 30, tzinfo=warsaw),
            instant.astimezone(ZoneInfo("America/St_Johns"))]  # fmt: skip
    ids = [queue.enqueue("t", scheduled_at=each) for each in same]
    an_hour_on = queue.enqueue("t", scheduled_at=datetime(2026, 10, 25, 2, 30, tzinfo=warsaw, fold=1))
    assert {row(queue, id).scheduled_at for id in ids} == {instant}
    assert row(queue, an_hour_on).scheduled_at == instant + timedelta(hours=1)
    clock.set((instant - EPOCH) // MICROSECOND - 1)
    assert queue.dequeue() is None
    clock.set((instant - EPOCH) // MICROSECOND)
    assert [job.id for job in queue.dequeue_many(9)] == ids
    with pytest.raises(InvalidArgument, match="time zone"):
        queue.enqueue("t", scheduled_at=datetime(2026, 10, 25, 2, 30))


@pytest.mark.parametrize("fraction_us", [0, 500_000, 900_000])
def test_b87_fractions_of_a_second_are_kept_and_nothing_is_early(
    queue: Queue, clock: ManualClock, fraction_us: int
) -> None:
    clock.set(WHOLE_SECOND_US + fraction_us)
    delayed = queue.enqueue("t", delay=0.2)
    clock.advance(0.199999)
    assert queue.dequeue() is None
    clock.advance(0.000001)
    job = claim(queue, lease=0.5)
    assert job.id == delayed
    clock.advance(0.499999)
    assert queue.sweep() == []
    clock.advance(0.000001)
    assert len(queue.sweep()) == 1


@pytest.mark.parametrize("step", [-3600, 3600], ids=["back", "forth"])
def test_u3_a_clock_that_steps_by_an_hour_stops_no_worker_and_takes_no_live_job(
    open_queue: OpenQueue, hire: Hire, step: int
) -> None:
    """Sleeps, heartbeats and the distance of two looks go by a clock that is never set (section 7)."""
    clock = SteppedClock()
    queue = open_queue(clock=clock, lease=1.2)
    starts: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def handler(job: Job) -> str:
        starts.append(job.id)
        if job.payload == "long":
            begun.set()
            go.wait()
        return "done"

    for _ in range(2):
        hire(queue, handler, concurrency=2, poll_interval=0.1)
    long = queue.enqueue("t", "long")
    begun.wait()
    clock.ahead = step
    before = row(queue, long).lease_expires_at
    for _ in range(3):
        id = queue.enqueue("t")
        until(lambda id=id: row(queue, id).status is Status.COMPLETED)  # type: ignore[misc]
    if step > 0:  # The lease looks long expired until it is renewed: by more looks than one.
        until(lambda: row(queue, long).lease_expires_at != before)
    looked = time.monotonic() + 1.5
    until(lambda: time.monotonic() > looked)
    assert (row(queue, long).status, row(queue, long).attempts) == (Status.RUNNING, 1)
    go.set()
    until(lambda: row(queue, long).status is Status.COMPLETED)
    assert starts.count(long) == 1


def test_u3_a_clock_set_back_neither_sweeps_nor_shortens_a_lease(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue("t")
    job = claim(queue)
    end = row(queue, job.id).lease_expires_at
    looked_at = clock.now_us()
    clock.advance(31)
    looked = queue.expired()
    clock.set(looked_at - 3_600_000_000)
    assert queue.sweep(looked) == queue.sweep() == []
    assert queue.extend(job) == end
    queue.complete(job)
