"""K4, stuck for ever: recovery recovers, without any set-up, whatever the dead worker was called and held."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from jobqueue import Queue, Status
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults.conftest import Hire, StartActor
from tests.faults.scene import change, claim, row, until, until_noted
from tests.pauses import pause

YEAR_9999_US = 253_370_764_800_000_000


def test_b54_one_new_worker_recovers_the_jobs_of_a_killed_one(
    url: str, open_live: OpenQueue, actor: StartActor, tmp_path: Path, full: bool
) -> None:
    """Two plain workers and nothing else: --full with the lease that users get by default."""
    queue, log = open_live(), tmp_path / "log"
    lease = {} if full else {"lease": 1.0}
    ids = queue.enqueue_many([{"type": "t", "payload": {"log": str(log), "do": "never"}} for _ in range(5)])
    doomed = actor("worker", url, {"concurrency": 5, **lease})
    until(lambda: log.exists() and len(log.read_text().splitlines()) == 5)
    doomed.kill()
    actor("worker", url, {"concurrency": 5, **lease})
    until(lambda: set(log.read_text().splitlines()) >= {f"{id} 2" for id in ids}, 120)


def test_b54_a_stopped_process_loses_its_job_and_does_not_settle_it_later(
    url: str, open_live: OpenQueue, actor: StartActor, tmp_path: Path
) -> None:
    """Stopped for three leases and more, then continued: its late outcome is dropped."""
    queue, log, stay = open_live(), tmp_path / "log", tmp_path / "stay"
    stay.touch()
    id = queue.enqueue("t", {"log": str(log), "do": "wait", "while": str(stay)}, max_attempts=9)
    stopped = actor("worker", url, {"lease": 0.6, "grace": 0})
    until_noted(log)
    pause(stopped.process, open_live(busy_timeout=0.5))
    actor("worker", url, {"lease": 0.6})
    until(lambda: len(log.read_text().splitlines()) == 2)
    holder = row(queue, id).worker
    stopped.process.send_signal(signal.SIGCONT)
    stopped.process.send_signal(signal.SIGTERM)
    assert [stopped.says(), stopped.says()] == ["ready", "ended"]
    view = row(queue, id)
    assert (view.status, view.worker, view.attempts) == (Status.RUNNING, holder, 2)
    stay.unlink()
    until(lambda: row(queue, id).status is Status.COMPLETED)
    assert len(log.read_text().splitlines()) == 2


def test_b55_a_new_worker_of_the_same_name_does_not_keep_the_old_claims_alive(queue: Queue, clock: ManualClock) -> None:
    lost, other = queue.enqueue_many([{"type": "t"}, {"type": "t"}])
    old = claim(queue, worker="w1")
    clock.advance(20)
    mine = claim(queue, worker="w1")
    assert (old.id, mine.id) == (lost, other)
    for _ in range(5):
        clock.advance(10)
        queue.extend(mine)
    assert [swept.id for swept in queue.sweep()] == [lost]


def test_b55_every_start_of_a_worker_has_a_name_of_its_own(open_live: OpenQueue, hire: Hire) -> None:
    queue = open_live()
    one, two, three = hire(queue, lambda job: None), hire(queue, lambda job: None), hire(open_live(), lambda job: None)
    names = {one.name, two.name, three.name}
    one.stop()
    one.start()
    assert len(names | {one.name}) == 4


def test_b57_a_lost_job_takes_no_place_from_others(live: Queue, hire: Hire) -> None:
    """A worker of size one, and a job of the same type whose holder is gone and whose lease goes on."""
    live.enqueue("t")
    claim(live, worker="gone", lease=3600)
    next_one = live.enqueue("t")
    hire(live, lambda job: None, concurrency=1)
    until(lambda: row(live, next_one).status is Status.COMPLETED)


@pytest.mark.parametrize("damage", ["lease_expires_at = null", "worker = null", "status = 'active'", "attempts = 9"])
def test_b58_the_database_refuses_a_running_row_without_its_lease(
    backend: str, url: str, queue: Queue, damage: str
) -> None:
    id = queue.enqueue("t")
    claim(queue)
    with pytest.raises(Exception, match=r"(?i)check|constraint"):
        change(backend, url, f"update jobs set {damage}")
    assert row(queue, id).status is Status.RUNNING


@pytest.mark.parametrize("absurd", ["the year 9999", "beyond every calendar"])
def test_b58_an_absurd_lease_is_shown_and_an_operator_can_end_it(
    backend: str, url: str, queue: Queue, clock: ManualClock, absurd: str
) -> None:
    id = queue.enqueue("t")
    claim(queue)
    other = queue.enqueue("t")
    if absurd == "the year 9999":
        value = str(YEAR_9999_US) if backend == "sqlite" else "'9999-01-01Z'"
    else:
        value = str(2**62) if backend == "sqlite" else "'infinity'"
    change(backend, url, f"update jobs set lease_expires_at = {value} where status = 'running'")
    assert row(queue, id).lease_expires_at is not None
    assert [view.id for view in queue.list()] == [id, other]
    clock.advance(86_400)
    assert queue.sweep() == []
    assert queue.cancel(id)
    assert queue.requeue(id)
    assert claim(queue).id == id


def test_b58_a_lease_that_lies_in_the_distant_past_is_swept(backend: str, url: str, queue: Queue) -> None:
    id = queue.enqueue("t")
    claim(queue)
    value = "-9000000000000000" if backend == "sqlite" else "'1700-01-01Z'"
    change(backend, url, f"update jobs set lease_expires_at = {value}")
    assert [swept.id for swept in queue.sweep()] == [id]
