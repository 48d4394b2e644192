"""The house (CONTRIBUTING, layout): who may import whom, who may read a clock, who may import a driver."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "jobqueue"
MODULES = sorted(path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py"))

# A module may import those of the lines above its own, and no others.
LAYERS = [
    {"errors", "clock", "protocols", "filesystem", "forks", "sql/__init__"},
    {"values", "sqlite_schema", "wakeup", "alarms", "postgres_errors"},
    {"types", "backoff", "postgres_values"},
    {"postgres_pool", "postgres_schema"},
    {"transitions", "events", "postgres_listen", "postgres_transaction", "sqlite_transaction"},
    {"store", "core", "handlers", "sqlite", "postgres"},
    {"arguments", "commits", "coroutines", "threads", "waiting"},
    {"queue", "processes"},
    {"aio", "shift"},
    {"worker"},
    {"__init__"},
]
COMMAND_LINE = {name for name in MODULES if name.startswith(("cli", "demo", "enqueue_file", "__main__"))}
CLOCKS = {"time", "random", "secrets"}
DRIVERS = {"sqlite3": ("sqlite", "wakeup"), "psycopg": ("postgres",), "psycopg_pool": ("postgres",)}
EXTRAS = {"typer": ("cli", "demo", "__main__"), "rich": ("cli", "demo", "__main__")}


def imports(module: str) -> Iterator[str]:
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "jobqueue":
                yield from (f"jobqueue.{name.name}" for name in node.names)
            else:
                yield node.module


def own(module: str) -> set[str]:
    names = {
        name.removeprefix("jobqueue.").replace(".", "/") for name in imports(module) if name.startswith("jobqueue.")
    }
    return {f"{name}/__init__" if (PACKAGE / name).is_dir() else name for name in names}


@pytest.mark.parametrize("module", sorted(set().union(*LAYERS)))
def test_a_layer_imports_only_lower_layers(module: str) -> None:
    level = next(index for index, layer in enumerate(LAYERS) if module in layer)
    allowed: set[str] = set().union(*LAYERS[:level])
    assert own(module) <= allowed


def test_every_module_has_its_layer() -> None:
    assert set(MODULES) == set().union(*LAYERS) | COMMAND_LINE


@pytest.mark.parametrize("module", MODULES)
def test_only_clock_reads_time_and_draws_randomness(module: str) -> None:
    if module != "clock":
        assert not CLOCKS & set(imports(module))


@pytest.mark.parametrize("module", MODULES)
def test_only_a_backend_imports_its_driver_and_only_the_command_line_its_libraries(module: str) -> None:
    for library, homes in {**DRIVERS, **EXTRAS}.items():
        used = any(name == library or name.startswith(f"{library}.") for name in imports(module))
        assert not used or module.startswith(homes), f"{module} imports {library}"


@pytest.mark.parametrize("path", sorted((ROOT / "model").rglob("*.py")), ids=lambda path: path.stem)
def test_the_model_never_imports_the_library(path: Path) -> None:
    assert "jobqueue" not in {
        part
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        for part in name.split(".")[:1]
    }


def test_the_core_has_no_hard_dependency() -> None:
    third_party = {
        name.split(".")[0]
        for module in MODULES
        if not module.startswith(("cli", "demo", "postgres", "__main__"))
        for name in imports(module)
    }
    import sys

    assert third_party - set(sys.stdlib_module_names) <= {"jobqueue", "__future__"}
