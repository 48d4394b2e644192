"""K6, the file and what is around it: read-only, full, moved, deleted, on a network disk, where no WAL can be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jobqueue import DatabaseUnavailable, Job, Queue, Status, Worker, filesystem
from jobqueue.sqlite import SAME_FOR, SqliteDatabase
from tests.clock import ManualClock
from tests.faults.conftest import Hire, StartActor
from tests.faults.scene import claim, row, together, until


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that an unprivileged user may enter, as pytest's own may not be."""
    directory = Path(tempfile.mkdtemp(prefix="jq-"))
    directory.chmod(0o777)
    yield directory
    directory.chmod(0o777)
    shutil.rmtree(directory)


@pytest.mark.parametrize("type", ["nfs", "nfs4", "cifs", "9p", "fuse.sshfs", "smb3"])
def test_b26_a_network_file_system_is_refused(path: str, monkeypatch: pytest.MonkeyPatch, type: str) -> None:
    monkeypatch.setattr(filesystem, "kind", lambda directory: type)
    with pytest.raises(DatabaseUnavailable, match=f"network.*{type}.*PostgreSQL") as raised:
        Queue.open(path)
    assert not raised.value.transient
    assert not os.path.exists(path)


def test_b26_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    inside = tmp_path / "with space"
    inside.mkdir()
    table = tmp_path / "mountinfo"
    shown = str(inside).replace(" ", "\\040")
    table.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 22 0:50 / {shown} rw shared:1 - nfs4 host:/x rw\nnot a line\n"
        f"41 22 0:51 / {shown}x rw - tmpfs none rw\n"
    )
    assert filesystem.kind(str(inside), table) == "nfs4"
    assert filesystem.kind(str(tmp_path), table) == "ext4"
    assert filesystem.kind(str(tmp_path), tmp_path / "absent") is None


def test_b26_a_place_where_no_wal_can_be_is_noticed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutWal(sqlite3.Connection):
        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            return super().execute(statement.replace("= wal", "= delete"), *parameters)

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, factory=WithoutWal, **options))
    with pytest.raises(DatabaseUnavailable, match=r"write-ahead logging.*delete"):
        Queue.open(path)


def read_only_file(directory: Path) -> None:
    os.chmod(directory / "queue.db", 0o444)


def read_only_directory(directory: Path) -> None:
    os.chmod(directory, 0o555)


def unreadable_file(directory: Path) -> None:
    os.chmod(directory / "queue.db", 0)


@pytest.mark.parametrize("damage", [read_only_file, read_only_directory, unreadable_file])
def test_b62_what_cannot_be_written_is_refused_when_it_is_opened(
    open_to_all: Path, actor: StartActor, damage: Callable[[Path], None]
) -> None:
    """By a user who may not: in a child that gave its rights up, for root may write anything."""
    path = open_to_all / "queue.db"
    with Queue.open(path) as queue:
        queue.enqueue("t")
    os.chmod(path, 0o666)
    damage(open_to_all)
    opened, command, shown = actor("unprivileged", str(path)).says()
    assert opened.startswith("DatabaseUnavailable: ")
    assert str(path) in opened
    assert command == 1
    assert shown.startswith("jobqueue: ")
    assert len(shown.splitlines()) == 1


def test_b62_a_directory_that_may_not_be_written_gets_no_new_queue(open_to_all: Path, actor: StartActor) -> None:
    read_only_directory(open_to_all)
    opened, command, _ = actor("unprivileged", str(open_to_all / "queue.db")).says()
    assert opened.startswith("DatabaseUnavailable: ")
    assert command in (1, 2)


def test_b62_a_file_that_becomes_read_only_is_an_error_of_the_call(path: str) -> None:
    """Simulated by SQLite's own switch, because the descriptor that is open already would go on writing."""
    with Queue.open(path) as queue:
        queue.enqueue("t")
        assert isinstance(queue.database, SqliteDatabase)
        for connection in queue.database.connections():
            connection.execute("pragma query_only = on")
        for call in (lambda: queue.enqueue("t"), queue.dequeue, lambda: queue.cancel_many()):
            with pytest.raises(DatabaseUnavailable, match="read-only"):
                call()
        assert queue.counts()[Status.PENDING] == 1


def deleted(path: str) -> None:
    for ending in ("", "-wal", "-shm"):
        os.unlink(path + ending)


def deleted_alone(path: str) -> None:
    os.unlink(path)


def log_deleted(path: str) -> None:
    os.unlink(f"{path}-wal")


def moved(path: str) -> None:
    for ending in ("", "-wal", "-shm"):
        os.rename(path + ending, path + ".old" + ending)


def replaced(path: str) -> None:
    with Queue.open(path + ".new"):
        pass
    deleted(path)
    os.rename(path + ".new", path)


CALLS: dict[str, Callable[[Queue, Job], object]] = {
    "enqueue": lambda queue, job: queue.enqueue("t"),
    "dequeue": lambda queue, job: queue.dequeue(),
    "complete": lambda queue, job: queue.complete(job),
    "cleanup": lambda queue, job: queue.cleanup(0),
    "completing": lambda queue, job: queue.completing(job).__enter__(),
    "counts": lambda queue, job: queue.counts(),
    "get": lambda queue, job: queue.get(job.id),
    "list": lambda queue, job: queue.list(),
    "wait": lambda queue, job: queue.wait(job.id, 5),
    "cancel_many": lambda queue, job: queue.cancel_many(),
}


