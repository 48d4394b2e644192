"""The kill matrix in the default run: every fault can still be put where it belongs, and a few are put there.

`python -m tests.mutants` runs them all.
"""

from __future__ import annotations

import pytest

from tests.mutants.faults import ROOT, Fault, Stale, load, seeded
from tests.mutants.matrix import matrix

FAULTS = load()
# One of each kind: SQL, a wrong cell of TABLE, of the model, of the page.
SAMPLE = ("sqlite, complete: fence not compared", "TABLE: release leads to failed", "model: cancel of a dead job",
          "page: a cell of section 3")  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_has_its_place(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert seeded(text, fault) != text


def test_the_matrix_has_at_least_sixty_faults_over_every_layer() -> None:
    assert len(FAULTS) >= 60
    assert {fault.layer for fault in FAULTS} == {"sql", "py", "model", "spec"}


def test_a_fault_whose_place_is_gone_or_there_twice_is_refused() -> None:
    fault = Fault(name="x", file="a.py", old="b", new="c", clause="T-1", catchers=())
    assert seeded("a b", fault) == "a c"
    for text in ("a", "b b"):
        with pytest.raises(Stale, match="not exactly once"):
            seeded(text, fault)


def test_a_sample_of_the_faults_is_killed() -> None:
    sample = [fault for fault in FAULTS if fault.name in SAMPLE]
    assert len(sample) == len(SAMPLE)
    said: list[str] = []
    assert [found.why for found in matrix(sample, said.append) if not found.caught] == []
    assert len(said) == len(SAMPLE)
