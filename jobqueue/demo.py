"""The demo: hash every file below a directory, kill a worker half-way, recover its jobs, check every digest.

The job in the middle of the line holds its worker until this process has killed it, so that the killed worker certainly
had jobs in its hands. All is right if every job is completed, at least one of them was taken back from the dead worker,
the audit finds nothing, and every digest equals one computed here without the queue.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shlex
import stat
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from jobqueue import cli_values, demo_worker
from jobqueue.cli_show import complain, err, out, plain, progress, say_json, table
from jobqueue.errors import InvalidArgument, JobQueueError
from jobqueue.queue import Queue
from jobqueue.types import JobView, Status

WORKERS = 3
PAGE = 1000
BATCH = 500
MAX_ATTEMPTS = 10  # A machine too busy for heartbeats within the short lease costs attempts, not the demo.
LOOK = 0.05  # Seconds between two looks at the counts.
STUCK = 60.0  # Seconds without any progress after which the demo gives up.
CHUNK = 1 << 20
NOT_HASHED = frozenset({"__pycache__", "site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class File:
    """A file to hash, and what tells whether it changed: size, time of change, device and inode."""

    path: str
    mark: tuple[int, ...]


@dataclass(slots=True)
class Outcome:
    """What the demo found. Empty lists and at least one recovered job: all is right."""

    files: int
    attempts: int = 0
    done_before_kill: int = 0
    held: int = 0
    recovered: int = 0
    seconds: float = 0.0
    jobs_per_second: float = 0.0
    unfinished: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return self.recovered > 0 and not (self.unfinished or self.wrong or self.broken)


def demo(directory: Path | None, db: str | None, name: str, *, as_json: bool = False) -> int:
    """Run the demo and show its table; 0 if all is right."""
    url = db or os.path.join(tempfile.mkdtemp(prefix="jobqueue-demo-"), "demo.db")
    files = list(_files(_root(directory), url))
    if not files:
        raise InvalidArgument(f"there is no file to hash below {_root(directory)}")
    with Queue.open(url, name=name, lease=demo_worker.LEASE) as queue, progress() as shown:
        if sum(queue.counts().values()):
            raise InvalidArgument(f"queue {name} has jobs already; the demo wants an empty one: choose --queue or --db")
        outcome = _run(queue, url, files, shown)
    _tell(outcome, url, name, as_json)
    return 0 if outcome.right else 1


def _run(queue: Queue, url: str, files: Sequence[File], shown: Progress) -> Outcome:
    started = queue.clock.monotonic()
    ids = _enqueue(queue, files)
    task = shown.add_task("hashing", total=len(files))
    with _workers(url, queue.name) as hands:
        held = _kill_holder(queue, hands, shown, task)
        done = queue.counts()[Status.COMPLETED]
        shown.update(task, description=f"one of {WORKERS} workers killed with {len(held)} jobs; recovering them")
        _until_done(queue, hands, shown, task)
    shown.update(task, description="checking every digest")
    outcome = _checked(queue, dict(zip(ids, files, strict=True)), held)
    outcome.done_before_kill = done
    outcome.seconds = queue.clock.monotonic() - started
    return outcome


# What is hashed


def _root(directory: Path | None) -> Path:
    root = directory or Path(sysconfig.get_path("stdlib"))
    if not root.is_dir():
        raise InvalidArgument(f"{root} is not a directory")
    return root.absolute()


def _files(root: Path, db: str) -> Iterator[File]:
    """Every regular file below ``root`` in a fixed order, but not the demo's own database."""
    own = {os.path.abspath(db) + end for end in ("", "-wal", "-shm")}
    for parent, directories, names in os.walk(root):
        directories[:] = sorted(set(directories) - NOT_HASHED)
        for path in (os.path.join(parent, name) for name in sorted(names)):
            mark = _mark(path)
            if mark is not None and path not in own:
                yield File(path, mark)


