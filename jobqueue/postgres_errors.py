"""What a driver's error means: by SQLSTATE, never by its text."""

from __future__ import annotations

import psycopg

from jobqueue.errors import DatabaseUnavailable, InvalidArgument, JobQueueError, SchemaMismatch, WrongUse

CONFLICT = frozenset({
    "40001",  # serialization failure
    "40P01",  # deadlock: somebody has to start again
    "23505",  # a unique key was taken between requeue's look and its write; started again, it sees by whom
})  # fmt: skip
NOT_THERE = frozenset({"25P01", "3B001"})  # no transaction, no such savepoint
AWAY = frozenset({
    "57P01", "57P02", "57P03",  # shutting down, crashed, starting up
    "53300",  # too many connections
})  # fmt: skip
ADVICE = {
    "25006": ("the database is read-only; connect to the primary", True),
    "25P02": ("an earlier statement of the transaction has failed; roll it back", False),
    "42501": ("permission denied; grant the role the rights on the schema and the queue's table", False),
    "53100": ("the disk is full; free some space", True),
    "53200": ("the server is out of memory", True),
    "55P03": ("another transaction keeps the rows locked", True),
    "57014": ("the statement was cancelled, by its timeout or by an administrator", True),
}
GONE = frozenset({"3F000", "42P01", "42703", "42804", "42883"})  # schema, table, column, type, function


def lost(error: psycopg.Error) -> bool:
    """The connection broke, or could not be made: nobody answered, or the server said that it is going."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state in AWAY or state.startswith("08")


def passing(error: psycopg.Error) -> bool:
    """The same call may succeed if it is simply made again."""
    return lost(error) or error.sqlstate in CONFLICT


def mapped(error: psycopg.Error, where: str) -> JobQueueError:
    """Our error for the driver's. ``where`` is the database's address without its password."""
    state = error.sqlstate or ""
    text = error.diag.message_primary or str(error)  # Not the detail: it may quote the row, and so a payload.
    if passing(error):
        return DatabaseUnavailable(f"{where}: {text}", transient=True)
    if state == "25P02":
        return WrongUse(f"{where}: {ADVICE[state][0]}")
    if state in ADVICE:
        advice, transient = ADVICE[state]
        return DatabaseUnavailable(f"{where}: {advice} ({text})", transient=transient)
    if state in GONE:
        return SchemaMismatch(f"{where}: the queue's table is gone or is not as this jobqueue made it ({text})")
    if state.startswith(("22", "54")):  # Data exceptions, program limits: the server cannot hold this value.
        return InvalidArgument(f"PostgreSQL refuses a value: {text}")
    return DatabaseUnavailable(f"{where}: {text}", transient=False)
