"""The schema on SQLite: one form for each version, upgraded in place, refused if newer (spec §2)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobqueue import LeaseLost, Queue, SchemaMismatch, Status
from jobqueue.sqlite_schema import VERSION
from tests.clock import START_US, ManualClock

DUMPS = Path(__file__).parent / "schemas"


def shape(connection: sqlite3.Connection) -> set[tuple[Any, ...]]:
    return set(connection.execute("select type, name, tbl_name, sql from sqlite_schema"))


@pytest.fixture(params=range(1, VERSION + 1))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database as a former version left it: one job in each status."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript((DUMPS / f"sqlite_{request.param}.sql").read_text())
    connection.close()
    return path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US + 120_000_000)


@pytest.fixture
def queue(old: Path, clock: ManualClock) -> Iterator[Queue]:
    with Queue.open(old, clock=clock) as opened:
        yield opened


def test_every_version_is_kept_as_a_dump() -> None:
    assert sorted(path.name for path in DUMPS.glob("sqlite_*.sql")) == [
        f"sqlite_{n}.sql" for n in range(1, VERSION + 1)
    ]


def test_an_old_database_has_todays_schema_once_it_was_opened(queue: Queue, old: Path, tmp_path: Path) -> None:
    Queue.open(tmp_path / "new.db").close()
    with sqlite3.connect(old) as upgraded, sqlite3.connect(tmp_path / "new.db") as new:
        assert shape(upgraded) == shape(new)
    upgraded.close()
    new.close()


def test_the_jobs_of_an_old_database_live_on(queue: Queue) -> None:
    assert queue.counts() == dict.fromkeys(Status, 1)
    assert queue.audit() == []
    [running] = queue.list(status="running")
    assert (running.worker, running.unique_key, running.type) == ("w1", "k", "running")
    assert [swept.status for swept in queue.sweep()] == [Status.FAILED]
    assert queue.requeue_many().count == 3
    claimed = queue.dequeue_many(10)
    assert [job.type for job in claimed] == ["pending", "failed", "dead", "running"]
    assert [job.payload["n"] for job in claimed] == [5, 2, 3, 4]
    assert [job.fence for job in claimed] == [1, 2, 2, 2]
    queue.complete(claimed[0])
    with pytest.raises(LeaseLost):
        queue.complete(claimed[0])


def test_a_newer_schema_is_refused_with_what_to_do(old: Path) -> None:
    with sqlite3.connect(old) as connection:
        connection.execute("update jobqueue_schema set version = version + 1")
        connection.commit()
        before = list(connection.iterdump())
        with pytest.raises(SchemaMismatch, match="install a newer jobqueue"):
            Queue.open(old)
        assert list(connection.iterdump()) == before
    connection.close()


@pytest.mark.parametrize(
    "ddl", ["create table jobs (x)", "create view jobs_readable as select 1", "create table jobs_readable (x)"]
)
def test_a_table_of_the_users_own_is_left_alone(tmp_path: Path, ddl: str) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as connection:
        connection.execute(ddl)
        before = shape(connection)
        with pytest.raises(SchemaMismatch, match="choose another queue name"):
            Queue.open(path)
        assert shape(connection) == before
    connection.close()


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    shapes = []
    for _ in range(3):
        Queue.open(path).close()
        with sqlite3.connect(path) as connection:
            shapes.append(shape(connection))
        connection.close()
    assert shapes[0] == shapes[1] == shapes[2]


def test_the_readable_view_shows_ids_and_instants_to_a_person(queue: Queue, old: Path) -> None:
    with sqlite3.connect(old) as connection:
        rows = connection.execute(
            "select id, status, scheduled_at, completed_at from jobs_readable order by seq"
        ).fetchall()
    connection.close()
    views = queue.list()
    assert [row[0] for row in rows] == [view.id for view in views]
    assert rows[0][2] == views[0].scheduled_at.strftime("%Y-%m-%d %H:%M:%S.%fZ")
    assert rows[4][3] is None


@pytest.mark.parametrize(
    "change",
    [
        "status = 'cancelled'",
        "status = 'running'",
        "worker = 'w2'",
        "completed_at = 1",
        "attempts = -1",
        "attempts = max_attempts + 1",
        "priority = 32768",
        "payload = null",
        "id = x'00'",
    ],
)
def test_g1_the_database_itself_refuses_a_row_that_is_not_well_formed(queue: Queue, old: Path, change: str) -> None:
    connection = sqlite3.connect(old)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"update jobs set {change} where status = 'pending'")
    connection.close()
