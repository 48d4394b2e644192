"""Verdict (b): the database's own log is a behaviour of the TLA+ specification, as TLC replays it (spec/tla/trace).

The log is cut by job. Replayed are the jobs that a kill, a pause or a cancel touched, up to a limit, and others
chosen by the seed. One run of TLC replays many logs of up to 50 jobs each.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from random import Random

from spec import tlc
from spec.manifest import TLA
from stress.findings import Finding
from stress.options import Options
from stress.places import LogRow

PER_LOG = 50
LOGS_PER_RUN = 20
TRACE = TLA / "trace"
FENCE = re.compile(r"fence (\d+)")
FOR_GOOD = ("discarded", "for good", "cannot be stored")


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one row, as an event of Trace.tla."""

    n: int
    op: str
    was: str
    status: str
    attempts: int
    fence: int
    by: int
    worker: str
    note: str | None


@dataclass(frozen=True, slots=True)
class JobLog:
    id: str
    max_attempts: int
    unique_key: str | None
    events: tuple[Event, ...]


@dataclass(slots=True)
class Verdict:
    """What was replayed, and the event that is no step of the specification, if there is one."""

    jobs: int = 0
    touched: int = 0
    touched_replayed: int = 0
    sampled: int = 0
    events: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    broke: str | None = None

    @property
    def ok(self) -> bool:
        return not self.findings and self.broke is None


def job_log(id: str, rows: Iterable[LogRow], begun: set[tuple[str, int]]) -> JobLog:
    """The events of one job.

    That a handler began is no change of a row: it is known from the clients' notes, and matters only where max_attempts
    is 1 (G-20). It can be told right after the claim: nothing depends on it before the outcome.
    """
    events: list[Event] = []
    most, key = 1, None
    for row in rows:
        _, n, _, _, was, status, attempts, most, fence, worker, _, key, note = row
        op, by = _op(was, status, attempts, fence, events, note), _by(status, fence, note)
        if op == "interrupt":  # Only a begun job is; its handler may not have come to write that down.
            events = _with_begin(events, by)
        events.append(Event(n, op, was, status, attempts, fence, by, worker or "none", note))
        if op == "dequeue" and most == 1 and (id, fence) in begun:
            events = _with_begin(events, fence)
    return JobLog(id, most, key, tuple(events))


def _op(was: str, status: str, attempts: int, fence: int, before: Sequence[Event], note: str | None) -> str:
    """The operation whose effect this is; the error tells who made a job failed or dead."""
    if was == "absent":
        return "enqueue"
    match status:
        case "running":
            return "dequeue"
        case "completed":
            return "complete"
        case "deleted":
            return "cleanup"
        case "pending":
            return "release" if was == "running" else "requeue"
    named = {"lease expired": "sweep", "cancelled": "cancel", "interrupted": "interrupt"}.get(note or "")
    if named is not None:
        return named
    return "discard" if any(text in (note or "") for text in FOR_GOOD) else "fail"


def _by(status: str, fence: int, note: str | None) -> int:
    """The fence that the handler of this outcome was given, where its result or error tells it."""
    if note is None:
        return fence
    if status == "completed":
        return int(note) if note.isdigit() else fence
    found = FENCE.search(note)
    return int(found.group(1)) if found else fence


def _with_begin(events: list[Event], fence: int) -> list[Event]:
    """The events with the begin of this claim after its dequeue, unless it is there."""
    if any(event.op == "begin" and event.by == fence for event in events):
        return events
    found: list[Event] = []
    for event in events:
        found.append(event)
        if event.op == "dequeue" and event.fence == fence:
            found.append(replace(event, op="begin", was="running", by=fence, note=None))
    return found


@dataclass(slots=True)
class Chosen:
    """The jobs to be replayed: the touched ones up to a limit, and a fair sample of the others."""

    limit: int
    sample: int
    random: Random
    touched: list[JobLog] = field(default_factory=list)
    others: list[JobLog] = field(default_factory=list)
    jobs: int = 0
    touched_seen: int = 0

    def offer(self, log: JobLog, touched: bool) -> None:
        self.jobs += 1
        if touched or any(event.op in ("sweep", "cancel", "interrupt") for event in log.events):
            self.touched_seen += 1
            self._keep(self.touched, self.limit, self.touched_seen, log)
        else:
            self._keep(self.others, self.sample, self.jobs - self.touched_seen, log)

    def _keep(self, kept: list[JobLog], size: int, seen: int, log: JobLog) -> None:
        """Each of those seen is kept with the same chance."""
        if len(kept) < size:
            kept.append(log)
        elif size and (place := self.random.randrange(seen)) < size:
            kept[place] = log


def validate(
    rows: Iterable[LogRow], chosen: Chosen, touched: set[str], begun: set[tuple[str, int]], say: Callable[[str], None]
) -> Verdict:
    for id, job_rows in groupby(rows, key=lambda row: str(row[0])):
        name = str(uuid.UUID(id))
        chosen.offer(job_log(name, job_rows, begun), name in touched)
    logs = sorted([*chosen.touched, *chosen.others], key=lambda log: (log.unique_key or "", log.events[0].n))
    cut = [logs[start : start + PER_LOG] for start in range(0, len(logs), PER_LOG)]
    verdict = Verdict(chosen.jobs, chosen.touched_seen, len(chosen.touched), len(chosen.others))
    for start in range(0, len(cut), LOGS_PER_RUN):
        say(f"replaying the log with TLC: {min(len(logs), start * PER_LOG):,} of {len(logs):,} jobs")
        replay(cut[start : start + LOGS_PER_RUN], verdict)
        if not verdict.ok:
            break
    return verdict


