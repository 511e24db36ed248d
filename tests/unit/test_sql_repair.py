"""Rows that are wrong, and what they are once they are put right."""

from __future__ import annotations

from typing import Any

import pytest

from qframe.errors import UnknownGroup
from qframe.stores.faults import Fault, Mendable, Part
from qframe.stores.records import Stats
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import heads, ranges, repair
from qframe.stores.sql.cursors import CursorRow
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.repair import ENDED, NOBODY
from qframe.stores.sql.schema import HeadState
from qframe.topic import Kind, Topic

NOW_MS = 1000


def cursor(
    floor: int, read: int, settled: ranges.Ranges, receipt: str | None = "r", lease: int = 9
) -> CursorRow:
    return CursorRow(0, "1", floor, read, 0, ranges.dump(settled), receipt, lease, 0, 0, 0)


@pytest.mark.parametrize(
    ("read", "settled", "floor", "kept"),
    [
        (5, [(6, 7)], 3, []), (9, [(6, 7), (4, 5)], 3, [(4, 5), (6, 7)]), (9, [(1, 4)], 4, []),
        (9, [(3, 5), (5, 7)], 7, []), (9, [(5, 7), (6, 8)], 3, [(5, 8)]),
        (9, [(5, 7), (7, 8)], 3, [(5, 8)]), (9, [(5, 8), (6, 7)], 3, [(5, 8)]),
        (9, [(5, 5)], 3, []), (7, [(5, 9)], 3, [(5, 7)]), (9, [(1, 3), (5, 6)], 3, [(5, 6)]),
        (9, [(3, 9)], 9, []),
    ],
)  # fmt: skip
def test_settled_ranges_lie_apart_between_floor_and_what_was_read(
    read: int, settled: ranges.Ranges, floor: int, kept: ranges.Ranges
) -> None:
    row = cursor(3, read, settled)
    before = row.row()
    assert repair._mend_window(row, 9) is (before != row.row())
    assert (row.floor, ranges.load(row.settled)) == (floor, kept)
    assert not repair._mend_window(row, 9)


def test_what_is_in_hand_has_a_receipt_and_a_lease_and_what_is_not_needs_none() -> None:
    for receipt, lease in ((None, 9), ("r", 0), (None, 0)):
        row = cursor(3, 5, [], receipt, lease)
        assert repair._mend_window(row, 9)
        assert (row.receipt, row.lease_until) == (NOBODY, ENDED)
    for row in (cursor(3, 5, []), cursor(5, 5, [], None, 0), cursor(3, 5, [], "r", -1)):
        assert not repair._mend_window(row, 9)


@pytest.mark.parametrize(("floor", "read"), [(6, 5), (3, 10)])
def test_a_position_that_cannot_be_is_left(floor: int, read: int) -> None:
    row = cursor(floor, read, [(20, 30)], None, 0)
    before = row.row()
    assert not repair._mend_window(row, 9)
    assert row.row() == before


class Transaction:
    """Answers with what stands behind a head, and notes what is written."""

    def __init__(self, behind: int = 0) -> None:
        self._behind = behind
        self.written: list[tuple[Any, tuple[Any, ...]]] = []

    def rows(self, _statement: Any, _parameters: Any) -> list[tuple[Any, ...]]:
        return [
            (0, "k", 10 + at, 500, at, f"m{at}", "k", None, b"", 0) for at in range(self._behind)
        ]

    def run(self, statement: Any, parameters: tuple[Any, ...]) -> int:
        self.written.append((statement, parameters))
        return 1


def mended(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, standing: int, facts: dict[str, Any]
) -> tuple[str | None, HeadRow]:
    """What was done to a head, and the head that was saved, or as it was."""
    usual = {
        "state": HeadState.WAITING, "rank": 0, "due_ms": 500, "seq": 1, "priority": 5,
        "receipt": None, "tries": 0, "lost": 0, "given": 0, "behind": int(bool(standing)),
    }  # fmt: skip
    head = HeadRow(
        0, "k", **{**usual, **facts}, error=None, id="m", key="k", headers=None, body=b"",
        published_at=0,
    )  # fmt: skip
    monkeypatch.setattr(heads, "fetched", lambda *_: head)
    saved: list[HeadRow] = []
    monkeypatch.setattr(heads, "save", lambda _, one: saved.append(one))
    transaction: Any = Transaction(standing)
    what = repair._mend_subject(transaction, kind, 0, "k", NOW_MS)
    assert (what is not None) is bool(saved)
    return what, head


