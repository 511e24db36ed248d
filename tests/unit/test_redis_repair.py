"""Counts of Redis that a repair puts right: by how much, and only once they stand still."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qframe.stores.faults import Mendable
from qframe.stores.redis import repair
from qframe.topic import Kind, Topic


@pytest.mark.parametrize(
    ("kind", "missing", "changes"),
    [
        ("ordered", 3, {"cancelled": 3}), ("ordered", -1, {"acked": -1}),
        ("ordered", -5, {"acked": -4, "published": 1}), ("stream", -5, {"acked": -4, "base": -1}),
        ("stream", 0, {}),
    ],
)  # fmt: skip
def test_what_is_missing_is_cancelled_and_what_is_too_much_was_not_settled(
    kind: str, missing: int, changes: dict[str, int]
) -> None:
    found: dict[str, int] = {}
    repair._share_out(found, missing, 4, Kind(kind))
    assert {name: by for name, by in found.items() if by} == changes


class Bench:
    """A slot whose counts are read one after the other."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, kind: str, *counts: int, there: int = 0,
        differ: dict[str, int] | None = None, backlog: bool = True,
    ) -> None:  # fmt: skip
        self.mended: list[tuple[Any, ...]] = []
        self.redis: Any = SimpleNamespace(ask=lambda *_: None)
        self.keys: Any = SimpleNamespace(topic=Topic("t", kind=kind), key=lambda *_: b"key")
        read = iter([*counts] + [counts[-1]] * 99)
        monkeypatch.setattr(repair, "counts_of", lambda *_: Counts(next(read), backlog))
        monkeypatch.setattr(repair, "_there", lambda *_: (there, dict(differ or {})))
        monkeypatch.setattr(repair, "stats_of", lambda *_: [SimpleNamespace(settled=4)])
        monkeypatch.setattr(repair, "missing_of", lambda _: 7)
        monkeypatch.setattr(repair, "mend", self._mend)

    def _mend(self, *words: Any) -> str:
        self.mended.append(words[4:7])
        return "counted"

    def recount(self) -> list[str]:
        return repair._recount(self.redis, self.keys, Mendable("g", 0, [], True), "")


class Counts(SimpleNamespace):
    """Counts of which so many are not settled."""

    acked = 4

    def __init__(self, unsettled: int, has_backlog: bool) -> None:
        super().__init__(of=unsettled, has_backlog=has_backlog)

    def unsettled(self) -> int:
        return int(self.of)


def test_counts_that_do_not_stand_still_are_named_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, "ordered", *range(2 * repair.LOOKS + 1))
    assert "do not stand still" in bench.recount()[0]
    assert bench.mended == []
    bench = Bench(monkeypatch, "ordered", 1, 2, 3, 3, there=2, differ={"parked": -1})
    assert bench.recount() != []
    assert bench.mended == [("count", b"0", "parked -1 cancelled 1")]
