"""Parts that processes of their own play in the tests: ``python -m tests.faults.actors PART ARGUMENTS``.

A part says and hears JSON, a line each, so that nobody waits by the clock. A process that makes others does so by
forking before it has any thread.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, cast

from jobqueue import Discard, Handlers, Job, Queue, Retry, Snooze, Worker, WrongUse
from jobqueue.backoff import Backoff
from jobqueue.protocols import Args, Row, Transaction
from jobqueue.sqlite_transaction import SqliteTransaction
from jobqueue.values import types_text

AT_ONCE = Backoff(base_us=1000, cap_us=1000)


def say(what: Any = None) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def hear() -> Any:
    return json.loads(sys.stdin.readline() or "null")


def note(log: str, line: str) -> None:
    """Append a line, in one write, to a file that several processes write to."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


# Handlers: the payload says what to do, and where to note that it began


def perform(job: Job) -> Any:
    """Note the start, then do as the payload says."""
    wanted = job.payload
    if "log" in wanted:
        note(wanted["log"], f"{job.id} {job.attempts}")
    return DEEDS[wanted.get("do", "return")](job)


async def perform_async(job: Job) -> Any:
    return perform(job)


def _never(job: Job) -> None:
    threading.Event().wait()


def _exit(job: Job) -> None:
    os._exit(137)


def _retry(job: Job) -> None:
    raise Retry(0)


def _snooze(job: Job) -> None:
    raise Snooze(0)


def _discard(job: Job) -> None:
    raise Discard("given up")


def _until_removed(job: Job) -> str:
    """Run until the test removes a file."""
    while os.path.exists(job.payload["while"]):
        threading.Event().wait(0.005)
    return "done"


DEEDS: dict[str, Callable[[Job], Any]] = {
    "return": lambda job: "done",
    "never": _never,
    "exit": _exit,
    "retry": _retry,
    "snooze": _snooze,
    "discard": _discard,
    "wait": _until_removed,
}

HANDLERS = Handlers(perform)


# Parts


def worker(url: str, options: dict[str, Any]) -> None:
    """Run a worker in the main thread, as a program would; then say that it has ended."""
    opening = {key: options.pop(key) for key in ("lease", "busy_timeout") if key in options}
    with Queue.open(url, backoff=AT_ONCE, **opening) as queue:
        say("ready")
        Worker(queue, HANDLERS, **{"poll_interval": 0.1, **options}).run()
    say("ended")


