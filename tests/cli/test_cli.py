"""Each command does what its call does, answers in one form for people and one for programs, refuses in one line."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer.main

from jobqueue import Queue, SchemaMismatch, Status
from jobqueue.cli import app
from tests.cli.conftest import Cli
from tests.clock import ManualClock

NOBODY = "00000000-0000-7000-8000-000000000000"
STATUSES = list(Status)


def job_in(queue: Queue, status: str, **options: Any) -> str:
    """A job in that status."""
    id = queue.enqueue("work", None, **options)
    if status == "pending":
        return id
    if status == "dead":
        queue.cancel(id)
        return id
    job = queue.dequeue("work")
    assert job is not None
    if status == "completed":
        queue.complete(job)
    elif status == "failed":
        queue.fail(job, "no luck", delay=86_400)
    return id


# enqueue


def test_enqueue_stores_every_option_and_prints_the_id(cli: Cli, queue: Queue) -> None:
    answer = cli(
        *("enqueue", "send_email", "--payload", '{"to": "ana@example.com"}', "--priority", "-7", "--max-attempts", "5"),
        *("--timeout", "1m30s", "--unique-key", "k", "--at", "2030-01-31T03:00+01:00"),
    )
    assert (answer.code, answer.err) == (0, "")
    view = queue.get(answer.out.strip())
    assert view is not None
    assert (view.type, view.payload, view.priority, view.max_attempts) == (
        "send_email",
        {"to": "ana@example.com"},
        -7,
        5,
    )
    assert (view.timeout, view.unique_key) == (timedelta(seconds=90), "k")
    assert view.scheduled_at == datetime(2030, 1, 31, 2, tzinfo=UTC)


def test_enqueue_with_a_delay_is_due_when_it_has_passed(cli: Cli, queue: Queue) -> None:
    id = cli("enqueue", "report", "--delay", "1h30m").out.strip()
    view = queue.get(id)
    assert view is not None
    assert view.scheduled_at - view.created_at == timedelta(hours=1, minutes=30)


def test_enqueue_reads_the_payload_from_stdin(cli: Cli, queue: Queue) -> None:
    id = cli("enqueue", "report", "--payload", "-", "--json", stdin='["é", 1]'.encode()).json["id"]
    view = queue.get(id)
    assert view is not None
    assert view.payload == ["é", 1]


def test_a_taken_key_is_a_failed_outcome_and_can_be_kept(cli: Cli) -> None:
    first = cli("enqueue", "a", "--unique-key", "k").out
    refused = cli("enqueue", "a", "--unique-key", "k")
    assert refused.code == 1
    assert first.strip() in refused.complaint
    assert cli("enqueue", "a", "--unique-key", "k", "--on-duplicate", "keep").out == first


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "--from", "jobs.jsonl"],
        [""],
        ["a", "--payload", "{"],
        ["a", "--payload", "NaN"],
        ["a", "--payload", '"\\ud800"'],
        ["a", "--payload", "[" * 100_000],
        ["a", "--priority", "high"],
        ["a", "--priority", "32768"],
        ["a", "--delay", "soon"],
        ["a", "--delay", "-5"],
        ["a", "--delay", ""],
        ["a", "--delay", "999999999999w"],
        ["a", "--delay", "3651d"],
        ["a", "--delay", "1s", "--at", "2030-01-01T00:00Z"],
        ["a", "--at", "2030-01-01T00:00"],
        ["a", "--at", "tomorrow"],
        ["a", "--at", "2030-01-01"],
        ["a", "--max-attempts", "0"],
        ["a", "--timeout", "0"],
        ["a", "--on-duplicate", "replace"],
        ["a", "--queue", "Robert'); drop table jobs"],
        ["a", "--colour", "red"],
        ["a", "b"],
        ["--from", "there-is-no-such-file.jsonl"],
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_stored(cli: Cli, queue: Queue, arguments: list[str]) -> None:
    answer = cli("enqueue", *arguments)
    assert answer.code == 2
    assert answer.complaint
    assert sum(queue.counts().values()) == 0


# enqueue --from


@pytest.mark.parametrize(
    "option",
    [["--payload", "5"], ["--priority", "7"], ["--delay", "5m"], ["--at", "2030-01-31T03:00Z"], ["--max-attempts", "9"],
     ["--timeout", "1s"], ["--unique-key", "k"]],
    ids=lambda option: option[0],
)  # fmt: skip
def test_what_is_said_for_one_job_is_not_passed_over_for_a_file(
    cli: Cli, queue: Queue, tmp_path: Path, option: list[str]
) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"type": "a"}\n')
    answer = cli("enqueue", "--from", str(file), *option)
    assert answer.code == 2
    assert f"{option[0]} is for one job" in answer.complaint
    assert sum(queue.counts().values()) == 0


def test_a_file_is_stored_whole_and_in_order(cli: Cli, queue: Queue, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    first = {"type": "a", "payload": 0, "priority": 3, "delay": "15m", "max_attempts": 9, "timeout": 2.5}
    second = {"type": "b", "scheduled_at": "2030-01-31T03:00Z", "unique_key": "k"}
    lines = [first, second, *({"type": "c", "payload": number} for number in range(1200))]
    # As a spreadsheet or an editor may leave it: a byte-order mark, CR LF, empty lines, no newline at the end.
    file.write_bytes(b"\xef\xbb\xbf" + b"\r\n\r\n".join(json.dumps(line).encode() for line in lines))
    assert cli("enqueue", "--from", str(file), "--json").json == {"count": 1202}
    views = queue.list(limit=2000, payloads=True)
    assert [view.type for view in views] == ["a", "b"] + ["c"] * 1200
    assert [view.payload for view in views[2:]] == list(range(1200))
    assert (views[0].priority, views[0].max_attempts, views[0].timeout) == (3, 9, timedelta(seconds=2.5))
    assert views[0].scheduled_at - views[0].created_at == timedelta(minutes=15)
    assert (views[1].scheduled_at, views[1].unique_key) == (datetime(2030, 1, 31, 3, tzinfo=UTC), "k")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'["a"]',
        b"{}",
        b'{"type": "a", "when": 1}',
        b'{"type": "a", "payload": {"rate": NaN}}',
        b'{"type": "a", "priority": "high"}',
        b'{"type": "a", "scheduled_at": "2030-01-01T00:00"}',
        b'{"type": "a", "delay": "soon"}',
        b'{"type": "a", "payload": "\xff"}',
        b'{"type": "a", "payload": ' + b"9" * 5000 + b"}",
    ],
)
@pytest.mark.parametrize("piped", [False, True])
def test_a_bad_line_refuses_the_whole_file_and_is_named(
    cli: Cli, queue: Queue, tmp_path: Path, line: bytes, piped: bool
) -> None:
    content = b'{"type": "good"}\n' * 600 + line + b'\n{"type": "good"}\n'
    file = tmp_path / "jobs.jsonl"
    file.write_bytes(content)
    answer = cli("enqueue", "--from", "-", stdin=content) if piped else cli("enqueue", "--from", str(file))
    assert answer.code == 2
    assert "line 601:" in answer.complaint
    assert sum(queue.counts().values()) == 0


def test_a_taken_key_in_a_file_tells_how_far_it_is_stored(cli: Cli, queue: Queue) -> None:
    queue.enqueue("a", unique_key="taken")
    lines = b'{"type": "a"}\n' * 700 + b'{"type": "a", "unique_key": "taken"}\n'
    answer = cli("enqueue", "--from", "-", stdin=lines)
    assert answer.code == 1
    assert "'taken'" in answer.complaint
    assert "stored up to line 500" in answer.complaint
    assert queue.counts()[Status.PENDING] == 501
    assert cli("enqueue", "--from", "-", "--on-duplicate", "keep", stdin=lines).out == "jobs: 701\n"


# Looking


def test_status_names_every_status(cli: Cli, queue: Queue) -> None:
    for status in STATUSES:
        job_in(queue, status)
    assert cli("status").out == "pending: 1, running: 1, completed: 1, failed: 1, dead: 1\n"
    assert cli("status", "--json").json == dict.fromkeys(STATUSES, 1)
    assert cli("status", "--json", "--watch").code == 2


def test_list_shows_pages_in_order_and_filters(cli: Cli, queue: Queue) -> None:
    ids = [queue.enqueue("a" if number % 2 else "b", number, unique_key=f"k{number}") for number in range(5)]
    first = cli("list", "--limit", "3", "--json").json
    second = cli("list", "--limit", "3", "--json", "--after", str(first["after"])).json
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ids
    assert second["after"] is None
    assert [job["id"] for job in cli("list", "--type", "a", "--json").json["jobs"]] == [ids[1], ids[3]]
    assert [job["id"] for job in cli("list", "--key", "k4", "--json").json["jobs"]] == [ids[4]]
    assert cli("list", "--status", "dead", "--json").json["jobs"] == []
    text = cli("list", "--limit", "3")
    assert ids[2] in text.out
    assert ids[3] not in text.out
    assert text.err == f"more: --after {first['after']}\n"


def test_list_shows_payloads_only_when_asked(cli: Cli, queue: Queue) -> None:
    queue.enqueue("a", {"secret": 1})
    assert "secret" not in cli("list").out + cli("list", "--json").out
    assert "secret" in cli("list", "--payloads").out
    assert cli("list", "--payloads", "--json").json["jobs"][0]["payload"] == {"secret": 1}


@pytest.mark.parametrize("arguments", [["--limit", "0"], ["--status", "done"], ["--after", "-2"], ["--limit", "x"]])
def test_list_refuses_what_it_cannot_take(cli: Cli, queue: Queue, arguments: list[str]) -> None:
    answer = cli("list", *arguments)
    assert answer.code == 2
    assert answer.complaint


def test_text_from_the_database_is_shown_as_data(cli: Cli, queue: Queue) -> None:
    hostile = "[red]:smile:[/red] \x1b[31m\x07\u202e\n[link=file:///]"
    id = queue.enqueue(hostile, hostile)
    job = queue.dequeue()
    assert job is not None
    queue.fail(job, hostile, for_good=True)
    for shown in (cli("list", "--payloads").out, cli("show", id).out):
        assert "[red]:smile:[/red]" in shown
        assert "[link=file:///]" in shown
        assert not set(shown) & {"\x1b", "\x07", "\u202e"}


def test_show_tells_everything_about_a_job(cli: Cli, queue: Queue) -> None:
    id = queue.enqueue("a", {"x": [1]}, timeout=1.5)
    job = queue.dequeue()
    assert job is not None
    queue.complete(job, {"y": None})
    shown = cli("show", id, "--json").json
    assert (shown["id"], shown["status"], shown["attempts"]) == (id, "completed", 1)
    assert (shown["payload"], shown["result"], shown["timeout"]) == ({"x": [1]}, {"y": None}, 1.5)
    assert datetime.fromisoformat(shown["completed_at"]).tzinfo is not None
    assert '{"x": [1]}' in cli("show", id).out


def test_show_of_no_job_fails_and_of_no_id_is_refused(cli: Cli, queue: Queue) -> None:
    absent = cli("show", NOBODY)
    assert (absent.code, absent.complaint) == (1, f"jobqueue: there is no job {NOBODY}")
    assert cli("show", "17").code == 2


# Changing


@pytest.mark.parametrize("status", [*STATUSES, "absent"])
@pytest.mark.parametrize(
    ("command", "allowed", "then"),
    [("requeue", {"dead", "failed"}, "pending"), ("cancel", {"pending", "running", "failed"}, "dead")],
)
def test_requeue_and_cancel_happen_from_their_statuses_only(
    cli: Cli, queue: Queue, command: str, allowed: set[str], then: str, status: str
) -> None:
    id = NOBODY if status == "absent" else job_in(queue, status)
    before = queue.get(id)
    answer = cli(command, id, "--json")
    if status in allowed:
        assert (answer.code, answer.json) == (0, {"count": 1, "refused": {}})
        after = queue.get(id)
        assert after is not None
        assert after.status == then
    else:
        assert answer.code == 1
        reason = "there is no such job" if status == "absent" else f"it is {status}"
        assert answer.json == {"count": 0, "refused": {id: reason}}
        assert queue.get(id) == before


def test_requeue_tells_which_job_holds_the_key(cli: Cli, queue: Queue) -> None:
    dead = job_in(queue, "dead", unique_key="k")
    holder = queue.enqueue("work", unique_key="k")
    answer = cli("requeue", dead)
    assert answer.code == 1
    assert answer.out == "requeued: 0\n"
    assert holder in answer.err
    bulk = cli("requeue", "--all-matching", "--yes", "--json")
    assert (bulk.code, bulk.json["count"], list(bulk.json["refused"])) == (1, 0, [dead])


def test_every_id_is_checked_before_the_first_is_changed(cli: Cli, queue: Queue) -> None:
    id = job_in(queue, "pending")
    assert cli("cancel", id, "17").code == 2
    assert queue.counts()[Status.PENDING] == 1


def test_a_filter_changes_its_jobs_and_counts_what_really_changed(cli: Cli, queue: Queue) -> None:
    for status in STATUSES:
        job_in(queue, status)
    queue.enqueue("other")
    assert cli("cancel", "--type", "work", "--all-matching", "--yes", "--json").json == {"count": 3, "refused": {}}
    assert queue.counts() == {**dict.fromkeys(Status, 0), Status.PENDING: 1, Status.COMPLETED: 1, Status.DEAD: 4}
    assert cli("requeue", "--status", "dead", "--all-matching", "--yes").out == "requeued: 4\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["requeue"],
        ["requeue", "--status", "dead"],
        ["requeue", "--status", "dead", "--all-matching"],  # Nobody can answer the question.
        ["requeue", "--status", "completed", "--all-matching", "--yes"],
        ["requeue", "--status", "gone", "--all-matching", "--yes"],
        ["requeue", NOBODY, "--status", "dead"],
        ["cancel", NOBODY, "--all-matching", "--yes"],
        ["cancel", "--status", "dead", "--all-matching", "--yes"],
    ],
)
def test_a_bulk_command_that_is_not_clear_changes_nothing(cli: Cli, queue: Queue, arguments: list[str]) -> None:
    for status in STATUSES:
        job_in(queue, status)
    before = queue.list()
    answer = cli(*arguments)
    assert answer.code == 2
    assert answer.complaint
    assert queue.list() == before


@pytest.mark.parametrize(("said", "code", "pending"), [(b"n\n", 1, 1), (b"y\n", 0, 0)])
def test_a_person_is_asked_before_many_jobs_are_changed(tmp_path: Path, said: bytes, code: int, pending: int) -> None:
    with Queue.open(tmp_path / "q.db") as queue:
        queue.enqueue("a")
        master, terminal = pty.openpty()
        os.write(master, said)
        command = process("cancel", "--all-matching", "--db", str(tmp_path / "q.db"), stdin=terminal)
        _, err = command.communicate(timeout=60)
        assert b"cancel 1 jobs?" in err
        assert command.returncode == code
        assert queue.counts()[Status.PENDING] == pending
        os.close(master)
        os.close(terminal)


# sweep, cleanup, audit


class RenewingClock(ManualClock):
    """Between the two looks of a sweep its holder renews one lease."""

    renew: Any = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.renew is not None:
            self.renew()
            self.renew = None


@pytest.fixture
def clock() -> ManualClock:
    return RenewingClock()


def test_sweep_takes_only_what_two_looks_found_expired(cli: Cli, queue: Queue, clock: RenewingClock) -> None:
    dead_holders = job_in(queue, "running")
    living_holders = queue.enqueue("work")
    job = queue.dequeue("work")
    assert job is not None
    clock.advance(31)
    clock.renew = lambda: queue.extend(job)
    slept = clock.monotonic()
    assert cli("sweep", "--json").json == {"count": 1, "swept": [{"id": dead_holders, "status": "failed"}]}
    assert clock.monotonic() - slept > 10  # More than the default heartbeat of the default lease.
    assert [view.id for view in queue.list(status="running")] == [living_holders]


def test_sweep_now_takes_one_look_and_says_what_it_assumes(cli: Cli, queue: Queue, clock: ManualClock) -> None:
    id = job_in(queue, "running", max_attempts=1)
    assert cli("sweep", "--now").out == "swept: 0\n"
    clock.advance(30)
    answer = cli("sweep", "--now")
    assert answer.out == f"swept: 1\n{id} dead\n"
    assert "assumes that no worker" in answer.err


def test_cleanup_deletes_only_what_ended_long_enough_ago(cli: Cli, queue: Queue, clock: ManualClock) -> None:
    for status in STATUSES:
        job_in(queue, status)
    clock.advance(timedelta(days=7) - timedelta(microseconds=1))
    assert cli("cleanup", "--older-than", "7d").out == "deleted: 0\n"
    clock.advance(timedelta(microseconds=1))
    assert cli("cleanup", "--older-than", "7d", "--status", "dead", "--json").json == {"deleted": 1}
    assert cli("cleanup", "--older-than", "7d", "--json").json == {"deleted": 1}
    assert queue.counts() == {**dict.fromkeys(Status, 1), Status.COMPLETED: 0, Status.DEAD: 0}
    assert cli("cleanup", "--older-than", "7d", "--status", "failed").code == 2
    assert cli("cleanup").code == 2


def test_audit_finds_a_row_that_was_changed_by_hand(bare_cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "q.db")
    with Queue.open(path) as queue:
        id = queue.enqueue("a")
        assert bare_cli("audit", "--db", path).code == 0
        assert bare_cli("audit", "--db", path, "--json").json == {"broken": []}
        with sqlite3.connect(path) as connection:
            connection.execute("pragma ignore_check_constraints = on")
            connection.execute("update jobs set attempts = 99")
        connection.close()
        answer = bare_cli("audit", "--db", path, "--json")
    assert answer.code == 1
    assert [row["id"] for row in answer.json["broken"]] == [id]
    text = bare_cli("audit", "--db", path)
    assert text.code == 1
    assert id in text.out


# The database


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",), ("list",), ("show", NOBODY), ("requeue", NOBODY), ("cancel", NOBODY), ("sweep",),
        ("cleanup", "--older-than", "1d"), ("audit",),
    ],
)  # fmt: skip
def test_a_mistyped_path_is_refused_and_not_created(bare_cli: Cli, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "typo.db"
    answer = bare_cli(*arguments, "--db", str(path))
    assert answer.code == 2
    assert "typo.db" in answer.complaint
    assert not path.exists()


def test_no_database_named_is_refused(bare_cli: Cli) -> None:
    answer = bare_cli("status")
    assert answer.code == 2
    assert "--db" in answer.complaint


def test_a_database_in_memory_is_refused(bare_cli: Cli) -> None:
    assert bare_cli("enqueue", "a", "--db", ":memory:").code == 2


@pytest.mark.parametrize("kind", ["not a database", "directory"])
def test_an_unusable_database_is_one_line_that_names_it(bare_cli: Cli, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "app.db"
    path.mkdir() if kind == "directory" else path.write_text("this is not a database\n" * 100)
    answer = bare_cli("status", "--db", str(path))
    assert answer.code == 1
    assert str(path) in answer.complaint


def test_a_read_only_database_is_one_line_that_names_it(bare_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    Queue.open(path).close()
    # Not by permissions, which root passes over: SQLite itself is told that the file may not be written.
    with sqlite3.connect(path) as connection:
        connection.execute("pragma journal_mode = delete")
    connection.close()
    content = bytearray(path.read_bytes())
    content[18] = 9  # The file format's write version: newer than this SQLite writes.
    path.write_bytes(content)
    answer = bare_cli("enqueue", "a", "--db", str(path))
    assert answer.code == 1
    assert str(path) in answer.complaint


def test_passwords_are_never_shown(bare_cli: Cli) -> None:
    answer = bare_cli("status", "--db", "postgresql://ana:s3cr3t@127.0.0.1:1/app?connect_timeout=2&sslpassword=s3cr3t")
    assert answer.code in (1, 2)
    assert "s3cr3t" not in answer.complaint


def test_queues_of_one_database_are_apart(cli: Cli, queue: Queue) -> None:
    cli("enqueue", "a", "--queue", "emails")
    assert queue.counts()[Status.PENDING] == 0
    assert cli("status", "--queue", "emails", "--json").json["pending"] == 1


# The program


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "jobqueue", *arguments],
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def test_watch_prints_each_change_and_ends_at_ctrl_c(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q.db") as queue:
        command = process("status", "--watch", "--interval", "10ms", "--db", str(tmp_path / "q.db"))
        assert command.stdout is not None
        assert command.stdout.readline().startswith(b"pending: 0,")
        queue.enqueue("a")
        assert command.stdout.readline().startswith(b"pending: 1,")
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
    assert (command.returncode, out, err) == (0, b"", b"")


def test_a_reader_that_goes_away_ends_a_listing_quietly(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q.db") as queue:
        queue.enqueue_many({"type": "a", "payload": "x" * 1000} for _ in range(1000))
    for form in ("--json", "--payloads"):
        command = process("list", "--limit", "1000", "--payloads", form, "--db", str(tmp_path / "q.db"))
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == b""
        assert command.wait(60) == 1
        command.stderr.close()


def test_an_ascii_terminal_does_not_stop_a_listing(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q.db") as queue:
        queue.enqueue("größe")
    command = process(
        "list", "--db", str(tmp_path / "q.db"), env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    )
    out, _ = command.communicate(timeout=60)
    assert command.returncode == 0
    assert b"gr\\xf6\\xdfe" in out


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_libraries_the_command_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from jobqueue.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "pip install typer rich" in line


def test_every_command_and_option_is_documented_in_help(bare_cli: Cli) -> None:
    group: Any = typer.main.get_command(app)
    overview = bare_cli("--help").out
    for name, command in group.commands.items():
        assert name in overview
        help = bare_cli(name, "--help")
        assert help.code == 0
        assert (command.help or "").split(".")[0].split()[0] in help.out
        for parameter in command.params:
            assert parameter.name == "help" or parameter.help, f"{name} {parameter.name} has no help text"
            if parameter.param_type_name == "option":
                assert parameter.opts[0] in help.out


def test_every_command_takes_a_database_and_a_queue() -> None:
    group: Any = typer.main.get_command(app)
    assert set(group.commands) == {
        *("enqueue", "work", "status", "list", "show", "requeue", "cancel", "sweep", "cleanup", "audit", "demo")
    }
    for command in group.commands.values():
        assert {"--db", "--queue"} <= {option for parameter in command.params for option in parameter.opts}


def test_without_a_command_the_help_is_shown_and_an_unknown_one_is_refused(bare_cli: Cli) -> None:
    assert "Commands:" in bare_cli().out
    assert bare_cli("--version").out.startswith("jobqueue ")
    assert bare_cli("frobnicate").code == 2


# Names that are mistyped


@pytest.mark.parametrize(
    "command",
    [["status"], ["list"], ["show", NOBODY], ["audit"], ["cleanup", "--older-than", "1d"],
     ["cancel", "--all-matching", "--yes"], ["requeue", "--all-matching", "--yes"], ["sweep", "--now"]],
    ids=lambda command: command[0],
)  # fmt: skip
def test_a_mistyped_queue_is_told_and_not_created(cli: Cli, queue: Queue, url: str, command: list[str]) -> None:
    for _ in range(2):
        answer = cli(*command, "--queue", "nosuch")
        assert answer.code == 1
        assert "has no queue 'nosuch'" in answer.err
    with pytest.raises(SchemaMismatch, match="has no queue 'nosuch'"):
        Queue.open(url, name="nosuch", create=False)


def test_a_look_at_another_programs_database_leaves_no_trace(bare_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table theirs (x)")
        connection.commit()
    before = path.read_bytes()
    answer = bare_cli("status", "--db", str(path))
    assert answer.code == 1
    assert "has no queue 'jobs'" in answer.complaint
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("url", ["mysql://u:secret@host/d", "sqlite:///app.db", "postgresql+psycopg://u:secret@host/d"])
def test_a_url_of_another_kind_is_refused_without_its_password(
    bare_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["status"], ["enqueue", "a"]):
        answer = bare_cli(*command, "--db", url)
        assert answer.code == 2
        assert f"a {url.partition('//')[0]}// URL is not known" in answer.complaint
        assert "secret" not in answer.complaint
    assert list(tmp_path.iterdir()) == []


def test_a_watch_needs_an_interval(cli: Cli, queue: Queue) -> None:
    assert "--interval must be more than 0" in cli("status", "--watch", "--interval", "0").complaint
