"""TLC for real, on what is small: two models, a liveness one, two that must fail, and a sample of the seeded faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spec import __main__ as command
from spec import manifest, mutants, tlc
from spec.check import checked, differences

MODELS = {model.name: model for model in manifest.load()}
MUTANTS = {mutant.name: mutant for mutant in mutants.load()}

SMALL = ["process_timeout", "lease_live", "mustfail_attempts_as_fence", "mustfail_starvation"]
SAMPLE = ["complete: fence not compared", "release keeps the attempt", "requeue resets the fence"]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_model_gives_what_is_pinned(name: str) -> None:
    verdict = checked(MODELS[name])
    assert verdict.ok, verdict.differences


@pytest.mark.parametrize("name", SAMPLE)
def test_a_seeded_fault_is_caught_by_its_property(name: str) -> None:
    mutant = MUTANTS[name]
    result = mutants.run(mutant, MODELS[mutant.model])
    assert result.caught_by == mutant.caught_by


def test_the_command_exits_1_on_a_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = MODELS["process_timeout"]
    wrong = replace(model, pinned={"states": 1})
    monkeypatch.setattr(manifest, "load", lambda: [wrong])
    assert command.main(["--only", "process_timeout", "--json"]) == 1
    assert '"ok": false' in capsys.readouterr().out


def test_a_broken_module_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "M.tla").write_text("---- MODULE M ----\nA == \n====\n", encoding="utf-8")
    (tmp_path / "m.cfg").write_text("SPECIFICATION A\n", encoding="utf-8")
    with pytest.raises(tlc.TlcBroke):
        tlc.run(tmp_path, "M", "m.cfg")


def test_another_jar_is_refused_unless_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tlc, "JAR_SHA256", "0" * 64)
    with pytest.raises(tlc.TlcBroke, match="pinned"):
        tlc.jar()
    monkeypatch.setenv(tlc.JAR_VARIABLE, str(tmp_path / "newer.jar"))
    assert tlc.jar() == tmp_path / "newer.jar"


TEXT = """\
The coverage statistics at now
<Init line 1, col 1 to line 1, col 4 of module M>: 1:1
<Go(x) line 2, col 1 to line 2, col 2 of module M>: 9:9
<Go line 2, col 1 to line 2, col 2 of module M (3 1 4 2)>: 2:5
<Idle line 5, col 1 to line 5, col 2 of module L>: 0:0
Error: Action property {violated} is violated.
State 1: <Initial predicate>
State 2: <Go line 2, col 1 to line 2, col 2 of module M>
1,234 states generated, 56 distinct states found, 7 states left on queue.
The depth of the complete state graph search is 8.
"""


def test_what_is_read_of_its_text(tmp_path: Path) -> None:
    run = tlc.parsed(TEXT.format(violated="Contract!G3_Something"), tmp_path)
    assert (run.states, run.distinct, run.depth, run.trace_length) == (1234, 56, 8, 2)
    assert run.violated == "G3_Something"
    assert run.fired == {("M", "Init"): 1, ("M", "Go"): 5, ("L", "Idle"): 0}


def test_a_violation_that_is_named_by_its_place_gets_its_name(tmp_path: Path) -> None:
    (tmp_path / "JobQueue.tla").write_text("A == 1\nSpecTold ==\n  [][A]_b\nB(c) == 2\n", encoding="utf-8")
    run = tlc.parsed(TEXT.format(violated="line 3, col 3 to line 3, col 9 of module JobQueue"), tmp_path)
    assert run.violated == "RefinesContract"


def test_a_pass_where_a_failure_is_expected_differs() -> None:
    text = "Model checking completed. No error has been found.\n2 states generated, 1 distinct states found\n"
    (difference,) = differences(MODELS["mustfail_unfenced"], tlc.parsed(text, Path()))
    assert difference.startswith("expected: G3")
