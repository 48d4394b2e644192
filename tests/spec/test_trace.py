"""Every clause of lifecycle.md is said by the TLA+ or is listed as not modelled; and the reverse."""

from __future__ import annotations

from spec import lifecycle, manifest, trace

TEXT = lifecycle.LIFECYCLE.read_text(encoding="utf-8")


def test_clauses_and_labels_match_both_ways() -> None:
    assert list(trace.gaps(manifest.load())) == []


def test_the_clauses_are_numbered_without_a_hole() -> None:
    stated = lifecycle.clauses(TEXT)
    for letter, last in (("T", 11), ("G", 27), ("N", 4), ("W", 9)):
        first = [clause for clause in stated if clause[0] == letter][:last]
        assert first == [f"{letter}-{n}" for n in range(1, last + 1)]


def test_a_label_counts_only_on_a_definition() -> None:
    text = "\\* T-1 in a comment\nA(c) == \\* T-2 W-1\n  /\\ x  \\* T-3\nB == A(1) \\* G-4\nC == 1 \\* see T-5\n"
    found = [(one.name, one.clauses) for one in trace.labelled("M", text)]
    assert found == [("A", ("T-2", "W-1")), ("B", ("G-4",))]


def test_every_guarantee_is_a_checked_property_or_a_listed_reason() -> None:
    models = [model for model in manifest.load() if model.fails is None]
    checked = trace.properties(models)
    by_property = {clause for one in trace.all_labelled() if one.name in checked for clause in one.clauses}
    guarantees = {clause for clause in lifecycle.clauses(TEXT) if clause.startswith("G-")}
    assert guarantees - by_property - set(trace.reasons()["not_modelled"]) == set()


def test_the_name_of_a_property_starts_with_the_clause_that_it_says() -> None:
    checked = trace.properties(manifest.load()) - trace.STRUCTURAL
    for one in trace.all_labelled():
        if one.name in checked:
            assert one.name.split("_")[0] in {clause.replace("-", "") for clause in one.clauses}, one
