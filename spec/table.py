"""The two tables that `python -m spec` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from spec.check import Verdict
from spec.mutants import Result

WIDTH_WITHOUT_TERMINAL = 200
NUMBERS = ("states", "distinct", "depth", "properties", "s")


def console() -> Console:
    plain = Console()
    return plain if plain.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL)


def print_verdicts(verdicts: Sequence[Verdict], idle: Sequence[str], seconds: float) -> None:
    table = Table(title="Models")
    for column in ("module", "model", "scope", *NUMBERS, "verdict", "expected"):
        table.add_column(column, justify="right" if column in NUMBERS else "left")
    for verdict in verdicts:
        run, model = verdict.run, verdict.model
        numbers = [f"{run.states:,}", f"{run.distinct:,}", str(run.depth)] if run else ["", "", ""]
        mark = "" if verdict.ok else "  ✗"
        table.add_row(model.module, model.name, model.scope, *numbers, str(len(model.properties)),
                      f"{run.seconds:.1f}" if run else "", verdict.says + mark, verdict.expected)  # fmt: skip
    out = console()
    out.print(table)
    for verdict in verdicts:
        for difference in verdict.differences:
            out.print(f"✗ {verdict.model.name}: {difference}", markup=False)
    if idle:
        out.print(f"✗ never fired: {', '.join(idle)}", markup=False)
    distinct = sum(verdict.run.distinct for verdict in verdicts if verdict.run)
    wrong = sum(not verdict.ok for verdict in verdicts) + bool(idle)
    out.print(f"{len(verdicts)} models, {distinct:,} distinct states, {seconds:.0f} s: "
              + ("as expected" if not wrong else f"{wrong} not as expected"))  # fmt: skip


def print_mutants(results: Sequence[Result]) -> None:
    table = Table(title="Seeded faults")
    for column in ("fault", "where", "model", "caught by", "depth", "s"):
        table.add_column(column)
    for result in results:
        mutant = result.mutant
        caught = result.caught_by or "SURVIVED"
        table.add_row(mutant.name, f"{mutant.module}!{mutant.definition}", mutant.model,
                      caught if result.ok else f"{caught} ✗ expected {mutant.caught_by}",
                      str(result.depth), f"{result.seconds:.1f}")  # fmt: skip
    console().print(table)
    caught_all = sum(result.ok for result in results)
    console().print(f"{caught_all} of {len(results)} faults caught by the property named")
