"""One-line faults seeded in the TLA+ (spec/tla/mutants.toml); a named property must catch each."""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from spec import manifest
from spec.check import AT_ONCE, checked
from spec.manifest import TLA, Model

MUTANTS = TLA / "mutants.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`old` is replaced by `new`, once, in one definition of one module; `caught_by` must fail in `model`."""

    name: str
    module: str
    definition: str
    old: str
    new: str
    model: str
    caught_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    mutant: Mutant
    caught_by: str | None
    depth: int
    seconds: float

    @property
    def ok(self) -> bool:
        return self.caught_by == self.mutant.caught_by

    def as_object(self) -> dict[str, object]:
        return {"name": self.mutant.name, "module": self.mutant.module, "definition": self.mutant.definition,
                "model": self.mutant.model, "caught_by": self.caught_by, "expected": self.mutant.caught_by,
                "depth": self.depth, "seconds": round(self.seconds, 1), "ok": self.ok}  # fmt: skip


def load(path: Path = MUTANTS) -> list[Mutant]:
    return [Mutant(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]]


def seeded(text: str, mutant: Mutant) -> str:
    """The module's text with the fault in it. The place must be there exactly once: else the mutant is stale."""
    block = re.search(rf"(?ms)^{re.escape(mutant.definition)}(?:\([^)]*\))?\s*==.*?(?=^\S|\Z)", text)
    if block is None or block.group().count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.old!r} is not exactly once in {mutant.module}!{mutant.definition}")
    return text[: block.start()] + block.group().replace(mutant.old, mutant.new) + text[block.end() :]


def run(mutant: Mutant, model: Model) -> Result:
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        directory = Path(scratch) / "tla"
        shutil.copytree(TLA, directory)
        module = directory / f"{mutant.module}.tla"
        module.write_text(seeded(module.read_text(encoding="utf-8"), mutant), encoding="utf-8")
        verdict = checked(replace(model, coverage=False), directory=directory)
    if verdict.run is None:
        return Result(mutant=mutant, caught_by=f"broke: {verdict.differences[0]}", depth=0, seconds=0.0)
    found = verdict.run
    return Result(mutant=mutant, caught_by=found.violated, depth=found.trace_length, seconds=found.seconds)


def run_all(mutants: Sequence[Mutant], say: Callable[[str], None]) -> list[Result]:
    models = {model.name: model for model in manifest.load()}

    def one(mutant: Mutant) -> Result:
        result = run(mutant, models[mutant.model])
        say(f"{mutant.name}: {result.caught_by or 'SURVIVED'}" + ("" if result.ok else "  DIFFERS"))
        return result

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, mutants))
