"""Runs a command in this process: its exit code and what it printed."""

from __future__ import annotations

import functools
import io
import json
import sys
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from jobqueue import Queue
from jobqueue.cli import run
from tests.clock import ManualClock


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on stdout; fails where anything else is there too."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on stderr of a command that printed nothing else."""
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("jobqueue: ")
        return line


class Cli(Protocol):
    def __call__(self, *args: str, stdin: bytes = b"") -> Answer: ...


@pytest.fixture
def bare_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """``bare_cli("status", "--db", …)``: a command with these arguments and nothing else, on the machine's clock."""
    monkeypatch.delenv("JOBQUEUE_DB", raising=False)

    def call(*args: str, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(args)
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return call


@pytest.fixture
def cli(bare_cli: Cli, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A command on the test's database, under the test's clock."""
    monkeypatch.setenv("JOBQUEUE_DB", url)
    monkeypatch.setattr(Queue, "open", functools.partial(Queue.open, clock=clock))
    return bare_cli
