"""What may be stored (spec §8): every argument is checked and converted here, before anything is stored. Pure."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import isfinite
from typing import Any, TypeAlias

from jobqueue.errors import InvalidArgument

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MAX_INSTANT = (datetime(3000, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
MAX_DURATION = 3650 * 86_400 * 1_000_000
MAX_INT32 = 2**31 - 1
ERROR_LIMIT = 10_000
JSON_LIMIT = 100_000_000  # Characters: a row with two such values is within what either database can hold.
TYPE_LIMIT = 200
KEY_LIMIT = 500
QUEUE_NAME = re.compile(r"(?!sqlite_|jobqueue_)[a-z_][a-z0-9_]{0,39}", re.ASCII)
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
NUL = "\\u0000"  # As JSON shows it; but so it shows other text, too.
CONTAINERS = (dict, list, tuple)

Duration: TypeAlias = float | timedelta
"""A length of time in an argument: seconds, or a timedelta."""

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
"""What payload and result may hold."""


# check_circular is off because a value that contains itself ends in RecursionError anyway.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_DECODER = json.JSONDecoder()


class _Refused(Exception):
    """A part of a JSON value that cannot be stored; ``path`` grows, innermost first, on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []


def json_text(value: object, name: str) -> str:
    """``value`` as JSON text that both databases store identically and that reads back equal, or InvalidArgument."""
    try:
        text = _encoded(value)
    except _Refused as refused:
        path = name + "".join(reversed(refused.path))
        raise InvalidArgument(f"{path} {refused}") from None
    except RecursionError:
        raise InvalidArgument(f"{name} is nested too deeply, or contains itself") from None
    except (TypeError, ValueError) as error:  # An integer beyond Python's limit of digits.
        raise InvalidArgument(f"{name} cannot be stored as JSON: {error}") from None
    if len(text) > JSON_LIMIT:
        raise InvalidArgument(f"{name} has {len(text)} characters as JSON; at most {JSON_LIMIT} are stored")
    return text


def _encoded(value: object) -> str:
    """The text, at the speed of the encoder; where something may be wrong a walk over the parts finds and names it."""
    try:
        text = _ENCODER.encode(value)
        if NUL not in text and _storable(text) and _reads_back(value):
            return text
    except (TypeError, ValueError):
        _require_storable(value)
        raise
    _require_storable(value)
    return text


def _reads_back(value: object) -> bool:
    """False for what the encoder takes and would not read back equal: keys that are no strings, tuples."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or (isinstance(item, CONTAINERS) and not _reads_back(item)):
                return False
        return True
    if isinstance(value, list):
        return all(not isinstance(item, CONTAINERS) or _reads_back(item) for item in value)
    return not isinstance(value, tuple)


def from_json(text: str) -> Any:
    """What ``text`` holds, as json.loads has it; what json_text made is read in half the time."""
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        end = -1
    return value if end == len(text) else json.loads(text)


def _storable(text: str) -> bool:
    """Whether both databases can store this text."""
    return "\0" not in text and (text.isascii() or UNSTORABLE.search(text) is None)


def _require_storable(value: object) -> None:
    if isinstance(value, str):
        if not _storable(value):
            raise _Refused("contains a NUL or a lone surrogate; replace it, or encode such data as base64")
    elif value is None or isinstance(value, int):
        return
    elif isinstance(value, float):
        if not isfinite(value):
            raise _Refused(f"is {value}; JSON has no such number")
    elif isinstance(value, dict):
        _require_storable_members(value)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            try:
                _require_storable(item)
            except _Refused as refused:
                refused.path.append(f"[{index}]")
                raise
    else:
        raise _Refused(f"is a {type(value).__name__}; pass text, numbers, true, false, None, lists and dicts only")


def _require_storable_members(members: dict[object, object]) -> None:
    for key, item in members.items():
        try:
            if not isinstance(key, str):
                raise _Refused(f"is a key of type {type(key).__name__}; keys must be strings")
            if not _storable(key):
                raise _Refused("is a key that contains a NUL or a lone surrogate")
            _require_storable(item)
        except _Refused as refused:
            refused.path.append(f"[{key!r}]")
            raise


def queue_name(name: object) -> str:
    """``name`` if it is a legal queue name."""
    if isinstance(name, str) and QUEUE_NAME.fullmatch(name):
        return name
    raise InvalidArgument(
        f"queue name {name!r}: use 1 to 40 of a-z, 0-9 and _, not starting with a digit, sqlite_ or jobqueue_"
    )


def text(value: object, name: str, limit: int) -> str:
    """``value`` if it is text of 1 to ``limit`` characters that both databases can store."""
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise InvalidArgument(f"{name} must be text of 1 to {limit} characters, not {_shown(value)}")
    if not _storable(value):
        raise InvalidArgument(f"{name} contains a NUL or a lone surrogate")
    return value


def types(values: Iterable[object]) -> tuple[str, ...]:
    """The wanted job types, checked, each once."""
    return tuple(dict.fromkeys(text(value, "type", TYPE_LIMIT) for value in values))


@lru_cache(maxsize=64)
def types_text(types: tuple[str, ...]) -> str:
    """The wanted types as a statement takes them. A worker asks for the same ones every time."""
    return json.dumps(types)


def whole(value: object, name: str, low: int, high: int) -> int:
    """``value`` if it is a whole number from ``low`` to ``high``; a boolean is not a number."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise InvalidArgument(f"{name} must be a whole number from {low} to {high}, not {_shown(value)}")


