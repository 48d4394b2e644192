"""The SQL files: the same statements in both dialects and order; each clause's from-status in its own WHERE."""

from __future__ import annotations

import re

import pytest

from jobqueue.sql import statements
from jobqueue.transitions import TABLE, Event, sources
from jobqueue.types import Status

SQLITE, POSTGRES = statements("sqlite"), statements("postgres")
HOLDERS = ("complete", "retry", "bury", "release", "extend")
SWEEPS = ("sweep_retry", "sweep_bury")
MANY = ("enqueue_many", "complete_many")  # On PostgreSQL only.
SQLITE_ONLY = ("first", "dequeue_many")
EVENTS = {
    "complete": Event.COMPLETE,
    "retry": Event.RETRY,
    "bury": Event.BURY,
    "release": Event.RELEASE,
    "extend": Event.EXTEND,
    "sweep_retry": Event.RETRY,
    "sweep_bury": Event.BURY,
    "cancel": Event.CANCEL,
    "requeue": Event.REQUEUE,
    "dequeue": Event.DEQUEUE,
}


def code(sql: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"--.*", "", sql)).lower()


def test_the_law_a_completion_of_many_compares_each_claim() -> None:
    condition = where(POSTGRES, "complete_many")
    assert listed(condition) == {"running"}
    for column in ("seq", "id", "fence", "worker"):
        assert f"job.{column} = held.{column}" in condition


def where(dialect: dict[str, str], name: str) -> str:
    """The condition of the statement's own write. On PostgreSQL a function claims."""
    sql = code(dialect[name])
    if " set " not in sql:
        sql = next(part for part in code("\n".join(dialect.values())).split(";") if "fence + 1" in part)
    return sql.split(" set status = " if name != "extend" else " set ", 1)[1].split(" where ", 1)[1]


def listed(condition: str) -> set[str]:
    """The statuses that a condition on the written row allows."""
    forms = r"(?<![.\w])(?:job\.)?status (=|in|not in) (\([^)]*\)|'\w+')"
    [(form, named)] = re.findall(forms, condition)
    statuses = set(re.findall(r"'(\w+)'", named))
    return {status.value for status in Status} - statuses if form == "not in" else statuses


def test_both_dialects_have_the_same_statements_in_the_same_order() -> None:
    assert [name for name in SQLITE if name not in SQLITE_ONLY] == [name for name in POSTGRES if name not in MANY]


def test_a_claim_of_many_writes_what_a_claim_of_one_does_and_tests_the_same_statuses() -> None:
    one, many = code(SQLITE["dequeue"]), code(SQLITE["dequeue_many"])
    assert one.split(" where ")[0] == many.split(" where ")[0]
    assert listed(where(SQLITE, "dequeue_many")) == {status.value for status in sources(Event.DEQUEUE)}
    assert "scheduled_at <= :now" in where(SQLITE, "dequeue_many")


@pytest.mark.parametrize("name", MANY)
def test_a_statement_for_many_jobs_writes_what_the_one_for_one_job_does(name: str) -> None:
    one, many = (code(POSTGRES[each]) for each in (name.removesuffix("_many"), name))
    written = re.compile(r"(?<=set )status = .*?(?= from unnest| where)|\([^()]*\)(?= (?:values|select) )")
    [columns] = written.findall(one)
    assert written.findall(many)[0] == columns.replace("%(result)s::json", "held.result")
    assert many.count("%(") == one.count("%(")


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
@pytest.mark.parametrize("name", EVENTS)
def test_the_law_every_write_re_tests_its_whole_from_status(dialect: dict[str, str], name: str) -> None:
    assert listed(where(dialect, name)) == {status.value for status in sources(EVENTS[name])}


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
@pytest.mark.parametrize("name", HOLDERS)
def test_the_law_a_holders_write_is_one_compare_and_set(dialect: dict[str, str], name: str) -> None:
    condition = where(dialect, name)
    for column in ("id", "fence", "worker"):
        assert re.search(rf"\b{column} = [:%]", condition), f"{name} does not compare {column}"


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
@pytest.mark.parametrize("name", SWEEPS)
def test_the_law_a_sweep_re_tests_fence_lease_and_expiry(dialect: dict[str, str], name: str) -> None:
    condition = where(dialect, name)
    assert re.search(r"\bfence = [:%]", condition)
    assert re.search(r"\blease_expires_at = [:%]", condition)
    assert re.search(r"\blease_expires_at <= (:now|coalesce)", condition)


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
@pytest.mark.parametrize("name", [name for name in EVENTS if name not in ("requeue", "extend", "dequeue", "cancel")])
def test_the_frame_leaving_running_nulls_worker_and_lease(dialect: dict[str, str], name: str) -> None:
    changes = code(dialect[name]).rsplit(" set ", 1)[1].split(" where ", 1)[0]
    assert "lease_expires_at = null" in changes
    assert "worker = null" in changes


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_no_statement_reads_a_clock_of_another_form(dialect: dict[str, str]) -> None:
    for name, sql in dialect.items():
        if dialect is SQLITE:
            assert not re.search(r"'now'|current_timestamp|datetime\(", code(sql)), name
        read_once = "coalesce($5, clock_timestamp())" if (dialect, name) == (POSTGRES, "due") else "-"
        assert not re.search(r"\bnow\(\)|clock_timestamp|current_timestamp", code(sql).replace(read_once, "", 1)), name


def test_the_table_has_each_status_and_event() -> None:
    assert {event for _, event in TABLE} == set(Event)
