"""What the README shows happens: every code block runs, and does what the text around it says."""

from __future__ import annotations

import ast
import re
import shlex
import socket
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from jobqueue import Queue, Status
from jobqueue.cli import app
from tests.clock import ManualClock
from tests.docs.readme import ROOT, Block, Reader, sections

README = (ROOT / "README.md").read_text(encoding="utf-8")
DAY = timedelta(days=1)

# Run by .ci/run, not here: they install, run these very tests, or take minutes.
NOT_RUN_HERE = {"Try it", "Verify", "Stress", "Speed"}
RUN_HERE = {
    "Sign-up e-mails",
    "Importing a CSV file",
    "A report at 3 a.m.",
    "What a handler can say",
    "Enqueueing in your own transaction",
    "Monitoring and cleanup",
    "PostgreSQL",
}


def test_every_section_with_code_is_run() -> None:
    assert {title for title, blocks in sections().items() if blocks} == RUN_HERE | NOT_RUN_HERE


@pytest.mark.parametrize(("extra", "then"), [("cli", "jobqueue demo"), ("dev", "pytest -n auto")])
def test_a_fresh_machine_needs_one_line_for_the_demo_and_one_for_the_tests(extra: str, then: str) -> None:
    lines = [block.text.strip() for block in sections()["Try it"]]
    assert len(lines) == 2
    assert not any("\n" in line for line in lines)
    (line,) = [line for line in lines if line.endswith(then)]
    make, install, run = (shlex.split(part) for part in line.split("&&"))
    assert make == ["python3", "-m", "venv", ".venv"]
    assert install == [".venv/bin/pip", "install", "-e", f".[{extra}]"]
    assert run == shlex.split(f".venv/bin/{then}")
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_command_of_the_command_line_is_mentioned() -> None:
    names = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]
    assert [name for name in names if f"jobqueue {name}" not in README] == []


def test_every_clause_that_is_cited_exists() -> None:
    defined = set(re.findall(r"\*\*([GNW]-\d+)\b", (ROOT / "spec" / "lifecycle.md").read_text(encoding="utf-8")))
    cited = set(re.findall(r"\b[GNW]-\d+\b", README))
    assert cited
    assert cited <= defined


def test_sign_up_e_mails_are_delivered(tmp_path: Path) -> None:
    define, server_command, work, program = sections()["Sign-up e-mails"]
    port = free_port()
    reader = Reader(tmp_path, {"8025": str(port)})
    with mail_server(reader, server_command, port) as mails:
        assert reader.follow(define) == ""
        assert "completed: 2," in reader.follow(work)
        reader.follow(program)
        text = mails()
    for name, address in (("Ana", "ana@example.com"), ("Bo", "bo@example.com"), ("Cy", "cy@example.com")):
        assert f"To: {address}" in text
        assert f"Hello {name}, good to have you here." in text
    assert len(set(re.findall(r"Message-ID: (<.+@example\.com>)", text))) == 3