def duration(value: object, name: str, *, zero: bool = False) -> int:
    """A duration in microseconds, from seconds or a timedelta; more than 0, or from 0 where ``zero``."""
    if isinstance(value, timedelta):
        micros = value // MICROSECOND
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        # Bounded before it is multiplied: what is huge, or not a number, would overflow.
        micros = round(value * 1_000_000) if abs(value) < MAX_DURATION else -1
    else:
        raise InvalidArgument(f"{name} must be seconds or a timedelta, not {_shown(value)}")
    if not (0 if zero else 1) <= micros <= MAX_DURATION:
        raise InvalidArgument(f"{name} must be {'0' if zero else 'more than 0'} to 3650 days, not {_shown(value)}")
    return micros


def instant(value: object, name: str) -> int:
    """An aware datetime as microseconds since 1970."""
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{name} must be a datetime, not {_shown(value)}")
    if value.utcoffset() is None:
        raise InvalidArgument(f"{name} {value} has no time zone; write datetime(..., tzinfo=UTC) or your zone")
    micros = (value - EPOCH) // MICROSECOND
    if not 0 <= micros < MAX_INSTANT:
        raise InvalidArgument(f"{name} must lie from 1970 up to 3000, not at {value}")
    return micros


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as an aware datetime in UTC.

    What is beyond every datetime (a row changed by hand) is the first or last that there is: it must not hide its job.
    """
    try:
        return EPOCH + micros * MICROSECOND
    except OverflowError:
        return (datetime.max if micros > 0 else datetime.min).replace(tzinfo=UTC)


def id_bytes(value: object) -> bytes:
    """A job id as its 16 bytes."""
    if isinstance(value, str):
        with suppress(ValueError):
            return uuid.UUID(value).bytes
    raise InvalidArgument(f"{_shown(value)} is not a job id; ids look like {uuid.UUID(int=0)}")


def id_raw(id: str) -> bytes:
    """The 16 bytes of an id that this library made."""
    return bytes.fromhex(id.replace("-", ""))


def id_text(value: bytes) -> str:
    """16 bytes as a job id."""
    pairs = value.hex("-", 2)  # A dash after every two bytes: too many, and soon dropped.
    return f"{pairs[:4]}{pairs[5:29]}{pairs[30:34]}{pairs[35:]}"


def error_text(value: object) -> str:
    """``value`` as error text that can always be stored: cut and cleaned (recording a failure cannot fail)."""
    try:
        shown = str(value)
    except Exception as error:  # A handler's exception may be unprintable; its type still tells something.
        shown = f"{type(value).__name__} (its text cannot be shown: {type(error).__name__})"
    return UNSTORABLE.sub("\ufffd", shown[:ERROR_LIMIT])


def _shown(value: object) -> str:
    """``value`` short enough for a message; never raises."""
    try:
        shown = repr(value)
    except Exception:
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 80 else shown[:77] + "..."
