"""No statement of the working path reads the whole table, with statistics and without (B103)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg import sql

from jobqueue.postgres import PostgresDatabase
from jobqueue.postgres_values import LibraryCursor, columns, typed
from jobqueue.sql import statements
from tests.postgres.conftest import Connection, OpenPostgres, OpenSession

MANY = statements("postgres")["complete_many"]
NOW = 1_750_000_000_000_000
HOLDER = {"seq": 7, "id": b"\1" * 16, "fence": 1, "worker": "w", "now": None}
HOT: dict[str, dict[str, Any]] = {
    "key_holder": {"unique_key": "k"},
    "exists": {"id": b"\1" * 16},
    "waiting_types": {},
    "due_in": {"types": '["t", "u"]', "now": None},
    "complete": {**HOLDER, "result": None},
    "complete_many": columns(MANY, [{**HOLDER, "result": None}] * 2),
    "retry": {**HOLDER, "error": "e", "delay": 5},
    "bury": {**HOLDER, "error": "e"},
    "release": {**HOLDER, "delay": None},
    "extend": {**HOLDER, "lease": 5},
    "settled_as": {"seq": 7, "id": b"\1" * 16},
    "expired": {"now": None, "n": 500},
    "sweep_retry": {**HOLDER, "error": "e", "delay": 5, "lease_expires_at": NOW},
    "sweep_bury": {**HOLDER, "error": "e", "lease_expires_at": NOW},
    "cancel": {"id": b"\1" * 16, "error": "e", "now": None},
    "requeue_look": {"id": b"\1" * 16},
    "requeue": {"id": b"\1" * 16, "fence": 1, "attempts": 1, "scheduled_at": NOW},
    "select_ids": {"after": 100, "statuses": '["dead"]', "type": None, "unique_key": None, "n": 500},
    "cleanup": {"status": "completed", "retention": 5, "n": 1000, "now": None},
    "get": {"id": b"\1" * 16},
    "list": {"after": 100, "status": None, "type": None, "unique_key": None, "n": 100},
    "list_wide": {"after": 100, "status": None, "type": None, "unique_key": None, "n": 100},
}


def fill(connection: Connection, status: str, rows: int, **columns: str) -> None:
    """Rows by the thousand, straight into the table; ``columns`` are SQL expressions over i."""
    ended = "now()" if status in ("completed", "dead") else "null"
    leased = ("now()", "'w'") if status == "running" else ("null", "null")
    values = {
        "id": "gen_random_uuid()", "type": "'t'", "status": f"'{status}'", "priority": "0", "attempts": "1",
        "max_attempts": "3", "fence": "1", "scheduled_at": "now()", "created_at": "now()", "completed_at": ended,
        "lease_expires_at": leased[0], "worker": leased[1], "payload": "'{}'", **columns,
    }  # fmt: skip
    query = (
        f"insert into jobs ({', '.join(values)}) select {', '.join(values.values())} from generate_series(1, %s) as i"
    )
    connection.execute(sql.SQL(query), [rows])


def _scanned(plan: dict[str, Any]) -> list[str]:
    """The tables that a plan reads from end to end."""
    inner = [name for child in plan.get("Plans", []) for name in _scanned(child)]
    return [*inner, plan["Relation Name"]] if plan["Node Type"] == "Seq Scan" else inner


@pytest.mark.parametrize("statistics", ["current", "none", "of an idle queue"])
def test_b103_hot_statements_use_indexes(open_postgres: OpenPostgres, session: OpenSession, statistics: str) -> None:
    database = open_postgres().database
    assert isinstance(database, PostgresDatabase)
    connection = session(autocommit=True)
    connection.execute("alter table jobs set (autovacuum_enabled = off)")
    fill(connection, "completed", 20_000)
    if statistics == "of an idle queue":
        connection.execute("analyze jobs")
    for status in ("pending", "running", "dead"):
        fill(connection, status, 2_000, unique_key=f"'{status}' || i")
    if statistics == "current":
        connection.execute("analyze jobs")
    cursor = LibraryCursor(connection)
    for name, args in HOT.items():
        cursor.execute("explain (format json) " + database._statements[name], typed(args))
        [(plan,)] = cursor.fetchall()
        found = _scanned((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
        assert not found, f"{name} scans {found}"


@pytest.mark.parametrize("statistics", ["current", "none", "of an idle queue"])
@pytest.mark.parametrize("unwanted", ["finished", "due later at a higher priority", "of other types", "in backoff"])
def test_b103_a_claim_reads_no_more_pages_behind_jobs_that_it_does_not_want(
    open_postgres: OpenPostgres, session: OpenSession, statistics: str, unwanted: str
) -> None:
    """Pages, not time: the same on a busy machine. A session's first call reads the catalogue, and is not counted."""
    queue = open_postgres()
    connection = session(autocommit=True)
    connection.execute("alter table jobs set (autovacuum_enabled = off)")
    if statistics == "of an idle queue":
        fill(connection, "completed", 20_000)
        connection.execute("analyze jobs")
    fill(connection, "pending", 20, type="'wanted'")
    alone = _pages_of_a_claim(connection)
    if unwanted == "finished":
        fill(connection, "completed", 20_000, type="'wanted'")
    elif unwanted == "due later at a higher priority":
        fill(connection, "pending", 20_000, type="'wanted'", priority="5", scheduled_at="now() + interval '1 day'")
    elif unwanted == "of other types":
        fill(connection, "pending", 20_000, type="'other'", priority="9", scheduled_at="now() - interval '1 day'")
    else:
        fill(connection, "failed", 20_000, type="'wanted'", error="'e'", scheduled_at="now() + interval '1 hour'")
    if statistics == "current":
        connection.execute("analyze jobs")
    assert _pages_of_a_claim(connection) <= alone + 25
    assert queue.dequeue("wanted") is not None


def _pages_of_a_claim(connection: Connection) -> int:
    claim = """explain (analyze, buffers, format json) select from "jobs:dequeue"('["wanted"]', 1, 'w', '30 s', null)"""
    for _ in range(3):
        [(plan,)] = connection.execute(claim).fetchall()
    found: int = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    return found


@pytest.mark.parametrize("statistics", ["current", "none", "of an idle queue"])
@pytest.mark.parametrize("n", [2, 100])
def test_b103_a_completion_of_many_reads_no_more_pages_while_many_jobs_run(
    open_postgres: OpenPostgres, session: OpenSession, statistics: str, n: int
) -> None:
    database, connection = open_postgres().database, session(autocommit=True)
    assert isinstance(database, PostgresDatabase)
    connection.execute("alter table jobs set (autovacuum_enabled = off)")
    fill(connection, "completed", 20_000)
    if statistics == "of an idle queue":
        connection.execute("analyze jobs")
    fill(connection, "running", 20_000)
    if statistics == "current":
        connection.execute("analyze jobs")
    cursor = LibraryCursor(connection)
    cursor.execute(
        "select seq, id, fence, worker from jobs where status = 'running' limit %(n)s", {"n": n}, binary=True
    )
    held = [dict(zip(("seq", "id", "fence", "worker"), row, strict=True)) for row in cursor.fetchall()]
    explain = "explain (analyze, buffers, format json) " + database._statements["complete_many"]
    cursor.execute(explain, columns(MANY, [{**job, "now": None, "result": None} for job in held]))
    [(plan,)] = cursor.fetchall()
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    found = top["Plans"][0]
    assert found["Actual Rows"] == n
    assert found["Shared Hit Blocks"] + found["Shared Read Blocks"] <= 8 * n
