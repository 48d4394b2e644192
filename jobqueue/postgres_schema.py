"""The schema on PostgreSQL: created once, versioned, refused if newer."""

from __future__ import annotations

import psycopg

from jobqueue.errors import DatabaseUnavailable, SchemaMismatch
from jobqueue.postgres_values import LibraryCursor

VERSION = 1
OLDEST_SERVER = 140000
LOCK = 0x6A6F_6271_7565_7565  # 'jobqueue': the advisory lock under which schemas are made, one process after the other.
VERSIONS = 'create table if not exists "{schema}".jobqueue_schema (queue text primary key, version integer not null)'


def require_supported(connection: psycopg.Connection[object]) -> None:
    """Refuse a server that is too old, or whose encoding cannot hold every text."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise DatabaseUnavailable(f"PostgreSQL {version // 10000} is too old; 14 or newer is needed", transient=False)
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise DatabaseUnavailable(
            f"the database's encoding is {encoding}, which cannot hold every text; create it with encoding 'UTF8'",
            transient=False,
        )


def durable(cursor: LibraryCursor) -> bool:
    """Whether a commit that was answered is on the disk (spec §12), for all that the role's settings tell."""
    cursor.execute("select current_setting('synchronous_commit') <> 'off'")
    [(found,)] = cursor.fetchall()
    return bool(found)


def find(cursor: LibraryCursor, queue: str) -> str | None:
    """The schema that holds the queue, the first on the search path; None if there is none. Refuses another version."""
    # From the catalogue's tables: to_regclass() may answer from the session's cache what was true before a wait.
    cursor.execute(
        "select space.nspname from pg_namespace as space join pg_class on relnamespace = space.oid"
        " where relname = 'jobqueue_schema' and space.nspname = any (current_schemas(false))"
        " order by array_position(current_schemas(false), space.nspname)"
    )
    for (schema,) in cursor.fetchall():
        cursor.execute(
            f'select version from "{quoted(schema)}".jobqueue_schema where queue = %(queue)s', {"queue": queue}
        )
        found = cursor.fetchone()
        if found is None:
            continue
        if found[0] != VERSION:
            raise SchemaMismatch(
                f"queue {queue!r} has schema version {found[0]}, this jobqueue knows {VERSION};"
                " install a newer jobqueue"
            )
        return str(schema)
    return None


def create(cursor: LibraryCursor, queue: str, script: str) -> None:
    """Create the queue in the current schema, inside the caller's transaction, unless another process was faster."""
    # CREATE TABLE IF NOT EXISTS is not atomic: two that run it at once may both find nothing.
    cursor.execute("select pg_advisory_xact_lock(%(lock)s)", {"lock": LOCK})
    if find(cursor, queue) is not None:
        return
    schema = current(cursor)
    cursor.execute(
        "select relkind::text, relname::text from pg_class where relnamespace = quote_ident(%(schema)s)::regnamespace"
        " and relname in (%(queue)s, %(readable)s)",
        {"schema": schema, "queue": queue, "readable": f"{queue}_readable"},
    )
    taken = cursor.fetchone()
    if taken:
        raise SchemaMismatch(
            f"schema {schema!r} has a relation {taken[1]!r} that is not this queue's; choose another queue name"
        )
    named = schema.replace('"', '""')
    cursor.execute(VERSIONS.replace("{schema}", named))
    cursor.execute(script.replace("{schema}", named))
    cursor.execute(f'insert into "{quoted(schema)}".jobqueue_schema values (%(queue)s, {VERSION})', {"queue": queue})


def current(cursor: LibraryCursor) -> str:
    """The schema in which new tables are made."""
    cursor.execute("select current_schema()::text")
    row = cursor.fetchone()
    if row is None or row[0] is None:
        raise DatabaseUnavailable("the connection's search_path names no schema that exists", transient=False)
    return str(row[0])


def quoted(schema: str) -> str:
    """A schema's name as it stands between double quotes in a statement with parameters."""
    return schema.replace('"', '""').replace("%", "%%")
