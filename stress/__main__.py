"""`python -m stress`: run, judge, report; exit 1 on any violation. `bench` is a sub-command of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from rich.console import Console

from stress import options
from stress.progress import conclude, progress

# Sub-commands: a word, and the module whose main(argv) it runs.
COMMANDS = {"bench": "stress.bench.__main__"}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS:
        command: Callable[[Sequence[str]], int] = import_module(COMMANDS[arguments[0]]).main
        return command(arguments[1:])
    parser = options.parser()
    given = parser.parse_args(arguments)
    console = Console(stderr=False)
    if given.self_test:
        from stress.faults import FAULTS
        from stress.selftest import self_test

        if not any((given.only or "") in name for name in FAULTS):
            parser.error(f"--only {given.only}: no fault has such a name; there are: {', '.join(FAULTS)}")
        return self_test(options.options(given), given.only or "", console)
    return stress(options.options(given), options.outputs(given), console)


def stress(chosen: options.Options, outputs: options.Outputs, console: Console) -> int:
    from stress.session import session

    with progress(console) as say:
        result = session(chosen, say, outputs.keep)
    if outputs.json is not None:
        outputs.json.write_text(json.dumps(result.as_object(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if outputs.report is not None:
        from stress.report import report

        outputs.report.write_text(report(result), encoding="utf-8")
    conclude(console, result)
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
