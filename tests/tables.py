"""The queue's table, read and rewritten past the library: whole rows, as the model's jobs.

A test that compares the table with the model must not trust the library to show it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from typing import Any, Protocol

import psycopg

from jobqueue.values import id_raw, id_text
from model import Job

COLUMNS = (
    "seq", "id", "type", "payload", "status", "priority", "attempts", "max_attempts", "fence", "scheduled_at",
    "created_at", "started_at", "completed_at", "lease_expires_at", "worker", "timeout", "unique_key", "result",
    "error",
)  # fmt: skip
INSTANTS = frozenset({"scheduled_at", "created_at", "started_at", "completed_at", "lease_expires_at"})


class Table(Protocol):
    """The rows of one queue."""

    def read(self) -> frozenset[Job]:
        """Every row, every column."""

    def rewrite(self, gone: Iterable[Job], new: Iterable[Job]) -> None:
        """Delete the rows of ``gone`` and insert ``new``, in one transaction."""

    def close(self) -> None: ...


class SqliteTable:
    """The table in an SQLite file, by a connection of the test's own."""

    def __init__(self, path: str, queue: str = "jobs") -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("pragma synchronous = normal")
        self._read = f'select {", ".join(COLUMNS)} from "{queue}"'
        self._delete = f'delete from "{queue}" where seq = ?'
        self._insert = f'insert into "{queue}" ({", ".join(COLUMNS)}) values ({", ".join("?" * len(COLUMNS))})'

    def read(self) -> frozenset[Job]:
        rows = self._connection.execute(self._read).fetchall()
        return frozenset(Job(**dict(zip(COLUMNS, (row[0], id_text(row[1]), *row[2:]), strict=True))) for row in rows)

    def rewrite(self, gone: Iterable[Job], new: Iterable[Job]) -> None:
        self._connection.execute("begin immediate")
        self._connection.executemany(self._delete, [(job.seq,) for job in gone])
        self._connection.executemany(self._insert, [_values(job) for job in new])
        self._connection.execute("commit")

    def close(self) -> None:
        self._connection.close()


class PostgresTable:
    """The table in a PostgreSQL database, by a connection of the test's own."""

    def __init__(self, url: str, queue: str = "jobs") -> None:
        self._connection = psycopg.connect(url)
        self._connection.execute("set session characteristics as transaction isolation level read committed")
        self._connection.commit()
        shown = ", ".join(_shown(column) for column in COLUMNS)
        stored = ", ".join(_stored(column) for column in COLUMNS)
        # S608 does not apply: the names are constants of this module and of the tests.
        self._read = f'select {shown} from "{queue}"'
        self._delete = f'delete from "{queue}" where seq = %s'
        self._insert = f'insert into "{queue}" ({", ".join(COLUMNS)}) overriding system value values ({stored})'

    def read(self) -> frozenset[Job]:
        with self._connection.transaction():
            rows = self._connection.execute(self._read.encode()).fetchall()
        return frozenset(Job(**dict(zip(COLUMNS, row, strict=True))) for row in rows)

    def rewrite(self, gone: Iterable[Job], new: Iterable[Job]) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(self._delete.encode(), [(job.seq,) for job in gone])
            cursor.executemany(self._insert.encode(), [[getattr(job, column) for column in COLUMNS] for job in new])

    def close(self) -> None:
        self._connection.close()


def table_of(backend: str, url: str) -> Table:
    return SqliteTable(url) if backend == "sqlite" else PostgresTable(url)


def _values(job: Job) -> tuple[object, ...]:
    return (job.seq, id_raw(job.id), *(getattr(job, column) for column in COLUMNS[2:]))


def _shown(column: str) -> str:
    if column in INSTANTS:
        return f"(extract(epoch from {column}) * 1000000)::bigint"
    return f"{column}::text" if column in ("id", "payload", "result") else column


def _stored(column: str) -> str:
    if column in INSTANTS:
        return "'epoch'::timestamptz + %s::bigint * interval '1 microsecond'"
    return {"id": "%s::uuid", "payload": "%s::json", "result": "%s::json"}.get(column, "%s")


def caller_of(backend: str, url: str) -> Callable[[], Any]:
    """Opens a connection of the application's own, with its driver's defaults."""
    return partial(sqlite3.connect, url) if backend == "sqlite" else partial(psycopg.connect, url)


def effects(caller: Callable[[], Any]) -> int:
    """How many rows of the application's own table ``effects`` have committed."""
    with closing(caller()) as connection:
        return int(connection.execute("select count(*) from effects").fetchone()[0])
