"""Each clause leads to its TLA+, model rule, tests and faults, and each of those to a clause; README.md shows it."""

from __future__ import annotations

from spec import ledger


def test_every_clause_is_proved_somewhere_and_every_proof_belongs_to_a_clause() -> None:
    assert list(ledger.gaps()) == []


def test_the_readme_shows_the_ledger_as_it_is() -> None:
    text = ledger.README.read_text(encoding="utf-8")
    assert ledger.written(text) == text, "python -m spec.ledger writes it"


def test_the_name_of_a_test_tells_its_clauses() -> None:
    assert list(ledger.clauses_of("test_w7_g20_what_outlasts_the_grace_time")) == ["W-7", "G-20"]
    assert list(ledger.clauses_of("test_s8_a_bad_delay_is_refused")) == []
    assert list(ledger.clauses_of("test_a_g3_in_the_middle_counts_not")) == []
