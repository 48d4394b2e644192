"""`python -m stress --self-test`: a harness that finds nothing proves nothing. Each seeded fault must be found.

The faults are those of faults.py; they are set in the processes of a short run on SQLite, never in files. A run
without a fault comes first: it must be clean, or a finding would mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from stress.faults import FAULTS, Fault
from stress.options import Options
from stress.progress import progress
from stress.session import Result, session

SECONDS = 6.0
TRIES = 3  # Races are a matter of chance: a fault that did not strike gets other seeds.


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one fault: found by these clauses, after so many runs."""

    fault: str
    found: bool
    by: tuple[str, ...]
    runs: int
    example: str


def short(options: Options) -> Options:
    return replace(options, seconds=SECONDS, jobs=None, drain=4.0, kill_every=0.6, pause_every=2.0, sampled=100)


def attempt(options: Options, fault: Fault, say: Console) -> Tried:
    result: Result | None = None
    for run in range(1, TRIES + 1):
        with progress(say) as tell:
            result = session(
                replace(short(options), seed=options.seed + run - 1, fault=fault.name, **fault.options), tell
            )
        named = [finding for finding in result.findings if finding.clause in fault.clauses]
        if named:
            by = sorted({f"({finding.verdict}) {finding.clause}" for finding in named})
            return Tried(fault.name, True, tuple(by), run, str(named[0]))
    others = sorted({f"({finding.verdict}) {finding.clause}" for finding in result.findings}) if result else []
    return Tried(fault.name, False, tuple(others), TRIES, "")


def self_test(options: Options, only: str, console: Console) -> int:
    with progress(console) as say:
        control = session(short(options), say)
    if not control.ok:
        told = "\n".join(map(str, control.findings[:3]))
        console.print(f"The queue without a fault is not clean:\n{told}", markup=False)
        return 1
    tried = [attempt(options, fault, console) for name, fault in FAULTS.items() if only in name]
    for one in tried:
        console.print(f"\n{one.fault}:\n{one.example or '  NOT FOUND'}", markup=False, highlight=False)
    table = Table("seeded fault", "what it does", "found", "by", "runs")
    for one in tried:
        found = "yes" if one.found else "NO"
        table.add_row(one.fault, FAULTS[one.fault].told, found, ", ".join(one.by), str(one.runs))
    console.print(table)
    number = sum(one.found for one in tried)
    console.print(f"{number} of {len(tried)} seeded faults found; without a fault: clean", highlight=False)
    return 0 if number == len(tried) else 1
