"""The drawing is the one that the table of lifecycle.md gives."""

from __future__ import annotations

import pytest

from spec import diagram
from spec.lifecycle import LIFECYCLE, transitions

TABLE = transitions(LIFECYCLE.read_text(encoding="utf-8"))


def test_the_committed_drawing_is_the_drawn_one() -> None:
    assert diagram.SVG.read_text(encoding="utf-8") == diagram.drawn(), "run: python -m spec.diagram"


def test_every_transition_is_an_arrow() -> None:
    labels = {label for several in diagram.arrows(TABLE).values() for label in several}
    assert {label.split()[0] for label in labels} == {row.clause for row in TABLE} == {f"T-{n}" for n in range(1, 12)}


def test_arrows_by_hand() -> None:
    arrows = diagram.arrows(TABLE)
    assert arrows["running", "failed"] == ["T-4 fail", "T-8 sweep"]
    assert arrows["running", "dead"] == ["T-5 fail", "T-8 sweep", "T-9 cancel"]
    assert arrows[diagram.START, "pending"] == ["T-1 enqueue"]
    assert ("completed", "pending") not in arrows


def test_a_status_without_a_place_is_told() -> None:
    with pytest.raises(ValueError, match="paused"):
        diagram.svg(transitions("\n## 3 T\n| T-1 | pause | running | paused | – | – |\n\n## 4 "))
