"""Text from the command line as values: durations, instants, JSON, job files, URLs. InvalidArgument otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from jobqueue import arguments
from jobqueue.clock import Clock
from jobqueue.errors import InvalidArgument
from jobqueue.values import URL, Json

UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_NUMBER = r"\d{1,12}(?:\.\d{1,6})?"
_PART = re.compile(rf"({_NUMBER})(ms|[smhdw])", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_SECONDS = re.compile(_NUMBER, re.ASCII)


def duration(text: str, option: str) -> timedelta:
    """``90``, ``90s``, ``15m``, ``1h30m``, ``7d``: a number alone counts seconds."""
    if _SECONDS.fullmatch(text):
        text += "s"
    if not _WHOLE.fullmatch(text):
        raise InvalidArgument(f"{option} {text!r}: write seconds, or a number with ms, s, m, h, d or w, like 90s or 7d")
    try:
        return sum((float(number) * UNITS[unit] for number, unit in _PART.findall(text)), timedelta())
    except OverflowError:
        raise InvalidArgument(f"{option} {text!r} is too long; at most 3650d") from None


def instant(text: str, option: str) -> datetime:
    """An instant as ISO 8601 writes it, with its offset from UTC."""
    try:
        if len(text) == len("2030-01-31"):
            raise ValueError("a day has many instants")
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"{option} {text!r} is not an instant; write 2030-01-31T03:00Z or +01:00 for Z") from None
    if moment.utcoffset() is None:
        raise InvalidArgument(
            f"{option} {text!r} has no time zone; end it with Z for UTC, or with an offset like +01:00"
        )
    return moment


def json_value(text: str | bytes, what: str) -> Json:
    """``text`` as JSON. What JSON allows and the queue does not is refused later, with the path of the value."""
    try:
        value: Json = json.loads(text)
    except RecursionError:
        raise InvalidArgument(f"{what} is nested too deeply") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{what} is not UTF-8") from None
    except ValueError as error:
        raise InvalidArgument(f"{what} is not JSON: {error}") from None
    return value


def jobs_in(lines: Iterable[bytes], name: str, clock: Clock) -> Iterator[tuple[int, dict[str, Any]]]:
    """The jobs of a JSON-lines file, each with its line number; empty lines are passed over.

    A line is an object of enqueue's arguments. Each is checked whole, so that a caller can refuse a file before it
    stores any of it.
    """
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        try:
            job = _job(line)
            arguments.new_job(clock, **arguments.job_fields(job))
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}, line {number}: {error}") from None
        yield number, job


def _job(line: bytes) -> dict[str, Any]:
    job = json_value(line, "the line")
    if not isinstance(job, dict):
        raise InvalidArgument('a line is one object, like {"type": "send_email", "payload": {"to": "ana@example.com"}}')
    converted: dict[str, Any] = dict(job)
    if isinstance(job.get("scheduled_at"), str):
        converted["scheduled_at"] = instant(str(job["scheduled_at"]), "scheduled_at")
    for field in ("delay", "timeout"):
        if isinstance(job.get(field), str):
            converted[field] = duration(str(job[field]), field)
    return converted


def without_password(url: str) -> str:
    """A database's path or URL as it may be shown and logged."""
    if not is_url(url):
        return url
    # Greedy up to the last @, because a password may hold one: rather too much is hidden than too little.
    hidden = re.sub(r"(?<=://)([^:@/?]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&#]*", r"\1***", hidden, flags=re.IGNORECASE)


def is_url(db: str) -> bool:
    """Whether ``db`` names a server, of whatever kind, rather than a file."""
    return URL.match(db) is not None
