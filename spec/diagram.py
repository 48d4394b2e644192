"""spec/lifecycle.svg, the life of a job, drawn from the transitions of spec/lifecycle.md.

`python -m spec.diagram` writes it; a test compares. What is drawn comes from the table alone; only where a status
stands is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from spec.lifecycle import LIFECYCLE, Transition, transitions

SVG = Path(__file__).parent / "lifecycle.svg"

START, DELETED = "(no row)", "(row deleted)"
PLACES = {
    START: (70, 210),
    "pending": (250, 210),
    "running": (560, 210),
    "failed": (400, 430),
    "completed": (880, 80),
    "dead": (880, 430),
    DELETED: (1090, 250),
}
WIDTH, HEIGHT = 1180, 530
BOX = (116, 44)
COLOURS = {"pending": "#e8eef9", "running": "#fff4d6", "failed": "#fde8dc", "completed": "#e0f2e3", "dead": "#ececec"}
BEND = 46  # how far an arrow is bent to its left, so that there and back do not meet
ALONG = 0.4  # where on its arrow a label stands: before the middle, so that those of there and back do not meet

Point = tuple[float, float]


def arrows(table: Iterable[Transition]) -> dict[tuple[str, str], list[str]]:
    """(from, to) -> what leads there, as `T-4 fail`; in the order of the table."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in table:
        for source in row.sources or (START,):
            for target in row.targets:
                found.setdefault((source, target), []).append(f"{row.clause} {row.operation}")
    return found


def svg(table: Iterable[Transition]) -> str:
    drawn = arrows(table)
    unknown = {status for pair in drawn for status in pair} - set(PLACES)
    if unknown:
        raise ValueError(f"no place in the drawing for {sorted(unknown)}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        "<title>The life of a job: statuses and transitions of spec/lifecycle.md</title>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *(line for pair, labels in drawn.items() for line in arrow(*pair, labels)),
        *(line for name in PLACES for line in box(name)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def box(name: str) -> Iterator[str]:
    x, y = PLACES[name]
    wide, high = BOX
    dashed = ' stroke-dasharray="4 3"' if name in (START, DELETED) else ""
    thick = 3 if name in ("completed", "dead") else 1.5  # terminal
    yield (
        f'<rect x="{x - wide / 2:.0f}" y="{y - high / 2:.0f}" width="{wide}" height="{high}" rx="9" '
        f'fill="{COLOURS.get(name, "#fff")}" stroke="#444" stroke-width="{thick}"{dashed}/>'
    )
    yield f'<text x="{x}" y="{y + 5}" text-anchor="middle" font-weight="bold">{escape(name)}</text>'


def arrow(source: str, target: str, labels: list[str]) -> Iterator[str]:
    if source == target:
        yield from loop(source, labels)
        return
    start, end = PLACES[source], PLACES[target]
    middle = bent(start, end)
    first, last = edge_of(start, middle), edge_of(end, middle)
    yield (
        f'<path d="M{first[0]:.0f} {first[1]:.0f}Q{middle[0]:.0f} {middle[1]:.0f} {last[0]:.0f} {last[1]:.0f}" '
        'fill="none" stroke="#444" marker-end="url(#tip)"/>'
    )
    x, y = ((1 - ALONG) ** 2 * first[i] + 2 * ALONG * (1 - ALONG) * middle[i] + ALONG**2 * last[i] for i in (0, 1))
    yield from text(x, y, labels)


def loop(name: str, labels: list[str]) -> Iterator[str]:
    x, y = PLACES[name]
    top = y - BOX[1] / 2
    yield (
        f'<path d="M{x - 24} {top:.0f}C{x - 44} {top - 62:.0f} {x + 44} {top - 62:.0f} {x + 24} {top:.0f}" '
        'fill="none" stroke="#444" marker-end="url(#tip)"/>'
    )
    yield from text(x, top - 54, labels)


def bent(start: Point, end: Point) -> Point:
    """The control point of the curve: the middle, moved to the left of the way."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = math.hypot(across, down)
    return (start[0] + end[0]) / 2 + BEND * down / length, (start[1] + end[1]) / 2 - BEND * across / length


def edge_of(centre: Point, towards: Point) -> Point:
    """Where the line from a box's centre leaves the box."""
    across, down = towards[0] - centre[0], towards[1] - centre[1]
    scale = min(
        (BOX[0] / 2 + 3) / abs(across) if across else math.inf,
        (BOX[1] / 2 + 3) / abs(down) if down else math.inf,
    )
    return centre[0] + across * scale, centre[1] + down * scale


def text(x: float, y: float, labels: list[str]) -> Iterator[str]:
    """Labels one below the other, on a white ground so that no line runs through them."""
    top = y - 8 * (len(labels) - 1)
    for index, label in enumerate(labels):
        yield (
            f'<text x="{x:.0f}" y="{top + 16 * index + 4:.0f}" text-anchor="middle" stroke="#fff" stroke-width="5" '
            f'paint-order="stroke">{escape(label)}</text>'
        )


def drawn() -> str:
    return svg(transitions(LIFECYCLE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    SVG.write_text(drawn(), encoding="utf-8")
