"""`python -m spec`: check every model, print one table, exit 1 on any difference from spec/tla/manifest.toml."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from spec import manifest, mutants, trace
from spec.check import Verdict, check_all, never_fired, pins
from spec.table import print_mutants, print_verdicts


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spec", description=__doc__)
    parser.add_argument("--deep", action="store_true", help="the larger scopes too (about an hour)")
    parser.add_argument("--mutants", action="store_true", help="seed one-line faults; each must be caught")
    parser.add_argument("--only", metavar="NAME", help="only the models or mutants whose name contains NAME")
    parser.add_argument("--update", action="store_true", help="rewrite the pinned counts with what was found")
    parser.add_argument("--json", action="store_true", help="print a list of objects instead of the table")
    return parser.parse_args(argv)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    return seed_faults(options) if options.mutants else check_models(options)


def check_models(options: argparse.Namespace) -> int:
    models = [
        model for model in manifest.load() if (options.deep or not model.deep) and (options.only or "") in model.name
    ]
    started = time.monotonic()
    verdicts = check_all(models, say, pin if options.update else lambda verdict: None)
    idle = [] if options.only else never_fired(verdicts, trace.actions(models))
    if options.json:
        print(json.dumps([as_object(verdict, idle) for verdict in verdicts], indent=1))
    else:
        print_verdicts(verdicts, idle, time.monotonic() - started)
    return 0 if verdicts and all(verdict.ok for verdict in verdicts) and not idle else 1


def as_object(verdict: Verdict, idle: Sequence[str]) -> dict[str, object]:
    model, run = verdict.model, verdict.run
    never = [action for action in idle if action.startswith(f"{model.module}!")]
    return {
        "name": model.name,
        "module": model.module,
        "scope": model.scope,
        "states": run.states if run else None,
        "distinct": run.distinct if run else None,
        "depth": run.depth if run else None,
        "properties": list(model.properties),
        "seconds": round(run.seconds, 1) if run else None,
        "verdict": verdict.says,
        "expected": verdict.expected,
        "never_fired": never,
        "differences": list(verdict.differences),
        "ok": verdict.ok and not never,
    }


def pin(verdict: Verdict) -> None:
    """Pin what was found where the verdict is the expected one; a wrong verdict is never pinned."""
    run, model = verdict.run, verdict.model
    if run and run.violated == model.fails and (found := pins(model, run)) != model.pinned:
        say(f"{model.name}: {model.pinned} -> {found}")
        text = manifest.MANIFEST.read_text(encoding="utf-8")
        manifest.MANIFEST.write_text(manifest.with_pins(text, model.name, found), encoding="utf-8")


def seed_faults(options: argparse.Namespace) -> int:
    faults = [mutant for mutant in mutants.load() if (options.only or "") in mutant.name]
    results = mutants.run_all(faults, say)
    if options.json:
        print(json.dumps([result.as_object() for result in results], indent=1))
    else:
        print_mutants(results)
    return 0 if results and all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
