"""The option `batch=` of a consumer."""

from __future__ import annotations

from typing import Any, Final

from qframe.durations import with_unit
from qframe.errors import BadOption
from qframe.topic import checked_count, duration_ms

LARGEST: Final = 10_000
LONGEST_S: Final = 3600


class Batch:
    """Has a consumer's handler called with many messages at once, as a `list[Message]`.

    A batch is handed out when it has `size` messages, or its first one has waited for `within`, or
    nothing more can come to it. Messages of one key stand in it in their order.

    If the handler raises, what it has not acknowledged itself is tried again at once, in halves, so
    that only a message that fails alone is retried or given up.

    Args:
        size: how many messages a batch has at most, from 1 to 10,000.
        within: how long its first message waits for others, up to an hour: a text such as "50ms",
            or by keyword a number of seconds.

    Raises:
        BadOption: if one of these is not as described.
    """

    __slots__ = ("size", "within_s")

    @with_unit("within")
    def __init__(self, size: int, within: float | str) -> None:
        self.size: int = checked_count("batch size", size, "use 500", LARGEST)
        within_s = duration_ms(within, "batch within") / 1000
        if within_s > LONGEST_S:
            raise BadOption(
                "batch within", within, f"it must be {LONGEST_S} seconds or less", 'use "50ms"'
            )
        self.within_s: float = within_s

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Batch) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def __repr__(self) -> str:
        return f"Batch({self.size}, '{self.within_s:g}s')"

    def _facts(self) -> tuple[int, float]:
        return self.size, self.within_s
