"""Runs catchers on copies of the tree with one fault each. A fault that nothing notices is a survivor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.faults import ROOT, Fault, seeded

AT_ONCE = 2
LONGEST = 200.0
COPIED = ("jobqueue", "model", "spec", "tests", "stress", "examples", "pyproject.toml", "README.md")
PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider",
          "--hypothesis-profile=mutants")  # fmt: skip
EVERYTHING = "tests --ignore=tests/mutants"
FAILED = 1  # pytest's exit status where a test failed; 2 and more: it could not run them.


@dataclass(frozen=True, slots=True)
class Kill:
    """What one catcher made of one fault."""

    fault: Fault
    catcher: str
    caught: bool
    why: str
    seconds: float

    @property
    def shown(self) -> str:
        verdict = "killed  " if self.caught else "SURVIVED"
        return f"{verdict} {self.seconds:5.1f} s  {self.fault.name}  ×  {self.catcher}"


@contextmanager
def copies(number: int) -> Iterator[SimpleQueue[Path]]:
    """Copies of the tree, each for one fault at a time."""
    free: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        for index in range(number):
            copy = Path(scratch) / str(index)
            copy.mkdir()
            for name in filter(lambda name: (ROOT / name).exists(), COPIED):
                _copy(ROOT / name, copy / name)
            free.put(copy)
        yield free


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis", "*.db*"))
    else:
        shutil.copy(source, target)


def kill(fault: Fault, copy: Path, everything: bool = False) -> list[Kill]:
    """Put the fault in, run its catchers one by one, take it out again."""
    file = copy / fault.file
    text = file.read_text(encoding="utf-8")
    _write(file, seeded(text, fault))
    try:
        return [_run(fault, catcher, copy) for catcher in ((EVERYTHING,) if everything else fault.catchers)]
    finally:
        _write(file, text)


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    # Python takes bytecode for fresh if its source has the same size and second.
    for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        stale.unlink()


def _run(fault: Fault, catcher: str, copy: Path) -> Kill:
    started = time.monotonic()
    status, output = run(catcher, copy)
    seconds = time.monotonic() - started
    if status == FAILED and fault.says in output:
        return Kill(fault, catcher, True, "", seconds)
    why = "nothing failed" if status == 0 else f"status {status}, {fault.says!r} not said\n{output[-2000:]}"
    return Kill(fault, catcher, False, why, seconds)


def run(catcher: str, copy: Path) -> tuple[int, str]:
    """Exit status and output of one catcher: arguments of pytest, or a command of the tree after ``python``."""
    words = catcher.split()
    command = words[1:] if words[0] == "python" else [*PYTEST, *words]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(
            [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return -1, f"no end after {LONGEST:.0f} s"
    return done.returncode, done.stdout + done.stderr


def matrix(faults: Sequence[Fault], say: Callable[[str], None], everything: bool = False) -> list[Kill]:
    """Every fault, two at a time. But first each catcher must pass without any: what always fails catches nothing."""
    catchers = sorted({EVERYTHING} if everything else {catcher for fault in faults for catcher in fault.catchers})
    with copies(AT_ONCE) as free, ThreadPoolExecutor(AT_ONCE) as pool:

        def sound(catcher: str) -> tuple[str, str] | None:
            copy = free.get()
            try:
                status, output = run(catcher, copy)
                return None if status == 0 else (catcher, output)
            finally:
                free.put(copy)

        def one(fault: Fault) -> list[Kill]:
            copy = free.get()
            try:
                kills = kill(fault, copy, everything)
            finally:
                free.put(copy)
            for found in kills:
                say(found.shown)
            return kills

        for unsound in filter(None, pool.map(sound, catchers)):
            raise RuntimeError(f"{unsound[0]} fails without any fault:\n{unsound[1][-3000:]}")
        return [found for kills in pool.map(one, faults) for found in kills]
