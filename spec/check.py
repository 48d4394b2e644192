"""Run models and judge them against the manifest. No printing here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
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
    options = ("-coverage", "60") if model.coverage else ()
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
    return replace(run, violated=name)


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
    if actual != model.pinned and not (model.deep and not model.pinned):
        yield f"pinned {model.pinned}, got {actual}"


def never_fired(verdicts: Iterable[Verdict], actions: set[tuple[str, str]]) -> list[str]:
    """Of the labelled actions, (module, name), those that no run has taken, as `module!name`."""
    taken = {action for verdict in verdicts if verdict.run for action, count in verdict.run.fired.items() if count}
    return sorted(f"{module}!{name}" for module, name in actions - taken)


def check_all(
    models: Iterable[Model], say: Say, finished: Callable[[Verdict], None] = lambda verdict: None
) -> list[Verdict]:
    """Every model, two at a time, the costly ones first; `finished` is told each. In the order of the manifest."""
    models = list(models)
    order = sorted(models, key=lambda model: -model.pinned.get("states", 0))
    done: dict[str, Verdict] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(checked, model, say) for model in order]
        for future in as_completed(futures):
            verdict = future.result()
            done[verdict.model.name] = verdict
            finished(verdict)
            seconds = f"{verdict.run.seconds:.0f} s ({verdict.run.cpu_seconds:.0f} s of CPU)" if verdict.run else "-"
            say(f"[{len(done)}/{len(models)}] {verdict.model.name}: {verdict.says}, {seconds}"
                + ("" if verdict.ok else "  DIFFERS"))  # fmt: skip
    return [done[model.name] for model in models]
