"""The manifest, the .cfg files and the seeded faults fit together, and what reads them reads them right."""

from __future__ import annotations

import pytest

from spec import manifest, mutants
from spec.manifest import TLA, properties_of

MODELS = manifest.load()
MUTANTS = mutants.load()

ISSUE_3 = [  # the faults that must be among the seeded ones, by a word of their name
    "complete: fence not compared", "fail: fence not compared", "extend: fence not compared",
    "complete: status not compared", "fence not bumped", "sweep without count", "≥ to >", "cleanup of failed",
    "cleanup does not re-test", "requeue resets the fence", "release keeps the attempt",
    "a begun job of max_attempts 1", "order reversed", "claim before due", "sweep does not re-test the lease",
    "unique key freed while failed",
]  # fmt: skip


def test_every_configuration_is_a_model_and_every_model_has_one() -> None:
    assert {path.stem for path in TLA.glob("*.cfg")} == {model.name for model in MODELS}
    assert len(MODELS) == len({model.name for model in MODELS})


def test_every_module_is_checked() -> None:
    assert {path.stem for path in TLA.glob("*.tla")} == {model.module for model in MODELS}


def test_every_model_checks_something_and_counts_are_pinned() -> None:
    for model in MODELS:
        assert model.properties, model.name
        expected = set() if model.liveness and model.fails else {"depth"} if model.fails else set(manifest.PINNED)
        assert set(model.pinned) == expected or (model.deep and not model.pinned), model.name


def test_a_model_that_must_fail_checks_only_the_property_that_it_must_violate() -> None:
    for model in MODELS:
        if model.fails:
            assert model.properties == (model.fails,), model.name


def test_the_default_models_have_half_a_million_states() -> None:
    assert sum(model.pinned.get("distinct", 0) for model in MODELS if not model.deep) >= 500_000


@pytest.mark.parametrize("name", ["N-1", "N-2", "N-3"])
def test_every_non_guarantee_that_can_fail_has_a_model_that_must(name: str) -> None:
    assert any((model.fails or "").startswith(name.replace("-", "") + "_") for model in MODELS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_seeded_fault_has_its_place_and_its_catcher(mutant: mutants.Mutant) -> None:
    text = (TLA / f"{mutant.module}.tla").read_text(encoding="utf-8")
    assert mutants.seeded(text, mutant) != text
    (model,) = [model for model in MODELS if model.name == mutant.model]
    assert mutant.caught_by in model.properties


@pytest.mark.parametrize("fault", ISSUE_3)
def test_the_named_faults_are_seeded(fault: str) -> None:
    assert any(fault in mutant.name for mutant in MUTANTS)


def test_a_fault_whose_place_is_gone_is_refused() -> None:
    stale = mutants.Mutant(name="x", module="M", definition="A", old="gone", new="", model="m", caught_by="P")
    with pytest.raises(ValueError, match="not exactly once in M!A"):
        mutants.seeded("A(c) ==\n  /\\ here\n\nB ==\n  gone\n", stale)


def test_properties_of_a_configuration() -> None:
    text = "SPECIFICATION Spec\nINVARIANTS\n  A \\* why\n  B\nCONSTANTS\n  X = 1\nPROPERTY C\n"
    assert properties_of(text) == ("A", "B", "C")


def test_pins_are_rewritten_for_one_model_only() -> None:
    text = '# head\n\n[[model]]\nname = "a"\nstates = 1\n\n[[model]]\nname = "b"\nstates = 2\n'
    assert manifest.with_pins(text, "a", {"states": 7, "depth": 3}) == (
        '# head\n\n[[model]]\nname = "a"\nstates = 7\ndepth = 3\n\n[[model]]\nname = "b"\nstates = 2\n'
    )
