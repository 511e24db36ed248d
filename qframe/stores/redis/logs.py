"""Reading a stream's log by offsets; no group is involved."""

from __future__ import annotations

from typing import Final

from qframe.drivers.redis import Redis
from qframe.message import Delivery
from qframe.stores.redis.keys import Place
from qframe.stores.redis.reading import logged

FIRST_PAGE: Final = 16
LARGEST_PAGE: Final = 1000


def read_log(redis: Redis, place: Place, slot: int, first: int, limit: int) -> list[Delivery]:
    """A slot's messages from an offset on, in order, at most `limit`."""
    key = place.key(slot, "log")
    entry, kept = redis.ask_many(
        [
            (key, "XREVRANGE", f"{first}-18446744073709551615", "-", "COUNT", 1),
            (place.key(slot, "first"), "GET"),
        ]
    )
    begin = int(entry[0][0].split(b"-")[0]) if entry else first
    first = max(first, int(kept or 0))
    found: list[Delivery] = []
    page = FIRST_PAGE
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
