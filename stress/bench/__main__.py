"""``python -m stress bench``: runs the workloads, prints rates, ratios and a chart, and says which targets are met."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from statistics import median

from rich.console import Console

from stress import idle
from stress.bench import report
from stress.bench.ground import postgres_schema, sqlite_file
from stress.bench.measure import Sample, summary
from stress.bench.ours import Synchronous
from stress.bench.steady import memory_over
from stress.bench.workloads import FULL, QUICK, Bench, Ground, Workload
from tests.servers import private_server

NAMES = ("W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "memory")

WAKEUP = {"sqlite": (3.0, 20.0), "postgres": (4.0, inf)}  # Milliseconds, at most: the median, and 99 of 100.


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    console = Console()
    scale = QUICK if options.quick else FULL
    results: dict[str, list[report.Row]] = {}
    with ExitStack() as stack:
        if options.postgres or options.url:
            # Durable, as users have it: here the time that a commit takes to reach the disk is what counts.
            server = options.url or stack.enter_context(private_server(fsync="on")).url()
            bench, ground = Bench(scale, "full", True), partial(postgres_schema, server)
            results["PostgreSQL, synchronous_commit on"] = _run(bench, ground, options.only, console)
        else:
            for synchronous in _durabilities(options.synchronous):
                bench, ground = Bench(scale, synchronous, False), partial(sqlite_file, synchronous)
                results[f"SQLite, synchronous {synchronous}"] = _run(bench, ground, options.only, console)
    for title, rows in results.items():
        console.rule(title)
        report.show(rows, console)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(row["met"] is not False for rows in results.values() for row in rows) else 1


def _durabilities(chosen: str) -> list[Synchronous]:
    both: list[Synchronous] = ["full", "normal"]
    return [synchronous for synchronous in both if chosen in (synchronous, "both")]


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stress bench", description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="measure a private PostgreSQL server")
    parser.add_argument("--url", help="measure the PostgreSQL server at this URL")
    parser.add_argument("--synchronous", choices=("full", "normal", "both"), default="both", help="SQLite's durability")
    parser.add_argument("--quick", action="store_true", help="smaller numbers: a minute or two")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="these workloads only")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    return parser.parse_args(argv)


def _run(bench: Bench, ground: Ground, only: Sequence[str], console: Console) -> list[report.Row]:
    rows: list[report.Row] = []
    for workload in bench.workloads():
        if workload.name in only:
            console.print(f"[dim]{workload.name} {workload.what} …[/dim]")
            rows += _measured(workload, bench.scale.rounds, ground)
    if "W4" in only:
        rows += _processes(bench, ground, console)
    if "W7" in only:
        console.print("[dim]W7 an idle worker in another process …[/dim]")
        rows.append(_wakeup(bench, ground))
    if "W8" in only:
        rows += _growth(bench, ground, console)
    if "memory" in only:
        console.print("[dim]memory, descriptors and threads of a worker …[/dim]")
        rows += memory_over(bench, ground)
    return rows


def _measured(workload: Workload, rounds: int, ground: Ground) -> list[report.Row]:
    """Every side in turn, round by round, so that a machine whose speed drifts is fair to all of them."""
    samples: dict[str, list[Sample]] = {side.name: [] for side in workload.sides}
    with ExitStack() as stack:
        lasting = {
            side.name: stack.enter_context(_with_history(side.history, ground))
            for side in workload.sides
            if side.history is not None
        }
        for _ in range(rounds):
            for side in workload.sides:
                with nullcontext(lasting[side.name]) if side.name in lasting else ground() as url:
                    samples[side.name].append(side.run(url))
    rows = []
    for name, taken in samples.items():
        targets = [(base, least) for over, base, least in workload.targets if over == name]
        found = summary(taken)
        ratios = [
            (base, median(a.rate / b.rate for a, b in zip(taken, samples[base], strict=True)), least)
            for base, least in targets
        ]
        rows.append(report.row(workload.name, workload.what, name, found, ratios))
    return rows


@contextmanager
def _with_history(make: Callable[[str], object], ground: Ground) -> Iterator[str]:
    with ground() as url:
        make(url)
        yield url


def _processes(bench: Bench, ground: Ground, console: Console) -> list[report.Row]:
    console.print("[dim]W4 worker processes …[/dim]")
    samples: dict[int, list[Sample]] = {1: [], 2: [], 4: []}
    smallest = dict.fromkeys(samples, 1.0)
    for _ in range(bench.scale.rounds):
        for processes, taken in samples.items():
            with ground() as url:
                sample, shares = bench.w4(url, processes)
            taken.append(sample)
            smallest[processes] = min(smallest[processes], min(shares) / sum(shares))
    rows = []
    for processes, taken in samples.items():
        name = f"{processes} processes, smallest share {smallest[processes]:.0%}"
        ratio = median(many.rate / one.rate for many, one in zip(taken, samples[1], strict=True))
        least = (1.6 if bench.postgres else 0.9) if processes == 4 else None
        rows.append(report.row("W4", "drain with processes", name, summary(taken), [("1 process", ratio, least)]))
    return rows


def _wakeup(bench: Bench, ground: Ground) -> report.Row:
    """From an acknowledged enqueue to the start of the handler, and what the wait costs."""
    with ground() as url:
        sample, share = idle.measured(url, bench.synchronous, bench.scale.wakeups, bench.scale.idle)
    found = summary([sample])
    assert found.p50_us is not None
    assert found.p99_us is not None
    p50, p99 = WAKEUP["postgres" if bench.postgres else "sqlite"]
    limits = f"p50 ≤ {p50:g} ms, p99 ≤ {p99:g} ms, < 1 %"
    side = f"idle CPU {share:.2%} of a core ({limits})"
    row = report.row("W7", "enqueue to start in an idle worker", side, replace(found, rate=0.0), [])
    return {**row, "met": found.p50_us <= 1000 * p50 and found.p99_us <= 1000 * p99 and share < 0.01}


def _growth(bench: Bench, ground: Ground, console: Console) -> list[report.Row]:
    rows = []
    for size in bench.scale.growth:
        console.print(f"[dim]W8 {size:,} rows …[/dim]")
        with ground() as url:
            enqueued, drained = bench.w8(url, size)
        rows.append(report.row("W8", "enqueue", f"on {size:,} finished rows", summary([enqueued]), []))
        rows.append(report.row("W8", "claim and complete", f"on {size:,} finished rows", summary([drained]), []))
    return rows


if __name__ == "__main__":
    sys.exit(main())