def test_a_csv_file_is_imported_once(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    *_, work = [reader.follow(block) for block in sections()["Importing a CSV file"]]
    rows = ast.literal_eval(work.splitlines()[-1])
    assert rows == [("Ana", "ana@example.com"), ("Bo", "bo@example.com")]


def test_a_report_is_due_at_3_in_the_morning_and_enqueues_its_successor_once(
    tmp_path: Path, load: Callable[[Path], ModuleType]
) -> None:
    reader = Reader(tmp_path)
    define, run = sections()["A report at 3 a.m."]
    reader.follow(define)
    today = datetime.now(UTC).date()
    assert "report" in reader.follow(run)
    reports = load(tmp_path / "reports.py")
    clock = ManualClock()
    with Queue.open(tmp_path / "app.db", clock=clock) as queue:
        (waiting,) = queue.list()
        assert waiting.scheduled_at.timetz() == time(3, tzinfo=UTC)
        assert waiting.scheduled_at.date() - today in (DAY, 2 * DAY)  # Two, if midnight passed meanwhile.
        clock.set(micros(waiting.scheduled_at) - 1)
        assert queue.dequeue() is None
        clock.set(micros(waiting.scheduled_at))
        job = queue.dequeue()
        assert job is not None
        day = waiting.scheduled_at.date()
        for _ in range(2):  # As when its worker dies at the end of the first attempt.
            reports.report(job)
        queue.complete(job)
        assert (tmp_path / f"report-{day}.txt").read_text().startswith("pending: 1, running: 1,")
        (successor,) = queue.list(status="pending")
        assert successor.scheduled_at == waiting.scheduled_at + DAY
        assert date.fromisoformat(queue.list(status="pending", payloads=True)[0].payload["day"]) == day + DAY
    reports.queue.close()


def test_each_way_a_handler_ends_has_its_outcome(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for block in sections()["What a handler can say"]:
        reader.follow(block)
    with Queue.open(tmp_path / "app.db") as queue:
        found = {view.payload["answer"]: view for view in queue.list(payloads=True)}
    after = {name: (view.status, view.attempts) for name, view in found.items()}
    assert after == {
        "rate limited": (Status.FAILED, 1),
        "bank is closed": (Status.PENDING, 0),
        "no such account": (Status.DEAD, 1),
        "ok": (Status.COMPLETED, 1),
    }
    assert timedelta(seconds=50) < found["rate limited"].scheduled_at - found["rate limited"].created_at < DAY
    assert timedelta(minutes=59) < found["bank is closed"].scheduled_at - found["bank is closed"].created_at < DAY
    assert found["no such account"].error == "no such account"
    assert found["ok"].result == {"receipt": 17}


def test_a_job_commits_with_the_callers_data_and_its_key_is_held(tmp_path: Path) -> None:
    (block,) = sections()["Enqueueing in your own transaction"]
    printed = Reader(tmp_path).follow(block)
    with Queue.open(tmp_path / "app.db") as queue:
        (view,) = queue.list()
    assert printed == f"already there: {view.id}\n"
    assert view.unique_key == "order 17"


def test_monitoring_and_cleanup_run_as_shown(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    shell, program = sections()["Monitoring and cleanup"]
    printed = reader.follow(shell)
    assert '{"pending": 1, "running": 0, "completed": 0, "failed": 0, "dead": 0}' in printed
    for line in ("cancelled: 1", "requeued: 1", "swept: 0", "deleted: 0", "no broken rows"):
        assert line in printed.splitlines()
    assert reader.follow(program).startswith("pending: 1, running: 0")
    used = set(re.findall(r"^ *jobqueue (\w+)", shell.text, re.MULTILINE))
    assert used >= {"status", "list", "show", "cancel", "requeue", "sweep", "cleanup", "audit"}


def test_postgresql_runs_the_same_program(tmp_path: Path, postgres_url: str) -> None:
    (block,) = sections()["PostgreSQL"]
    assert Reader(tmp_path, {"postgresql://app@localhost/app": postgres_url}).follow(block) == "completed\n"


# A reader's surroundings


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def mail_server(reader: Reader, command: Block, port: int) -> Iterator[Callable[[], str]]:
    """The README's own mail server, once it answers; gives a function that stops it and tells what it printed."""
    process = reader.start(command)
    try:
        while not answers(port):
            assert process.poll() is None, "the mail server ended before it answered"

        def mails() -> str:
            process.terminate()
            return process.communicate(timeout=60)[0]

        yield mails
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("localhost", port), timeout=60) as connection:
            return connection.recv(3) == b"220"
    except OSError:
        return False


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], ModuleType]:
    """Runs a file as a module, in its directory."""

    def loaded(path: Path) -> ModuleType:
        monkeypatch.chdir(path.parent)
        module = ModuleType(path.stem)
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
        return module

    return loaded


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
