"""The tests that hold each promise of docs/guarantees.md, found by the marker `promise`.

    @pytest.mark.promise(1, 3)                  a test holds promises 1 and 3
    @pytest.mark.promise(1, on="sqlite")        on a store that no fixture or parameter names

python tests/promises.py        writes the list into the page
python tests/promises.py 4      prints the tests of promise 4
python tests/promises.py --check        fails if the list is another, or a promise lacks a test
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "guarantees.md"
START: Final = "<!-- list written by tests/promises.py -->\n"
END: Final = "<!-- end of the list -->"
STORES: Final = ("memory", "SQLite", "PostgreSQL", "MariaDB", "Redis", "Redis Cluster")
COORDINATORS: Final = {4: ("ZooKeeper",)}  # the promise that they take part in
_PROMISE: Final = re.compile(r"^(\d+)\. \*\*(.+?)\.?\*\*", re.MULTILINE)
# The names that parameters and fixtures have for a store or a coordinator.
_NAMED: Final = {
    "model": "memory",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "redis": "Redis",
    "redis_server": "Redis",
    "redis-cluster": "Redis Cluster",
    "redis_cluster": "Redis Cluster",
    "zookeeper": "ZooKeeper",
}
HELD: Final = pytest.StashKey[list["Held"]]()


class Held(NamedTuple):
    """A test that holds a promise, and the stores and coordinators on which it does."""

    promise: int
    file: Path
    test: str
    systems: frozenset[str]


def held(items: Iterable[pytest.Item]) -> list[Held]:
    """The promises that the tests hold.

    Raises:
        pytest.UsageError: if a marker names a promise or a store that does not exist.
    """
    return [each for item in items for each in _held(item)]


def _held(item: pytest.Item) -> Iterator[Held]:
    numbers: set[int] = set()
    systems: set[str] = set()
    for mark in item.iter_markers("promise"):
        numbers |= set(mark.args)
        systems |= {mark.kwargs["on"]} if "on" in mark.kwargs else set()
        if not mark.args or mark.kwargs.keys() - {"on"}:
            raise pytest.UsageError(f"{item.nodeid}: promise takes numbers, and on= a store")
    if not numbers:
        return
    if wrong := (numbers - promises().keys()) | (systems - _NAMED.keys()):
        raise pytest.UsageError(
            f"{item.nodeid}: docs/guarantees.md has no promise or store {wrong}"
        )
    found = frozenset(_NAMED[each] for each in systems | _names(item) & _NAMED.keys())
    for number in sorted(numbers):
        yield Held(number, item.path, item.nodeid, found)


def _names(item: pytest.Item) -> set[str]:
    """The fixtures of a test, and its parameters where they are names."""
    parameters = getattr(item, "callspec", None)
    values = parameters.params.values() if parameters else ()
    return {*getattr(item, "fixturenames", ()), *(each for each in values if type(each) is str)}


@cache
def promises() -> dict[int, str]:
    """The numbers and titles of the promises on the page."""
    promised = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    return {int(number): title for number, title in _PROMISE.findall(promised)}


def missing(holders: Iterable[Held]) -> list[str]:
    """The promises that no test holds on a store or coordinator that the page names for it."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    for each in holders:
        found[each.promise] |= each.systems
    return [
        f"no test holds promise {number} ({title}) on {system}"
        for number, title in promises().items()
        for system in (*STORES, *COORDINATORS.get(number, ()))
        if system not in found[number]
    ]


def listed(holders: Iterable[Held]) -> str:
    """The list of the page: the files of each promise, folder by folder."""
    folders: defaultdict[int, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for each in holders:
        tests, folder, *rest = each.file.relative_to(ROOT).parts
        folders[each.promise][f"{tests}/{folder}"].add("/".join(rest))
    lines = []
    for number, title in promises().items():
        lines.append(f"- **{number}. {title}**")
        for folder, names in sorted(folders[number].items()):
            lines.append(f"  - `{folder}`: " + ", ".join(f"`{name}`" for name in sorted(names)))
    return "\n".join(lines) + "\n"


def unlisted(page: str, holders: Iterable[Held]) -> list[str]:
    """The tests that hold a promise under which the page does not list their file."""
    shown = dict(enumerate(page.partition(START)[2].split("\n- **"), start=1))
    return [
        each.test
        for each in holders
        if f"`{'/'.join(each.file.relative_to(ROOT).parts[2:])}`" not in shown[each.promise]
    ]


def written(page: str, holders: Iterable[Held]) -> str:
    """The page with the list of these tests."""
    before, _, rest = page.partition(START)
    return before + START + listed(holders) + END + rest.partition(END)[2]


class _Collected:
    """Keeps the promises that the tests of a run hold."""

    def __init__(self) -> None:
        self.held: list[Held] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.held = held(items)


def collected() -> list[Held]:
    """The promises that all tests hold, by a collection in this process."""
    found = _Collected()
    with redirect_stdout(StringIO()) as said:
        code = pytest.main(["--collect-only", "-q", str(ROOT / "tests")], plugins=[found])
    if code:
        raise SystemExit(said.getvalue())
    return found.held


def main(numbers: list[str]) -> None:
    """Writes the list, checks it, or prints the tests of these promises."""
    holders = collected()
    page = PAGE.read_text(encoding="utf-8")
    if not numbers:
        PAGE.write_text(written(page, holders), encoding="utf-8")
    faults = missing(holders)
    if numbers == ["--check"] and page != written(page, holders):
        faults.append("docs/guarantees.md lists other tests: run `python tests/promises.py`")
    for each in holders:
        if str(each.promise) in numbers:
            sys.stdout.write(f"{each.test}\n")
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main(sys.argv[1:])
