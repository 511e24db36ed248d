"""What every module keeps to: its size, its clock, its state. `test_imports.py` has the imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import ROOT, python

import qframe

PACKAGE = ROOT / "qframe"
MAX_LINES = 600

# The doors: they alone import lazily, since each has a library behind it (SQLAlchemy, the client of
# Redis or ZooKeeper) whose import takes longer than all of `import qframe`, or a folder that a
# program which publishes never uses.
LAZY = {
    "app/open.py",
    "stores/open.py",
    "coordination/open.py",
    "outbox/open.py",
    "cli/outbox.py",
    "cli/migrate.py",
    "cli/doctor.py",
    "cli/console.py",
    "cli/gateway.py",
    "cli/push.py",
}
NOT_GROUND = {"__init__", "__main__", "tables"}  # `tables` is for users' SQLAlchemy
GROUND_MAY_USE = {"msgspec", "structlog", "typing_extensions"}  # the last for type checkers only


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
    nodes = _top_of(tree) if top_only else ast.walk(tree)
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


def _top_of(tree: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a module that stand in no function, and those for type checkers."""
    for node in getattr(tree, "body", []):
        yield node
        is_for_checkers = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if is_for_checkers or isinstance(node, ast.With):
            yield from node.body


def faults(package: Path) -> list[str]:
    """What is wrong with the house, in sentences."""
    known = modules(package)
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in known.items()}
    wrong = []
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
        if path.parent == package and name not in NOT_GROUND:
            wrong += [f"{name} imports {each}" for each in sorted(_foreign(tree))]
        if name != "app.registry":
            wrong += [f"{name} has mutable state: {each}" for each in _mutable_state(tree)]
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
        ("clock.py", "import redis", "clock imports redis"),
        ("service.py", "import time\nNOW = time.time()", "reads a clock: time.time"),
        ("admin/admin.py", "def f():\n    from qframe.topic import Topic", "imports topic lazily"),
        (
            "hooks.py",
            "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import qframe.topic",
            "imports topic lazily",
        ),
        ("retry.py", "CACHE = {}", "has mutable state: CACHE = {}"),
        ("events.py", "pass\n" * 600, "events has 601 lines"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, place: str, text: str, fault: str) -> None:
    package = tmp_path / "qframe"
    for name in ("topic", place[:-3]):
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    assert faults(package) == []
    (package / place).write_text(text + "\n", encoding="utf-8")
    found = faults(package)
    assert any(fault in each for each in found), found


DRIVERS = {"sqlalchemy", "redis", "hiredis", "kazoo", "psycopg", "pymysql"}
EDGES = {"click", "fastapi", "flask", "pyarrow", "pydantic", "pyspark", "rich", "structlog"}
OPENED = """
from contextlib import suppress
from qframe import QFrame, StoreUnavailable, Topic
with suppress(StoreUnavailable), QFrame(store={!r}) as app:
    app.publish(Topic("orders"), 1)
    app.coordinator
"""


