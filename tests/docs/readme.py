"""The README as a reader would use it: its sections, and their code blocks written to files and run in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str


def sections() -> dict[str, list[Block]]:
    """The blocks of each section of the README, by its heading; sections without blocks too."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## (.+)$", readme, flags=re.MULTILINE)
    return {
        title: [Block(*match) for match in _FENCE.findall(body)]
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


class Reader:
    """Follows the README in a directory of its own."""

    def __init__(self, directory: Path, replacements: dict[str, str] | None = None) -> None:
        self.directory = directory
        self._replacements = replacements or {}
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{self._programs()}:{os.environ['PATH']}"}
        self._environment.pop("JOBQUEUE_DB", None)

    def follow(self, block: Block) -> str:
        """Write the block to its file, or run it to its end; what it printed."""
        text = self.text(block)
        if named := _FILE.match(text):
            (self.directory / named[1]).write_text(text, encoding="utf-8")
            return ""
        program = [sys.executable, "-W", "error", "-c"] if block.language == "python" else ["sh", "-e", "-c"]
        done = subprocess.run(
            [*program, text], cwd=self.directory, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, block: Block) -> subprocess.Popen[str]:
        """Start a block that goes on until it is stopped."""
        return subprocess.Popen(
            shlex.split(self.text(block)),
            cwd=self.directory,
            env={**self._environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )

    def text(self, block: Block) -> str:
        """The block with what differs between a reader's machine and a test replaced."""
        text = block.text
        for old, new in self._replacements.items():
            assert old in "".join(block.text for blocks in sections().values() for block in blocks)
            text = text.replace(old, new)
        return text

    def _programs(self) -> Path:
        """A directory with ``python`` and ``jobqueue``, as an activated environment has."""
        programs = self.directory / "bin"
        programs.mkdir(exist_ok=True)
        for name, module in (("python", ""), ("jobqueue", " -m jobqueue")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{module} "$@"\n')
            program.chmod(0o755)
        return programs
