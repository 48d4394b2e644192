"""One transaction on SQLite: named statements under the write lock, or in the reader's snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import itemgetter

from jobqueue.protocols import Args, Row
from jobqueue.sql import positional
from jobqueue.values import types_text

ID, FENCE, PRIORITY, SEQ, SCHEDULED_AT = 0, 1, 4, 7, 8  # Places in a row of ``first`` and ``due``.
LOOKS = 3  # Three of them cost what the walk does.
ABOVE_ALL = 32_768  # One more than the highest priority.


class SqliteTransaction:
    """An open transaction on one connection (protocols.Transaction)."""

    __slots__ = ("_connection", "_statements", "now_us")

    def __init__(self, connection: sqlite3.Connection, statements: dict[str, str], now_us: int) -> None:
        self._connection = connection
        self._statements = statements
        self.now_us: int | None = now_us

    def rows(self, statement: str, args: Args, *, last: bool = False) -> list[Row]:
        text, values = positional(self._statements[statement])
        return self._connection.execute(text, values(args)).fetchall()

    def run(self, statement: str, args: Args, *, last: bool = False) -> int:
        absent = tuple([name for name, value in args.items() if value is None])
        text, values = positional(self._statements[statement], absent)
        return self._connection.execute(text, values(args)).rowcount

    def run_many(self, statement: str, args: Sequence[Args], *, last: bool = False) -> int:
        text, values = positional(self._statements[statement], _absent(args))
        return self._connection.executemany(text, map(values, args)).rowcount

    def claim(self, types: tuple[str, ...], args: Args) -> list[Row]:
        """Find, then mark: under the write lock nobody comes between, so every job that was found is marked."""
        found = self._due(types, args)
        if found:
            marked = self._mark(found, args)
            assert marked == len(found), "under the write lock a job that was found due stays due"
        return found

    def run_and_claim(self, statement: str, args: Args, types: tuple[str, ...], claim: Args) -> tuple[int, list[Row]]:
        return self.run(statement, args), self.claim(types, claim)

    def _due(self, types: tuple[str, ...], args: Args) -> list[Row]:
        """Up to n due jobs, in order: of one type by a few looks at what is first; if they do not do, by the walk."""
        if len(types) == 1:
            due: list[Row] = []
            below = ABOVE_ALL
            for _ in range(LOOKS):
                first = self.rows("first", {**args, "type": types[0], "below": below, "n": args["n"] - len(due)})
                later = _first_later(first, args["now"])
                due += first[:later]
                if later is None:
                    return due
                below = first[later][PRIORITY]  # Nothing more is due at that level.
        return self.rows("due", {"types": types_text(types), **args})

    def _mark(self, found: list[Row], args: Args) -> int:
        if len(found) > 1:
            return self.run("dequeue_many", {"seqs": f"[{','.join([str(row[SEQ]) for row in found])}]", **args})
        [row] = found
        return self.run("dequeue", {"seq": row[SEQ], "id": row[ID], "fence": row[FENCE], **args})


def _first_later(rows: list[Row], now: int) -> int | None:
    """The place of the first of these rows that is due later than now."""
    if max(map(itemgetter(SCHEDULED_AT), rows), default=now) <= now:  # As mostly; quicker than one by one.
        return None
    return next(place for place, row in enumerate(rows) if row[SCHEDULED_AT] > now)


def _absent(args: Sequence[Args]) -> tuple[str, ...]:
    """The arguments that are None in every row."""
    names = [name for name, value in args[0].items() if value is None] if args else []
    return tuple([name for name in names if [each[name] for each in args].count(None) == len(args)])
