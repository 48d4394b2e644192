"""The schema on SQLite: created once, versioned, refused if newer. Runs inside the write transaction of its caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from jobqueue.errors import SchemaMismatch

VERSION = 1
VERSIONS = "create table if not exists jobqueue_schema (queue text primary key, version integer not null) without rowid"


def prepare(connection: sqlite3.Connection, queue: str, schema: str) -> None:
    """Create the queue's table, or check the version of the one that is there.

    Safe when many processes start at once.
    """
    found = version(connection, queue)
    if found == VERSION:
        # On a read-only file BEGIN IMMEDIATE merely reads. This says so, though it changes no row.
        connection.execute("update jobqueue_schema set version = version where false")
        return
    if found is not None:
        raise SchemaMismatch(
            f"queue {queue!r} has schema version {found}, this jobqueue knows {VERSION}; install a newer jobqueue"
        )
    taken = connection.execute(
        "select type, name from sqlite_schema where name in (?, ?)", (queue, f"{queue}_readable")
    ).fetchone()
    if taken:
        raise SchemaMismatch(
            f"the database has a {taken[0]} {taken[1]!r} that is not this queue's; choose another queue name"
        )
    connection.execute(VERSIONS)
    for statement in _single(schema):
        connection.execute(statement)
    connection.execute("insert into jobqueue_schema values (?, ?)", (queue, VERSION))


def version(connection: sqlite3.Connection, queue: str) -> int | None:
    """The version of the queue's table; None if there is no such queue."""
    if not connection.execute("select 1 from sqlite_schema where name = 'jobqueue_schema'").fetchone():
        return None
    row = connection.execute("select version from jobqueue_schema where queue = ?", (queue,)).fetchone()
    return None if row is None else int(row[0])


def _single(script: str) -> Iterator[str]:
    """The statements of a script, one by one: executescript would commit the caller's transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
