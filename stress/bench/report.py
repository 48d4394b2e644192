"""The results as a table and a chart of ratios against their targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from stress.bench.measure import Summary


class Row(TypedDict):
    """One side of one workload. ``met`` is None where there is no target."""

    workload: str
    what: str
    side: str
    rate: float
    p50_us: float | None
    p99_us: float | None
    ratios: list[tuple[str, float, float | None]]
    met: bool | None


def row(workload: str, what: str, side: str, found: Summary, ratios: Sequence[tuple[str, float, float | None]]) -> Row:
    judged = [ratio >= least for _, ratio, least in ratios if least is not None]
    return {
        "workload": workload,
        "what": what,
        "side": side,
        "rate": found.rate,
        "p50_us": found.p50_us,
        "p99_us": found.p99_us,
        "ratios": list(ratios),
        "met": all(judged) if judged else None,
    }


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table, then a bar for each ratio that has a target."""
    table = Table(title="jobs per second: medians", title_justify="left")
    for name in ("workload", "side", "jobs/s", "p50 µs", "p99 µs", "ratio (target)"):
        table.add_column(name, justify="left" if name in ("workload", "side") else "right")
    for line in rows:
        table.add_row(
            f"{line['workload']} {line['what']}",
            line["side"],
            f"{line['rate']:,.0f}" if line["rate"] else "",
            *(f"{line[key]:,.0f}" if line[key] is not None else "" for key in ("p50_us", "p99_us")),
            "\n".join(_ratio(*ratio) for ratio in line["ratios"]),
        )
    console.print(table)
    chart = Table("ratio", "", "", title="against the raw loop; the whole bar is 1.5", title_justify="left", box=None)
    for line in rows:
        for base, ratio, least in line["ratios"]:
            if least is not None:
                label = f"{line['workload']} {line['side']} / {base}"
                colour = "green" if ratio >= least else "red"
                chart.add_row(label, f"{ratio:.2f}", Bar(1.5, 0, min(ratio, 1.5), width=40, color=colour))
    if chart.row_count:
        console.print(chart)


def _ratio(base: str, ratio: float, least: float | None) -> str:
    if least is None:
        return f"{ratio:.2f} of {base}"
    colour = "green" if ratio >= least else "red"
    return f"[{colour}]{ratio:.2f} of {base} (≥ {least:g})[/{colour}]"
