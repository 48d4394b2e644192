"""The command line: each command is one call of the queue, with its answer for a person, or for a program (--json).

Data goes to stdout, progress and the one line of an error to stderr. Exit codes: 0 it happened, 1 it did not (no such
job, refused, a broken row, no database), 2 the command was given something it cannot take.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from jobqueue import cli_values
from jobqueue.cli_bulk import Which, by_ids, confirm, one_by_one, report
from jobqueue.cli_show import (
    answer,
    complain,
    err,
    list_table,
    out,
    progress,
    say,
    say_json,
    table,
    view_fields,
    view_table,
)
from jobqueue.cli_values import duration, without_password
from jobqueue.enqueue_file import enqueue_file
from jobqueue.errors import InvalidArgument, JobQueueError, WrongUse
from jobqueue.queue import Queue
from jobqueue.transitions import Event
from jobqueue.types import TERMINAL, status_summary
from jobqueue.values import MAX_INT32

app = typer.Typer(
    name="jobqueue",
    help="A durable job queue in SQLite or PostgreSQL.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Db = Annotated[
    str, typer.Option("--db", envvar="JOBQUEUE_DB", metavar="PATH|URL", help="SQLite file, or postgresql:// URL.")
]
Name = Annotated[str, typer.Option("--queue", metavar="NAME", help="Which queue of the database.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of jobs.", show_default=False)]
OfStatus = Annotated[str | None, typer.Option("--status", help="Jobs in this status.")]
OfType = Annotated[str | None, typer.Option("--type", help="Jobs of this type.")]
OfKey = Annotated[str | None, typer.Option("--key", help="Jobs with this unique key.")]
AllMatching = Annotated[
    bool, typer.Option("--all-matching", help="Every job that --status, --type and --key name; all, without them.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
OnDuplicate = Annotated[
    str, typer.Option("--on-duplicate", metavar="raise|keep", help="When the key is taken: refuse, or keep that job.")
]


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Every expected error becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # A terminal without UTF-8 must not stop a listing.
    try:
        code = app(args=None if argv is None else list(argv), prog_name="jobqueue", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        complain(error.format_message() + (f" (see {context.command_path} --help)" if context else ""))
        return error.exit_code
    except typer.Abort:
        complain("stopped; nothing was changed")
        return 1
    except (InvalidArgument, WrongUse) as error:
        complain(str(error))
        return 2
    except JobQueueError as error:
        complain(str(error))
        return 1


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        say(f"jobqueue {_version()}")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(0)


def _version() -> str:
    try:
        return metadata.version("jobqueue")
    except metadata.PackageNotFoundError:
        return "(not installed)"


@contextmanager
def _opened(db: str, name: str, *, create: bool = False, **options: Any) -> Iterator[Queue]:
    """The queue for one command. A mistyped path or name must not create an empty queue and report that all is well."""
    if db == ":memory:":
        raise InvalidArgument("--db :memory: would end with this command; give a file or a postgresql:// URL")
    if not create and not cli_values.is_url(db) and not Path(db).exists():
        raise InvalidArgument(f"--db {without_password(db)}: there is no such file")
    try:
        with Queue.open(db, name=name, create=create, **options) as queue:
            yield queue
    except JobQueueError as error:
        shown = without_password(db)
        if shown == db or db not in str(error):
            raise
        raise JobQueueError(str(error).replace(db, shown)) from None


@app.command()
def enqueue(
    context: typer.Context,
    db: Db,
    type: Annotated[str | None, typer.Argument(metavar="TYPE", help="Which handler runs it.")] = None,
    payload: Annotated[
        str, typer.Option("--payload", metavar="JSON|-", help="What the handler gets; - reads it from stdin.")
    ] = "null",
    priority: Annotated[int, typer.Option("--priority", help="-32768 to 32767; higher first.")] = 0,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="DURATION", help="Not before this time has passed, like 15m.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="INSTANT", help="Not before this instant, like 2030-01-31T03:00Z.")
    ] = None,
    max_attempts: Annotated[int, typer.Option("--max-attempts", help="Dead after this many attempts.")] = 3,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="How long one attempt may run.")
    ] = None,
    unique_key: Annotated[
        str | None, typer.Option("--unique-key", metavar="KEY", help="One unfinished job at a time has this key.")
    ] = None,
    on_duplicate: OnDuplicate = "raise",
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE|-",
            help="Jobs from a file instead: on each line a JSON object with type, and perhaps payload, priority,"
            " scheduled_at, delay, max_attempts, timeout, unique_key.",
        ),
    ] = None,
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> None:
    """Store a job, or all jobs of a file; prints the id, or how many."""
    if on_duplicate not in ("raise", "keep"):
        raise InvalidArgument(f"--on-duplicate is raise or keep, not {on_duplicate}")
    if (type is None) == (source is None):
        raise InvalidArgument("give a TYPE or --from FILE, and not both")
    if source is not None:
        _refuse_options_of_one_job(context)
        with _opened(db, queue, create=True) as opened:
            count = enqueue_file(opened, source, keep=on_duplicate == "keep")
        answer({"count": count}, as_json, f"jobs: {count}")
        return
    text = sys.stdin.buffer.read() if payload == "-" else payload
    with _opened(db, queue, create=True) as opened:
        id = opened.enqueue(
            type or "",
            cli_values.json_value(text, "--payload"),
            priority=priority,
            delay=None if delay is None else duration(delay, "--delay"),
            scheduled_at=None if at is None else cli_values.instant(at, "--at"),
            max_attempts=max_attempts,
            timeout=None if timeout is None else duration(timeout, "--timeout"),
            unique_key=unique_key,
            on_duplicate="keep" if on_duplicate == "keep" else "raise",
        )
    answer({"id": id}, as_json, id)


def _refuse_options_of_one_job(context: typer.Context) -> None:
    """What the lines of a file say must not be passed over in silence."""
    options = ("payload", "priority", "delay", "at", "max_attempts", "timeout", "unique_key")
    given = [name for name in options if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if given:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidArgument(f"{shown} is for one job; with --from each line says it for its own")


@app.command()
def status(
    db: Db,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option("--interval", metavar="DURATION", help="How often --watch looks.")] = "1s",
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> None:
    """The number of jobs in each status."""
    if watch and as_json:
        raise InvalidArgument("--watch has no end, so it cannot be one JSON document; leave out one of them")
    every = duration(interval, "--interval").total_seconds()
    if not every:
        raise InvalidArgument("--interval must be more than 0, like 1s")
    with _opened(db, queue) as opened:
        if watch:
            _watch(opened, every)
        else:
            counts = opened.counts()
            answer({str(status): number for status, number in counts.items()}, as_json, status_summary(counts))


def _watch(queue: Queue, every: float) -> None:
    console = out()
    shown = None
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                counts = queue.counts()
                if console.is_terminal:
                    live.update(table(("status", "jobs"), list(counts.items())), refresh=True)
                elif counts != shown:  # Into a file: a line whenever something changed.
                    print(status_summary(counts), flush=True)
                shown = counts
                queue.clock.sleep(every)
    except KeyboardInterrupt:
        if shown is not None and console.is_terminal:
            say(status_summary(shown))


@app.command("list")
def list_(
    db: Db,
    status: OfStatus = None,
    type: OfType = None,
    key: OfKey = None,
    limit: Annotated[int, typer.Option("--limit", help="Jobs on a page.")] = 50,
    after: Annotated[int | None, typer.Option("--after", metavar="SEQ", help="The page after this seq.")] = None,
    payloads: Annotated[bool, typer.Option("--payloads", help="With payload and result.")] = False,
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> None:
    """Jobs in order of enqueue, a page at a time."""
    with _opened(db, queue) as opened:
        # One more than asked for tells whether there is another page.
        ask = limit + 1 if 0 < limit < MAX_INT32 else limit
        found = opened.list(status=status, type=type, unique_key=key, limit=ask, after=after, payloads=payloads)
    page = found[:limit]
    more = page[-1].seq if len(found) > limit else None
    if as_json:
        say_json({"jobs": [view_fields(view, payloads=payloads) for view in page], "after": more})
        return
    out().print(list_table(page, payloads=payloads))
    if more is not None:
        print(f"more: --after {more}", file=sys.stderr)


@app.command()
def show(
    db: Db,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of a job.")],
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> int:
    """Everything about one job. Exit code 1 if there is none."""
    with _opened(db, queue) as opened:
        view = opened.get(id)
    if view is None:
        complain(f"there is no job {id}")
        return 1
    if as_json:
        say_json(view_fields(view, payloads=True))
    else:
        out().print(view_table(view))
    return 0


@app.command()
def requeue(
    db: Db,
    ids: Ids = None,
    status: OfStatus = None,
    type: OfType = None,
    key: OfKey = None,
    all_matching: AllMatching = False,
    yes: Yes = False,
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> int:
    """Start dead or failed jobs afresh. Exit code 1 if one could not be."""
    which: Which = {"status": status, "type": type, "unique_key": key}
    with _opened(db, queue) as opened:
        if by_ids(ids, which, all_matching):
            return report("requeued", *one_by_one(opened, ids or [], opened.requeue), as_json)
        confirm(opened, "requeue", Event.REQUEUE, which, yes)
        with err().status("requeueing"):
            done = opened.requeue_many(**which)
        refused = dict.fromkeys(done.duplicates, "another job holds its unique key")
        return report("requeued", done.count, refused, as_json)


@app.command()
def cancel(
    db: Db,
    ids: Ids = None,
    status: OfStatus = None,
    type: OfType = None,
    key: OfKey = None,
    all_matching: AllMatching = False,
    yes: Yes = False,
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> int:
    """End jobs that are pending, running or failed: they become dead. Exit code 1 if one could not be."""
    which: Which = {"status": status, "type": type, "unique_key": key}
    with _opened(db, queue) as opened:
        if by_ids(ids, which, all_matching):
            return report("cancelled", *one_by_one(opened, ids or [], opened.cancel), as_json)
        confirm(opened, "cancel", Event.CANCEL, which, yes)
        with err().status("cancelling"):
            count = opened.cancel_many(**which)
        return report("cancelled", count, {}, as_json)


@app.command()
def sweep(
    db: Db,
    now: Annotated[
        bool, typer.Option("--now", help="One look: only when no worker lives, or live jobs may be taken from it.")
    ] = False,
    heartbeat: Annotated[
        str, typer.Option("--heartbeat", metavar="DURATION", help="The workers' heartbeat: a third of their lease.")
    ] = "10s",
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> None:
    """Take jobs back from workers that are gone. Workers do this by themselves; this is for when none runs."""
    pause = duration(heartbeat, "--heartbeat").total_seconds() * 1.1
    with _opened(db, queue) as opened:
        if now:
            print("jobqueue: one look; this assumes that no worker of this queue is alive", file=sys.stderr)
            swept = opened.sweep()
        else:
            seen = opened.expired(MAX_INT32)
            if seen:
                _wait(opened, pause, f"{len(seen)} leases are expired; looking again whether they stay so")
            # Exactly what both looks saw (W-3): a lease that was renewed in between is in use.
            swept = opened.sweep(sorted(set(seen) & set(opened.expired(MAX_INT32)), key=lambda look: look.seq))
    if as_json:
        say_json({"count": len(swept), "swept": [{"id": one.id, "status": one.status} for one in swept]})
        return
    say(f"swept: {len(swept)}")
    for one in swept:
        say(f"{one.id} {one.status}")


def _wait(queue: Queue, seconds: float, why: str) -> None:
    with progress() as shown:
        task = shown.add_task(why, total=10)
        for _ in range(10):
            queue.clock.sleep(seconds / 10)
            shown.advance(task)


@app.command()
def cleanup(
    db: Db,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Jobs that ended at least this long ago, like 7d.")
    ],
    status: Annotated[
        list[str] | None, typer.Option("--status", help="completed or dead; both without it.", show_default=False)
    ] = None,
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> None:
    """Delete jobs that ended long ago, in batches. Jobs that can still run are never deleted."""
    age = duration(older_than, "--older-than")
    with _opened(db, queue) as opened, progress() as shown:
        task = shown.add_task("deleting", total=None)
        deleted = opened.cleanup(
            age, statuses=status or TERMINAL, progress=lambda number: shown.update(task, completed=number)
        )
    answer({"deleted": deleted}, as_json, f"deleted: {deleted}")


@app.command()
def audit(
    db: Db,
    limit: Annotated[int, typer.Option("--limit", help="Show at most this many.")] = 100,
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> int:
    """Check every row against the rules that must always hold. Exit code 1 if one is broken."""
    with _opened(db, queue) as opened:
        broken = opened.audit(limit)
    if as_json:
        say_json({"broken": [{"id": id, "rule": rule} for id, rule in broken]})
    elif broken:
        out().print(table(("id", "what is broken"), broken, folded=1))
    else:
        say("no broken rows")
    return 1 if broken else 0


@app.command()
def work(
    db: Db,
    target: Annotated[str, typer.Argument(metavar="MODULE:HANDLERS", help="The Handlers to run, like app:handlers.")],
    drain: Annotated[bool, typer.Option("--drain", help="Stop when no job is due.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Handlers at a time.")] = 1,
    mode: Annotated[
        str,
        typer.Option(
            "--mode", metavar="threads|processes", help="A process can be killed when it overruns its timeout."
        ),
    ] = "threads",
    grace: Annotated[
        str | None,
        typer.Option("--grace", metavar="DURATION", help="What running handlers get when the worker is stopped: 8s."),
    ] = None,
    lease: Annotated[
        str, typer.Option("--lease", metavar="DURATION", help="How long after a crash a job may be taken over.")
    ] = "30s",
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="DURATION", help="Delete jobs that ended so long ago.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log each job, not only what went wrong.")] = False,
    queue: Name = "jobs",
) -> None:
    """Run jobs until stopped by SIGTERM or Ctrl-C: running handlers may end, a second signal stops at once."""
    from jobqueue.cli_work import load_here
    from jobqueue.cli_work import work as run_worker

    handlers = load_here(target)  # Before the database is opened, and perhaps created.
    options = {name: duration(text, f"--{name}") for name, text in (("grace", grace), ("retention", retention)) if text}
    with _opened(db, queue, create=True, lease=duration(lease, "--lease")) as opened:
        run_worker(opened, handlers, drain=drain, verbose=verbose, concurrency=concurrency, mode=mode, **options)


@app.command()
def demo(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Default: this Python's standard library.", show_default=False),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            "--db", metavar="PATH|URL", help="Default: a file in a new temporary directory.", show_default=False
        ),
    ] = None,
    queue: Name = "jobs",
    as_json: AsJson = False,
) -> int:
    """Hash every file below DIR with three worker processes; kill one half-way and recover its jobs."""
    from jobqueue.demo import demo as run_demo

    return run_demo(directory, db, queue, as_json=as_json)
