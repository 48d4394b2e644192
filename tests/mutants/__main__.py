"""`python -m tests.mutants`: every seeded fault × its catchers; exit 1 if one survives."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.mutants.faults import ROOT, load, seeded
from tests.mutants.matrix import matrix


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--all", action="store_true", help="the whole suite on each fault, not only the catchers named")
    parser.add_argument("--only", metavar="TEXT", default="", help="faults whose name, file or clause contains TEXT")
    options = parser.parse_args()
    faults = [fault for fault in load() if options.only in f"{fault.name} {fault.file} {fault.clause}"]
    for fault in faults:
        seeded((ROOT / fault.file).read_text(encoding="utf-8"), fault)
    started = time.monotonic()
    kills = matrix(faults, lambda line: print(line, flush=True), options.all)
    survivors = [found for found in kills if not found.caught]
    for found in survivors:
        print(f"\n{found.shown}\n{found.why}")
    killed = len(faults) - len({found.fault.name for found in survivors})
    layers = Counter(fault.layer for fault in faults)
    print(
        f"{killed} of {len(faults)} faults killed ({', '.join(f'{n} {layer}' for layer, n in sorted(layers.items()))}),"
        f" {len(survivors)} survivals, {len(kills)} runs, {time.monotonic() - started:.0f} s"
    )
    return 1 if survivors or not faults else 0


if __name__ == "__main__":
    sys.exit(main())
