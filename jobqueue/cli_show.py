"""Values as text on a terminal or as JSON. What comes from the database is data: no markup, no control codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from jobqueue.types import JobView, Status

COLOURS = {
    Status.PENDING: "cyan",
    Status.RUNNING: "blue",
    Status.COMPLETED: "green",
    Status.FAILED: "yellow",
    Status.DEAD: "red",
}
ERROR_WIDTH = 80
PIPE_WIDTH = 100_000  # A table that goes to a file or another program is not cut to the width of a terminal.


def out() -> Console:
    """Where data goes."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def err() -> Console:
    """Where progress goes, so that stdout has data only."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def progress() -> Progress:
    """A progress display on stderr; silent where that is not a terminal."""
    console = err()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def say(text: str) -> None:
    """A line of human output."""
    print(plain(text))


def say_json(value: Any) -> None:
    """The one JSON document of a command. ASCII only: it survives every terminal and pipe."""
    print(json.dumps(value))


def answer(document: dict[str, Any], as_json: bool, text: str) -> None:
    """A command's answer: for a program, or as one line for a person."""
    if as_json:
        say_json(document)
    else:
        say(text)


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"jobqueue: {plain(' '.join(text.split()))}", file=sys.stderr)


def plain(value: object) -> str:
    """``value`` on one line, with whatever a terminal might obey written as an escape."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(value))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, folded: int | None = None) -> Table:
    """A table without lines; only column ``folded`` may take more than one line on a terminal."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for index, header in enumerate(headers):
        if index == folded:
            made.add_column(header, overflow="fold")
        else:
            made.add_column(header, no_wrap=True)
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def _cell(value: object) -> Text:
    if isinstance(value, Status):
        return Text(value, style=COLOURS[value])
    if isinstance(value, datetime):
        return Text(f"{value:%Y-%m-%d %H:%M:%S}Z")
    return Text("" if value is None else plain(value))


def view_fields(view: JobView, *, payloads: bool) -> dict[str, Any]:
    """A job as JSON: instants in ISO 8601, durations in seconds."""
    fields: dict[str, Any] = {}
    for name in JobView.__dataclass_fields__:
        value = getattr(view, name)
        if name in ("payload", "result"):
            if payloads:
                fields[name] = value
        elif isinstance(value, datetime):
            fields[name] = value.isoformat()
        else:
            fields[name] = value.total_seconds() if name == "timeout" and value is not None else value
    return fields


def view_table(view: JobView) -> Table:
    """A job as lines of name and value; payload and result as JSON."""
    rows = [
        (name, json.dumps(value, ensure_ascii=False) if name in ("payload", "result") else getattr(view, name))
        for name, value in view_fields(view, payloads=True).items()
    ]
    return table(("field", "value"), rows, folded=1)


def list_table(views: Sequence[JobView], *, payloads: bool) -> Table:
    """Jobs, one a line."""
    headers = ["seq", "id", "type", "status", "priority", "attempts", "scheduled", "error"]
    rows: list[list[object]] = [
        [v.seq, v.id, v.type, v.status, v.priority, f"{v.attempts}/{v.max_attempts}", v.scheduled_at, _head(v.error)]
        for v in views
    ]
    if payloads:
        headers += ["payload", "result"]
        for row, view in zip(rows, views, strict=True):
            row += [json.dumps(view.payload, ensure_ascii=False), json.dumps(view.result, ensure_ascii=False)]
    return table(headers, rows)


def _head(error: str | None) -> str | None:
    """The first line of an error names it; the rest tells where it came from."""
    first = next(iter((error or "").strip().splitlines()), None)
    return first if first is None or len(first) <= ERROR_WIDTH else first[: ERROR_WIDTH - 1] + "…"
