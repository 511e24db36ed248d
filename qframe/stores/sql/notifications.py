"""Notifications of transactions to waiting bells: slots of a topic, or a group's roster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from qframe.drivers.sql import Transaction
from qframe.stores.sql.topic_ref import TopicRef

MESSAGES: Final = "m"
ROSTER: Final = "r"
# A notification may have 8,000 bytes on PostgreSQL; of more slots than this it names none.
MOST_SLOTS: Final = 256


def notify_messages(transaction: Transaction, ref: TopicRef, slots: Iterable[int]) -> None:
    """Says that a pull might find something new in these slots."""
    named = sorted(set(slots))
    listed = ",".join(map(str, named)) if len(named) <= MOST_SLOTS else ""
    if named:
        transaction.notify(f"{MESSAGES} {ref.id} {listed}")


def notify_roster(transaction: Transaction, ref: TopicRef, group: str) -> None:
    """Says that members or owners of a group have changed."""
    transaction.notify(f"{ROSTER} {ref.id} {group}")


def topic_and_slots(notification: str) -> tuple[int, frozenset[int] | None] | None:
    """The number of the topic of which a word tells, and its slots, None where it may be any."""
    sort, number, rest = notification.split(" ", 2)
    if sort != MESSAGES:
        return None
    return int(number), frozenset(map(int, rest.split(","))) if rest else None


def topic_and_group(notification: str) -> tuple[int, str] | None:
    """The number of the topic, and the group, of whose roster a word tells."""
    sort, number, rest = notification.split(" ", 2)
    return (int(number), rest) if sort == ROSTER else None
