"""Run models and judge them against the manifest. No printing here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from spec import tlc
from spec.manifest import TLA, Model

AT_ONCE = 2  # TLC processes in parallel

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one model gave, and every difference from what the manifest says."""

    model: Model
    run: tlc.Run | None
    differences: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.differences

    @property
    def says(self) -> str:
        if self.run is None:
            return "broke"
        return f"violates {self.run.violated}" if self.run.violated else "holds"

    @property
    def expected(self) -> str:
        return f"violates {self.model.fails}" if self.model.fails else "holds"


def checked(model: Model, say: Say = lambda line: None, directory: Path = TLA) -> Verdict:
    options = ("-coverage", "60") if model.coverage and model.fails is None else ()
    heap = "8g" if model.deep else "2g"
    try:
        run = tlc.run(directory, model.module, model.cfg, options=options, heap=heap,
                      progress=lambda line: say(f"{model.name}: {line}"))  # fmt: skip
    except tlc.TlcBroke as error:
        return Verdict(model=model, run=None, differences=(f"TLC gave no verdict: {error}",))
    run = named(run, model)
    return Verdict(model=model, run=run, differences=tuple(differences(model, run)))


def named(run: tlc.Run, model: Model) -> tlc.Run:
    """TLC does not name a violated liveness property: a model that must fail by liveness has just one."""
    if run.violated != "Temporal properties":
        return run
    name = model.properties[-1] if len(model.properties) == 1 else "a liveness property"
    return tlc.Run(states=run.states, distinct=run.distinct, depth=run.depth, seconds=run.seconds, violated=name,
                   trace_length=run.trace_length, fired=run.fired, trace=run.trace)  # fmt: skip


def pins(model: Model, run: tlc.Run) -> dict[str, int]:
    """The counts of this run that the manifest pins. How TLC finds a liveness counterexample is its own affair."""
    if run.violated is None:
        return {"states": run.states, "distinct": run.distinct, "depth": run.depth}
    return {} if model.liveness else {"depth": run.trace_length}


def differences(model: Model, run: tlc.Run) -> Iterator[str]:
    if run.violated != model.fails:
        yield f"expected: {model.fails or 'no violation'}; got: {run.violated or 'no violation'}\n{run.trace[:3000]}"
        return
    actual = pins(model, run)
    if actual != model.pinned:
        yield f"pinned {model.pinned}, got {actual}"


def actions_of(module: str, directory: Path = TLA) -> set[str]:
    """The actions of a module: the definitions that a clause labels and that set a primed variable."""
    text = (directory / f"{module}.tla").read_text(encoding="utf-8")
    return {name for name, _, body in definitions(text) if "'" in body or "UNCHANGED" in body}


def definitions(text: str) -> Iterator[tuple[str, str, str]]:
    """Each labelled definition `Name(args) == \\* T-1 W-2`: its name, its labels, its body."""
    heads = list(re.finditer(r"(?m)^(\w+)(?:\([^)]*\))?\s*==(.*)$", text))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        label = re.search(r"\\\*((?: [TGNW]-\d+)+)\s*$", head.group(2))
        if label:
            yield head.group(1), label.group(1).strip(), text[head.end() : after.start() if after else len(text)]


def never_fired(verdicts: Iterable[Verdict]) -> dict[str, list[str]]:
    """Per module, the actions that fired in none of its models that must pass. Every action must fire somewhere."""
    seen: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        if verdict.run and verdict.model.fails is None and verdict.model.coverage:
            counts = seen.setdefault(verdict.model.module, {})
            for name, taken in verdict.run.fired.items():
                counts[name] = counts.get(name, 0) + taken
    return {module: idle for module, counts in seen.items() if (idle := sorted(n for n, c in counts.items() if not c))}


def check_all(models: Iterable[Model], say: Say) -> list[Verdict]:
    """Every model, two at a time, the costly ones first; in the order of the manifest."""
    models = list(models)
    order = sorted(models, key=lambda model: -model.pinned.get("states", 0))
    done: dict[str, Verdict] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(checked, model, say) for model in order]
        for future in as_completed(futures):
            verdict = future.result()
            done[verdict.model.name] = verdict
            seconds = f"{verdict.run.seconds:.0f} s" if verdict.run else "-"
            say(f"[{len(done)}/{len(models)}] {verdict.model.name}: {verdict.says}, {seconds}"
                + ("" if verdict.ok else "  DIFFERS"))  # fmt: skip
    return [done[model.name] for model in models]
