"""Causes of deaths: the class of the error, and the place in the code where it was raised."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

import msgspec

from qframe.stores.records import Record
from qframe.tracebacks import place_in

HOUR_MS: Final = 3_600_000
_CLASS: Final = re.compile(r"[\w.]{1,100}(?=:|$)")


class DeadCause(msgspec.Struct, kw_only=True, frozen=True):
    """The dead letters of one cause.

    Attributes:
        name: a short name of the cause, to retry or drop what it has killed.
        error: the class of the error, or the text where it has none.
        place: the line of the code where it was raised, as `shop/bill.py:17 in bill`; empty where
            there is no traceback.
        count: how many died of it.
        last_hour: how many of them in the last hour.
        hour_before: how many in the hour before that.
        first_ms: when the first of them died, in milliseconds since 1970.
        last_ms: when the last of them died.
        example: the id of the last one.
        text: the error of the last one, in one line.
    """

    name: str
    error: str
    place: str
    count: int = 0
    last_hour: int = 0
    hour_before: int = 0
    first_ms: int = 0
    last_ms: int = 0
    example: str = ""
    text: str = ""


class DeadCauses(msgspec.Struct, kw_only=True, frozen=True):
    """A group's dead letters by cause.

    Attributes:
        causes: the causes, the most frequent first.
        looked_at: how many dead letters were looked at, the longest dead first.
        is_all: whether there are no others.
        until: the place of the last one that was looked at; retry and drop take it, so that what
            dies later is left alone. None where there was none.
    """

    causes: list[DeadCause]
    looked_at: int
    is_all: bool
    until: str | None


def cause_of(record: Record) -> DeadCause:
    """The cause of one death, with nothing counted."""
    text = record.error or "unknown"
    error = class_in(text) or text[:100]
    place = place_in(record.traceback or "")
    name = sha256(f"{error}\n{place}".encode()).hexdigest()[:8]
    return DeadCause(name=name, error=error, place=place)


def class_in(error: str) -> str | None:
    """The class of an error, of its text; None where the text does not begin with one."""
    found = _CLASS.match(error)
    return found.group() if found else None


class CauseCounts:
    """Counts dead letters by cause.

    Args:
        now_ms: the store's now.
        has_text: whether the last error of a cause is told, and not its class alone.
    """

    def __init__(self, now_ms: int, *, has_text: bool) -> None:
        self._now_ms = now_ms
        self._has_text = has_text
        self._found: dict[str, DeadCause] = {}

    def add(self, record: Record) -> None:
        """Counts one."""
        cause = cause_of(record)
        if not self._has_text:
            cause = msgspec.structs.replace(cause, error=class_in(cause.error) or "error")
        before = self._found.get(cause.name, cause)
        text = record.error if self._has_text else cause.error
        died_ms = record.died_at_ms or 0
        age_ms = self._now_ms - died_ms
        is_last = died_ms >= before.last_ms
        self._found[cause.name] = msgspec.structs.replace(
            before,
            count=before.count + 1,
            last_hour=before.last_hour + (age_ms < HOUR_MS),
            hour_before=before.hour_before + (HOUR_MS <= age_ms < 2 * HOUR_MS),
            first_ms=min(before.first_ms or died_ms, died_ms),
            last_ms=max(before.last_ms, died_ms),
            example=record.id if is_last else before.example,
            text=(text or "") if is_last else before.text,
        )

    def by_frequency(self) -> list[DeadCause]:
        """The causes, the most frequent first."""
        return sorted(self._found.values(), key=lambda one: (-one.count, one.error, one.place))
