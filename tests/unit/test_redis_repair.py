"""Counts of Redis that a repair puts right: by how much."""

from __future__ import annotations

import pytest

from qframe.stores.redis import repair
from qframe.topic import Kind


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
