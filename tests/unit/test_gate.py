"""The gate leaves to `make test-all` what tests/gate.py says, and nothing is left to nobody."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from gate import (
    DRAWS_NONE,
    EDGES,
    PARTS,
    SERVERS,
    SHARE,
    TESTS,
    is_in_gate,
    is_in_part,
    may_be_in_gate,
)

FILES = [*TESTS.rglob("test_*.py")]


class Named(NamedTuple):
    nodeid: str
    is_marked: bool = False

    def get_closest_marker(self, name: str) -> object:
        return (self.is_marked and name == "gate") or None


@pytest.mark.parametrize(
    ("nodeid", "is_in"),
    [
        ("tests/unit/test_topic.py::test_a[postgres]", True),
        ("tests/conformance/test_pull.py::test_a[redis-stream]", True),
        ("tests/conformance/test_pull.py::test_a[redis-cluster-stream]", False),
        ("tests/conformance/test_pull.py::test_a[delay-postgres]", False),
        ("tests/conformance/test_state_machine.py::test_a[mariadb-delay]", True),
        ("tests/interleaving/test_interleaving.py::test_a[postgres]", False),
        ("tests/integration/gateway/test_http.py::test_a[redis]", False),
    ],
)
def test_a_day_that_draws_nothing_has_what_its_folder_and_its_store_say(
    nodeid: str, is_in: bool
) -> None:
    assert is_in_gate(Named(nodeid), DRAWS_NONE) is is_in


def test_a_mark_brings_a_test_of_an_edge_into_the_gate() -> None:
    assert is_in_gate(Named("tests/integration/gateway/test_http.py::test_a", True), DRAWS_NONE)


def test_each_day_draws_another_share_and_a_seed_the_same() -> None:
    tests = [Named(f"tests/conformance/test_pull.py::test_{n}[postgres]") for n in range(5000)]
    first, second, again = (
        [test for test in tests if is_in_gate(test, seed)] for seed in (739_584, 739_585, 739_584)
    )
    assert first == again
    assert 0.8 * SHARE < len(first) / len(tests) < 1.2 * SHARE
    assert len({*first} & {*second}) < len(first) / 2


def test_each_file_that_the_gate_may_leave_out_is_in_a_part() -> None:
    left = (*EDGES, "conformance/", "interleaving/")
    alone = [
        file.relative_to(TESTS)
        for file in FILES
        if file.relative_to(TESTS).as_posix().startswith(left)
        and not any(is_in_part(file, part) for part in PARTS)
    ]
    assert alone == []


def test_each_word_of_a_part_names_a_file() -> None:
    paths = [f"/{file.relative_to(TESTS).as_posix()}" for file in FILES]
    idle = [
        word for words in PARTS.values() for word in words if not any(word in at for at in paths)
    ]
    assert idle == []


@pytest.mark.parametrize("folder", EDGES)
def test_each_edge_has_tests_in_the_gate(folder: str) -> None:
    assert any(may_be_in_gate(file) for file in (TESTS / folder).rglob("test_*.py"))


def test_servers_are_named_as_the_parameters_of_the_stores_are() -> None:
    openers = (Path(TESTS) / "support/openers.py").read_text(encoding="utf-8")
    assert all(f'"{server}"' in openers for server in SERVERS)
