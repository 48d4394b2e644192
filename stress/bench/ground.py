"""Where a measurement takes place: a fresh database for each, with the backlog that the workload asks for."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobqueue import Queue
from jobqueue.clock import new_id
from stress.bench.ours import Synchronous

CHUNK = 20_000


def payloads(count: int) -> list[Any]:
    """Payloads of the size that an application has: about 60 bytes of JSON."""
    return [{"to": "ana@example.com", "template": "welcome", "number": number} for number in range(count)]


@contextmanager
def sqlite_file(synchronous: Synchronous) -> Iterator[str]:
    """A new queue in a file of its own, on the disk that holds the temporary directory."""
    with tempfile.TemporaryDirectory(prefix="jobqueue-bench-") as directory:
        path = str(Path(directory) / "queue.db")
        Queue.open(path, synchronous=synchronous).close()
        yield path


@contextmanager
def postgres_schema(server: str) -> Iterator[str]:
    """A new queue in a schema of its own."""
    import psycopg

    name = f"bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'create schema "{name}"')
        try:
            url = f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{name}"
            Queue.open(url).close()
            yield url
        finally:
            connection.execute(f'drop schema "{name}" cascade')


# The unwanted kinds of W6, each as (status, type, priority, seconds from now to scheduled_at).
BACKLOGS: dict[str, tuple[str, str, int, int]] = {
    "finished": ("completed", "job", 0, -60),
    "due later, higher priority": ("pending", "job", 9, 86_400),
    "other types, higher priority": ("pending", "other", 9, -60),
    "in backoff": ("failed", "job", 9, 3_600),
    "running": ("running", "job", 9, -60),
}


def fill(url: str, rows: Iterator[tuple[str, str, int, int]], count: int) -> None:
    """Store ``count`` rows of (status, type, priority, seconds to scheduled_at), as a history would have left them."""
    if url.startswith("postgres"):
        _fill_postgres(url, rows, count)
    else:
        _fill_sqlite(url, rows, count)


def _row(kind: tuple[str, str, int, int], now: int) -> dict[str, Any]:
    status, type, priority, seconds = kind
    ran, running, ended = status != "pending", status == "running", status == "completed"
    return {
        "id": new_id(now, os.urandom(10)),
        "type": type,
        "status": status,
        "priority": priority,
        "attempts": int(ran),
        "max_attempts": 3,
        "fence": int(ran),
        "scheduled_at": now + seconds * 1_000_000,
        "created_at": now,
        "started_at": now if ran else None,
        "completed_at": now if ended else None,
        "lease_expires_at": now + 3_600_000_000 if running else None,
        "worker": "another" if running else None,
        "error": "boom" if status == "failed" else None,
        "payload": '{"to":"ana@example.com","template":"welcome","number":0}',
    }


def _fill_sqlite(path: str, rows: Iterator[tuple[str, str, int, int]], count: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    columns = list(_row(("pending", "x", 0, 0), 0))
    insert = f"insert into jobs ({', '.join(columns)}) values ({', '.join(':' + column for column in columns)})"
    connection.execute("pragma synchronous = off")
    for start in range(0, count, CHUNK):
        now = time.time_ns() // 1000
        connection.execute("begin immediate")
        connection.executemany(insert, (_row(next(rows), now) for _ in range(min(CHUNK, count - start))))
        connection.execute("commit")
    connection.execute("pragma synchronous = full")  # What is measured next is not to pay for the disk's share of this.
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()


def _fill_postgres(url: str, rows: Iterator[tuple[str, str, int, int]], count: int) -> None:
    from datetime import UTC, datetime

    import psycopg

    instants = {"scheduled_at", "created_at", "started_at", "completed_at", "lease_expires_at"}
    columns = list(_row(("pending", "x", 0, 0), 0))
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.cursor().copy(f"copy jobs ({', '.join(columns)}) from stdin") as copy:
            for _ in range(count):
                row = _row(next(rows), time.time_ns() // 1000)
                row["id"] = uuid.UUID(bytes=row["id"])
                for name in instants:
                    if row[name] is not None:
                        row[name] = datetime.fromtimestamp(row[name] / 1e6, UTC)
                copy.write_row([row[name] for name in columns])
        connection.execute("analyze jobs")