def replay(logs: Sequence[Sequence[JobLog]], verdict: Verdict) -> None:
    """One run of TLC."""
    data = [_merged(log) for log in logs]
    verdict.events += sum(len(events) for events in data)
    with tempfile.TemporaryDirectory(prefix="trace-") as name:
        directory = Path(name)
        for path in [*TLA.glob("*.tla"), *TRACE.iterdir()]:
            shutil.copy(path, directory)
        (directory / "TraceData.tla").write_text(trace_data(logs, data), encoding="utf-8")
        try:
            run = tlc.run(directory, "Trace", "Trace.cfg")
        except tlc.TlcBroke as error:
            verdict.broke = f"TLC gave no verdict: {error}"
            return
    verdict.seconds += run.seconds
    if run.violated is not None:
        verdict.findings.append(_rejected(run, logs, data))


def _merged(log: Sequence[JobLog]) -> list[tuple[int, Event]]:
    """The events of all jobs of a log in the order of the database's log, each with its job's index."""
    events = [(event.n, order, index, event) for index, job in enumerate(log) for order, event in enumerate(job.events)]
    return [(index, event) for _, _, index, event in sorted(events, key=lambda each: each[:2])]


def trace_data(logs: Sequence[Sequence[JobLog]], data: Sequence[Sequence[tuple[int, Event]]]) -> str:
    """The module that holds the logs."""
    size = max((len(log) for log in logs), default=1)
    names = sorted({event.worker for events in data for _, event in events})
    workers = {name: f"w{index}" for index, name in enumerate(names)}
    shown = ",\n".join(_log(log, events, workers, size) for log, events in zip(logs, data, strict=True))
    return (
        "----------------------------- MODULE TraceData -----------------------------\n"
        f"TraceJobs == {{{', '.join(_job(index) for index in range(size))}}}\n"
        f"TraceWorkers == {{{', '.join(_text(name) for name in workers.values())}}}\n"
        f"Logs == <<\n{shown}\n>>\n"
        "=============================================================================\n"
    )


def _log(log: Sequence[JobLog], events: Sequence[tuple[int, Event]], workers: dict[str, str], size: int) -> str:
    jobs = range(size)
    most = ", ".join(f"j{index} |-> {log[index].max_attempts if index < len(log) else 1}" for index in jobs)
    keys = {key: f"k{number}" for number, key in enumerate(sorted({job.unique_key for job in log if job.unique_key}))}
    key = ", ".join(
        f"j{index} |-> {_text(keys.get(log[index].unique_key or '', '') if index < len(log) else '')}" for index in jobs
    )
    lines = ",\n".join(
        f"<<{_text(event.op)}, {_job(index)}, {_text(event.was)}, {_text(event.status)}, "
        f"{event.attempts}, {event.fence}, {event.by}, {_text(workers[event.worker])}>>"
        for index, event in events
    )
    return f"[max |-> [{most}],\n key |-> [{key}],\n events |-> <<\n{lines}\n>>]"


def _job(index: int) -> str:
    return f'"j{index}"'


def _text(text: str) -> str:
    return f'"{text}"'


LAST = re.compile(r"^/\\ (log|l) = (\d+)$", re.M)


def _rejected(run: tlc.Run, logs: Sequence[Sequence[JobLog]], data: Sequence[Sequence[tuple[int, Event]]]) -> Finding:
    """The event that the specification does not allow, with the history of its job up to there."""
    last = dict(LAST.findall(run.trace))
    log, at = int(last["log"]) - 1, int(last["l"]) - 1
    if run.violated != "EveryEventIsAStep":
        at -= 1  # The invariant is broken by the step before.
    index, event = data[log][at]
    job = logs[log][index]
    lines = tuple(_lines(job, event))
    clause = {"EveryEventIsAStep": "no step of JobQueueLease", "BegunAtMostOnce": "G-20"}[run.violated or ""]
    return Finding("b", clause, job.id, f"event {event.n} of the database's log is rejected: {_told(event)}", lines)


def _lines(job: JobLog, rejected: Event) -> Iterator[str]:
    for event in job.events:
        yield ("" if event is not rejected else ">> ") + f"{event.n}: {_told(event)}"
        if event is rejected:
            return


def _told(event: Event) -> str:
    note = "" if event.note is None else f", {event.note.splitlines()[0][:80]!r}"
    by = f" by fence {event.by}" if event.by != event.fence else ""
    return (f"{event.op}{by}: {event.was} → {event.status}, attempts {event.attempts}, fence {event.fence}, "
            f"worker {event.worker}{note}")  # fmt: skip


def chosen(options: Options) -> Chosen:
    return Chosen(options.traced, options.sampled, Random(f"{options.seed}/traced"))
