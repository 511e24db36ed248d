"""The order in which a group may be given each key's messages, kept beside both stores.

When a message is handed out, none of its key that was published before may wait for the same group,
or come afterwards for the first time, unless somebody has given up its place: a seek, a person who
retries the dead, a delay on a stream. It is lenient where it cannot know: a message counts as in
hand until it is given back, or handed out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from qframe.message import Delivery


class Place(NamedTuple):
    """Which message of a key's one is."""

    key: str
    number: int


Places = dict[str, Place]
"""The place of each id."""


class PublishOrder:
    """One group's view of each key's messages.

    Args:
        places: where each message stands in its key; more are added to it.
        is_kept: whether the group keeps order.
    """

    def __init__(self, places: Places, is_kept: bool) -> None:
        self._places = places
        self.is_kept = is_kept
        self._free: set[str] = set()
        self._in_hand: dict[str, int] = {}
        self.begin_anew()

    def begin_anew(self) -> None:
        """Everything may come again from anywhere; what is in hand has come before that."""
        self._owed: Places = {}
        self._seen = set(self._in_hand)
        self._in_hand.clear()
        self._last: dict[str, int] = {}

    def keep(self, is_kept: bool) -> None:
        """The group keeps order from now on, or does not: what it was given before has none."""
        if self.is_kept != is_kept:
            self.free(self._seen)
            self.begin_anew()
            self.is_kept = is_kept

    def handed_out(self, one: Delivery, dead: Callable[[], Iterable[str]]) -> list[str]:
        """Returns the ids of those that it has overtaken, or that have overtaken it.

        Args:
            one: what is handed out.
            dead: returns the ids of those that are dead, which have no place any more.
        """
        place = self._places.get(one.id)
        self._owed.pop(one.id, None)
        self._in_hand[one.id] = one.slot
        if not self.is_kept or place is None or one.id in self._free:
            return []
        wrong = self._wrong(one.id, place)
        if wrong:
            self.free(dead())
            wrong = [each for each in self._wrong(one.id, place) if each not in self._free]
        self._seen.add(one.id)
        self._last[place.key] = max(place.number, self._last.get(place.key, -1))
        return wrong

    def _wrong(self, its: str, place: Place) -> list[str]:
        found = [
            each for each, other in self._owed.items()
            if other.key == place.key and other.number < place.number
        ]  # fmt: skip
        if its not in self._seen and place.number < self._last.get(place.key, -1):
            found.append(its)
        return found

    def ended(self, its: str) -> None:
        """It was acknowledged."""
        self._in_hand.pop(its, None)

    def came_back(self, its: str) -> None:
        """It is not in hand any more, and waits again."""
        was_in_hand = self._in_hand.pop(its, None) is not None
        if was_in_hand and self.is_kept and its in self._places and its not in self._free:
            self._owed[its] = self._places[its]

    def lost(self, slots: Iterable[int]) -> None:
        """All that was in hand of these slots has come back."""
        for its, slot in list(self._in_hand.items()):
            if slot in slots:
                self.came_back(its)

    def free(self, ids: Iterable[str]) -> None:
        """These have no place any more: they died, or somebody took them out."""
        self._free.update(ids)
        for each in self._free & self._owed.keys():
            del self._owed[each]

    def free_key(self, key: str) -> None:
        """None of this key has a place any more."""
        self.free([each for each, place in self._places.items() if place.key == key])
