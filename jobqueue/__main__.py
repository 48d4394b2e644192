"""The command ``jobqueue``. Without the libraries of the extra ``cli`` it says in one line what to install."""

from __future__ import annotations

import sys

LIBRARIES = ("rich", "typer")


def main() -> int:
    """Run the command line; the exit code."""
    try:
        from jobqueue.cli import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in LIBRARIES:
            raise
        # Not 'jobqueue[cli]': where this copy runs without being installed, that name could fetch another package.
        print("jobqueue: the command line needs two libraries; install them: pip install typer rich", file=sys.stderr)
        return 2
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
