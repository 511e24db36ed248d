"""Dead letters by what leads to them: their ids and keys, and their numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any, Final

from qframe.drivers.redis import Redis
from qframe.stores.records import Record
from qframe.stores.redis.envelopes import NUMBER, lead_of, record_of_dead
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.reading import place_of

PAGE: Final = 500
TEXTS: Final = 100


class By(StrEnum):
    """The sets of leads to dead letters."""

    ID = "named"
    KEY = "keyed"


def looked_up(
    redis: Redis, keys: SlotKeys, places: Sequence[tuple[str, int]], texts: Collection[str],
    by: By, limit: int = 2**31,
) -> list[Record]:  # fmt: skip
    """The dead letters of groups and slots by ids or keys, up to a limit of each place and text.

    An id that was assigned to what cannot be read tells the letter's place.
    """
    wanted: list[tuple[str, int, int]] = []
    sought = sorted(texts)
    for start in range(0, len(sought), TEXTS):
        some = sought[start : start + TEXTS]
        assigned = [place for place in map(place_of, some) if place is not None]
        replies = iter(redis.ask_many([
            _leads(keys, group, slot, text, by, limit) for group, slot in places for text in some
        ]))  # fmt: skip
        for group, slot in places:
            leads = chain.from_iterable(next(replies) for _ in some)
            wanted += [(group, slot, NUMBER.unpack(lead[-NUMBER.size :])[0]) for lead in leads]
            wanted += [(group, slot, seq) for of_slot, seq in assigned if of_slot == slot]
    found = records_at(redis, keys, wanted)
    fitting = [one for one in found if (one.id if by is By.ID else one.key) in texts]
    return sorted(fitting, key=lambda one: one.dead_place)


def _leads(keys: SlotKeys, group: str, slot: int, text: str, by: By, limit: int) -> tuple[Any, ...]:
    """The question for the leads from a text."""
    first = b"[" + lead_of(text, b"")
    last = b"[" + lead_of(text, b"\xff" * NUMBER.size)
    return keys.key(slot, by, group), "ZRANGEBYLEX", first, last, "LIMIT", 0, limit


def records_at(
    redis: Redis, keys: SlotKeys, places: Sequence[tuple[str, int, int]]
) -> list[Record]:
    """The dead letters at groups, slots and seqs, the longest dead first."""
    found: list[Record] = []
    for start in range(0, len(places), PAGE):
        members: dict[tuple[str, int], list[bytes]] = {}
        for group, slot, seq in places[start : start + PAGE]:
            members.setdefault((group, slot), []).append(NUMBER.pack(seq))
        replies = iter(redis.ask_many([
            question
            for (group, slot), some in members.items()
            for question in (
                (keys.key(slot, "dead", group), "ZMSCORE", *some),
                (keys.key(slot, "graves", group), "HMGET", *some),
            )
        ]))  # fmt: skip
        for (group, slot), some in members.items():
            found += [
                record_of_dead(keys.topic.name, group, slot, member, float(died_at), value)
                for member, died_at, value in zip(some, next(replies), next(replies), strict=True)
                if died_at is not None and value is not None
            ]
    return sorted(found, key=lambda one: one.dead_place)
