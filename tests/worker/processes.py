"""Starting and watching the processes of the worker tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobqueue.clock import SystemClock

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


@contextmanager
def victim(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process; it is gone when the block ends."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.worker.victim", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def heard(process: subprocess.Popen[str], line: str) -> None:
    """Wait until the process says ``line``."""
    assert process.stdout is not None
    for said in process.stdout:
        if said == line + "\n":
            return
    raise AssertionError(f"the process ended without saying {line!r}")


def alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(*pids: int) -> bool:
    """Wait until none of these processes runs."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while any(alive(pid) for pid in pids):
        if clock.monotonic() > deadline:
            return False
        clock.sleep(0.01)
    return True
