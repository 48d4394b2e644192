"""The pictures of a report, as SVG text (why matplotlib: spec/decisions/0004-report-charts.md)."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stress.options import SECOND, Options
from stress.session import Result

mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "stress", "font.size": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip
BLUE, GREEN, GREY, RED, ORANGE = "#2b6cb0", "#2f855a", "#a0aec0", "#c53030", "#dd6b20"
OF_THE_PLACE = {"lock": GREY, "disk": ORANGE, "terminate": ORANGE, "restart": RED}


def drawn(name: str, width: float, height: float, draw: Callable[[Axes], None]) -> str:
    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure.subplots())
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    # It is part of a page now: it takes the page's width, and its ids must not meet those of the next picture.
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', svg, count=1)
    return _own_ids(svg, f"{name}-")


def _own_ids(svg: str, prefix: str) -> str:
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", svg)


def charts(result: Result) -> dict[str, str]:
    """Each picture by its title."""
    start = int(result.events[0][0]) if result.events else 0
    measures = result.a.shared.measures
    return {
        "Throughput": drawn("throughput", 10, 2.6, lambda axes: _throughput(axes, measures.rate, start, result.events)),
        "Latency": drawn("latency", 10, 2.8, lambda axes: _latency(axes, measures.percentiles())),
        "Processes": drawn("processes", 10, 4.2, lambda axes: _timeline(axes, result.events, start)),
        "Attempts": drawn("attempts", 5, 2.8, lambda axes: _attempts(axes, measures.attempts)),
        "Backoff": drawn("backoff", 5, 2.8, lambda axes: _backoff(axes, measures.backoffs, result.options)),
    }


def _throughput(axes: Axes, rate: dict[str, Counter[int]], start: int, events: list[list[Any]]) -> None:
    first = start // SECOND
    for name, color in (("enqueued", GREY), ("claimed", BLUE), ("settled", GREEN)):
        counts = rate.get(name, Counter())
        seconds = range(first, max(counts, default=first) + 1)
        at = [second - first for second in seconds]
        axes.plot(at, [counts[second] for second in seconds], color=color, label=name)
    _strikes(axes, events, start)
    axes.set_xlabel("seconds")
    axes.set_ylabel("jobs per second")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right", frameon=False, ncols=3)


def _strikes(axes: Axes, events: list[list[Any]], start: int) -> None:
    """Bars where the whole place was struck: a lock, a full disk, a lost connection, a restart."""
    begun: dict[str, float] = {}
    for at, kind, *_ in events:
        seconds = (at - start) / SECOND
        if kind in OF_THE_PLACE:
            begun[kind] = seconds
        elif (name := kind.removesuffix(" over")) in begun:
            axes.axvspan(begun.pop(name), seconds, color=OF_THE_PLACE[name], alpha=0.25, linewidth=0)


def _latency(axes: Axes, percentiles: dict[str, dict[str, float]]) -> None:
    """Percentiles on a scale where each further nine has the same room."""
    points = ("p50", "p90", "p99", "p99.9")
    for name, found in percentiles.items():
        axes.plot(range(len(points)), [max(found[point], 0.001) for point in points], marker="o", label=name)
    axes.set_xticks(range(len(points)), points)
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds")
    axes.legend(loc="upper left", frameon=False, ncols=4)


def _timeline(axes: Axes, events: list[list[Any]], start: int) -> None:
    """A row for each seat: its lives, where it was paused, and how each life ended."""
    seats = sorted({event[2].split(".")[0] for event in events if event[1] == "start"}, reverse=True)
    rows = {seat: row for row, seat in enumerate(seats)}
    end = (int(events[-1][0]) - start) / SECOND if events else 0.0
    born: dict[str, float] = {}
    paused: dict[str, float] = {}
    kills: list[tuple[float, int]] = []
    for at, kind, *rest in events:
        seconds, client = (at - start) / SECOND, str(rest[0]) if rest else ""
        row = rows.get(client.split(".")[0], -1)
        match kind:
            case "start":
                born[client] = seconds
            case "gone":
                since = born.pop(client, seconds)
                axes.barh(row, seconds - since, left=since, height=0.5, color=BLUE)
            case "pause":
                paused[client] = seconds
            case "resume" if client in paused:
                since = paused.pop(client)
                axes.barh(row, seconds - since, left=since, height=0.8, color=ORANGE)
            case "kill":
                kills.append((seconds, row))
    for client, since in born.items():
        axes.barh(rows[client.split(".")[0]], end - since, left=since, height=0.5, color=BLUE)
    places = [at for at, _ in kills], [row for _, row in kills]
    axes.scatter(*places, marker="x", color=RED, s=22, zorder=3, linewidths=1.2)
    _strikes(axes, events, start)
    axes.set_yticks(range(len(seats)), seats)
    axes.set_xlabel("seconds")


def _attempts(axes: Axes, attempts: Counter[int]) -> None:
    numbers = range(max(attempts, default=0) + 1)
    axes.bar(list(numbers), [max(attempts[number], 0) for number in numbers], color=BLUE)
    axes.set_yscale("symlog")
    axes.set_xticks(list(numbers))
    axes.set_xlabel("highest attempt of a job")
    axes.set_ylabel("jobs")


def _backoff(axes: Axes, backoffs: list[tuple[int, int]], options: Options) -> None:
    """Each retry's delay over what the plain backoff says. A point below the band would be a violation of G-11."""
    most = max((attempts for attempts, _ in backoffs), default=1)
    for attempts in range(1, most + 1):
        plain = options.rules.plain(attempts) / 1000
        axes.bar(attempts, plain * options.jitter, bottom=plain, width=0.8, color=GREEN, alpha=0.3)
    places = [attempts for attempts, _ in backoffs], [delay / 1000 for _, delay in backoffs]
    axes.scatter(*places, s=5, color=BLUE, alpha=0.4)
    axes.set_xticks(range(1, most + 1))
    axes.set_yscale("log")
    axes.set_xlabel("attempt that failed")
    axes.set_ylabel("delay, ms (band: allowed)")