def lock(path: str) -> None:
    """Hold SQLite's write lock whenever told to, until told otherwise."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    while hear() == "lock":
        connection.execute("begin immediate")
        say("locked")
        hear()
        connection.execute("commit")
        say("free")


def crowd(task: str, count: int, arguments: list[Any]) -> None:
    """Fork ``count`` processes that do one task, beginning at one moment; say what each returned."""
    gate, opening = os.pipe()
    children = []
    for number in range(count):
        answer, reply = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(opening)
            os.read(gate, 1)  # Ends when the parent closes its side.
            _answer(reply, TASKS[task], number, arguments)
        os.close(reply)
        children.append((pid, answer))
    os.close(opening)
    results = []
    for pid, answer in children:
        with os.fdopen(answer, "rb") as pipe:
            results.append(json.loads(pipe.read() or b'{"raised": "it died"}'))
        os.waitpid(pid, 0)
    say(results)


def _answer(reply: int, task: Callable[..., Any], number: int, arguments: list[Any]) -> None:
    try:
        result = {"returned": task(number, *arguments)}
    except BaseException as error:
        result = {"raised": f"{type(error).__name__}: {error}"}
    with os.fdopen(reply, "wb") as pipe:
        pipe.write(json.dumps(result).encode())
    os._exit(0)


def drain(number: int, url: str, synchronous: str) -> list[str]:
    """Dequeue and complete until nothing is due; the ids."""
    done = []
    with Queue.open(url, synchronous=synchronous) as queue:  # type: ignore[arg-type]
        while (job := queue.dequeue()) is not None:
            queue.complete(job)
            done.append(job.id)
    return done


def create(number: int, url: str, name: str) -> str:
    """Open a queue that may not be there yet, and use it."""
    with Queue.open(url, name=name) as queue:
        return queue.enqueue("t", number)


def sweep(number: int, url: str) -> list[str]:
    """Sweep by one look; the ids."""
    with Queue.open(url) as queue:
        return [swept.id for swept in queue.sweep()]


def bustle(number: int, url: str, seconds: float) -> dict[str, int]:
    """Be one of those who use a queue at the same time; what was done, by kind."""
    roles: list[Callable[[Queue], object]] = [
        lambda queue: queue.enqueue("t", {"by": number}),
        _work_once, _work_once, _work_once, _work_once,
        lambda queue: queue.sweep(),
        lambda queue: queue.counts(),
        lambda queue: queue.enqueue_many([{"type": "t"}, {"type": "u"}]),
    ]  # fmt: skip
    act = roles[number % len(roles)]
    rounds = done = 0
    with Queue.open(url) as queue:
        until = queue.clock.monotonic() + seconds
        while queue.clock.monotonic() < until:
            done += bool(act(queue))
            rounds += 1
    return {"rounds": rounds, "done": done}


def _work_once(queue: Queue) -> object:
    job = queue.dequeue()
    if job is not None:
        queue.extend(job)
        queue.complete(job)
    return job


TASKS: dict[str, Callable[..., Any]] = {"drain": drain, "create": create, "sweep": sweep, "bustle": bustle}


class Unhurried:
    """A transaction whose commit never goes with its last statement, so that a process can die between the two."""

    def __init__(self, tx: Transaction) -> None:
        self._tx, self.now_us = tx, tx.now_us

    def rows(self, statement: str, args: Args, *, last: bool = False) -> list[Row]:
        return self._tx.rows(statement, args)

    def run(self, statement: str, args: Args, *, last: bool = False) -> int:
        return self._tx.run(statement, args)

    def claim(self, types: tuple[str, ...], args: Args) -> list[Row]:
        if isinstance(self._tx, SqliteTransaction):
            return self._tx.claim(types, args)
        return self.rows("dequeue", {"types": types_text(types), **args})


def die_at(url: str, point: str, lease: float) -> None:
    """Claim a job, handle it and record it, and be killed at one point of that."""
    queue = Queue.open(url, lease=lease, backoff=AT_ONCE)
    write, writes = queue.database.write, iter(("claim", "outcome"))

    def deadly(work: Callable[[Transaction], Any]) -> Any:
        name = next(writes)

        def inside(tx: Transaction) -> Any:
            result = work(cast(Transaction, Unhurried(tx)))
            _die_if(point == f"before the {name} commits")
            return result

        result = write(inside)
        _die_if(point == f"after the {name} commits")
        return result

    queue.database.write = deadly  # type: ignore[method-assign]
    job = queue.dequeue()
    assert job is not None
    _die_if(point == "in the handler")
    queue.complete(job, "done")


def _die_if(here: bool) -> None:
    if here:
        os.kill(os.getpid(), signal.SIGKILL)


def forks(url: str, how: str) -> None:
    """Open a queue, then fork children that try it and use one of their own, and end as programs do."""
    queue = Queue.open(url)
    queue.enqueue("kept", delay=3600)
    queue.enqueue("t")
    held = queue.dequeue("t")
    assert held is not None
    queue.counts()
    answer, reply = os.pipe()
    codes = []
    for _ in range(3):
        if how == "os.fork":
            pid = os.fork()
            if pid == 0:
                _child(queue, held, url, reply)
                sys.exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        else:
            process = multiprocessing.get_context("fork").Process(target=_child, args=(queue, held, url, reply))
            process.start()
            process.join()
            codes.append(process.exitcode or 0)
    queue.complete(held)
    view = queue.get(held.id)
    assert view is not None
    say({"refused": list(os.read(answer, 100)), "exit codes": codes, "settled": view.status})


def _child(queue: Queue, held: Job, url: str, reply: int) -> None:
    refused = 0
    calls: list[Callable[[], object]] = [
        lambda: queue.enqueue("t"), queue.dequeue, queue.counts, lambda: queue.complete(held), queue.sweep,
        queue.wakeup, lambda: queue.cleanup(0), lambda: queue.completing(held).__enter__(),
        lambda: queue.enqueue("t", transaction=sqlite3.connect(":memory:")),
    ]  # fmt: skip
    for call in calls:
        try:
            call()
        except WrongUse:
            refused += 1
    queue.close()
    with Queue.open(url) as own:
        for _ in range(10):
            own.enqueue("t")
            job = own.dequeue("t")
            assert job is not None
            own.complete(job)
    os.write(reply, bytes([refused]))


def forks_inside(url: str, leaving: str) -> None:
    """Fork inside ``completing``; the child leaves the block while the parent is still in it."""
    queue = Queue.open(url)
    id = queue.enqueue("t")
    job = queue.dequeue()
    assert job is not None
    child = False
    try:
        with queue.completing(job) as connection:
            connection.execute("insert into effects values ('before')")
            pid = os.fork()
            child = pid == 0
            if child and leaving == "by an exception":
                raise LookupError
            if not child:
                _, status = os.waitpid(pid, 0)
                connection.execute("insert into effects values ('after')")
    except (LookupError, WrongUse):
        os._exit(0 if child else 1)
    if child:
        os._exit(2)
    say([id, os.waitstatus_to_exitcode(status)])


def unprivileged(path: str) -> None:
    """Give up all rights; then open a queue, and count its jobs by command: what each said."""
    from jobqueue import cli  # Needs more than the other parts do.

    with Queue.open("warm.db"), redirect_stdout(io.StringIO()):
        cli.run(["status", "--db", "warm.db"])  # Imports what it needs, which may lie where others cannot read.
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        Queue.open(path).close()
        opened = "opened"
    except Exception as error:
        opened = f"{type(error).__name__}: {error}"
    complaint = io.StringIO()
    with redirect_stderr(complaint), redirect_stdout(io.StringIO()):
        code = cli.run(["status", "--db", path])
    say([opened, code, complaint.getvalue()])


def main(part: str, arguments: Iterable[Any]) -> None:
    PARTS[part](*arguments)


PARTS: dict[str, Callable[..., None]] = {
    "worker": worker, "lock": lock, "crowd": crowd, "die_at": die_at,
    "forks": forks, "forks_inside": forks_inside, "unprivileged": unprivileged,
}  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
