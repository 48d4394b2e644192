"""Fixtures of every test: one queue on each backend, with a clock that only the test moves.

A test that takes ``queue`` or ``open_queue`` runs once on SQLite and once on PostgreSQL; ``-k postgres`` selects that
half. PostgreSQL is never skipped: tests/servers.py starts one, unless JOBQUEUE_TEST_POSTGRES names the URL of a server.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import psycopg
import pytest

from jobqueue import Queue
from tests.clock import ManualClock
from tests.pooler import pooled
from tests.servers import private_server

BACKENDS = ("sqlite", "postgres")
pytest_plugins = ("tests.faults.plugin", "tests.plugin")


class OpenQueue(Protocol):
    """Opens one more handle on the test's database; options as for ``Queue.open``. Closed at the end of the test."""

    def __call__(self, **options: Any) -> Queue: ...


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_reaches_children() -> None:
    """A shell without job control starts what runs behind it with SIGINT ignored, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the backend under test."""
    name: str = request.param
    return name


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of this test's own, empty."""
    if backend == "postgres":
        address: str = request.getfixturevalue("postgres_url")
        return address
    return str(tmp_path / "queue.db")


@pytest.fixture
def open_queue(url: str, clock: ManualClock) -> Iterator[OpenQueue]:
    """Opens handles on one database, with the test's clock unless another is given."""
    opened: list[Queue] = []

    def open_one(**options: Any) -> Queue:
        queue = Queue.open(url, **{"clock": clock, **options})
        opened.append(queue)
        return queue

    yield open_one
    for queue in opened:
        queue.close()


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    return open_queue()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server, started at first use and shared by the tests of this process."""
    given = os.environ.get("JOBQUEUE_TEST_POSTGRES")
    if given:
        yield given
    else:
        with private_server() as server:
            yield server.url()


@pytest.fixture(scope="session")
def postgres_pooler(postgres_server: str) -> Iterator[Callable[[str], str] | None]:
    """The URL of each database by way of a pgbouncer, if the tests are to go through one."""
    program = os.environ.get("JOBQUEUE_TEST_PGBOUNCER")
    if program:
        with pooled(program, postgres_server) as url_of:
            yield url_of
    else:
        yield None


@pytest.fixture
def postgres_urls(postgres_server: str, postgres_pooler: Callable[[str], str] | None) -> Iterator[tuple[str, str]]:
    """Two ways to an empty place on the server: as the queues of this test go, and past any pooler."""
    if postgres_pooler is None:
        with fresh_schema(postgres_server) as address:
            yield address, address
    else:
        with fresh_database(postgres_server) as (name, address):
            yield postgres_pooler(name), address


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the test is to run at its full size."""
    return bool(request.config.getoption("--full"))


@pytest.fixture
def postgres_url(postgres_urls: tuple[str, str]) -> str:
    """A new schema on the server, as a URL whose sessions use it; or a new database, by way of a pooler."""
    return postgres_urls[0]


@contextmanager
def fresh_schema(server: str) -> Iterator[str]:
    """A schema that is dropped at the end; the URL's search_path is that schema alone."""
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'create schema "{name}"')
    try:
        yield f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{name}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'drop schema "{name}" cascade')


@contextmanager
def fresh_database(server: str) -> Iterator[tuple[str, str]]:
    """A database that is dropped at the end: its name and URL."""
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0")
    try:
        yield name, server.replace("/postgres?", f"/{name}?")
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)")
