"""Dead letters by what leads to them: their ids and keys, and their numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any, Final

from qframe.drivers.redis import Redis
from qframe.stores.records import Record
from qframe.stores.redis.envelopes import NUMBER, lead_of, record_of_dead
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.reading import place_of

PAGE: Final = 500
SCANNED: Final = 1000
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

    A slot with letters that died before stores kept leads is read whole, until `sweep` has added
    those. An id that was assigned to what cannot be read tells the letter's place.
    """
    wanted: list[tuple[str, int, int]] = []
    unnamed: set[tuple[str, int]] = set()
    sought = sorted(texts)
    for start in range(0, len(sought), TEXTS):
        some = sought[start : start + TEXTS]
        assigned = [place for place in map(place_of, some) if place is not None]
        replies = iter(redis.ask_many([
            question
            for group, slot in places
            for question in _leading(keys, group, slot, some, by, limit)
        ]))  # fmt: skip
        for group, slot in places:
            if next(replies) != next(replies):
                unnamed.add((group, slot))
            leads = chain.from_iterable(next(replies) for _ in some)
            wanted += [(group, slot, NUMBER.unpack(lead[-NUMBER.size :])[0]) for lead in leads]
            wanted += [(group, slot, seq) for of_slot, seq in assigned if of_slot == slot]
    found = records_at(redis, keys, [one for one in wanted if one[:2] not in unnamed])
    for text in sought if unnamed else ():
        found += dead_with(redis, keys, sorted(unnamed), text)
    fitting = [one for one in found if (one.id if by is By.ID else one.key) in texts]
    return sorted(fitting, key=lambda one: one.dead_place)


def _leading(
    keys: SlotKeys, group: str, slot: int, texts: Sequence[str], by: By, limit: int
) -> Iterator[tuple[Any, ...]]:
    """The questions to a slot: how many are dead, how many named; the leads from each text."""
    yield keys.key(slot, "dead", group), "ZCARD"
    yield keys.key(slot, By.ID, group), "ZCARD"
    for text in texts:
        first = b"[" + lead_of(text, b"")
        last = b"[" + lead_of(text, b"\xff" * NUMBER.size)
        yield keys.key(slot, by, group), "ZRANGEBYLEX", first, last, "LIMIT", 0, limit


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


def dead_with(
    redis: Redis, keys: SlotKeys, places: Sequence[tuple[str, int]], text: str
) -> list[Record]:
    """The dead letters of groups and slots that have a text somewhere, in steps."""
    found: list[Record] = []
    cursors: dict[tuple[str, int], bytes | str] = dict.fromkeys(places, "0")
    while cursors:
        calls = [
            keys.call("find_dead", slot, group, cursor, SCANNED, text)
            for (group, slot), cursor in cursors.items()
        ]
        asked, cursors = list(cursors), {}
        for (group, slot), (cursor, *flat) in zip(asked, redis.run(calls), strict=True):
            found += [
                record_of_dead(keys.topic.name, group, slot, member, float(died), value)
                for member, died, value in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            ]
            if cursor != b"0":
                cursors[group, slot] = cursor
    return found
