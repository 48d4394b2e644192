"""The demo is right only if every digest is, the killed worker's jobs were recovered, and the audit is clean."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobqueue import Queue, Status, demo, demo_worker
from tests.cli.conftest import Cli
from tests.clock import ManualClock


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with unusual names and things that are not files to hash."""
    root = tmp_path / "files"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "skipped.pyc").write_bytes(b"skipped")
    for name in ("plain", "empty", "[red]markup", "new\nline", "größe", "deep/er/100%25", "deep/space  "):
        (root / name).write_bytes(b"" if name == "empty" else name.encode() * 1000)
    (root / os.fsdecode(b"not-utf8-\xff")).write_bytes(b"bytes")
    (root / "link").symlink_to("plain")
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    return root


HASHED = 9  # The seven names, the one that is not UTF-8, and the link.


def test_the_demo_recovers_a_killed_workers_jobs_and_checks_every_digest(files: Path, tmp_path: Path) -> None:
    db = files / "demo.db"  # Below the directory that is hashed: the demo leaves its own database out.
    command = [sys.executable, "-m", "jobqueue", "demo", str(files), "--db", str(db), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["right"] is True
    assert (found["files"], found["db"], found["queue"]) == (HASHED, str(db), "jobs")
    assert found["recovered"] >= 1
    assert found["attempts"] >= HASHED + found["recovered"]
    assert found["wrong"] == found["unfinished"] == found["changed"] == found["broken"] == []
    with Queue.open(db) as queue:
        assert queue.audit() == []
        views = queue.list(payloads=True)
    assert {view.status for view in views} == {Status.COMPLETED}
    for view in views:
        content = Path(demo_worker.path_in(view.payload)).read_bytes()
        assert view.result == {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    assert any(view.error == "lease expired" and view.attempts > 1 for view in views)


def test_the_demo_ends_with_a_table_for_people(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    command = [sys.executable, "-m", "jobqueue", "demo", str(tmp_path), "--db", str(tmp_path / "q.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        "files",
        "attempts",
        "recovered jobs",
        "jobs/s",
        "digests",
        "1 equal, 0 wrong",
        str(tmp_path / "q.db"),
    ):
        assert part in done.stdout


@pytest.mark.parametrize("what", ["no directory", "a file", "an empty directory", "a queue with jobs"])
def test_a_demo_that_cannot_be_run_is_refused(bare_cli: Cli, tmp_path: Path, what: str) -> None:
    root, db = tmp_path / "files", tmp_path / "q.db"
    if what == "a file":
        root.write_text("text")
    elif what != "no directory":
        root.mkdir()
    if what == "a queue with jobs":
        (root / "one").write_text("text")
        with Queue.open(db) as queue:
            queue.enqueue("mine")
    answer = bare_cli("demo", str(root), "--db", str(db))
    assert answer.code == 2
    assert answer.complaint


# The check, without processes: this test does what the workers do.


@pytest.fixture
def check(files: Path, tmp_path: Path) -> Callable[..., demo.Outcome]:
    """Hashes every file but ``left`` in the queue, with one job recovered; calls ``meddle``; then the demo's check."""

    def checked(meddle: Callable[[Queue], object] = lambda queue: None, left: int = 0) -> demo.Outcome:
        clock = ManualClock()
        with Queue.open(tmp_path / "q.db", clock=clock) as queue:
            found = list(demo._files(files, str(tmp_path / "q.db")))
            ids = demo._enqueue(queue, found)
            held = queue.dequeue()
            assert held is not None
            clock.advance(31)
            queue.sweep()
            clock.advance(60)
            for _ in range(len(found) - left):
                job = queue.dequeue()
                assert job is not None
                queue.complete(job, demo_worker.hash_file(job))
            meddle(queue)
            return demo._checked(queue, dict(zip(ids, found, strict=True)), [held.id])

    return checked


def test_a_check_of_good_work_is_right(check: Callable[..., demo.Outcome]) -> None:
    outcome = check()
    assert outcome.right
    assert (outcome.files, outcome.attempts, outcome.recovered) == (HASHED, HASHED + 1, 1)


def test_a_file_that_changed_meanwhile_is_listed_and_no_failure(
    check: Callable[..., demo.Outcome], files: Path
) -> None:
    def meddle(queue: Queue) -> None:
        (files / "empty").write_text("not any more")
        (files / "deep" / "space  ").unlink()

    outcome = check(meddle)
    assert outcome.right
    assert outcome.changed == [str(files / "empty"), str(files / "deep" / "space  ")]


def test_a_wrong_digest_of_an_unchanged_file_is_a_failure(
    check: Callable[..., demo.Outcome], monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    true_digest = demo._digest
    monkeypatch.setattr(
        demo, "_digest", lambda path: {"sha256": "0", "size": 0} if path.endswith("plain") else true_digest(path)
    )
    outcome = check()
    assert not outcome.right
    assert outcome.wrong == [str(files / "plain")]


def test_a_job_that_is_not_completed_is_a_failure(check: Callable[..., demo.Outcome]) -> None:
    outcome = check(left=1)
    assert not outcome.right
    assert len(outcome.unfinished) == 1


def test_a_demo_in_which_nothing_was_recovered_is_a_failure() -> None:
    assert not demo.Outcome(files=1).right
    assert demo.Outcome(files=1, recovered=1).right
