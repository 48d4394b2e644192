"""Queues and plain sessions on one fresh schema of a PostgreSQL server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import psycopg
import pytest

from jobqueue import Queue
from tests.conftest import fresh_schema
from tests.postgres.proxy import Proxy
from tests.servers import Server, private_server

Connection = psycopg.Connection[tuple[Any, ...]]


class OpenSession(Protocol):
    def __call__(self, *, autocommit: bool = False) -> Connection: ...


class OpenPostgres(Protocol):
    def __call__(self, **options: Any) -> Queue: ...


@pytest.fixture
def open_postgres(postgres_url: str) -> Iterator[OpenPostgres]:
    """Opens handles by the server's time, as users do; closed at the end."""
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(Queue.open(**{"url": postgres_url, **options}))


@pytest.fixture
def session(postgres_urls: tuple[str, str]) -> Iterator[OpenSession]:
    """Opens plain connections to the same place, past any pooler; closed at the end."""
    with ExitStack() as opened:

        def connect(*, autocommit: bool = False) -> Connection:
            connection = psycopg.connect(postgres_urls[1], autocommit=autocommit)
            opened.callback(connection.close)
            return connection

        yield connect


@pytest.fixture
def proxy(session: OpenSession) -> Iterator[Proxy]:
    proxy = Proxy(session().info)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied_url(postgres_url: str, proxy: Proxy) -> str:
    """The test's schema, by way of ``proxy``."""
    return f"{postgres_url}&host={proxy.directory}&port=5432&sslmode=disable&gssencmode=disable"


@pytest.fixture(scope="module")
def stoppable() -> Iterator[Server]:
    """A server that the tests of a module may stop and start."""
    with private_server() as server:
        yield server


@pytest.fixture
def stoppable_url(stoppable: Server) -> Iterator[str]:
    with fresh_schema(stoppable.url()) as url:
        yield url


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for what another thread or process is about to do; fail if it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def waits_for_lock(observer: Connection) -> bool:
    """Whether some session of the observer's application waits for another's lock."""
    found = observer.execute(
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    ).fetchone()
    return found is not None
