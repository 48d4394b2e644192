"""The least that SQLite must do for a queue: minimal SQL, on the library's own table or on a bare one.

Same durability, same batches, the same JSON and ids as ours: what is left is the price of everything else.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from typing import Any

from jobqueue.clock import new_id
from stress.bench.measure import Sample, each, timed

LEASE = 30_000_000
WORKER = "raw:1:000000000000"


def micros() -> int:
    return time.time_ns() // 1000


class RawSqlite:
    """Raw loops on the table that the library has made."""

    PICK = """select seq from jobs indexed by "jobs:claim"
        where type = ? and status in ('pending', 'failed') and scheduled_at <= ?
        order by priority desc, scheduled_at, seq limit ?"""
    INSERT = """insert into jobs
        (id, type, status, priority, attempts, max_attempts, fence, scheduled_at, created_at, payload)
        values (?, ?, 'pending', 0, 0, 3, 0, ?, ?, ?)"""
    CLAIM = f"""update jobs set status = 'running', attempts = attempts + 1, fence = fence + 1, started_at = ?,
        worker = ?, lease_expires_at = ? where seq in ({PICK}) returning seq, id, fence, payload"""
    COMPLETE = """update jobs set status = 'completed', completed_at = ?, lease_expires_at = null, worker = null
        where seq = ? and id = ? and fence = ? and worker = ? and status = 'running'"""

    def __init__(self, path: str, synchronous: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute(f"pragma synchronous = {synchronous}")

    def close(self) -> None:
        self.connection.close()

    def enqueue(self, payloads: list[Any]) -> Sample:
        def one(number: int) -> None:
            execute("begin immediate")
            execute(self.INSERT, self._row(payloads[number]))
            execute("commit")

        execute = self.connection.execute
        return each(len(payloads), one)

    def enqueue_many(self, payloads: list[Any], batch: int) -> Sample:
        def all_of_them() -> None:
            for start in range(0, len(payloads), batch):
                rows = [self._row(payload) for payload in payloads[start : start + batch]]
                self.connection.execute("begin immediate")
                self.connection.executemany(self.INSERT, rows)
                self.connection.execute("commit")

        return timed(len(payloads), all_of_them)

    def _row(self, payload: Any) -> tuple[Any, ...]:
        now = micros()
        return new_id(now, os.urandom(10)), "job", now, now, json.dumps(payload)

    def drain_split(self, operations: int) -> Sample:
        """Claim and completion committed one by one."""

        def one(_: int) -> None:
            execute("begin immediate")
            [row] = self._claim(1)
            execute("commit")
            json.loads(row[3])
            execute("begin immediate")
            execute(self.COMPLETE, self._done(row))
            execute("commit")

        execute = self.connection.execute
        return each(operations, one)

    def drain_fused(self, operations: int, batch: int = 1) -> Sample:
        """Complete what was claimed last and claim what comes next in one commit."""
        connection = self.connection

        def all_of_them() -> None:
            done: list[tuple[Any, ...]] = []
            left = operations
            while left or done:
                connection.execute("begin immediate")
                if done:
                    connection.executemany(self.COMPLETE, [self._done(row) for row in done])
                done = self._claim(min(batch, left)) if left else []
                connection.execute("commit")
                for row in done:
                    json.loads(row[3])
                left -= len(done)

        return timed(operations, all_of_them)

    def _claim(self, n: int) -> list[tuple[Any, ...]]:
        now = micros()
        return self.connection.execute(self.CLAIM, (now, WORKER, now + LEASE, "job", now, n)).fetchall()

    def _done(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return micros(), row[0], row[1], row[2], WORKER


class BareSqlite(RawSqlite):
    """Raw loops on a table with an integer key and one partial index: shows the price of the library's schema."""

    INSERT = "insert into bare (status, priority, scheduled_at, attempts, payload) values (0, 0, ?, 0, ?)"
    CLAIM = """update bare set status = 1, attempts = attempts + 1, lease_expires_at = ?
        where id in (select id from bare where status = 0 and scheduled_at <= ?
            order by priority desc, scheduled_at limit ?)
        returning id, 0, attempts, payload"""
    COMPLETE = "update bare set status = 2, lease_expires_at = null where id = ? and status = 1"

    def __init__(self, path: str, synchronous: str) -> None:
        super().__init__(path, synchronous)
        self.connection.execute(
            "create table bare (id integer primary key, status integer not null, priority integer not null,"
            " scheduled_at integer not null, attempts integer not null, lease_expires_at integer,"
            " payload text not null)"
        )
        self.connection.execute("create index bare_due on bare (priority desc, scheduled_at) where status = 0")

    def _row(self, payload: Any) -> tuple[Any, ...]:
        return micros(), json.dumps(payload)

    def _claim(self, n: int) -> list[tuple[Any, ...]]:
        now = micros()
        return self.connection.execute(self.CLAIM, (now + LEASE, now, n)).fetchall()

    def _done(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return (row[0],)
