"""Results of stores as builtins, so that they can be compared."""

from __future__ import annotations

from typing import Any

import msgspec

from qframe.message import Delivery


def plain(result: Any) -> Any:
    """A result as builtins; the topic's name is each run's own, and so is the order of a moment.

    When a delivery was due is told by records, too; not every store knows it of a stream's line.
    """
    if isinstance(result, msgspec.Struct):
        left_out = ("topic", "due_ms") if isinstance(result, Delivery) else ("topic", "by_subject")
        fields = [name for name in result.__struct_fields__ if name not in left_out]
        return {name: plain(getattr(result, name)) for name in fields}
    if isinstance(result, (list, tuple)):
        return [plain(each) for each in result]
    if isinstance(result, dict):
        return {key: plain(each) for key, each in result.items()}
    return result
