"""The least that PostgreSQL must do for a queue, through psycopg: minimal SQL on the library's own table."""

from __future__ import annotations

import json
import os
import time
from typing import Any
from uuid import UUID

import psycopg

from jobqueue.clock import new_id
from stress.bench.measure import Sample, each, timed

WORKER = "raw:1:000000000000"
INSERT = """insert into jobs
    (id, type, status, priority, attempts, max_attempts, fence, scheduled_at, created_at, payload)
    values (%s, 'job', 'pending', 0, 0, 3, 0, statement_timestamp(), statement_timestamp(), %s)"""
CLAIM = """update jobs set status = 'running', attempts = attempts + 1, fence = fence + 1,
    started_at = statement_timestamp(), worker = %s, lease_expires_at = statement_timestamp() + interval '30 s'
    where seq = any (array(
        select seq from jobs where type = 'job' and status in ('pending', 'failed')
            and scheduled_at <= statement_timestamp()
        order by priority desc, scheduled_at, seq limit %s for no key update skip locked
    )) returning seq, id, fence, payload::text"""
COMPLETE = """update jobs set status = 'completed', completed_at = statement_timestamp(), lease_expires_at = null,
    worker = null
    where seq = any (%s) and worker = %s and status = 'running'"""


class RawPostgres:
    """Raw loops on the table that the library has made; one connection."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)

    def close(self) -> None:
        self.connection.close()

    def enqueue(self, payloads: list[Any]) -> Sample:
        execute = self.connection.execute
        return each(len(payloads), lambda number: execute(INSERT, self._row(payloads[number])))

    def enqueue_many(self, payloads: list[Any], batch: int) -> Sample:
        """COPY, the fastest way in."""

        def all_of_them() -> None:
            columns = "id, type, status, priority, attempts, max_attempts, fence, scheduled_at, created_at, payload"
            for start in range(0, len(payloads), batch):
                now = time.strftime("%Y-%m-%d %H:%M:%S+00", time.gmtime())
                with (
                    self.connection.transaction(),
                    self.connection.cursor().copy(f"copy jobs ({columns}) from stdin") as copy,
                ):
                    for payload in payloads[start : start + batch]:
                        id, text = self._row(payload)
                        copy.write_row((id, "job", "pending", 0, 0, 3, 0, now, now, text))

        return timed(len(payloads), all_of_them)

    def _row(self, payload: Any) -> tuple[UUID, str]:
        return UUID(bytes=new_id(time.time_ns() // 1000, os.urandom(10))), json.dumps(payload)

    def drain_split(self, operations: int) -> Sample:
        """Claim and completion committed one by one."""

        def one(_: int) -> None:
            [row] = self._claim(1)
            json.loads(row[3])
            self.connection.execute(COMPLETE, ([row[0]], WORKER))

        return each(operations, one)

    def drain_fused(self, operations: int, batch: int = 1) -> Sample:
        """Complete what was claimed last and claim what comes next in one transaction."""

        def all_of_them() -> None:
            done: list[tuple[Any, ...]] = []
            left = operations
            while left or done:
                with self.connection.transaction():
                    if done:
                        self.connection.execute(COMPLETE, ([row[0] for row in done], WORKER))
                    done = self._claim(min(batch, left)) if left else []
                for row in done:
                    json.loads(row[3])
                left -= len(done)

        return timed(operations, all_of_them)

    def _claim(self, n: int) -> list[tuple[Any, ...]]:
        return self.connection.execute(CLAIM, (WORKER, n)).fetchall()
