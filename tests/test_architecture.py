"""The floors of the house: a module imports only what stands above it, and there are no cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "qframe"
MAX_LINES = 400

# From top to bottom; what stands in one row and is a folder does not import its neighbours.
FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "clock",
        "topic",
        "models",
        "codec",
        "message",
        "retry",
        "outcomes",
        "events",
        "forks",
        "redaction",
        "service",
        "identity",
        "roster",
        "tags",
        "hooks",
        "tracebacks",
        "current",
    ),
    ("tables",),  # a path that users import
    ("options", "drivers"),
    ("stores", "coordination", "idempotency", "batching"),
    ("producing", "versions"),
    ("runtime",),
    ("outbox", "admin"),
    ("telemetry",),
    ("app",),
    ("testing", "spark"),
    ("cli",),
    ("__init__", "__main__"),
)
MODULES_MAY_IMPORT_EACH_OTHER = {0}
LAZY = {"stores/open.py", "coordination/open.py"}
GROUND_MAY_USE = {"msgspec", "structlog", "typing_extensions"}  # the last for type checkers only


def floor_of(name: str) -> int:
    """The floor of a module or folder directly below qframe."""
    for number, floor in enumerate(FLOORS):
        if name in floor:
            return number
    raise AssertionError(f"{name} has no floor: give it one in test_architecture.py")


def modules(package: Path) -> dict[str, Path]:
    """All modules, by their dotted name below the package; a folder's __init__ by the folder's."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        found[".".join(parts)] = path
    return found


def imports(tree: ast.AST, known: dict[str, Path], *, top_only: bool = False) -> Iterator[str]:
    """The modules of ours that a tree imports, by their dotted names below the package."""
    nodes = tree.body if top_only and isinstance(tree, ast.Module) else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "qframe":
            base = (node.module or "").removeprefix("qframe").removeprefix(".")
            for alias in node.names:
                longer = f"{base}.{alias.name}".removeprefix(".")
                yield longer if longer in known else base or "__init__"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "qframe":
                    yield alias.name.removeprefix("qframe").removeprefix(".") or "__init__"


def faults(package: Path) -> list[str]:
    """What is wrong with the house, in sentences."""
    known = modules(package)
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in known.items()}
    graph = {name: set(imports(tree, known)) - {name} for name, tree in trees.items()}
    wrong = []
    for name, targets in graph.items():
        wrong += [fault for target in sorted(targets) if (fault := _floor_fault(name, target))]
    wrong += _cycles(graph)
    for name, path in known.items():
        place = path.relative_to(package).as_posix()
        tree = trees[name]
        if place not in LAZY:
            lazy = set(imports(tree, known)) - set(imports(tree, known, top_only=True))
            wrong += [f"{name} imports {target} lazily" for target in sorted(lazy)]
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            wrong.append(f"{name} has {lines} lines")
        if name != "clock":
            wrong += [f"{name} reads a clock: {call}" for call in _clock_calls(tree)]
        if name.split(".")[0] in FLOORS[0]:
            wrong += [f"{name} imports {each}" for each in sorted(_foreign(tree))]
        if name != "app.registry":
            wrong += [f"{name} has mutable state: {each}" for each in _mutable_state(tree)]
    return wrong


def _floor_fault(name: str, target: str) -> str | None:
    mine, theirs = name.split(".")[0], target.split(".")[0]
    if mine == theirs:
        return None
    here, there = floor_of(mine), floor_of(theirs)
    if there > here:
        return f"{name} imports {target}, which stands below it"
    if here == there and here not in MODULES_MAY_IMPORT_EACH_OTHER and here != len(FLOORS) - 1:
        return f"{name} imports {target}, its neighbour"
    return None


def _cycles(graph: dict[str, set[str]]) -> list[str]:
    """Each import cycle, once."""
    state: dict[str, int] = {}
    wrong = []

    def visit(name: str, path: list[str]) -> None:
        state[name] = 1
        for target in sorted(graph.get(name, ())):
            if state.get(target) == 1:
                wrong.append("cycle: " + " > ".join([*path[path.index(target) :], target]))
            elif target not in state and target in graph:
                visit(target, [*path, target])
        state[name] = 2

    for name in sorted(graph):
        if name not in state:
            visit(name, [name])
    return wrong


def _clock_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            call = ast.unparse(node.func)
            of_time = call.startswith("time.") and call != "time.sleep"
            if of_time or call in CLOCKS:
                yield call


def _foreign(tree: ast.AST) -> set[str]:
    """Packages from outside that a module of the ground imports and may not."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").split(".")[0])
    return names - set(sys.stdlib_module_names) - GROUND_MAY_USE - {"qframe"}


def _mutable_state(tree: ast.AST) -> Iterator[str]:
    """Names bound at the top of a module to something that is made to be changed."""
    body = tree.body if isinstance(tree, ast.Module) else []
    for node in body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        line = ast.unparse(node).splitlines()[0]
        if line.startswith("__all__") or ": Final" in line:
            continue
        makes = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in MAKERS
        if makes or isinstance(node.value, MUTABLE):
            yield line


MUTABLE = (ast.Dict, ast.Set, ast.List, ast.ListComp, ast.DictComp, ast.SetComp)
CLOCKS = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
MAKERS = {"dict", "list", "set", "deque", "defaultdict", "Counter", "threading.Lock", "Event"}


def test_the_house_stands() -> None:
    assert faults(PACKAGE) == []


@pytest.mark.parametrize(
    ("place", "text", "fault"),
    [
        ("clock.py", "from qframe.app.qframe import QFrame", "which stands below it"),
        ("stores/base.py", "from qframe.coordination import base", "its neighbour"),
        ("runtime/line.py", "from qframe.telemetry import logs", "which stands below it"),
        ("clock.py", "import redis", "clock imports redis"),
        ("topic.py", "import qframe.codec\nimport qframe.topic", "cycle"),
        ("service.py", "import time\nNOW = time.time()", "reads a clock: time.time"),
        ("admin/admin.py", "def f():\n    from qframe.topic import Topic", "imports topic lazily"),
        ("retry.py", "CACHE = {}", "has mutable state: CACHE = {}"),
        ("events.py", "pass\n" * 400, "events has 401 lines"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, place: str, text: str, fault: str) -> None:
    package = tmp_path / "qframe"
    for name in ("topic", "codec", "app/qframe", "coordination/base", "telemetry/logs", place[:-3]):
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from qframe import topic\n" if name == "codec" else "", encoding="utf-8")
    assert faults(package) == []
    (package / place).write_text(text + "\n", encoding="utf-8")
    found = faults(package)
    assert any(fault in each for each in found), found


def test_importing_qframe_loads_no_optional_part() -> None:
    code = "import sys, qframe; print(*sorted(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(answer.stdout.split())
    assert "sqlalchemy" in loaded
    assert not loaded & {"pyspark", "kazoo", "starlette", "fastapi", "flask", "typer", "rich"}
    assert "sqlalchemy.orm" not in loaded