@pytest.mark.parametrize(
    ("kind", "behind", "wrong", "right"),
    [
        ("ordered", 2, {"behind": 0}, {"behind": 1}), ("ordered", 0, {"behind": 1}, {"behind": 0}),
        (
            "ordered", 2, {"state": HeadState.DOING, "rank": 9, "receipt": "r", "tries": 0},
            {"tries": 1, "given": 1, "rank": 9, "receipt": "r"},
        ),
        (
            "ordered", 2,
            {"state": HeadState.DOING, "rank": 9, "receipt": "r", "tries": 4, "given": 9},
            {"tries": 4, "given": 3},
        ),
        (
            "delay", 0, {"state": HeadState.DOING, "rank": 9, "tries": 1, "given": 1},
            {"receipt": NOBODY, "rank": ENDED},
        ),
        (
            "delay", 0, {"state": HeadState.DOING, "receipt": "r", "tries": 1, "given": 1},
            {"receipt": NOBODY, "rank": ENDED},
        ),
        ("delay", 0, {"receipt": "r", "given": 1}, {"receipt": None, "given": 0, "rank": 0}),
        (
            "priority", 0, {"state": HeadState.TODO, "rank": -4},
            {"state": HeadState.TODO, "rank": -5},
        ),
        ("delay", 0, {"state": HeadState.TODO, "rank": -5}, {"state": HeadState.WAITING}),
        (
            "priority", 0, {"state": HeadState.TODO, "rank": -4, "due_ms": 5000},
            {"state": HeadState.WAITING, "rank": 0},
        ),
    ],
)  # fmt: skip
def test_a_head_is_put_right(
    monkeypatch: pytest.MonkeyPatch, kind: str, behind: int, wrong: dict[str, Any],
    right: dict[str, Any],
) -> None:  # fmt: skip
    what, head = mended(monkeypatch, Kind(kind), behind, wrong)
    assert what == "its state is put right"
    assert {name: getattr(head, name) for name in right} == right


@pytest.mark.parametrize(
    ("kind", "behind", "facts"),
    [
        ("ordered", 3, {"state": HeadState.DOING, "rank": 9, "receipt": "r", "tries": 2,
                        "given": 4}),
        ("priority", 0, {"state": HeadState.TODO, "rank": -5}),
        ("priority", 0, {"state": HeadState.TODO, "rank": -5, "due_ms": 5000}),
        ("priority", 0, {}), ("delay", 1, {}),
    ],
)  # fmt: skip
def test_a_head_that_is_right_is_left(
    monkeypatch: pytest.MonkeyPatch, kind: str, behind: int, facts: dict[str, Any]
) -> None:
    assert mended(monkeypatch, Kind(kind), behind, facts)[0] is None


def test_the_first_that_stands_behind_no_head_becomes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "fetched", lambda *_: None)
    for behind, more in ((2, 1), (1, 0)):
        transaction: Any = Transaction(behind)
        what = repair._mend_subject(transaction, Kind.ORDERED, 0, "k", NOW_MS)
        assert what is not None
        (insert, row), (delete, at) = transaction.written
        head = HeadRow(*row)
        assert (insert, delete, at) == (heads.INSERT, heads.DELETE_BEHIND, (0, "k", 10))
        assert (head.id, head.seq, head.behind, head.state) == ("m0", 10, more, HeadState.TODO)
    transaction = Transaction()
    assert repair._mend_subject(transaction, Kind.ORDERED, 0, "k", NOW_MS) is None
    assert transaction.written == []


