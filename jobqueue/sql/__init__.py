"""The SQL of each dialect: ``.sql`` files of named, whole statements. Nothing assembles SQL from parts."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(dialect: str) -> dict[str, str]:
    """The statements of ``sqlite`` or ``postgres`` by name, with ``{queue}`` where the queue's name goes."""
    text = files(__package__).joinpath(f"{dialect}.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def for_queue(dialect: str, queue: str) -> dict[str, str]:
    """The statements for one queue; ``queue`` is a checked name (values.queue_name)."""
    return {name: text.replace("{queue}", queue) for name, text in statements(dialect).items()}