def _mark(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino


def _enqueue(queue: Queue, files: Sequence[File]) -> list[str]:
    ids: list[str] = []
    middle = len(files) // 2
    payloads = [demo_worker.payload_for(file.path, hold=index == middle) for index, file in enumerate(files)]
    for start in range(0, len(payloads), BATCH):
        batch = payloads[start : start + BATCH]
        ids += queue.enqueue_many(
            {"type": demo_worker.HASH, "payload": payload, "max_attempts": MAX_ATTEMPTS} for payload in batch
        )
    return ids


# The workers


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker process, and the pipe over which it says that it is in the middle of the held job."""

    process: BaseProcess
    pipe: Connection


@contextmanager
def _workers(url: str, name: str) -> Iterator[list[Hand]]:
    """The worker processes; stopped at the end, whatever happens."""
    # Spawned, not forked: a database handle must not cross a fork. The URL goes through a pipe: ps shows no password.
    context = multiprocessing.get_context("spawn")
    hands: list[Hand] = []
    try:
        for _ in range(WORKERS):
            pipe, said = context.Pipe(duplex=False)
            process = context.Process(target=demo_worker.run, args=(url, name, said), daemon=True)
            process.start()
            said.close()
            hands.append(Hand(process, pipe))
        yield hands
    finally:
        _stop([hand.process for hand in hands])
        for hand in hands:
            hand.pipe.close()


def _stop(processes: Iterable[BaseProcess]) -> None:
    with ExitStack() as ends:
        for process in processes:
            process.terminate()
            ends.callback(_reap, process)


def _reap(process: BaseProcess) -> None:
    process.join(15)
    if process.is_alive():
        process.kill()
        process.join()


def _kill_holder(queue: Queue, hands: list[Hand], shown: Progress, task: TaskID) -> list[str]:
    """Kill, with SIGKILL, the worker that is in the middle of the held job; the ids that it held when it was dead."""
    for _ in _looks(queue, hands, shown, task):
        for hand in hands:
            if hand.pipe.poll():
                victim = hand.pipe.recv()
                hand.process.kill()
                hand.process.join()
                hands.remove(hand)
                return [view.id for view in _pages(queue, status=Status.RUNNING) if view.worker == victim]
    return []


def _until_done(queue: Queue, hands: list[Hand], shown: Progress, task: TaskID) -> None:
    for _ in _looks(queue, hands, shown, task):
        pass


def _looks(queue: Queue, hands: list[Hand], shown: Progress, task: TaskID) -> Iterator[None]:
    """A look now and then, until every job has ended, or nothing has moved for so long that nothing will."""
    ended, moved = -1, queue.clock.monotonic()
    while True:
        counts = queue.counts()
        now_ended = counts[Status.COMPLETED] + counts[Status.DEAD]
        shown.update(task, completed=now_ended)
        if now_ended == sum(counts.values()):
            return
        if now_ended != ended:
            ended, moved = now_ended, queue.clock.monotonic()
        if not all(hand.process.is_alive() for hand in hands):
            raise JobQueueError("a worker process ended that nobody had killed")
        if queue.clock.monotonic() - moved > STUCK:
            raise JobQueueError(f"no job has ended for {STUCK:g} s")
        yield
        queue.clock.sleep(LOOK)


# The check


def _checked(queue: Queue, files: dict[str, File], held: Sequence[str]) -> Outcome:
    views = {view.id: view for view in _pages(queue, payloads=True)}
    outcome = Outcome(files=len(files), attempts=sum(view.attempts for view in views.values()), held=len(held))
    outcome.broken = [f"{id}: {rule}" for id, rule in queue.audit()]
    for id, file in files.items():
        view = views.get(id)
        if view is None or view.status is not Status.COMPLETED:
            outcome.unfinished.append(file.path)
            continue
        here = _digest(file.path)
        if "sha256" not in here or _mark(file.path) != file.mark:
            outcome.changed.append(file.path)
        elif view.result != here:
            outcome.wrong.append(file.path)
    outcome.recovered = sum(_is_recovered(views[id]) for id in held if id in views)
    outcome.jobs_per_second = _rate([view for id, view in views.items() if id not in set(held)])
    return outcome


def _is_recovered(view: JobView) -> bool:
    return view.status is Status.COMPLETED and view.attempts > 1 and view.error == "lease expired"


def _digest(path: str) -> dict[str, Any]:
    """The same answer as the handler's, computed another way: chunk by chunk, in this process, without the queue."""
    digest, size = hashlib.new("sha256"), 0
    try:
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        return {"unreadable": error.strerror}
    return {"sha256": digest.hexdigest(), "size": size}


def _rate(views: Sequence[JobView]) -> float:
    """Jobs per second from the first start to the last end, by the database's own times."""
    spans = [(view.started_at, view.completed_at) for view in views if view.started_at and view.completed_at]
    if not spans:
        return 0.0
    seconds = (max(end for _, end in spans) - min(start for start, _ in spans)).total_seconds()
    return len(spans) / max(seconds, 1e-6)


def _pages(queue: Queue, *, status: Status | None = None, payloads: bool = False) -> Iterator[JobView]:
    after: JobView | None = None
    while page := queue.list(status=status, after=after, limit=PAGE, payloads=payloads):
        yield from page
        after = page[-1]


# The table


def _tell(outcome: Outcome, url: str, name: str, as_json: bool) -> None:
    shown_url = cli_values.without_password(url)
    if as_json:
        found = {name: getattr(outcome, name) for name in Outcome.__dataclass_fields__}
        say_json({**found, "db": shown_url, "queue": name, "right": outcome.right})
    else:
        out().print(table(("demo", ""), _rows(outcome, shown_url, name), folded=1))
    for what, paths in (
        ("not completed", outcome.unfinished),
        ("wrong digest", outcome.wrong),
        ("changed meanwhile or unreadable, not compared", outcome.changed),
        ("broken row", outcome.broken),
    ):
        for path in paths:
            err().print(f"{what}: {plain(path)}", soft_wrap=True)
    if not outcome.recovered:
        complain("no job was recovered from the killed worker")


def _rows(outcome: Outcome, url: str, name: str) -> list[tuple[str, object]]:
    same = outcome.files - len(outcome.unfinished) - len(outcome.wrong) - len(outcome.changed)
    return [
        ("files", outcome.files),
        ("jobs completed", outcome.files - len(outcome.unfinished)),
        ("attempts", outcome.attempts),
        ("killed", f"one of {WORKERS} worker processes, when {outcome.done_before_kill} jobs were completed"),
        ("recovered jobs", f"{outcome.recovered} of {outcome.held} that the killed worker held"),
        ("jobs/s", f"{outcome.jobs_per_second:.0f} (without those recovered, from first start to last end)"),
        ("seconds in all", f"{outcome.seconds:.1f}"),
        ("digests", f"{same} equal, {len(outcome.wrong)} wrong, {len(outcome.changed)} not compared"),
        ("audit", f"{len(outcome.broken)} broken rows"),
        ("database", url),
        ("look at it", f"jobqueue status --db {shlex.quote(url)}" + ("" if name == "jobs" else f" --queue {name}")),
        ("all is right", "yes" if outcome.right else "no"),
    ]
