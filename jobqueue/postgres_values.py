"""How values cross the wire to PostgreSQL: instants and durations as exact integers of microseconds, ids as 16 bytes.

Registered on the library's own cursors only, so that a connection of the caller's, or one that is lent to the caller,
keeps its own ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from struct import Struct
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.rows import tuple_row

from jobqueue.protocols import Args, Row
from jobqueue.values import moment

Y2000 = 946_684_800_000_000  # PostgreSQL counts from 2000-01-01, everybody else from 1970-01-01.
INT8, INTERVAL = Struct("!q"), Struct("!qii")  # interval: microseconds, days, months.
OIDS = {"json": 114, "timestamptz": 1184, "interval": 1186, "uuid": 2950}


class Instant(int):
    """Microseconds since 1970 on their way to a timestamptz."""


class Span(int):
    """Microseconds on their way to an interval."""


KINDS: Mapping[str, type[Instant] | type[Span]] = {
    "now": Instant,
    "scheduled_at": Instant,
    "lease_expires_at": Instant,
    "delay": Span,
    "lease": Span,
    "retention": Span,
}
"""The parameters that are instants or durations, by name. (``timeout`` is a plain integer: its column is one.)"""


def typed(args: Args) -> dict[str, Any]:
    """``args`` with instants and durations marked as such."""
    marked = dict(args)
    for name, kind in KINDS.items():
        value = marked.get(name)
        if value is not None:
            marked[name] = kind(value)
    return marked


def columns(statement: str, args: Sequence[Args]) -> dict[str, Any]:
    """The arguments of many calls as the arrays that ``statement`` takes; now, which is the same for all, as it is."""
    found = {name: _array(name, [each[name] for each in args]) for name in _parameters(statement) if name != "now"}
    return {**found, "now": typed({"now": args[0]["now"]})["now"]}


@cache
def _parameters(statement: str) -> frozenset[str]:
    return frozenset(re.findall(r"%\((\w+)\)", statement))


def _array(name: str, values: list[Any]) -> str:
    """An array as text: the driver takes ten times as long for each element of a list."""
    element = ELEMENTS.get(KINDS.get(name, object), _element)
    return f"{{{','.join(['NULL' if value is None else element(value) for value in values])}}}"


def _element(value: object) -> str:
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'
    return value.hex() if isinstance(value, bytes) else str(value)


def _instant(value: int) -> str:
    return f'"{moment(value).isoformat()}"'


def _hours(micros: int) -> str:
    """Hours, for they have no limit: version 14 cannot count microseconds beyond 32 bits."""
    seconds, micros = divmod(micros, 1_000_000)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"


ELEMENTS: Mapping[type, Callable[[Any], str]] = {Instant: _instant, Span: lambda value: f'"{_hours(value)}"'}


class _InstantDumper(Dumper):
    format, oid = Format.BINARY, OIDS["timestamptz"]

    def dump(self, obj: int) -> bytes:
        return INT8.pack(obj - Y2000)


class _PlainText(Dumper):
    """Text that needs no quoting but the quotes: the driver's own way would ask the server's library for each value."""

    def quote(self, obj: Any) -> bytes:
        return b"'%s'" % self.dump(obj)


class _InstantTextDumper(_PlainText):
    oid = OIDS["timestamptz"]

    def dump(self, obj: int) -> bytes:
        return moment(obj).isoformat().encode()


class _SpanDumper(Dumper):
    format, oid = Format.BINARY, OIDS["interval"]

    def dump(self, obj: int) -> bytes:
        return INTERVAL.pack(obj, 0, 0)


class _SpanTextDumper(_PlainText):
    oid = OIDS["interval"]

    def dump(self, obj: int) -> bytes:
        return _hours(obj).encode()


class _IdDumper(Dumper):
    format, oid = Format.BINARY, OIDS["uuid"]

    def dump(self, obj: bytes) -> bytes:
        return obj


class _IdTextDumper(_PlainText):
    oid = OIDS["uuid"]

    def dump(self, obj: bytes) -> bytes:
        return obj.hex().encode()


class _InstantLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        micros: int = INT8.unpack(data)[0]
        return micros + Y2000


class _IdLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _IdTextLoader(Loader):
    def load(self, data: Buffer) -> bytes:
        return bytes.fromhex(bytes(data).decode().replace("-", ""))


class _InstantTextLoader(Loader):
    def load(self, data: Buffer) -> int:
        raise AssertionError(
            "a statement that may be first or last gives microseconds: a session may write dates its way"
        )


class _JsonLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


class _JsonTextLoader(_JsonLoader):
    format = Format.TEXT


def _register(adapters: AdaptersMap) -> None:
    dumpers: tuple[tuple[type, type[Dumper]], ...] = (
        (Instant, _InstantDumper),
        (Instant, _InstantTextDumper),
        (Span, _SpanDumper),
        (Span, _SpanTextDumper),
        (bytes, _IdDumper),
        (bytes, _IdTextDumper),
    )
    for kind, dumper in dumpers:
        adapters.register_dumper(kind, dumper)
    loaders: tuple[tuple[str, type[Loader]], ...] = (
        ("timestamptz", _InstantLoader),
        ("timestamptz", _InstantTextLoader),
        ("uuid", _IdLoader),
        ("uuid", _IdTextLoader),
        ("json", _JsonLoader),
        ("json", _JsonTextLoader),
    )
    for name, loader in loaders:
        adapters.register_loader(OIDS[name], loader)


_LIBRARY = AdaptersMap(psycopg.adapters)
_register(_LIBRARY)


class LibraryCursor(psycopg.Cursor[Row]):
    """A cursor with the library's conversions, whatever its connection has been taught."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._library = AdaptersMap(_LIBRARY)
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return self._library


class MessageCursor(LibraryCursor, psycopg.ClientCursor[Row]):
    """A cursor whose statements may be several in one message: the driver writes the values into the text."""
