"""How attempts have ended, as notes for the scripts and as entries from a slot's hash.

`scripts/parts/history.lua` has the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from qframe.codec import time_of_token
from qframe.drivers.redis import Redis
from qframe.outcomes import Verdict
from qframe.stores.history import (
    CANCELLED,
    EDITED,
    LOST,
    kept_error,
    kept_place,
    key_of,
    named,
    worker_of,
)
from qframe.stores.records import HistoryEntry
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.types import Settlement
from qframe.topic import Topic

Note = tuple[str, int, int, int, str, str]

_VERDICTS: Final = (
    Verdict.ACK, Verdict.RETRY, Verdict.DEAD, Verdict.RELEASE, LOST, EDITED, CANCELLED,
)  # fmt: skip
_NUMBER_OF: Final = {verdict: number for number, verdict in enumerate(_VERDICTS, start=1)}
_ENTRY: Final = struct.Struct(">QQBI")


def notes_of(topic: Topic, settlements: Iterable[Settlement]) -> list[Note | bool]:
    """The notes of settlements: for Lua, False for one without an id."""
    return [_note(topic, one) if one.id else False for one in settlements]


def _note(topic: Topic, one: Settlement) -> Note:
    words = f"@{worker_of(one.receipt) or ''}"
    if one.error:
        words += f"\n{kept_error(one)}\n{kept_place(one) or ''}"
    took_ms = -1 if one.took_ms is None else max(0, one.took_ms)
    key = key_of(topic, one.subject) or ""
    return one.id, took_ms, _NUMBER_OF[one.verdict], one.attempt, words, key


def lines_of(keys: SlotKeys, by: str | None, changes: str | None) -> str:
    """The lines of the entry of a timer that is edited or cancelled; "" where none is kept."""
    return f"@{named(by) or ''}\n{changes or ''}" if keys.topic.history_ms else ""


def looked_up(
    redis: Redis, keys: SlotKeys, slots: Sequence[int], message_id: str, key: str
) -> list[HistoryEntry]:
    """The entries of a message, or of the one of a key that has ended last, by group and slot."""
    replies = redis.run([keys.call("history", each, message_id, key) for each in slots])
    return [
        entry
        for group, each, name, value in sorted(
            (group.decode(), each, name.decode(), value)
            for each, flat in zip(slots, replies, strict=True)
            for group, name, value in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        )
        for entry in _entries(value, group, each, name)
    ]


def _entries(value: bytes, group: str, slot: int, message_id: str) -> Iterator[HistoryEntry]:
    at = 0
    while at + 2 + _ENTRY.size <= len(value):
        size = int.from_bytes(value[at : at + 2], "big")
        began, ended, verdict, attempt = _ENTRY.unpack_from(value, at + 2)
        known = 1 <= verdict <= len(_VERDICTS)
        text = value[at + 2 + _ENTRY.size : at + 2 + size].decode(errors="replace")
        whose, error, place, *_ = [*text.split("\n"), "", ""]
        yield HistoryEntry(
            group=group, slot=slot, id=message_id, attempt=attempt,
            verdict=str(_VERDICTS[verdict - 1]) if known else f"unknown end {verdict}",
            ended_ms=ended,
            began_ms=began or time_of_token(whose), worker=worker_of(whose), error=error or None,
            place=place or None,
        )  # fmt: skip
        at += 2 + size
