"""The whole of it, for a few seconds: processes, strikes, both verdicts; and one seeded fault that must be found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from stress import __main__ as command
from stress.faults import FAULTS
from stress.options import Options, Outputs
from stress.selftest import attempt

SHORT = Options(seconds=4, drain=6, kill_every=0.5, pause_every=1.5, sampled=60, traced=100, backlog=100)


@pytest.mark.parametrize("postgres", [False, True], ids=["sqlite", "postgres"])
def test_a_few_seconds_of_kills_and_pauses_are_clean(postgres: bool, tmp_path: Path) -> None:
    files = Outputs(json=tmp_path / "result.json", report=tmp_path / "report.html", keep=None)
    with (tmp_path / "said").open("w") as said:
        code = command.stress(replace(SHORT, postgres=postgres), files, Console(file=said, width=200))
    assert code == 0, (tmp_path / "said").read_text()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["violations"] == 0
    assert result["jobs"] > 0
    assert result["kills"] > 0
    assert result["verdict_a"]["ok"]
    assert result["verdict_b"]["ok"]
    assert result["verdict_b"]["events"] > 0
    page = (tmp_path / "report.html").read_text()
    assert "no violation" in page
    assert page.count("<svg") == 5
    assert 'src="http' not in page


def test_a_seeded_fault_is_found() -> None:
    with open("/dev/null", "w") as nowhere:
        tried = attempt(SHORT, FAULTS["early retry"], Console(file=nowhere))
    assert tried.found
    assert "(a) G-11" in tried.by
