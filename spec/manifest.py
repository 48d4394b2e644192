"""The models that are checked, and what each must give (spec/tla/manifest.toml)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

TLA = Path(__file__).parent / "tla"
MANIFEST = TLA / "manifest.toml"
PINNED = ("states", "distinct", "depth")

_SECTION = re.compile(r"^(SPECIFICATION|VIEW|CONSTANTS?|INVARIANTS?|PROPERTY|PROPERTIES|CONSTRAINTS?)\b", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One module under one configuration, with the expected verdict.

    `fails` names the property that must be violated; None for a model that must pass. `pinned` holds the exact
    counts: of all states where the model passes, of the counterexample (`depth`) where it must fail by safety. A deep
    model may have none yet.
    """

    name: str
    module: str
    scope: str
    deep: bool
    fails: str | None
    liveness: bool
    coverage: bool
    pinned: dict[str, int]
    properties: tuple[str, ...]

    @property
    def cfg(self) -> str:
        return f"{self.name}.cfg"


def properties_of(cfg: str) -> tuple[str, ...]:
    """The invariants and properties that a .cfg has TLC check, in its order."""
    pieces = _SECTION.split(re.sub(r"\\\*.*", "", cfg))
    found: list[str] = []
    for keyword, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if keyword.startswith(("INVARIANT", "PROPERT")):
            found += body.split()
    return tuple(found)


def load(path: Path = MANIFEST) -> list[Model]:
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["model"]
    return [_model(entry, path.parent) for entry in entries]


def _model(entry: dict[str, object], directory: Path) -> Model:
    name, fails = str(entry["name"]), entry.get("fails")
    return Model(
        name=name,
        module=str(entry["module"]),
        scope=str(entry["scope"]),
        deep=bool(entry.get("deep", False)),
        fails=str(fails) if fails else None,
        liveness=bool(entry.get("liveness", False)),
        coverage=bool(entry.get("coverage", True)),
        pinned={key: value for key in PINNED if isinstance(value := entry.get(key), int)},
        properties=properties_of((directory / f"{name}.cfg").read_text(encoding="utf-8")),
    )


def with_pins(text: str, name: str, pins: dict[str, int]) -> str:
    """The manifest's text with the pinned counts of one model replaced; all else stays as it is written."""
    blocks = re.split(r"(?m)^(?=\[\[model\]\])", text)
    for index, block in enumerate(blocks):
        if re.search(rf'(?m)^name = "{re.escape(name)}"$', block):
            kept = re.sub(rf"(?m)^(?:{'|'.join(PINNED)}) = \d+\n", "", block).rstrip("\n")
            blocks[index] = kept + "\n" + "".join(f"{key} = {value}\n" for key, value in pins.items()) + "\n"
    return "".join(blocks).rstrip("\n") + "\n"
