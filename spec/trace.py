"""Which clause of lifecycle.md is said where in the TLA+: labels on definitions, and spec/tla/trace.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spec.lifecycle import LIFECYCLE, clauses
from spec.manifest import TLA, Model

# Checked properties that say how the layers fit, not what a clause says.
STRUCTURAL = {"RefinesContract", "RefinesLease"}

_HEAD = re.compile(r"^(\w+)(?:\([^)]*\))?\s*==(.*)$", re.M)
_LABELS = re.compile(r"\\\*((?: [TGNW]-\d+)+)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A definition that carries clause ids: `Complete(c) == \\* T-3 W-4`."""

    module: str
    name: str
    clauses: tuple[str, ...]


def labelled(module: str, text: str) -> Iterator[Labelled]:
    for name, rest in _HEAD.findall(text):
        if found := _LABELS.search(rest):
            yield Labelled(module=module, name=name, clauses=tuple(found.group(1).split()))


def all_labelled(directory: Path = TLA) -> list[Labelled]:
    return [
        definition
        for path in sorted(directory.glob("*.tla"))
        for definition in labelled(path.stem, path.read_text(encoding="utf-8"))
    ]


def reasons(path: Path = TLA / "trace.toml") -> dict[str, dict[str, str]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def properties(models: Iterable[Model]) -> set[str]:
    return {name for model in models for name in model.properties}


def actions(models: Iterable[Model], directory: Path = TLA) -> set[tuple[str, str]]:
    """The labelled definitions that no .cfg checks: they are actions, and each must fire."""
    checked = properties(models)
    return {(one.module, one.name) for one in all_labelled(directory) if one.name not in checked}


def gaps(models: Iterable[Model]) -> Iterator[str]:
    """Every way in which lifecycle.md, the labels and trace.toml do not match."""
    stated = clauses(LIFECYCLE.read_text(encoding="utf-8"))
    said = {clause for one in all_labelled() for clause in one.clauses}
    listed = reasons()
    left_out = set(listed["not_modelled"])
    excused = {clause: reason for table in listed.values() for clause, reason in table.items()}
    names = {one.name for one in all_labelled()} | STRUCTURAL
    found = {
        "stated twice in lifecycle.md": {clause for clause in stated if stated.count(clause) > 1},
        "labels nothing and is not listed as not modelled": set(stated) - said - left_out,
        "labels a definition, but is not in lifecycle.md": said - set(stated),
        "labels a definition, but is listed as not modelled": said & left_out,
        "listed in trace.toml, but not in lifecycle.md": set(excused) - set(stated),
        "listed in trace.toml without a reason": {clause for clause, reason in excused.items() if not reason.strip()},
        "checked, but labelled by no clause": properties(models) - names,
    }
    yield from (f"{name}: {problem}" for problem, several in found.items() for name in sorted(several))
