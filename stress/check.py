"""Verdict (a) as a whole: the clients' files in, findings out. Two processes; memory for one bucket of jobs each."""

from __future__ import annotations

import json
import pickle
import shutil
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zlib import crc32

from stress import order
from stress.clauses import Setting
from stress.explode import Disturbed, Exploder, Part, Shared
from stress.findings import Finding
from stress.history import FOREVER, lines
from stress.judge import Context, Judge, Judged
from stress.options import SECOND, Options

AT_ONCE = 2
PER_BUCKET = 6000
KEYED = 8
DISTURBANCES = ("terminate", "restart")
PLACE_STRIKES = ("lock", "disk", "terminate", "restart")
LAST_WORD = 2.0  # Seconds: more than a worker waits after its grace time, which is less than a lease here.
Say = Callable[[str], None]


@dataclass(slots=True)
class Verdict:
    """What verdict (a) rests on, and what it found."""

    shared: Shared
    judged: Judged
    ordered: order.Ordered
    accounting: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    violations: int = 0

    @property
    def ok(self) -> bool:
        return self.violations == 0 and self.judged.undecided == 0


class Check:
    def __init__(self, directory: Path, options: Options, say: Say) -> None:
        self._directory, self._options, self._say = directory, options, say
        self._parts = directory / "parts"
        self._events = list(lines(directory / "events.jsonl"))

    def run(self) -> Verdict:
        shutil.rmtree(self._parts, ignore_errors=True)
        self._parts.mkdir()
        with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("forkserver")) as pool:
            shared, buckets = self._exploded(pool)
            looked = self._rows(buckets)
            judged = self._judged(pool, shared, buckets, looked)
        verdict = Verdict(shared, judged, self._ordered())
        self._account(verdict)
        shutil.rmtree(self._parts)
        return verdict

    # One history per job

    def _exploded(self, pool: ProcessPoolExecutor) -> tuple[Shared, int]:
        paths = sorted((self._directory / "histories").glob("*.jsonl"))
        size = sum(path.stat().st_size for path in paths)
        buckets = max(2, min(200, size // (PER_BUCKET * 1200)))
        strikes = _strikes(self._events)
        waits = list(_waits(self._events, strikes)) if self._options.on_postgres else []
        died = {event[2]: _outlasted(event[0], waits) for event in self._events if event[1] == "gone"}
        disturbed = Disturbed(tuple(_windows(self._events, DISTURBANCES)))
        jobs = [(path, died.get(path.stem, FOREVER), strikes.get(path.stem, []), self._parts, buckets, disturbed)
                for path in paths]  # fmt: skip
        shared = Shared()
        for number, part in enumerate(pool.map(_explode, jobs), 1):
            shared.add(part)
            self._say(f"reading histories: {number} of {len(paths)}")
        return shared, buckets

    def _rows(self, buckets: int) -> tuple[int, int]:
        """The last look's rows, to the buckets of their jobs."""
        files = [(self._parts / f"rows.{index}").open("w", encoding="utf-8") for index in range(buckets)]
        looked = (0, 0)
        for row in lines(self._directory / "table.jsonl"):
            if isinstance(row, list):
                looked = (row[0], row[1])
            else:
                files[int(row["id"][-4:], 16) % buckets].write(json.dumps(row, ensure_ascii=False) + "\n")
        for file in files:
            file.close()
        return looked

    # Judging

    def _judged(self, pool: ProcessPoolExecutor, shared: Shared, buckets: int, looked: tuple[int, int]) -> Judged:
        options = self._options
        quits = frozenset(_in_good_order(shared.quits, self._events, options))
        setting = Setting(options.rules, round(options.heartbeat * SECOND), quits)
        context = Context(setting, shared.enqueues, shared.dequeues, sorted(shared.cleanups), looked)
        (self._parts / "context").write_bytes(pickle.dumps(context))
        judged = Judged()
        for stage, number, judge in (("jobs", buckets, _judge_bucket), ("unique keys", KEYED, _judge_keys)):
            for index, part in enumerate(pool.map(judge, [(self._parts, index) for index in range(number)]), 1):
                judged.add(part)
                self._say(f"judging {stage}: {index} of {number} parts, {judged.jobs:,} jobs")
        return judged

    def _ordered(self) -> order.Ordered:
        self._say("judging the order over all jobs")
        ordered = order.Ordered()
        waits = array("q")
        for path in sorted(self._parts.glob("waits.*")):
            waits.frombytes(path.read_bytes())
        calls, ordered.dequeues = order.read(sorted(self._parts.glob("order.*")), self._options.on_postgres)
        ordered.waits = len(waits) // order.WAIT
        order.judge(waits, calls, ordered)
        seqs = array("q")
        for path in sorted(self._parts.glob("seqs.*")):
            seqs.frombytes(path.read_bytes())
        for finding in order.rising(seqs):
            ordered.violations += 1
            ordered.findings.append(finding)
        return ordered

    # The account

    def _account(self, verdict: Verdict) -> None:
        judged, shared = verdict.judged, verdict.shared
        statuses = {status: judged.statuses[status] for status in
                    ("pending", "running", "completed", "failed", "dead", "deleted")}  # fmt: skip
        tags = array("q")
        for path in sorted(self._parts.glob("tags.*")):
            tags.frombytes(path.read_bytes())
        twice = len(tags) - len(set(tags))
        counted = sum(cleanup[6] or 0 for cleanup in shared.cleanups)
        surely = not any(cleanup[6] is None for cleanup in shared.cleanups)
        verdict.accounting = {"enqueued": judged.jobs, **statuses, "cleanups counted": counted, "stored twice": twice}
        verdict.findings = [*judged.findings, *verdict.ordered.findings]
        verdict.violations = judged.violations + verdict.ordered.violations
        wrong = []
        if twice:
            wrong.append(f"{twice} jobs are there twice")
        if counted > statuses["deleted"] or (surely and counted != statuses["deleted"]):
            wrong.append(f"cleanups say that they deleted {counted}, {statuses['deleted']} jobs are gone")
        verdict.findings += [Finding("a", "G-16", "", text) for text in wrong]
        for client, text in shared.broke:
            verdict.findings.append(Finding("a", "W-8", "", f"{client} broke", tuple(text.strip().split("\n")[-8:])))
        verdict.violations += len(wrong) + len(shared.broke)


def _waits(events: Iterable[list[Any]], strikes: dict[str, list[tuple[int, int]]]) -> Iterator[tuple[int, int]]:
    """When a server's sessions may have waited for a lock: held on purpose, or by a client that was paused."""
    yield from _windows(events, ("lock",))
    yield from ((start, end + SECOND) for met in strikes.values() for start, end in met if end > start)


def _outlasted(died: int, waits: Iterable[tuple[int, int]]) -> int:
    """Until when an open call can have happened: a server finishes what it was sent, its client dead or not."""
    return max((end for start, end in waits if start <= died <= end), default=died)


def _windows(events: Iterable[list[Any]], kinds: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """From the beginning of such strikes to their end, with a moment for what was on its way."""
    begun: dict[str, int] = {}
    for at, kind, *_ in events:
        if kind in kinds:
            begun[kind] = at
        elif kind.removesuffix(" over") in begun:
            yield begun.pop(kind.removesuffix(" over")), at + SECOND


def _in_good_order(quits: dict[str, int], events: Iterable[list[Any]], options: Options) -> Iterator[str]:
    """The workers that had settled everything when they ended (W-7), unless the database was away meanwhile.

    A worker waits for that only so long after its grace time; then its claims are left to the sweep.
    """
    away: list[tuple[int, int]] = []
    begun: dict[str, int] = {}
    for at, kind, *_ in events:
        if kind in PLACE_STRIKES:
            begun[kind] = at
        elif kind.removesuffix(" over") in begun:
            away.append((begun.pop(kind.removesuffix(" over")), at))
    ending = round((options.lease + LAST_WORD) * SECOND)
    for client, at in quits.items():
        if not any(start <= at and end >= at - ending for start, end in away):
            yield client


def _strikes(events: Iterable[list[Any]]) -> dict[str, list[tuple[int, int]]]:
    """The kills and pauses that met each client."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    since: dict[str, int] = {}
    for at, kind, *rest in events:
        if kind == "pause":
            since[rest[0]] = at
        elif kind == "resume":
            found[rest[0]].append((since.pop(rest[0], at), at))
        elif kind == "kill":
            found[rest[0]].append((at, at))
    return found


# In the pool's processes


def _explode(job: tuple[Path, int, list[tuple[int, int]], Path, int, Disturbed]) -> Shared:
    return Exploder(*job).run()


def _context(parts: Path) -> Context:
    context: Context = pickle.loads((parts / "context").read_bytes())
    return context


def _judge_bucket(job: tuple[Path, int]) -> Judged:
    """The jobs of a bucket. Those with a unique key are set aside: they are judged with others of their key."""
    parts, index = job
    judge = Judge(_context(parts))
    rows = {row["id"]: row for row in lines(parts / f"rows.{index}")}
    groups: dict[str, list[Part]] = defaultdict(list, {id: [] for id in rows})
    for path in sorted(parts.glob(f"{index}.*")):
        for part in lines(path):
            groups[part[0]].append(part)
    seqs, tags = array("q"), array("q")
    keyed = [(parts / f"keyed.{number}.{index}").open("w", encoding="utf-8") for number in range(KEYED)]
    for id, group in groups.items():
        row = rows.get(id)
        if id.startswith("key:"):
            for part in group:
                _put(keyed, part[7][1][7], [part], None)
            continue
        _remember(group, row, seqs, tags)
        key = _key(group, row, judge.context)
        if key is None:
            judge.judge(group, {} if row is None else {id: row})
        else:
            _put(keyed, key, group, row)
    for file in keyed:
        file.close()
    (parts / f"seqs.{index}").write_bytes(seqs.tobytes())
    (parts / f"tags.{index}").write_bytes(tags.tobytes())
    return _without_waits(judge.judged, parts / f"waits.{index}")


def _judge_keys(job: tuple[Path, int]) -> Judged:
    parts, index = job
    judge = Judge(_context(parts))
    groups: dict[str, list[Part]] = defaultdict(list)
    rows: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for path in sorted(parts.glob(f"keyed.{index}.*")):
        for key, group, row in lines(path):
            groups[key] += group
            if row is not None:
                rows[key][row["id"]] = row
    for key, group in groups.items():
        judge.judge(group, rows[key])
    return _without_waits(judge.judged, parts / f"waits.key{index}")


def _put(files: list[Any], key: str, group: list[Part], row: dict[str, Any] | None) -> None:
    files[crc32(key.encode()) % KEYED].write(json.dumps([key, group, row], ensure_ascii=False) + "\n")


def _key(group: list[Part], row: dict[str, Any] | None, context: Context) -> str | None:
    """The unique key of a job, from whatever tells of it."""
    told = (part[8][13] if part[1] == "claim" else part[7][1][7] for part in group if part[1] in ("claim", "enqueue"))
    of_row = None if row is None else row["unique_key"]
    key: str | None = next(told, of_row)
    return key


def _remember(group: list[Part], row: dict[str, Any] | None, seqs: array[int], tags: array[int]) -> None:
    """For the checks over all jobs: whose payload it has, and its seq where it is known and the job is still there."""
    payload = row["payload"] if row is not None else next((part[8][15] for part in group if part[1] == "claim"), None)
    if payload is None:
        return
    producer, block, index = (int(number) for number in payload.split()[0].split(":"))
    tags.append(producer << 48 | block << 16 | index)
    if row is not None:
        for part in group:
            if part[1] == "enqueue" and part[7][1][0] == payload:
                seqs.extend((part[3], part[4], row["seq"]))


def _without_waits(judged: Judged, path: Path) -> Judged:
    """The waits go to a file: they are many, and only the order over all jobs needs them."""
    path.write_bytes(array("q", [number for wait in judged.waits for number in wait]).tobytes())
    judged.waits = []
    return judged
