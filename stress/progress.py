"""What a person sees while it runs, and the result in a few lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stress import roles
from stress.run import Crew
from stress.session import Result, Say

EVERY = 0.25


class Progress:
    """One line that is rewritten; on a terminal that cannot, a line every ten seconds."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console, self._live = console, live
        self._started, self._shown = time.monotonic(), 0.0

    def say(self, text: str, crew: Crew | None) -> None:
        now = time.monotonic()
        if now - self._shown < (EVERY if self._live else 10):
            return
        self._shown = now
        line = f"{now - self._started:6.1f} s  {text}"
        if crew is not None:
            line += "  " + _counters(crew)
        if self._live:
            self._live.update(Text(line), refresh=True)
        else:
            self._console.print(line, highlight=False)


def _counters(crew: Crew) -> str:
    kills = sum(event[1] == "kill" for event in crew.events)
    pauses = sum(event[1] == "pause" for event in crew.events)
    return (f"enqueued {crew.total(roles.ENQUEUED):,}  claimed {crew.total(roles.CLAIMED):,}  "
            f"done {crew.total(roles.SETTLED):,}  leases lost {crew.total(roles.LOST):,}  "
            f"kills {kills}  pauses {pauses}  processes {len(crew.pids())}")  # fmt: skip


@contextmanager
def progress(console: Console) -> Iterator[Say]:
    if not console.is_terminal:
        yield Progress(console, None).say
        return
    # No thread of its own: processes are started from this one.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Progress(console, live).say


def conclude(console: Console, result: Result) -> None:
    """The result in a few lines, and every finding that was kept."""
    a, b = result.a, result.b

    def show(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    strikes = ", ".join(f"{number} {kind}" for kind, number in sorted(result.strikes.items())) or "none"
    show(f"{result.backend}, seed {result.options.seed}: {a.judged.jobs:,} jobs in {result.seconds:.0f} s, "
         f"judged in {result.judging:.0f} s")  # fmt: skip
    show(f"strikes: {strikes}; full disk: {result.disk}")
    show("account: " + ", ".join(f"{number:,} {name}" for name, number in a.accounting.items()))
    show(f"verdict (a): {_word(a.ok)}: {a.shared.calls:,} calls ({a.shared.open_calls} without an answer), "
         f"{a.judged.ops:,} operations linearized job by job, {a.judged.undecided} undecided; "
         f"order judged for {a.ordered.judged:,} of {a.ordered.dequeues:,} dequeues")  # fmt: skip
    replayed = b.touched_replayed + b.sampled
    show(f"verdict (b): {_word(b.ok)}: {b.events:,} events of {replayed:,} jobs replayed by TLC "
         f"({b.touched_replayed:,} of {b.touched:,} that a kill, pause or cancel touched, "
         f"{b.sampled:,} others)")  # fmt: skip
    if b.broke:
        show(b.broke)
    for name, found in a.shared.measures.percentiles().items():
        show(f"  {name:17} " + "  ".join(f"{key} {value:,.1f} ms" for key, value in found.items() if key != "count"))
    for finding in result.findings:
        show(f"\n[{finding.verdict}] {finding}")
    hidden = a.violations - len(a.findings)
    if hidden > 0:
        show(f"\nand {hidden:,} more violations")
    show(f"\n{result.word}")


def _word(ok: bool) -> str:
    return "clean" if ok else "VIOLATED"
