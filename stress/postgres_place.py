"""A PostgreSQL database for a run: a private server, or a schema of its own on a server that the user names."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg

from stress import triggers
from stress.places import LogRow, Place
from stress.servers import Server, private_server


class PostgresPlace(Place):
    disk = "not done on PostgreSQL"

    def __init__(self, url: str, queue: str, server: Server | None) -> None:
        self._admin_url, self._queue, self._server = url, queue, server
        self.schema = f"stress_{secrets.token_hex(4)}"
        with self._connected() as connection:
            connection.execute(f'create schema "{self.schema}"')
        # Only sessions of this name are ever ended: the server may serve others, too.
        self.url = _with(url, application_name=self.schema, options=f"-csearch_path={self.schema}")
        self.queue().close()
        with self._connected() as connection:
            connection.execute(triggers.POSTGRES.replace("{schema}", self.schema).replace("{queue}", queue))

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self._admin_url, autocommit=True) as connection:
            yield connection

    def log(self) -> Iterator[LogRow]:
        columns = triggers.COLUMNS.replace("scheduled_at", "(extract(epoch from scheduled_at) * 1000000)::bigint")
        columns = columns.replace(" at,", " extract(epoch from at)::float8,")
        query = f"""
            select replace(id::text, '-', ''), {columns} from "{self.schema}"."{self._queue}_log" order by id, n
        """
        with self._connected() as connection, connection.transaction(), connection.cursor(name="log") as cursor:
            cursor.itersize = 20_000
            cursor.execute(query.encode())
            yield from cursor

    def lock(self, seconds: float) -> None:
        with self._connected() as connection, connection.transaction():
            connection.execute(f'lock table "{self.schema}"."{self._queue}" in exclusive mode')
            time.sleep(seconds)

    def terminate(self, pick: float) -> None:
        with self._connected() as connection:
            found = connection.execute(
                "select pid from pg_stat_activity where application_name = %s order by pid", [self.schema]
            ).fetchall()
            if found:
                connection.execute("select pg_terminate_backend(%s)", found[int(pick * len(found))])

    def restart(self, pick: float, seconds: float) -> None:
        if self._server is not None:
            self._server.stop("QUIT" if pick < 0.5 else "INT")
            time.sleep(seconds)
            self._server.start()

    def drop(self) -> None:
        with self._connected() as connection:
            connection.execute(f'drop schema "{self.schema}" cascade')


@contextmanager
def postgres_place(url: str | None, queue: str) -> Iterator[PostgresPlace]:
    with ExitStack() as stack:
        server = None if url else stack.enter_context(private_server())
        found = PostgresPlace(url or _url_of(server), queue, server)
        try:
            yield found
        finally:
            if server is None:
                found.drop()


def _url_of(server: Server | None) -> str:
    assert server is not None, "either a URL is given or a server was started"
    return server.url()


def _with(url: str, **parameters: str) -> str:
    """The URL with these parameters of libpq's besides its own."""
    parts = urlsplit(url)
    query = urlencode({**dict(parse_qsl(parts.query)), **parameters}, quote_via=quote)
    return urlunsplit(parts._replace(query=query))
