"""The schema is made once, however many start; names are data; what is not ours is left alone (B111, B113)."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Barrier

import pytest

from jobqueue import DatabaseUnavailable, InvalidArgument, Queue, SchemaMismatch, Status
from jobqueue import postgres_schema as schema
from jobqueue.postgres_pool import Address
from tests.postgres.conftest import OpenPostgres, OpenSession

PROCESSES = 20


def _open(url: str, start: Barrier, opened: multiprocessing.Queue[str]) -> None:
    start.wait()
    try:
        with Queue.open(url) as queue:
            opened.put(queue.enqueue("t") and "opened")
    except BaseException as error:
        opened.put(repr(error))
        raise


def test_b111_twenty_processes_open_an_empty_database_at_once(postgres_url: str, open_postgres: OpenPostgres) -> None:
    fork = multiprocessing.get_context("fork")
    start, opened = fork.Barrier(PROCESSES), fork.Queue()
    processes = [fork.Process(target=_open, args=(postgres_url, start, opened)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    assert [opened.get(timeout=60) for _ in processes] == ["opened"] * PROCESSES
    for process in processes:
        process.join()
    assert open_postgres().counts()[Status.PENDING] == PROCESSES


NAMES = ["select", "order", "_q", "table", "user", "pg_class", "jobs_id_key", "q" * 40, "a__b", "jobs_pkey", "type"]


@pytest.mark.parametrize("name", NAMES)
def test_b113_every_legal_name_works_twice_in_a_row(open_postgres: OpenPostgres, name: str) -> None:
    open_postgres()  # Beside the default queue, whose indexes and constraints must not clash.
    for _ in range(2):
        with open_postgres(name=name) as queue:
            queue.enqueue("t", unique_key="k")
            job = queue.dequeue()
            assert job is not None
            queue.fail(job, "e", for_good=True)
            assert queue.requeue(job.id)
            assert queue.cancel(job.id)
            assert queue.cleanup(0) == 1


@pytest.mark.parametrize("name", ["my-queue", "1q", "a.b", 'x"; drop table jobs; --', "", "q" * 41, "a\0", "ü", "Jobs"])
def test_b113_other_names_are_refused_with_one_clear_error(open_postgres: OpenPostgres, name: str) -> None:
    queue = open_postgres()
    with pytest.raises(InvalidArgument, match="queue name"):
        open_postgres(name=name)
    assert queue.counts()[Status.PENDING] == 0


def test_b114_names_that_differ_only_in_the_last_letter_are_different_queues(open_postgres: OpenPostgres) -> None:
    first, second = open_postgres(name="q" * 39 + "a"), open_postgres(name="q" * 39 + "b")
    first.enqueue("t")
    assert second.dequeue() is None
    assert first.dequeue() is not None


@pytest.mark.direct
@pytest.mark.parametrize("path", ['Od"d', "per%cent", "s" * 63, "sp ace", "{queue}"])
def test_any_schema_may_hold_a_queue(
    postgres_url: str, open_postgres: OpenPostgres, session: OpenSession, path: str
) -> None:
    connection = session(autocommit=True)
    quoted = '"' + path.replace('"', '""') + '"'
    connection.execute(f"create schema {quoted}".encode())
    try:
        where = quoted.replace("\\", "\\\\").replace(" ", "\\ ").replace("%", "%25").replace('"', "%22")
        url = postgres_url.split("options=")[0] + f"options=-csearch_path%3D{where.replace(' ', '%20')}"
        queue = open_postgres(url=url)
        queue.enqueue("t", unique_key="k")
        job = queue.dequeue()
        assert job is not None
        with queue.completing(job):
            pass
        assert queue.list(status="completed", type="t", unique_key="k")
    finally:
        connection.execute(f"drop schema {quoted} cascade".encode())


def test_a_newer_schema_is_refused(open_postgres: OpenPostgres, session: OpenSession) -> None:
    open_postgres()
    session(autocommit=True).execute("update jobqueue_schema set version = version + 1")
    with pytest.raises(SchemaMismatch, match="newer"):
        open_postgres()


@pytest.mark.parametrize("taken", ["create table jobs (id integer)", "create view jobs_readable as select 1 as one"])
def test_a_table_or_view_of_that_name_that_is_not_ours_is_left_alone(
    open_postgres: OpenPostgres, session: OpenSession, taken: str
) -> None:
    session(autocommit=True).execute(taken.encode())
    with pytest.raises(SchemaMismatch, match="another queue name"):
        open_postgres()


@pytest.mark.direct
def test_a_queue_that_was_made_is_found_though_a_schema_was_added_before_its_own(
    postgres_url: str, open_postgres: OpenPostgres, session: OpenSession
) -> None:
    """Otherwise a schema named like the role, made later, would hide every job there is."""
    id = open_postgres().enqueue("t")
    connection = session(autocommit=True)
    [(here,)] = connection.execute("select current_schema()").fetchall()
    connection.execute(f"create schema {here}_first".encode())
    try:
        url = postgres_url.replace(f"search_path%3D{here}", f"search_path%3D{here}_first,{here}")
        assert open_postgres(url=url).get(id) is not None
    finally:
        connection.execute(f"drop schema {here}_first cascade".encode())


@pytest.mark.direct
def test_a_search_path_that_leads_nowhere_is_an_error_that_says_so(
    postgres_url: str, open_postgres: OpenPostgres
) -> None:
    with pytest.raises(DatabaseUnavailable, match="search_path"):
        open_postgres(url=postgres_url.split("options=")[0] + "options=-csearch_path%3Dnowhere")


def test_a_dropped_table_is_an_error_that_says_so(open_postgres: OpenPostgres, session: OpenSession) -> None:
    queue = open_postgres()
    session(autocommit=True).execute("drop table jobs cascade")
    with pytest.raises(SchemaMismatch):
        queue.enqueue("t")


def test_an_old_server_is_refused(open_postgres: OpenPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "OLDEST_SERVER", 990000)
    with pytest.raises(DatabaseUnavailable, match="too old") as raised:
        open_postgres()
    assert not raised.value.transient


@pytest.mark.direct
@pytest.mark.parametrize(("setting", "warned"), [("off", True), ("on", False), ("local", False)])
def test_a_role_whose_commits_may_be_lost_is_told_at_each_open(
    postgres_url: str, open_postgres: OpenPostgres, caplog: pytest.LogCaptureFixture, setting: str, warned: bool
) -> None:
    url = postgres_url.replace("options=", f"options=-csynchronous_commit%3D{setting}%20")
    for opens in (1, 2):
        open_postgres(url=url).enqueue("t")
        told = [record.getMessage() for record in caplog.records if "synchronous_commit is off" in record.getMessage()]
        assert len(told) == opens * warned
        assert all(line.startswith("postgresql://") for line in told)


def test_a_url_is_shown_without_its_password() -> None:
    address = Address("postgresql://ana:s3cret@db.example:5433/app?password=s3cret")
    assert repr(address) == "postgresql://db.example:5433/app"
    for broken in ("postgresql://ana:s3cret%@h/app", "postgresql://ana:s3cret@h:port/app?nonsense=s3cret"):
        with pytest.raises(InvalidArgument) as raised:
            Queue.open(broken)
        assert "s3cret" not in str(raised.value)
        assert raised.value.__cause__ is None


def test_the_table_refuses_rows_that_break_it(open_postgres: OpenPostgres, session: OpenSession) -> None:
    queue, connection = open_postgres(), session(autocommit=True)
    queue.enqueue("t")
    for broken in (
        "status = 'lost'", "status = 'running'", "worker = 'w'", "completed_at = now()", "attempts = 1",
        "attempts = -1", "priority = 40000", "status = 'completed'",
    ):  # fmt: skip
        with pytest.raises(Exception, match=r"violates check|out of range"):
            connection.execute(f"update jobs set {broken}".encode())
