"""ledger.toml as values: each fault with the tests that show its right outcome, or the reason why there is none."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One fault: ``tests`` are node names without parameters; where there are none, ``reason`` says why."""

    id: str
    kind: str
    what: str
    source: tuple[str, ...]
    tests: tuple[str, ...] = ()
    reason: str = ""


def _entry(table: dict[str, object]) -> Entry:
    """An entry of the file; a key that is none of an entry's is an error."""
    return Entry(**{key: tuple(value) if isinstance(value, list) else value for key, value in table.items()})  # type: ignore[arg-type]


LEDGER = [_entry(table) for table in tomllib.loads(Path(__file__).with_name("ledger.toml").read_text())["fault"]]
