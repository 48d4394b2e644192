"""The plan of every hot statement on SQLite: no scan of the table, no sort of more than the heads of the levels."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobqueue import Queue
from jobqueue.sql import for_queue, statements

BY_SEQ = "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"
BY_ID = "SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (id=?)"

# What each statement does to the table; steps over CTEs and their results are left out.
PLANS = {
    "key_holder": ["SEARCH jobs USING INDEX jobs:unique_key (unique_key=?)"],
    "exists": ["SEARCH jobs USING COVERING INDEX sqlite_autoindex_jobs_1 (id=?)"],
    "first": ["SEARCH jobs USING INDEX jobs:claim (type=? AND priority<?)"],
    "due": [
        "SEARCH head USING INDEX jobs:claim (type=?)",
        "SEARCH head USING INDEX jobs:claim (type=? AND priority<?)",
        "SEARCH due USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH probe USING INDEX jobs:claim (type=? AND priority=? AND scheduled_at<?)",
        "USE TEMP B-TREE FOR ORDER BY",  # Of up to n heads of each level.
    ],
    "due_in": [
        "SEARCH head USING INDEX jobs:claim (type=?)",
        "SEARCH head USING INDEX jobs:claim (type=? AND priority<?)",
        "SEARCH probe USING INDEX jobs:claim (type=? AND priority=?)",
    ],
    "waiting_types": ["SEARCH jobs USING INDEX jobs:claim", "SEARCH next USING INDEX jobs:claim (type>?)"],
    **{
        name: [BY_SEQ]
        for name in (
            "dequeue",
            "dequeue_many",
            "complete",
            "retry",
            "bury",
            "release",
            "extend",
            "settled_as",
            "sweep_retry",
            "sweep_bury",
        )
    },
    "expired": ["SEARCH jobs USING INDEX jobs:lease (lease_expires_at<?)"],
    **{name: [BY_ID] for name in ("cancel", "requeue_look", "requeue", "get")},
    "select_ids": ["SEARCH jobs USING INTEGER PRIMARY KEY (rowid>?)"],
    "list": ["SEARCH jobs USING INTEGER PRIMARY KEY (rowid>?)"],
    "list_wide": ["SEARCH jobs USING INTEGER PRIMARY KEY (rowid>?)"],
    "cleanup": [BY_SEQ, "SEARCH old USING COVERING INDEX jobs:ended (status=? AND completed_at<?)"],
}


@pytest.fixture(params=["without statistics", "with statistics"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "queue.db"
    with Queue.open(path, synchronous="normal") as queue:
        queue.enqueue_many({"type": "abc"[n % 3], "priority": n % 5, "unique_key": f"k{n}"} for n in range(300))
        queue.complete_many([(job, None) for job in queue.dequeue_many(200)])
        queue.dequeue_many(20)
    connection = sqlite3.connect(path)
    if request.param == "with statistics":
        connection.execute("analyze")
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    sql = for_queue("sqlite", "jobs")[statement]
    named = re.findall(r":(\w+)", re.sub(r'--.*|"[^"]*"', "", sql))
    args = {name: '["a"]' if name in ("types", "statuses", "seqs") else 1 for name in named}
    steps = [row[3] for row in connection.execute(f"explain query plan {sql}", args)]
    return [step for step in steps if re.match(r"(SCAN|SEARCH) (jobs|head|due|probe|next|old)\b|USE TEMP", step)]


@pytest.mark.parametrize("statement", PLANS)
def test_a_hot_statement_searches_and_never_scans(connection: sqlite3.Connection, statement: str) -> None:
    steps = plan(connection, statement)
    assert sorted(set(steps)) == sorted(PLANS[statement])
    assert not any(step.startswith("SCAN") for step in steps)


def test_every_statement_has_an_asserted_plan_or_reads_what_it_is_about() -> None:
    # An insert searches nothing; counts reads one index per status; an audit reads every row.
    others = {"schema", "enqueue", "counts", "broken_rows"}
    assert set(statements("sqlite")) == set(PLANS) | others


def test_counts_read_indexes_only_for_what_has_ended(connection: sqlite3.Connection) -> None:
    assert [step for step in plan(connection, "counts") if "ended" in step] == [
        "SEARCH jobs USING COVERING INDEX jobs:ended (status=?)"
    ]
