"""The part of a query's WHERE that the store applies: slots, offsets, and a first time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_BOUNDS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


class Bounds(msgspec.Struct):
    """The part of a topic that the filters so far leave.

    Attributes:
        slots: the slots that are wanted; None for all.
        first, end: the offsets that are wanted, in every slot; `end` is the one behind the last.
        since_ms: nothing that was published before then is wanted.
        until_ms: nor what was published after then.
    """

    slots: frozenset[int] | None = None
    first: int = 0
    end: int = 2**63 - 1
    since_ms: int = 0
    until_ms: int = 2**62

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Takes the filters that it can apply; returns those that Spark must apply."""
        return [each for each in filters if not self._takes(each)]

    def wants(self, slot: int) -> bool:
        """Whether anything of a slot is wanted."""
        return self.slots is None or slot in self.slots

    def _takes(self, each: Filter) -> bool:
        """Narrows the bounds by a filter; whether they say all that it says."""
        if isinstance(each, In) and each.attribute == ("slot",):
            return self._only({slot for slot in each.value if slot is not None})
        if not isinstance(each, _BOUNDS) or each.value is None:
            return False
        if each.attribute == ("slot",):
            return self._slots_by(each)
        if each.attribute == ("offset",):
            return self._offsets_by(each)
        if each.attribute == ("published_at",):
            self._times_by(each)
        # Times are taken in whole milliseconds, and Spark looks at the rest.
        return False

    def _only(self, slots: set[int]) -> bool:
        known = frozenset(slots)
        self.slots = known if self.slots is None else self.slots & known
        return True

    def _slots_by(self, each: Any) -> bool:
        if isinstance(each, EqualTo | EqualNullSafe):
            return self._only({each.value})
        return False

    def _offsets_by(self, each: Any) -> bool:
        value = each.value
        if isinstance(each, EqualTo | EqualNullSafe | GreaterThanOrEqual):
            self.first = max(self.first, value)
        if isinstance(each, GreaterThan):
            self.first = max(self.first, value + 1)
        if isinstance(each, LessThan):
            self.end = min(self.end, value)
        if isinstance(each, EqualTo | EqualNullSafe | LessThanOrEqual):
            self.end = min(self.end, value + 1)
        return True

    def _times_by(self, each: Any) -> None:
        moment = each.value
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            return
        ms = int(moment.timestamp() * 1000)
        if not isinstance(each, LessThan | LessThanOrEqual):
            self.since_ms = max(self.since_ms, ms)
        if not isinstance(each, GreaterThan | GreaterThanOrEqual):
            self.until_ms = min(self.until_ms, ms + 1)
