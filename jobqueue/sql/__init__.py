"""The SQL of each dialect: ``.sql`` files of named, whole statements. Nothing assembles SQL from parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![\w:]):([a-z_]+)")

Values = tuple[Any, ...]


@cache
def statements(dialect: str) -> dict[str, str]:
    """The statements of ``sqlite`` or ``postgres`` by name, with ``{queue}`` where the queue's name goes."""
    text = files(__package__).joinpath(f"{dialect}.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def for_queue(dialect: str, queue: str) -> dict[str, str]:
    """The statements for one queue; ``queue`` is a checked name (values.queue_name)."""
    return {name: text.replace("{queue}", queue) for name, text in statements(dialect).items()}


@cache
def positional(text: str, absent: tuple[str, ...] = ()) -> tuple[str, Callable[[Mapping[str, Any]], Values]]:
    """An SQLite statement with ? for its named parameters, and what takes their values from arguments by name.

    SQLite's driver looks every named parameter up again for every row; those by position cost half as much. They have
    no numbers, and a value that is needed twice is given twice: from Python 3.12 on the driver takes ?1 for a name.
    ``absent`` names arguments that are None. They are written as null: binding a None takes ten times as long as a
    number, for the driver first asks whether anything could adapt it.
    """

    def written(found: re.Match[str]) -> str:
        return "null" if found[1] in absent else "?"

    text = _COMMENT.sub("", text)
    return _PARAMETER.sub(written, text), _taking([name for name in _PARAMETER.findall(text) if name not in absent])


def _taking(names: list[str]) -> Callable[[Mapping[str, Any]], Values]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda args: tuple(args[name] for name in names)
