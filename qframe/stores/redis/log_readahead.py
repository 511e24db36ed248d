"""Messages that were read from streams' logs and not yet handed out.

A pull is one round trip: the script says which offsets are handed out, and the log is read beside
it from where the last pull's reading ended, since who pulls from a slot reads it in order. The log
never changes behind a reader, so what was read beyond the limit is kept for the next pull, unless a
connection broke: the server may have come back with an older state. An entry is read whole, however
large it is, so what is kept is bounded in bytes: where it is more, slots forget what they have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final

from qframe.drivers.redis import Command, Missing, Redis
from qframe.errors import StoreUnavailable
from qframe.message import Delivery
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.reading import logged
from qframe.stores.types import PullRequest

MOST_ENTRIES: Final = 64
FIRST_GUESS: Final = 16
MANY_SLOTS: Final = 2
_SEQ: Final = attrgetter("seq")


class SlotReadahead:
    """A slot's log, from the next offset that the pulls of one owner will hand out.

    Attributes:
        at: the offset from which on nothing was handed out.
        end: the offset behind what was read.
        rest: what was read and not handed out, in order.
        sound: whether that is a message for each offset, and none of them malformed.
        size: how many messages an entry has held of late.
        bytes_each: how large a message has been of late.
    """

    __slots__ = ("at", "breaks", "bytes_each", "end", "epoch", "rest", "size", "sound")

    def __init__(self, epoch: str, end: int, breaks: int, size: int) -> None:
        self.epoch: str = epoch
        self.at: int = end
        self.end: int = end
        self.breaks: int = breaks
        self.rest: list[Delivery] = []
        self.sound: bool = True
        self.size: int = size
        self.bytes_each: int = 0

    @property
    def bytes(self) -> int:
        """How large the rest is, about."""
        return self.bytes_each * len(self.rest)

    def add(self, slot: int, entries: Iterable[Any]) -> None:
        """Takes in entries of the log, of which the first holds `end` unless that is missing."""
        for name, fields in entries:
            first, end, found, is_sound = logged(slot, name, fields)
            if end <= self.end:
                continue
            self.sound = self.sound and is_sound and first <= self.end
            self.rest += found if first >= self.end else found[self.end - first :]
            self.end = end
            self.size = max(1, (3 * self.size + end - first) // 4)
            self.bytes_each = sum(map(len, fields)) // max(1, end - first)

    def lacks(self, stop: int) -> None:
        """Notes that the log has nothing more before an offset."""
        self.end, self.sound = stop, False

    def go_on_from(self, position: int) -> None:
        """Passes over what the caller has received otherwise, as the reply to a pull that stood."""
        if position < self.end:
            self.take(position)
        elif position > self.at:
            self.at, self.end, self.rest, self.sound = position, position, [], True

    def take(self, stop: int) -> tuple[list[Delivery], bool]:
        """The next messages, up to an offset; and whether there is a sound one for each."""
        rest, was_sound = self.rest, self.sound
        count = stop - self.at if was_sound else bisect_left(rest, stop, key=_SEQ)
        taken, self.rest = rest[:count], rest[count:]
        self.at = stop
        self.sound = was_sound or not self.rest
        return taken, was_sound


class LogReadahead:
    """Keeps what was read ahead of the logs of all slots that a store pulls from."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._slots: defaultdict[tuple[str, str], dict[int, SlotReadahead]] = defaultdict(dict)
        self._sizes: dict[str, int] = {}  # how many messages an entry of a topic has held of late

    def ahead(self, keys: SlotKeys, group: str, ask: PullRequest) -> Command | None:
        """The command that reads what a pull will probably want, or None where that is unknown."""
        kept = self._slots[keys.topic.name, group].get(ask.slot)
        if kept is None or kept.epoch != ask.epoch or kept.breaks != self._redis.breaks:
            return None
        if ask.position is not None and ask.position > kept.at:
            kept.go_on_from(ask.position)
        missing = ask.limit - len(kept.rest)
        if missing <= 0:
            return None
        key = keys.key(ask.slot, "log")
        return _from(key, kept.end, missing, kept.size)

    def read(
        self,
        keys: SlotKeys,
        group: str,
        slot: int,
        epoch: str,
        start: int,
        stop: int,
        entries: Iterable[Any],
    ) -> tuple[list[Delivery], bool]:
        """The messages [start, stop) of a slot, and whether there is a sound one for each offset.

        `entries` is what the command ahead has read. An offset without a message counts as settled,
        so it is one only where the log was read anew from the entry that may hold it.
        """
        slots = self._slots[keys.topic.name, group]
        kept = slots.get(slot)
        if kept is not None and (kept.epoch != epoch or kept.breaks != self._redis.breaks):
            kept = None
        if kept is not None:
            kept.add(slot, entries)
        if stop == start:
            return [], True
        if kept is not None and kept.at == start:
            taken, is_sound = self._take(keys, slot, kept, stop)
            if is_sound:
                return taken, True
        size = self._sizes.get(keys.topic.name, FIRST_GUESS)
        anew = SlotReadahead(epoch, start, self._redis.breaks, size)
        self._find(keys, slot, anew)
        slots[slot] = anew  # not before: it may fail to find `start`
        return self._take(keys, slot, anew, stop)

    def find(self, keys: SlotKeys, group: str, places: Sequence[tuple[int, str, int, int]]) -> None:
        """Begins to read many slots that nothing was read of, in one round trip.

        Args:
            keys: the topic's.
            group: the group.
            places: slots, each with its epoch, the offset that is to be read first, and the one
                behind the last. What cannot be read now is left to `read`.
        """
        slots = self._slots[keys.topic.name, group]
        unread = [
            (slot, epoch, start, stop) for slot, epoch, start, stop in places
            if (kept := slots.get(slot)) is None or kept.epoch != epoch or kept.at != start
        ]  # fmt: skip
        if len(unread) < MANY_SLOTS:
            return
        breaks = self._redis.breaks
        size = self._sizes.get(keys.topic.name, FIRST_GUESS)
        with suppress(StoreUnavailable):
            asked = [
                _from(keys.key(slot, "log"), start, stop - start, size)
                for slot, _, start, stop in unread
            ]
            for (slot, epoch, start, _), found in zip(
                unread, self._redis.run(asked, partly=True), strict=True
            ):
                anew = SlotReadahead(epoch, start, breaks, self._sizes.get(keys.topic.name, size))
                if not isinstance(found, Missing):
                    anew.add(slot, found)
                    self._sizes[keys.topic.name] = anew.size
                if anew.rest and anew.sound:  # else the first entry is not the one that it needs
                    slots[slot] = anew

    def kept(self, keys: SlotKeys, group: str, most_bytes: int) -> int:
        """How large is what is kept of a group's slots, about.

        Where it is too much, the largest are forgotten, but for the smallest: it may be one entry.
        """
        slots = self._slots[keys.topic.name, group]
        sizes = {slot: kept.bytes for slot, kept in slots.items() if kept.rest}
        total = sum(sizes.values())
        if total > most_bytes:
            for slot in sorted(sizes, key=sizes.__getitem__)[:0:-1]:
                del slots[slot]
                total -= sizes[slot]
                if total <= most_bytes:
                    break
        return total

    def forget(self, topic: str, group: str) -> None:
        """Forgets what was read for a group."""
        self._slots.pop((topic, group), None)

    def _find(self, keys: SlotKeys, slot: int, kept: SlotReadahead) -> None:
        """Reads the entry that holds the next offset, which may stand in its midst."""
        log, last = keys.key(slot, "log"), f"{kept.end}-18446744073709551615"
        kept.add(slot, self._redis.ask(log, "XREVRANGE", last, "-", "COUNT", 1))

    def _take(
        self, keys: SlotKeys, slot: int, kept: SlotReadahead, stop: int
    ) -> tuple[list[Delivery], bool]:
        """Reads on as far as an offset, and takes what stands before it."""
        key = keys.key(slot, "log")
        while (end := kept.end) < stop:
            kept.add(slot, self._redis.one(_from(key, end, stop - end, kept.size)))
            if kept.end == end:
                kept.lacks(stop)
        self._sizes[keys.topic.name] = kept.size
        return kept.take(stop)


def _from(log: bytes, offset: int, missing: int, size: int) -> Command:
    """The command that reads so many messages from an offset on, by how many an entry holds."""
    most = min(MOST_ENTRIES, -(-missing // size))
    return Command(log, ("XRANGE", log, f"{offset}-0", "+", "COUNT", most))
