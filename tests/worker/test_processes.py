"""The worker with handlers in child processes: what hangs is killed, what dies is replaced (spec W-6, N-3)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from jobqueue import InvalidArgument, JobView, Queue, Status, WrongUse
from jobqueue.clock import SystemClock
from jobqueue.handlers import Handlers, load
from jobqueue.worker import Worker
from tests.worker import jobs
from tests.worker.conftest import OpenLive
from tests.worker.processes import PATIENCE, gone, heard, victim

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])


def ended(queue: Queue, id: str) -> JobView:
    view = queue.wait(id, PATIENCE)
    assert view is not None
    return view


def test_w6_every_way_to_end_in_a_child_is_one_recorded_outcome(live: Queue) -> None:
    bad = [live.enqueue("raise", name, max_attempts=1) for name in jobs.RAISED]
    bad += [live.enqueue("raise later", name, max_attempts=1) for name in ("SystemExit", "CancelledError", "Own")]
    odd = [live.enqueue("odd result", kind) for kind in ("set", "bytes", "nan", "object")]
    good = live.enqueue("echo", {"text": "ä\u2028", "numbers": [1, 0.1, -0.0, 10**30]})
    Worker(live, jobs.handlers, mode="processes", concurrency=2).run(drain=True)
    assert {(ended(live, id).status, ended(live, id).attempts) for id in (*bad, *odd)} == {(Status.DEAD, 1)}
    for id, error in zip(bad, jobs.RAISED.values(), strict=False):
        assert (ended(live, id).error or "").startswith(type(error).__name__)
    assert ended(live, good).result == {"text": "ä\u2028", "numbers": [1, 0.1, -0.0, 10**30]}


def test_w6_g20_a_child_that_dies_is_a_failed_attempt_and_is_replaced(live: Queue) -> None:
    dying = live.enqueue("exit", 7, max_attempts=2)
    killed = live.enqueue("kill", max_attempts=1)
    good = [live.enqueue("pid") for _ in range(3)]
    with Worker(live, jobs.handlers, mode="processes"):
        assert ended(live, dying).error == "worker process died (exit code 7)"
        assert ended(live, killed).error == "worker process died (exit code -9)"
        assert {ended(live, id).status for id in good} == {Status.COMPLETED}
    assert (ended(live, dying).attempts, ended(live, killed).attempts) == (2, 1)


@pytest.mark.parametrize("kind", ["hang", "stubborn", "spin"])
def test_w6_what_hangs_is_killed_and_its_slot_used_again(live: Queue, kind: str) -> None:
    slow = [live.enqueue(kind, timeout=0.1, max_attempts=1) for _ in range(2)]
    good = live.enqueue("echo", "after")
    with Worker(live, jobs.handlers, mode="processes"):
        assert [ended(live, id).error for id in slow] == ["timeout", "timeout"]
        assert ended(live, good).result == "after"


def test_w6_what_a_killed_handler_started_is_killed_with_it(live: Queue, tmp_path: Path) -> None:
    told = tmp_path / "pids"
    id = live.enqueue("hang with child", str(told), timeout=1.0, max_attempts=1)
    with Worker(live, jobs.handlers, mode="processes"):
        assert ended(live, id).error == "timeout"
    assert gone(*map(int, told.read_text(encoding="ascii").split()))


def test_w2_a_child_whose_lease_is_lost_is_killed(open_live: OpenLive, tmp_path: Path) -> None:
    queue, told = open_live(lease=0.6), tmp_path / "pids"
    id = queue.enqueue("hang with child", str(told))
    with Worker(queue, jobs.handlers, mode="processes"):
        assert _appears(told)
        assert queue.cancel(id)
        assert gone(*map(int, told.read_text(encoding="ascii").split()))
        assert ended(queue, queue.enqueue("echo", 1)).result == 1
    assert ended(queue, id).error == "cancelled"


def test_n1_a_child_that_completed_its_job_itself_is_left_alone(open_live: OpenLive, url: str) -> None:
    queue = open_live(lease=0.6)
    id = queue.enqueue("complete", [url, 1.2], max_attempts=1)
    Worker(queue, jobs.handlers, mode="processes").run(drain=True)
    view = ended(queue, id)
    assert (view.status, view.result, view.error) == (Status.COMPLETED, "by itself", None)


@pytest.mark.parametrize(
    ("how", "status"), [("complete", Status.COMPLETED), ("fail", Status.FAILED), ("release", Status.PENDING)]
)
def test_w4_a_handler_in_a_child_that_settled_its_claim_is_left_alone(
    open_live: OpenLive, url: str, how: str, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    queue = open_live(lease=0.6)
    id = queue.enqueue("settle", [url, how, 1.2], max_attempts=2)
    with Worker(queue, jobs.handlers, mode="processes"):
        assert _appears(Path(f"{url}.{how}"))
    assert "dropped" not in caplog.text
    if status is Status.COMPLETED:
        assert ended(queue, id).result is None


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_w5_a_process_that_a_handler_forked_is_no_second_worker_and_answers_nothing(
    live: Queue, url: str, mode: str
) -> None:
    forked = {kind: live.enqueue("fork", kind, max_attempts=1) for kind in ("exit", "return", "raise", "wait")}
    after = live.enqueue("fork", "return", max_attempts=1)
    with victim(url, "--lease", "30", *(["--processes"] if mode == "processes" else [])) as process:
        heard(process, "ready")
        results = {kind: ended(live, id).result for kind, id in forked.items()}
        assert ended(live, after).result == ["the handler's", 0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    codes = {"exit": 5, "return": 0, "raise": 1, "wait": -signal.SIGTERM}
    assert results == {kind: ["the handler's", code] for kind, code in codes.items()}


def test_w7_children_are_killed_when_the_grace_time_is_over(live: Queue, tmp_path: Path) -> None:
    told = tmp_path / "pids"
    id = live.enqueue("hang with child", str(told))
    worker = Worker(live, jobs.handlers, mode="processes", grace=0.1)
    worker.start()
    assert _appears(told)
    worker.stop()
    assert gone(*map(int, told.read_text(encoding="ascii").split()))
    view = live.get(id)
    assert view is not None
    assert (view.status, view.attempts) == (Status.PENDING, 0)


def test_children_die_with_their_parent(live: Queue, url: str, tmp_path: Path) -> None:
    told = tmp_path / "pids"
    live.enqueue("hang with child", str(told))
    with victim(url, "--processes") as process:
        heard(process, "ready")
        assert _appears(told)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        child, _ = map(int, told.read_text(encoding="ascii").split())
        assert gone(child)


def test_handlers_are_given_by_name_too(live: Queue) -> None:
    id = live.enqueue("echo", 1)
    Worker(live, "tests.worker.jobs:handlers", mode="processes", types=("echo",)).run(drain=True)
    assert ended(live, id).result == 1
    assert load("tests.worker.jobs:handlers") is jobs.handlers


def test_handlers_that_do_not_arrive_in_the_child_end_the_worker_and_cost_no_attempt(live: Queue) -> None:
    id = live.enqueue("x")
    with pytest.raises(WrongUse, match="die before they are ready"):
        Worker(live, Handlers(jobs.Unborn()), mode="processes").run(drain=True)
    view = live.get(id)
    assert view is not None
    assert (view.status, view.attempts) == (Status.PENDING, 0)


def test_what_cannot_be_shared_with_processes_is_refused(live: Queue) -> None:
    handlers = Handlers(lambda job: None)
    with pytest.raises(InvalidArgument, match="top of a module"):
        Worker(live, handlers, mode="processes")
    with Queue.open(":memory:") as memory, pytest.raises(InvalidArgument, match="memory"):
        Worker(memory, jobs.handlers, mode="processes")


def _appears(path: Path) -> bool:
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while not (path.exists() and path.read_text(encoding="ascii").endswith("\n")):
        if clock.monotonic() > deadline:
            return False
        clock.sleep(0.01)
    return True
