"""A run and its two verdicts, as one result."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stress import trace
from stress.check import Check
from stress.check import Verdict as BlackBox
from stress.findings import Finding
from stress.history import lines
from stress.options import SECOND, Options
from stress.places import place
from stress.run import Crew, run

Say = Callable[[str, Crew | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that a report needs."""

    options: Options
    events: list[list[Any]]
    strikes: Counter[str]
    disk: str
    seconds: float
    judging: float
    a: BlackBox
    b: trace.Verdict

    @property
    def findings(self) -> list[Finding]:
        return [*self.a.findings, *self.b.findings]

    @property
    def violations(self) -> int:
        return self.a.violations + len(self.b.findings)

    @property
    def vacuous(self) -> bool:
        """Nothing was done, so nothing can be said: no job was enqueued and settled, or none was replayed."""
        settled = self.a.shared.measures.rate.get("settled", Counter()).total()
        return not (settled and self.b.events)

    @property
    def ok(self) -> bool:
        return self.a.ok and self.b.ok and not self.vacuous

    @property
    def word(self) -> str:
        if self.vacuous and not self.violations:
            return "nothing was done, so nothing is proved"
        undecided = f", {self.a.judged.undecided:,} undecided" if self.a.judged.undecided else ""
        broke = ", TLC broke" if self.b.broke else ""
        return "no violation" if self.ok else f"{self.violations:,} violations{undecided}{broke}"

    @property
    def backend(self) -> str:
        return "PostgreSQL" if self.options.on_postgres else "SQLite"

    def as_object(self) -> dict[str, Any]:
        a, b = self.a, self.b
        return {
            "ok": self.ok,
            "vacuous": self.vacuous,
            "violations": self.violations,
            "backend": self.backend,
            "seed": self.options.seed,
            "jobs": a.judged.jobs,
            "seconds": round(self.seconds, 1),
            "judging_seconds": round(self.judging, 1),
            "kills": self.strikes["kill"],
            "pauses": self.strikes["pause"],
            "strikes": dict(self.strikes),
            "full_disk": self.disk,
            "verdict_a": {
                "ok": a.ok, "violations": a.violations, "undecided": a.judged.undecided, "calls": a.shared.calls,
                "open_calls": a.shared.open_calls, "operations": a.judged.ops,
                "dequeues_judged_for_order": a.ordered.judged, "dequeues": a.ordered.dequeues,
            },
            "verdict_b": {
                "ok": b.ok, "violations": len(b.findings), "broke": b.broke,
                "jobs_replayed": b.touched_replayed + b.sampled,
                "touched": b.touched, "touched_replayed": b.touched_replayed, "sampled": b.sampled, "events": b.events,
            },
            "accounting": a.accounting,
            "latency_ms": a.shared.measures.percentiles(),
            "findings": [finding.as_object() for finding in self.findings],
        }  # fmt: skip


@contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """A directory for a run's files: the user's, or one that is gone afterwards."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="stress-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def session(options: Options, say: Say, keep: Path | None = None) -> Result:
    """Run, then judge. The database stays until both verdicts are there: one of them reads its log."""
    with workplace(keep) as directory, place(options, directory) as where:
        started = time.monotonic()
        run(options, where, directory, say)
        ended = time.monotonic()
        say("judging", None)
        a = Check(directory, options, lambda text: say(text, None)).run()
        a.shared.measures.add(a.judged.measures)
        b = trace.validate(
            where.log(), trace.chosen(options), a.shared.touched, a.shared.begun, lambda text: say(text, None)
        )
        events = list(lines(directory / "events.jsonl"))
        strikes = Counter(str(event[1]) for event in events if event[1] in STRIKES)
        return Result(
            options=options, events=events, strikes=strikes, disk=where.disk, seconds=_length(events, ended - started),
            judging=time.monotonic() - ended, a=a, b=b,
        )  # fmt: skip


STRIKES = ("kill", "pause", "stop", "lock", "disk", "terminate", "restart")


def _length(events: list[list[Any]], otherwise: float) -> float:
    return (events[-1][0] - events[0][0]) / SECOND if events else otherwise
