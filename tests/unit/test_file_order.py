"""The files of tests are begun so that cores are busy all the time."""

from __future__ import annotations

from typing import NamedTuple

from file_order import in_order


class Item(NamedTuple):
    nodeid: str


def files(*names: str) -> list[str]:
    """The order in which files with two tests each are begun; each file stays whole."""
    items = [Item(f"tests/{name}.py::test_{number}") for name in names for number in range(2)]
    ordered = [item.nodeid.partition("::")[0] for item in in_order(items)]
    assert ordered[::2] == ordered[1::2]
    return [file.removeprefix("tests/").removesuffix(".py") for file in ordered[::2]]


def test_files_that_wait_take_turns_with_those_that_keep_a_core_busy() -> None:
    assert files("chaos/a", "chaos/b", "conformance/a", "conformance/b", "conformance/c") == [
        "conformance/a", "chaos/a", "conformance/b", "chaos/b", "conformance/c",
    ]  # fmt: skip


def test_the_longest_files_come_first_and_the_shortest_last() -> None:
    long = ["spark/a", "conformance/test_state_machine"]
    assert files("chaos/a", "conformance/a", *reversed(long), "unit/a") == [
        *long, "conformance/a", "chaos/a", "unit/a",
    ]  # fmt: skip
