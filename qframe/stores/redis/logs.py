"""Reading a stream's log by offsets; no group is involved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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
        return self._call(topic, read_log, slot, first, limit)


def read_log(redis: Redis, keys: SlotKeys, slot: int, first: int, limit: int) -> list[Delivery]:
    """A slot's messages from an offset on, in order, at most `limit`."""
    key = keys.key(slot, "log")
    entry, kept = redis.ask_many(
        [
            (key, "XREVRANGE", f"{first}-18446744073709551615", "-", "COUNT", 1),
            (keys.key(slot, "first"), "GET"),
        ]
    )
    begin, size = map(int, entry[0][0].split(b"-")) if entry else (first, 1)
    first = max(first, int(kept or 0))
    found: list[Delivery] = []
    page = min(FIRST_PAGE, 1 + limit // max(1, size))
    while len(found) < limit:
        entries = redis.ask(key, "XRANGE", f"{begin}-0", "+", "COUNT", page)
        before = begin
        for name, fields in entries:
            start, end, messages, _ = logged(slot, name, fields)
            if found and start != begin:
                # What lay between was removed since the last page.
                return found[:limit]
            begin = end
            if begin > first:
                found += messages if start >= first else messages[first - start :]
        if len(entries) < page:
            break
        each = max(1, (begin - before) // page)
        page = min(LARGEST_PAGE, 1 + (limit - len(found)) // each)
    return found[:limit]


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
