"""The worker with handlers in threads and coroutines, on real databases (spec W-1 to W-9)."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jobqueue import InvalidArgument, JobView, Queue, Status, WrongUse
from jobqueue.handlers import Handlers, Retry, Snooze
from jobqueue.types import Job
from jobqueue.worker import Worker
from tests.worker import jobs
from tests.worker.conftest import OpenLive

PATIENCE = 20.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Lets handlers go that wait for it, at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def ended(queue: Queue, id: str) -> JobView:
    view = queue.wait(id, PATIENCE)
    assert view is not None
    return view


def test_w4_a_drained_queue_holds_what_the_handlers_returned(live: Queue) -> None:
    ids = live.enqueue_many({"type": "echo", "payload": {"n": n}} for n in range(250))
    Worker(live, jobs.handlers, concurrency=3).run(drain=True)
    assert live.counts()[Status.COMPLETED] == 250
    last = live.get(ids[-1])
    assert last is not None
    assert last.result == {"n": 249}
    assert last.attempts == 1


def test_g12_one_slot_runs_jobs_in_order(live: Queue) -> None:
    order: list[int] = []
    live.enqueue_many({"type": "x", "payload": n, "priority": n % 3} for n in range(60))
    Worker(live, lambda job: order.append(job.payload)).run(drain=True)
    assert order == [n for level in (2, 1, 0) for n in range(60) if n % 3 == level]


@pytest.mark.parametrize("type", ["raise", "raise later"])
def test_w4_whatever_a_handler_raises_is_one_recorded_failure(live: Queue, type: str) -> None:
    ids = {live.enqueue(type, name, max_attempts=1): name for name in jobs.RAISED}
    good = live.enqueue("echo", "still alive", priority=-1)
    Worker(live, jobs.handlers, concurrency=2).run(drain=True)
    for id, name in ids.items():
        view = live.get(id)
        assert view is not None
        assert (view.status, view.attempts) == (Status.DEAD, 1)
        if (type, name) != ("raise later", "StopIteration"):  # Python makes a RuntimeError of that in coroutines.
            assert (view.error or "").startswith(_name(name))
    assert ended(live, good).result == "still alive"


def _name(kind: str) -> str:
    return type(jobs.RAISED[kind]).__name__


def test_w4_retry_snooze_and_discard(live: Queue) -> None:
    seen: list[tuple[str, int]] = []

    def handler(job: Job) -> None:
        seen.append((job.type, job.attempts))
        if len([each for each in seen if each[0] == job.type]) < 3:
            raise {"retry": Retry, "snooze": Snooze}[job.type](0)

    retried, snoozed = live.enqueue("retry"), live.enqueue("snooze")
    gone = live.enqueue("ask", ["discard", "no such user"])
    Worker(live, handler, types=("retry", "snooze")).run(drain=True)
    Worker(live, jobs.handlers).run(drain=True)
    assert [attempt for type, attempt in seen if type == "retry"] == [1, 2, 3]
    assert [attempt for type, attempt in seen if type == "snooze"] == [1, 1, 1]
    for id, attempts in ((retried, 3), (snoozed, 1)):
        assert (ended(live, id).status, ended(live, id).attempts) == (Status.COMPLETED, attempts)
    assert (ended(live, gone).status, ended(live, gone).error) == (Status.DEAD, "no such user")


@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_g7_a_handler_that_always_fails_starts_as_often_as_allowed(live: Queue, max_attempts: int) -> None:
    starts: list[int] = []

    def handler(job: Job) -> None:
        starts.append(job.attempts)
        raise ValueError("no")

    id = live.enqueue("x", max_attempts=max_attempts)
    with Worker(live, handler):
        view = ended(live, id)
    assert (view.status, starts) == (Status.DEAD, list(range(1, max_attempts + 1)))


def test_w1_only_types_with_a_handler_are_claimed(live: Queue) -> None:
    other = live.enqueue("unknown", priority=10)
    mine = live.enqueue("echo", 1)
    Worker(live, jobs.handlers).run(drain=True)
    assert ended(live, mine).status is Status.COMPLETED
    view = live.get(other)
    assert view is not None
    assert (view.status, view.attempts) == (Status.PENDING, 0)


def test_w1_slow_handlers_leave_the_rest_to_other_workers(live: Queue, gate: threading.Event) -> None:
    begun = threading.Semaphore(0)

    def handler(job: Job) -> None:
        begun.release()
        gate.wait(PATIENCE)

    live.enqueue_many({"type": "x"} for _ in range(10))
    with Worker(live, handler, concurrency=3):
        for _ in range(3):
            assert begun.acquire(timeout=PATIENCE)
        assert live.counts()[Status.RUNNING] == 3
        gate.set()


def test_w1_free_slots_are_filled_while_others_are_busy(live: Queue, gate: threading.Event) -> None:
    slow = live.enqueue("slow")
    with Worker(live, lambda job: gate.wait(PATIENCE) if job.type == "slow" else None, concurrency=2):
        for _ in range(20):
            assert ended(live, live.enqueue("quick")).status is Status.COMPLETED
        gate.set()
        ended(live, slow)


def test_w2_a_lost_lease_is_told_and_its_outcome_dropped(open_live: OpenLive, gate: threading.Event) -> None:
    queue, told, begun = open_live(lease=0.3), threading.Event(), threading.Event()

    def handler(job: Job) -> str:
        begun.set()
        while job.lost is None:
            assert not gate.wait(0.01)
        told.set()
        return "too late"

    id = queue.enqueue("x")
    with Worker(queue, handler):
        assert begun.wait(PATIENCE)
        assert queue.cancel(id)
        assert told.wait(PATIENCE)
    view = queue.get(id)
    assert view is not None
    assert (view.status, view.error, view.result) == (Status.DEAD, "cancelled", None)


def test_w2_a_handler_that_outlives_many_leases_keeps_its_job(open_live: OpenLive, gate: threading.Event) -> None:
    queue, rival = open_live(lease=0.3), open_live(lease=0.3)
    begun: list[int] = []

    def handler(job: Job) -> None:
        begun.append(job.attempts)
        gate.wait(1.5)  # Five leases.

    id = queue.enqueue("x", max_attempts=3)
    with Worker(queue, handler), Worker(rival, handler):
        assert ended(queue, id).status is Status.COMPLETED
    assert begun == [1]


@pytest.mark.parametrize("kind", ["thread", "coroutine", "swallowing coroutine"])
def test_w6_an_overrun_frees_the_slot_and_its_late_outcome_is_dropped(
    live: Queue, gate: threading.Event, kind: str
) -> None:
    handlers, late = Handlers(), threading.Semaphore(0)

    @handlers.register("thread")
    def hanging(job: Job) -> str:
        gate.wait(PATIENCE)
        late.release()
        return f"late, told {job.lost}"

    @handlers.register("coroutine")
    async def sleeping(job: Job) -> None:
        await asyncio.sleep(PATIENCE)

    @handlers.register("swallowing coroutine")
    async def swallowing(job: Job) -> None:
        while not gate.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    handlers.register("echo")(jobs.echo)
    slow = [live.enqueue(kind, timeout=0.05, max_attempts=1) for _ in range(4)]
    good = [live.enqueue("echo", n) for n in range(5)]
    with Worker(live, handlers, concurrency=2):
        for id in slow:
            assert (ended(live, id).status, ended(live, id).error) == (Status.DEAD, "timeout")
        assert [ended(live, id).result for id in good] == list(range(5))
        gate.set()
        for _ in range(4 if kind == "thread" else 0):
            assert late.acquire(timeout=PATIENCE)
    assert [ended(live, id).error for id in slow] == ["timeout"] * 4


def test_w6_handlers_that_end_at_the_limit_have_one_outcome_each(live: Queue) -> None:
    ids = live.enqueue_many({"type": "x", "timeout": 0.004, "max_attempts": 1} for _ in range(150))
    pause = threading.Event()
    Worker(live, lambda job: pause.wait(0.004) and None, concurrency=2).run(drain=True)
    views = [ended(live, id) for id in ids]
    assert {view.attempts for view in views} == {1}
    assert {view.error for view in views} <= {None, "timeout"}


def test_w6_a_coroutine_that_blocks_the_loop_does_not_stop_the_others(live: Queue, gate: threading.Event) -> None:
    handlers = Handlers()

    @handlers.register("blocking")
    async def blocking(job: Job) -> None:
        gate.wait(PATIENCE)

    @handlers.register("fine")
    async def fine(job: Job) -> int:
        await asyncio.sleep(0.001)
        return 1

    blocked = live.enqueue("blocking", timeout=0.05, max_attempts=1)
    with Worker(live, handlers):
        assert ended(live, blocked).error == "timeout"
        assert ended(live, live.enqueue("fine")).result == 1
        gate.set()


def test_w4_a_task_of_a_coroutine_that_exits_does_not_stop_the_loop(live: Queue) -> None:
    async def exiting() -> None:
        raise SystemExit(5)

    async def handler(job: Job) -> str:
        task = asyncio.get_running_loop().create_task(exiting())
        try:
            await task
        except BaseException as error:
            return type(error).__name__
        return "?"

    ids = [live.enqueue("x", max_attempts=1) for _ in range(3)]
    Worker(live, handler).run(drain=True)
    assert [ended(live, id).result for id in ids] == ["SystemExit"] * 3


def test_w7_a_stop_waits_for_running_handlers_and_gives_the_rest_back(live: Queue, gate: threading.Event) -> None:
    begun = threading.Event()

    def handler(job: Job) -> None:
        begun.set()
        gate.wait(PATIENCE)

    live.enqueue_many({"type": "x"} for _ in range(5))
    worker = Worker(live, handler)
    worker.start()
    assert begun.wait(PATIENCE)
    threading.Timer(0.05, gate.set).start()
    worker.stop()
    counts = live.counts()
    assert (counts[Status.COMPLETED], counts[Status.PENDING], counts[Status.RUNNING]) == (1, 4, 0)


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
@pytest.mark.parametrize(("max_attempts", "status"), [(3, Status.PENDING), (1, Status.DEAD)])
def test_w7_g20_what_outlasts_the_grace_time_is_given_back_or_dead(
    live: Queue, gate: threading.Event, kind: str, max_attempts: int, status: Status
) -> None:
    handlers, begun = Handlers(), threading.Event()

    @handlers.register("thread")
    def hanging(job: Job) -> None:
        begun.set()
        gate.wait(PATIENCE)

    @handlers.register("coroutine")
    async def sleeping(job: Job) -> None:
        begun.set()
        await asyncio.sleep(PATIENCE)

    id = live.enqueue(kind, max_attempts=max_attempts)
    worker = Worker(live, handlers, grace=0.05)
    worker.start()
    assert begun.wait(PATIENCE)
    worker.stop()
    view = live.get(id)
    assert view is not None
    assert view.status is status
    assert (view.error, view.attempts) == (("interrupted", 1) if status is Status.DEAD else (None, 0))


def test_w7_a_second_stop_does_not_wait_for_the_grace_time(live: Queue, gate: threading.Event) -> None:
    begun = threading.Event()

    def handler(job: Job) -> None:
        begun.set()
        gate.wait(PATIENCE)

    id = live.enqueue("x")
    worker = Worker(live, handler, grace=3600)
    worker.start()
    assert begun.wait(PATIENCE)
    worker.stop(wait=False)
    worker.stop()
    view = live.get(id)
    assert view is not None
    assert view.status is Status.PENDING


def test_w9_an_idle_worker_is_woken_by_an_enqueue_and_by_a_due_time(live: Queue) -> None:
    with Worker(live, jobs.handlers, poll_interval=3600):
        assert ended(live, live.enqueue("echo", 1)).result == 1
        assert ended(live, live.enqueue("echo", 2, delay=0.2)).result == 2


def test_n1_a_handler_that_completes_its_job_itself_is_done_with_it(open_live: OpenLive) -> None:
    queue = open_live(lease=0.3)
    told: list[str | None] = []

    def handler(job: Job) -> str:
        with queue.completing(job, {"by": "itself"}):
            pass
        threading.Event().wait(0.5)  # More than a lease: the heartbeat passes by.
        told.append(job.lost)
        raise ValueError("only logged")

    id = queue.enqueue("x")
    Worker(queue, handler).run(drain=True)
    view = ended(queue, id)
    assert (view.status, view.result, view.error, told) == (Status.COMPLETED, {"by": "itself"}, None, [None])


def test_handlers_may_use_the_worker_s_queue(live: Queue) -> None:
    def handler(job: Job) -> None:
        if job.payload:
            live.enqueue("x", job.payload - 1)

    live.enqueue("x", 30)
    Worker(live, handler, concurrency=2).run(drain=True)
    assert live.counts()[Status.COMPLETED] == 31


def test_a_worker_keeps_its_threads_and_claims_constant(live: Queue) -> None:
    threads = set()
    for _ in range(3):
        live.enqueue_many({"type": "echo", "payload": n} for n in range(200))
        Worker(live, jobs.handlers, concurrency=3).run(drain=True)
        threads.add(threading.active_count())
    assert len(threads) == 1
    assert live.counts()[Status.COMPLETED] == 600


def test_outcomes_are_logged_with_the_job_and_without_its_payload(
    live: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "jobqueue.worker")
    good = live.enqueue("echo", {"password": "s3cret"})
    bad = live.enqueue("raise", "ValueError", max_attempts=1)
    Worker(live, jobs.handlers).run(drain=True)
    told = {getattr(record, "job_id", None): record for record in caplog.records}
    assert "completed" in told[good].getMessage()
    assert "dead: ValueError: bad value" in told[bad].getMessage()
    record = told[bad]
    assert good in told[good].getMessage()
    assert (vars(record)["job_type"], vars(record)["attempt"]) == ("raise", 1)
    assert "s3cret" not in caplog.text


def test_each_start_has_a_name_of_its_own(live: Queue) -> None:
    names: list[str] = []
    worker = Worker(live, lambda job: names.append(job.worker))
    for _ in range(2):
        live.enqueue("x")
        worker.run(drain=True)
    assert len(set(names)) == 2
    assert worker.name is None


def test_a_worker_runs_once_at_a_time(live: Queue) -> None:
    with Worker(live, jobs.handlers) as worker:
        with pytest.raises(WrongUse):
            worker.start()
        with pytest.raises(WrongUse):
            worker.run()
    worker.run(drain=True)


def test_a_closed_queue_ends_the_worker_with_its_error(open_live: OpenLive) -> None:
    queue = open_live()
    worker = Worker(queue, jobs.handlers, poll_interval=0.01)
    worker.start()
    queue.close()
    assert worker._thread is not None
    worker._thread.join(PATIENCE)  # A stop that came before its next poll would end it without an error.
    with pytest.raises(WrongUse):
        worker.stop()


def test_signal_handlers_are_restored(live: Queue) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    during: list[Any] = []
    live.enqueue("x")
    Worker(live, lambda job: during.append(signal.getsignal(signal.SIGTERM))).run(drain=True)
    assert during[0] is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"poll_interval": 0},
        {"poll_interval": float("nan")},
        {"heartbeat": 0},
        {"heartbeat": 30.0},  # Not shorter than the lease.
        {"heartbeat": 31},
        {"grace": -1},
        {"retention": -1},
        {"mode": "fibers"},
        {"types": ()},
        {"types": ("echo", "unknown")},
        {"types": "echo"},
        {"batch": 0},
    ],
)
def test_b18_settings_that_make_no_sense_are_refused(live: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Worker(live, jobs.handlers, **options)


@pytest.mark.parametrize(
    "handlers", [Handlers(), None, 3, "no_colon", "tests.worker.jobs:", ":handlers", "tests.nowhere:x", "json:x"]
)
def test_handlers_that_make_no_sense_are_refused(live: Queue, handlers: Any) -> None:
    with pytest.raises(InvalidArgument):
        Worker(live, handlers)


def test_g14_retention_deletes_what_ended_long_ago(live: Queue) -> None:
    id = live.enqueue("echo", 1)
    Worker(live, jobs.handlers).run(drain=True)
    with Worker(live, jobs.handlers, retention=0):
        deadline = live.clock.monotonic() + PATIENCE
        while live.get(id) is not None:
            assert live.clock.monotonic() < deadline
            live.wait(live.enqueue("echo", 2), PATIENCE)
