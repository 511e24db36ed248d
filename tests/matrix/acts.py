"""How handlers of the matrix treat a message: each act, and the end that it must lead to."""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Final, NamedTuple

from matrix.cells import TRANSACTION, Cell

from qframe import Outgoing

ATTEMPTS: Final = 3
ATTEMPTS_IN_BATCHES: Final = 9
LOCAL_RETRIES: Final = 3
KEYS: Final = ("a", "b", "c")


class Act(StrEnum):
    """How a handler treats a message."""

    FINE = "fine"
    FAILS_ONCE = "fails once"
    FAILS = "fails always"
    REJECTED = "rejected"
    EXITS = "exits once"
    IN_PLACE = "retried in place twice"
    ALWAYS_IN_PLACE = "retried in place always"
    LATER = "retried later once"
    ACKED = "acked by its handler"
    GIVEN = "given an error once"
    HANDED_OVER = "acked by another thread"
    FORGOTTEN = "taken over and forgotten once"


DEADLY: Final = (Act.FAILS, Act.REJECTED, Act.ALWAYS_IN_PLACE)
BY_MESSAGE: Final = (Act.ACKED, Act.GIVEN, Act.HANDED_OVER, Act.FORGOTTEN)
"""Acts by which a handler ends one message by itself."""
RETRIED: Final = (Act.IN_PLACE, Act.LATER)

# Of an act: how often the message is handed out, and how often its handler is called.
COSTS: Final = {
    Act.FINE: (1, 1), Act.FAILS_ONCE: (2, 2), Act.FAILS: (ATTEMPTS, ATTEMPTS),
    Act.REJECTED: (1, 1), Act.EXITS: (2, 2), Act.IN_PLACE: (1, 3),
    Act.ALWAYS_IN_PLACE: (ATTEMPTS, ATTEMPTS * (1 + LOCAL_RETRIES)), Act.LATER: (2, 2),
    Act.ACKED: (1, 1), Act.GIVEN: (2, 2), Act.HANDED_OVER: (1, 1), Act.FORGOTTEN: (2, 2),
}  # fmt: skip


def acts_of(cell: Cell) -> list[Act]:
    """The acts that mean something in a cell."""
    left_out: set[Act] = set()
    if cell.is_once:  # nothing is left to acknowledge, and nothing is tried again
        left_out |= {*BY_MESSAGE, Act.ALWAYS_IN_PLACE}
    if cell.policy == TRANSACTION and (cell.is_batch or cell.is_async):
        left_out |= {*BY_MESSAGE}  # the handler's return commits, and nothing else does
    if cell.is_async:
        left_out |= {Act.FORGOTTEN}  # heard of at a collection only: see test_async_handlers
    if cell.is_batch:
        left_out |= {Act.ALWAYS_IN_PLACE}  # it is said of all in the batch: they would die with it
    return [act for act in Act if act not in left_out]


# A loop of the user's own has what it gives back with `NeedRetry` retried by the store.
COSTS_OF_PULL: Final = {
    **COSTS, Act.IN_PLACE: (2, 2), Act.ALWAYS_IN_PLACE: (ATTEMPTS, ATTEMPTS)
}  # fmt: skip


class Item(NamedTuple):
    """One message of a plan."""

    number: int
    key: str
    act: Act

    def outgoing(self) -> Outgoing:
        """The message as it is published."""
        return Outgoing({"n": self.number, "act": self.act}, key=self.key)


def plan_of(cell: Cell, seed: int, *, rounds: int = 2, without: tuple[Act, ...] = ()) -> list[Item]:
    """Messages of all acts, shuffled; keys that several of them have, where the kind admits it.

    In a batch a message that its handler ends by itself may overtake one before it that fails; and
    one for which it asks for a retry is, behind another of its key, taken back and not counted, so
    that it would ask again until the other one is dead. Such have keys of their own there.
    """
    acts = [act for act in acts_of(cell) if act not in without] * rounds
    random.Random(f"{cell}{seed}").shuffle(acts)
    items = []
    for number, act in enumerate(acts):
        is_alone = not cell.is_keyed or (cell.is_batch and act in (*BY_MESSAGE, *RETRIED))
        key = f"alone-{number}" if is_alone else KEYS[number % len(KEYS)]
        items.append(Item(number, key, act))
    return items


def dead_in(cell: Cell, items: list[Item]) -> list[int]:
    """The numbers of those that must become dead letters."""
    return [] if cell.is_once else [item.number for item in items if item.act in DEADLY]