READING = {"click", "rich"}
COMMAND = """
import sys
from contextlib import suppress
from qframe_ping import main
sys.argv, sys.stdout = ["qframe", *{!r}], sys.stderr
with suppress(SystemExit):
    main()
sys.stdout = sys.__stdout__
"""


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("import qframe", set()),
        ("from qframe import testing", set()),
        ("import qframe; qframe.Outbox; qframe.apply_next", {"sqlalchemy"}),
        ("import qframe; qframe.versions; qframe.tables", {"sqlalchemy"}),
        ("import qframe; qframe.DatabaseChecker; qframe.TransactionalChecker", {"sqlalchemy"}),
        ("import qframe; qframe.RedisChecker", {"redis", "hiredis"}),
        ("import qframe.runtime.process.child", set()),
        ("import qframe.cli.main", {"click", "rich"}),
        (OPENED.format("model://"), set()),
        (OPENED.format("redis://127.0.0.1:1"), {"redis", "hiredis"}),
        (OPENED.format("sqlite:///lean.db"), {"sqlalchemy"}),
        (COMMAND.format(["--help"]), {"click", "rich"}),
        *[
            (COMMAND.format([*words, "--store", url]), READING | drivers)
            for url, drivers in (
                ("redis://127.0.0.1:1", {"hiredis", "redis"}),
                ("sqlite:///lean.db", {"sqlalchemy"}),
            )
            for words in (
                ["topics", "list"],
                ["groups", "list", "t"],
                ["messages", "peek", "t", "g"],
                ["explain", "t"],
            )
        ],
    ],
)
def test_a_process_loads_the_libraries_that_it_uses_and_no_other(
    code: str, needed: set[str], tmp_path: Path
) -> None:
    said = python("-c", f"{code}\nimport sys; print(*sorted(sys.modules))", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    loaded = set(said.stdout.split())
    assert loaded & (DRIVERS | EDGES) == needed
    assert "sqlalchemy.orm" not in loaded


def test_a_command_looks_for_no_garbage_among_what_it_has_loaded(tmp_path: Path) -> None:
    told = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    said = python("-c", COMMAND.format(["--version"]) + told, cwd=tmp_path)
    assert said.stdout.split() == ["True", "True"]


FIRST_PARTS = """
app batching clock codec coordination current digits drivers durations errors events forks growth
hooks idempotency identity locks message models open_files options outbox outcomes producing
redaction retry roster runtime schedules service stores tags telemetry topic tracebacks words
"""
FIRST_LIBRARIES = {"cronsim", "msgspec", "typing_extensions"}
LATER = """
qframe.app.assembly qframe.app.instrumentor qframe.drivers.dialects
qframe.idempotency.effects_table qframe.idempotency.redis qframe.outbox.outbox
qframe.outbox.relay qframe.runtime.process.child qframe.runtime.process.supervisor
qframe.runtime.process.worker qframe.schedules.verbs
qframe.stores.model qframe.stores.redis qframe.stores.sql qframe.telemetry.meters
qframe.telemetry.prometheus qframe.telemetry.tracing
"""
SLOW = {"asyncio", "email", "http", "importlib.metadata", "multiprocessing", "sqlite3", "xml"}


def test_import_loads_these_modules_and_no_other() -> None:
    said = python("-c", "import qframe, sys; print(*sys.modules)")
    loaded = set(said.stdout.split())
    assert "qframe.topic" in loaded
    assert {name.split(".")[1] for name in loaded if name.startswith("qframe.")} <= set(
        FIRST_PARTS.split()
    )
    assert not loaded & set(LATER.split())
    assert not loaded & SLOW
    libraries = {
        name
        for name in {each.split(".")[0] for each in loaded}
        if name not in {*sys.stdlib_module_names, "qframe"} and not name.startswith("_")
    }
    assert libraries <= FIRST_LIBRARIES


DATABASE = re.compile(r"maria_?db|my_?sql|postgres|sqlite", re.IGNORECASE)
DATABASES_NAME = re.compile(r"sqlite3?|postgres(ql)?|mysql|mariadb", re.IGNORECASE)


def database_names(tree: ast.AST) -> Iterator[str]:
    """The names and constants of code that name a database; texts for people may."""
    for node in ast.walk(tree):
        names: list[str | None] = []
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name):
                names = [name]
            case ast.ClassDef(name=name) | ast.keyword(arg=name) | ast.arg(arg=name):
                names = [name]
            case ast.ImportFrom(module=module, names=aliases):
                names = [module, *(alias.name for alias in aliases)]
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.Constant(value=str(text)) if DATABASES_NAME.fullmatch(text):
                names = [text]
        yield from (name for name in names if name and DATABASE.search(name))


def test_a_database_is_named_by_its_driver_and_nowhere_else() -> None:
    named = {
        path.relative_to(PACKAGE).as_posix(): found
        for path in PACKAGE.rglob("*.py")
        if (found := set(database_names(ast.parse(path.read_text(encoding="utf-8")))))
    }
    drivers = {place for place in named if place.startswith("drivers/")}
    assert {"drivers/schemes.py", "drivers/sql_sqlite.py"} <= drivers
    assert {place: named[place] for place in named.keys() - drivers} == {}


def test_what_is_loaded_by_use_is_what_it_is_called() -> None:
    assert {"DatabaseChecker", "tables", "versions", *qframe.__all__} <= set(dir(qframe))
    assert qframe.tables.tables().effects.name == "qframe_effects"
    with pytest.raises(AttributeError, match="module 'qframe' has no attribute 'Inbox'"):
        _ = qframe.Inbox  # type: ignore[attr-defined]
