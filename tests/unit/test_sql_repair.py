"""Rows that are wrong, and what they are once they are put right."""

from __future__ import annotations

import pytest

from qframe.stores.sql import ranges, repair
from qframe.stores.sql.cursors import CursorRow
from qframe.stores.sql.repair import ENDED, NOBODY

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
