"""The seeded faults (faults.toml) and how one is put into a copy of the tree."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_name("faults.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """In ``file``, ``old`` becomes ``new``; each of ``catchers`` alone must fail by it.

    ``within`` is the line that opens the block (a statement, a function) in which ``old`` stands exactly once; without
    it that holds of the whole file. ``says`` must occur in what the catchers print: the clause, where a cell is wrong.
    """

    name: str
    file: str
    within: str = ""
    old: str
    new: str
    clause: str
    catchers: tuple[str, ...]
    says: str = ""

    @property
    def layer(self) -> str:
        return self.file.rsplit(".", 1)[-1] if self.file.startswith("jobqueue") else self.file.split("/", 1)[0]


class Stale(Exception):
    """The tree has changed: the fault cannot be put where it belongs."""


def load(path: Path = FAULTS) -> list[Fault]:
    """Every fault, its catchers by their full names."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    names = document["catchers"]
    found = [
        Fault(**{**entry, "catchers": tuple(names[name] for name in entry["catchers"])}) for entry in document["fault"]
    ]
    assert len({fault.name for fault in found}) == len(found), "each fault has a name of its own"
    return found


def seeded(text: str, fault: Fault) -> str:
    """The file's text with the fault in it."""
    start, end = _block(text, fault)
    if text.count(fault.old, start, end) != 1:
        raise Stale(f"{fault.name}: {fault.old!r} is not exactly once in {fault.file} {fault.within}")
    assert fault.old != fault.new, fault.name
    return text[:start] + text[start:end].replace(fault.old, fault.new) + text[end:]


def _block(text: str, fault: Fault) -> tuple[int, int]:
    """From the line ``within`` up to the next one of its kind: a statement, or what is not indented deeper."""
    if not fault.within:
        return 0, len(text)
    whole_word = r"\b" if fault.within[-1].isalnum() else ""
    opened = list(re.finditer(rf"(?m)^{re.escape(fault.within)}{whole_word}.*$", text))
    if len(opened) != 1:
        raise Stale(f"{fault.name}: {fault.within!r} opens {len(opened)} lines of {fault.file}")
    indent = len(fault.within) - len(fault.within.lstrip())
    kinds = r"-- name: " if fault.file.endswith(".sql") else rf" {{0,{indent}}}(?:def |class |@|\w+(?:\(.*?\))? *==)"
    closed = re.compile(rf"(?m)^{kinds}").search(text, opened[0].end())
    return opened[0].start(), closed.start() if closed else len(text)
