"""Notifications of transactions to waiting bells: slots of a topic, or a group's documents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from qframe.drivers.sql import Transaction
from qframe.stores.sql.topic_ref import TopicRef

MESSAGES: Final = "m"
DOCUMENTS: Final = "d"
# A notification may have 8,000 bytes on PostgreSQL; of more slots than this it names none.
MOST_SLOTS: Final = 256
# Anybody may notify on a channel of PostgreSQL: what does not look like these is not for bells.
_MESSAGES: Final = re.compile(rf"{MESSAGES} ([0-9]{{1,18}}) ((?:[0-9]{{1,9}},)*[0-9]{{1,9}}|)")
_DOCUMENTS: Final = re.compile(rf"{DOCUMENTS} ([0-9]{{1,18}}) ([a-z]+) (.+)", re.DOTALL)


def notify_messages(transaction: Transaction, ref: TopicRef, slots: Iterable[int]) -> None:
    """Says that a pull might find something new in these slots."""
    named = sorted(set(slots))
    listed = ",".join(map(str, named)) if len(named) <= MOST_SLOTS else ""
    if named:
        transaction.notify(f"{MESSAGES} {ref.id} {listed}")


def notify_documents(transaction: Transaction, ref: TopicRef, group: str, space: str) -> None:
    """Says that documents of a group have changed."""
    transaction.notify(f"{DOCUMENTS} {ref.id} {space} {group}")


def topic_and_slots(notification: str) -> tuple[int, frozenset[int] | None] | None:
    """The number of the topic of which a word tells, and its slots, None where it may be any."""
    found = _MESSAGES.fullmatch(notification)
    if found is None:
        return None
    return int(found[1]), frozenset(map(int, found[2].split(","))) if found[2] else None


def space_of(notification: str) -> tuple[int, str, str] | None:
    """The number of the topic, the space, and the group, of whose documents a word tells."""
    found = _DOCUMENTS.fullmatch(notification)
    return None if found is None else (int(found[1]), found[2], found[3])
