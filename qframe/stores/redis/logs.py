"""Reading a stream's log by offsets; no group is involved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.message import Delivery
from qframe.stores.base import Logs
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.reading import logged
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic

FIRST_PAGE: Final = 16
LARGEST_PAGE: Final = 1000


class RedisLogs(RedisRole, Logs):
    """Logs, page by page."""

    @override
    def read_log(self, topic: Topic, slot: int, first: int, limit: int) -> list[Delivery]:
        return self._call(topic, read_logs, [(slot, first, limit)])[0]


class _Reading:
    """A part of a log that is being read.

    Attributes:
        found: what was read of it.
        is_done: whether that is all.
    """

    def __init__(self, slot: int, first: int, limit: int) -> None:
        self._slot = slot
        self._first = first
        self._limit = limit
        self._next = first
        self._page = 1
        self.found: list[Delivery] = []
        self.is_done: bool = limit <= 0

    def begin(self, entries: Sequence[Any], kept: bytes | None) -> None:
        """Begins with the entry that may hold the first offset, and the first one that is kept."""
        self._first = max(self._first, int(kept or 0))
        size = 1
        if entries:
            self._next, size = map(int, entries[0][0].split(b"-"))
            self.take(entries)
        self._page = min(FIRST_PAGE, 1 + (self._limit - len(self.found)) // max(1, size))

    def words(self) -> tuple[str | int, ...]:
        """The command that reads on."""
        return "XRANGE", f"{self._next}-0", "+", "COUNT", self._page

    def take(self, entries: Sequence[Any]) -> None:
        """Takes in entries, which may have come to the end."""
        self.is_done = len(entries) < self._page
        found, slot, first, following = self.found, self._slot, self._first, self._next
        for name, fields in entries:
            start, end, messages, _ = logged(slot, name, fields)
            if found and start != following:
                self.is_done = True  # what lay between was removed since the last page
                return
            following = end
            if end > first:
                found += messages if start >= first else messages[first - start :]
        each = max(1, (following - self._next) // self._page)
        self._next = following
        self._page = min(LARGEST_PAGE, 1 + (self._limit - len(self.found)) // each)
        if len(self.found) >= self._limit:
            del self.found[self._limit :]
            self.is_done = True


def read_logs(
    redis: Redis, keys: SlotKeys, parts: Sequence[tuple[int, int, int]]
) -> list[list[Delivery]]:
    """Messages of slots' logs, each from an offset on, in order, at most a number of them."""
    readings = [_Reading(*part) for part in parts]
    logs = [keys.key(slot, "log") for slot, _, _ in parts]
    replies = redis.ask_many([
        question
        for log, (slot, first, _) in zip(logs, parts, strict=True)
        for question in (
            (log, "XREVRANGE", f"{first}-18446744073709551615", "-", "COUNT", 1),
            (keys.key(slot, "first"), "GET"),
        )
    ])  # fmt: skip
    for reading, entries, kept in zip(readings, replies[::2], replies[1::2], strict=True):
        if not reading.is_done:
            reading.begin(entries, kept)
    while unread := [pair for pair in zip(logs, readings, strict=True) if not pair[1].is_done]:
        pages = redis.ask_many([(log, *reading.words()) for log, reading in unread])
        for (_, reading), entries in zip(unread, pages, strict=True):
            reading.take(entries)
    return [reading.found for reading in readings]


def log(redis: Redis, keys: SlotKeys, slot: int, start: int) -> Iterator[Delivery]:
    """A stream's messages from an offset on, as deliveries without receipts."""
    key = keys.key(slot, "log")
    before = redis.ask(key, "XREVRANGE", f"{start}-18446744073709551615", "-", "COUNT", 1)
    begin = int(before[0][0].split(b"-")[0]) if before else start
    first_kept = int(redis.ask(keys.key(slot, "first"), "GET") or 0)
    behind: bytes = b"%d-0" % begin
    while entries := redis.ask(key, "XRANGE", behind, "+", "COUNT", 16):
        for name, fields in entries:
            yield from (
                one for one in logged(slot, name, fields)[2]
                if one.seq >= max(start, first_kept)
            )  # fmt: skip
            behind = b"(" + name
