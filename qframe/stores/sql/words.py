"""What transactions tell those who wait: which slots of which topic, or whose roster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from qframe.drivers.sql import Transaction
from qframe.stores.sql.places import Place

MESSAGES: Final = "m"
ROSTER: Final = "r"
# A word may have 8,000 bytes on PostgreSQL; of more slots than this it names none.
MOST_SLOTS: Final = 256


def tell_messages(transaction: Transaction, place: Place, slots: Iterable[int]) -> None:
    """Says that a pull might find something new in these slots."""
    named = sorted(set(slots))
    listed = ",".join(map(str, named)) if len(named) <= MOST_SLOTS else ""
    if named:
        transaction.say(f"{MESSAGES} {place.id} {listed}")


def tell_roster(transaction: Transaction, place: Place, group: str) -> None:
    """Says that members or owners of a group have changed."""
    transaction.say(f"{ROSTER} {place.id} {group}")


def topic_and_slots(word: str) -> tuple[int, frozenset[int] | None] | None:
    """The number of the topic of which a word tells, and its slots, None where it may be any."""
    sort, number, rest = word.split(" ", 2)
    if sort != MESSAGES:
        return None
    return int(number), frozenset(map(int, rest.split(","))) if rest else None


def topic_and_group(word: str) -> tuple[int, str] | None:
    """The number of the topic, and the group, of whose roster a word tells."""
    sort, number, rest = word.split(" ", 2)
    return (int(number), rest) if sort == ROSTER else None