@pytest.mark.parametrize("what", [deleted, deleted_alone, log_deleted, moved, replaced])
@pytest.mark.parametrize("call", CALLS)
def test_b64_a_file_that_is_not_the_one_that_was_opened_is_noticed(
    path: str, what: Callable[[str], None], call: str
) -> None:
    """A moment later nothing is stored in, or told from, a file that nobody else sees; no new one takes its place."""
    clock = ManualClock()
    queue = Queue.open(path, clock=clock)
    queue.enqueue("t")
    job = claim(queue)
    what(path)
    clock.advance(2 * SAME_FOR)
    before = {each.name: each.stat().st_size for each in Path(path).parent.iterdir()}
    with pytest.raises(DatabaseUnavailable, match="moved, deleted or replaced") as raised:
        CALLS[call](queue, job)
    assert not raised.value.transient
    queue.close()
    if what is not log_deleted:
        assert {each.name: each.stat().st_size for each in Path(path).parent.iterdir()} == before


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_b64_a_worker_ends_with_a_clear_error(path: str, busy: bool) -> None:
    begun, go = threading.Event(), threading.Event()

    def handler(job: Job) -> None:
        begun.set()
        go.wait()

    with Queue.open(path) as queue:
        worker = Worker(queue, handler, poll_interval=0.1)
        worker.start()
        if busy:
            queue.enqueue("t")
            begun.wait()
        deleted(path)
        go.set()
        until(lambda: worker.name is None)
        with pytest.raises(DatabaseUnavailable, match="moved, deleted or replaced"):
            worker.stop()


def test_b118_the_first_open_of_many_at_once_succeeds(path: str) -> None:
    opened = together(*[lambda: Queue.open(path) for _ in range(10)])
    assert all(isinstance(queue, Queue) for queue in opened)
    for queue in opened:
        assert isinstance(queue, Queue)
        queue.enqueue("t")
        queue.close()


@pytest.mark.parametrize("there", [False, True], ids=["a new file", "a queue"])
def test_b118_an_open_waits_for_a_lock_and_says_what_it_waits_for(path: str, there: bool) -> None:
    if there:
        Queue.open(path).close()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:
        holder.execute("begin exclusive")
        holder.execute("create table other (id integer)")
        with pytest.raises(DatabaseUnavailable, match="locked") as raised:
            Queue.open(path, busy_timeout=0.05)
        assert raised.value.transient
        release = threading.Timer(0.3, holder.execute, ("commit",))
        release.start()
        with Queue.open(path, busy_timeout=30) as queue:
            queue.enqueue("t")
        release.join()


def fill(queue: Queue) -> Callable[[], None]:
    """Let the disk be full, as far as this handle's writer can tell; what makes room again."""
    assert isinstance(queue.database, SqliteDatabase)
    writer = queue.database.connections()[0]
    used = writer.execute("pragma page_count").fetchone()[0]
    writer.execute(f"pragma max_page_count = {used}")

    def make_room() -> None:
        writer.execute("pragma max_page_count = 1000000")

    return make_room


def test_a_full_disk_is_an_error_that_may_pass_and_stores_nothing(path: str) -> None:
    with Queue.open(path) as queue, Queue.open(path) as other:
        id = queue.enqueue("t")
        job = claim(queue)
        make_room = fill(queue)
        for call in (lambda: queue.enqueue("t", "x" * 100_000), lambda: queue.complete(job, "x" * 100_000)):
            with pytest.raises(DatabaseUnavailable, match="full") as raised:
                call()
            assert raised.value.transient
        with pytest.raises(DatabaseUnavailable, match="full"):
            queue.enqueue_many([{"type": "t"}, {"type": "t", "payload": "x" * 100_000}])
        assert other.counts() == {**dict.fromkeys(Status, 0), Status.RUNNING: 1}
        make_room()
        queue.complete(job, "x" * 100_000)
        assert row(queue, id).status is Status.COMPLETED
        assert queue.audit() == []


def test_a_full_disk_makes_an_outcome_wait_and_not_fail(
    path: str, hire: Hire, caplog: pytest.LogCaptureFixture
) -> None:
    with Queue.open(path) as queue, Queue.open(path) as other:
        starts: list[int] = []
        rooms: list[Callable[[], None]] = []

        def handler(job: Job) -> str:
            starts.append(job.attempts)
            rooms.append(fill(queue))
            return "x" * 1_000_000

        id = other.enqueue("t")
        worker = hire(queue, handler)
        until(lambda: "full" in caplog.text)
        until(lambda: rooms)[0]()
        until(lambda: row(other, id).status is Status.COMPLETED)
        worker.stop()
        assert (starts, row(other, id).attempts) == ([1], 1)


def test_a_full_disk_in_the_callers_transaction_is_told(path: str) -> None:
    with Queue.open(path) as queue, closing(sqlite3.connect(path)) as connection:
        connection.execute("begin immediate")
        connection.execute(f"pragma max_page_count = {connection.execute('pragma page_count').fetchone()[0]}")
        with pytest.raises(DatabaseUnavailable, match="full"):
            queue.enqueue("t", "x" * 1_000_000, transaction=connection)
        connection.rollback()
        assert queue.list() == []