class Ref:
    """A place of a topic in the tables."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    @staticmethod
    def cursor_number(number: int, slot: int) -> int:
        return 100 * number + slot


@pytest.mark.parametrize(
    ("kind", "counts", "missing", "counted", "less"),
    [
        ("ordered", {"published": 9, "waiting": 2, "settled": 4}, 3, (0, 0, 3, 702), None),
        ("ordered", {"published": 5, "waiting": 2, "settled": 4}, -1, (0, -1, 0, 702), None),
        ("ordered", {"published": 5, "todo": 6, "settled": 4}, -5, (1, -4, 0, 702), None),
        ("stream", {"published": 5, "dead": 6, "settled": 4}, -5, (0, -4, 0, 702), (1, 702)),
        (
            "ordered", {"published": 6, "doing": 1, "cancelled": 1, "settled": 4}, 0, None, None,
        ),
    ],
)  # fmt: skip
def test_counts_follow_the_rows_and_nothing_more_is_called_settled(
    monkeypatch: pytest.MonkeyPatch, kind: str, counts: dict[str, int], missing: int,
    counted: tuple[int, ...] | None, less: tuple[int, int] | None,
) -> None:  # fmt: skip
    fields = dict.fromkeys(Stats.__struct_fields__, 0)
    one = Stats(**{**fields, "group": "g", "slot": 2, **counts})
    monkeypatch.setattr(repair, "counted_by_rows", lambda *_: [one])
    transaction: Any = Transaction()
    ref: Any = Ref(Topic("t", kind=kind))
    assert repair._recount(transaction, ref, 7, "g", 2, NOW_MS) == missing
    expected = [(arrive.COUNT, counted)] if counted else []
    assert transaction.written == [*expected, *([(repair._BASE, less)] if less else [])]


def test_what_was_mended_rings_and_counts_follow_where_they_can_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(repair, "lock_slots", lambda *_: {2: 9})
    monkeypatch.setattr(repair, "lock_group_cursors", lambda *_: {2: cursor(3, 5, [])})
    monkeypatch.setattr(repair, "known_group", lambda *_: 7)
    monkeypatch.setattr(repair, "notify_messages", lambda *_: done.append("rings"))

    def mend(
        *parts: Part, window: bool = False, subject: str | None = None, missing: int = 0,
        is_countable: bool = True,
    ) -> list[str]:  # fmt: skip
        done.clear()
        monkeypatch.setattr(repair, "_mend_window", lambda *_: window)
        monkeypatch.setattr(repair, "_mend_subject", lambda *_: subject)
        monkeypatch.setattr(repair, "_recount", lambda *_: missing)
        transaction: Any = Transaction()
        transaction.now_ms = lambda: NOW_MS
        ref: Any = Ref(Topic("t", slots=4))
        faults = [Fault("x", "y", "g", 2, part, "k") for part in parts]
        told = repair._mend(transaction, ref, Mendable("g", 2, faults, is_countable))
        assert bool(told) is (done == ["rings"])
        assert bool(transaction.written) is (window and Part.WINDOW in parts)
        return told

    assert mend(Part.WINDOW) == mend(Part.SUBJECT) == mend(Part.COUNT, window=True) == []
    assert len(mend(Part.WINDOW, window=True)) == 1
    assert mend(Part.SUBJECT, Part.SUBJECT, subject="right") == ["t/g slot 2 subject k: right"]
    assert len(mend(Part.WINDOW, Part.SUBJECT, window=True, subject="right", missing=1)) == 3
    assert len(mend(Part.COUNT, missing=-1)) == 1
    assert mend(Part.COUNT, missing=-1, is_countable=False) == []


def test_a_group_that_was_dropped_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [Mendable(group, 0, [], True) for group in ("gone", "g")]
    monkeypatch.setattr(repair, "mendable", lambda _: wrong)

    class Role(repair.SqlRepairing):
        def __init__(self) -> None: ...

        def _read(self, *_: Any) -> Any: ...

        def _write(self, _topic: Any, _act: Any, one: Mendable) -> Any:
            if one.group == "gone":
                raise UnknownGroup("t", "gone", [])
            return ["done"]

    assert Role().repair(Topic("t")) == ["done"]
