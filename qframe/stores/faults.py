"""Faults that `verify` finds, and which of them `repair` may mend.

A fault is mended only where what is right follows from what is there, whoever works meanwhile: a
place without its message goes, a message without a place gets one, a lease without an owner ends as
that of a worker that died, a count follows the rows. Left, with the reason, is what would need a
guess: where a group stood, which of two messages is the true one, what was in a record that is
gone. No repair removes a message, or calls one settled. A message that is missing already is
counted as cancelled, so that nobody takes it for handled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

POSITION: Final = (
    "nobody knows what was settled: `qframe groups seek` decides where the group goes on"
)
LOST: Final = "the messages are gone: restore a backup, or let the workers pass over them"
RECORD: Final = (
    "epoch and counts are gone with it: restore a backup, or drop the group and subscribe it anew"
)
TWO_PLACES: Final = "which of the two is true is not known: `qframe explain` shows both"
UNREADABLE: Final = "the pull that meets it writes it among the dead, with the reason"
NEXT_ROUND: Final = "it is taken up when the message before it has been handled"
FOLLOWS: Final = "it may follow from another fault of this slot, which comes first"
HISTORY: Final = "it is for people only, and passes by itself"
FOREIGN: Final = "another program has written it: move it away, and verify again"
_LEFT: Final = " (no repair: "
_UNSURE: Final = (POSITION, TWO_PLACES)


class Part(StrEnum):
    """The part of a slot that is wrong."""

    COUNT = "count"
    WINDOW = "window"
    SUBJECT = "subject"
    DEAD = "dead"
    OTHER = "other"


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong in a slot, for a group.

    Attributes:
        where: the place, for people.
        what: what is wrong there.
        group: the group's name; None where all groups are concerned.
        slot: the slot.
        part: what of the slot is wrong.
        name: the subject as it is stored, or the number of a dead letter.
        member: what stands in the place of another.
        left: why no repair is safe, and what to do instead; None where `repair` mends it.
    """

    where: str
    what: str
    group: str | None
    slot: int
    part: Part = Part.OTHER
    name: bytes | str | int = ""
    member: bytes = b""
    left: str | None = None

    def __str__(self) -> str:
        left = f"{_LEFT}{self.left})" if self.left else ""
        return f"{self.where}: {self.what}{left}"


class Mendable(NamedTuple):
    """The faults of a slot for a group that can be mended.

    Attributes:
        group: the group's name.
        slot: the slot.
        faults: what is wrong.
        is_countable: whether its counts can be compared with what is there.
    """

    group: str
    slot: int
    faults: list[Fault]
    is_countable: bool


def with_counts_last(faults: Sequence[Fault]) -> list[Fault]:
    """The faults, of which a count is left where it may follow from what cannot be mended."""
    unsure = {(each.group, each.slot) for each in faults if each.left in _UNSURE}
    return [
        msgspec.structs.replace(each, left=FOLLOWS)
        if each.part is Part.COUNT and (each.group, each.slot) in unsure
        else each
        for each in faults
    ]


def mendable(faults: Sequence[Fault]) -> list[Mendable]:
    """The faults that can be mended, place by place."""
    found: dict[tuple[str, int], list[Fault]] = {}
    for each in faults:
        if each.group is not None and each.left is None:
            found.setdefault((each.group, each.slot), []).append(each)
    unsure = {(each.group, each.slot) for each in faults if each.left in _UNSURE}
    hopeless = {(each.group, each.slot) for each in faults if each.left in (RECORD, FOREIGN)}
    return [
        Mendable(*place, wrong, place not in unsure)
        for place, wrong in found.items()
        if place not in hopeless
    ]


def sentences(faults: Iterable[Fault]) -> list[str]:
    """The faults, for people."""
    return [str(each) for each in faults]


def is_mendable(sentence: str) -> bool:
    """Whether a repair mends what a sentence of `verify` says."""
    return _LEFT not in sentence


def recounted(missing: int) -> str:
    """Says what is done where a count and the rows differ by so many messages."""
    if missing > 0:
        return f"{missing} messages that are missing are counted as cancelled"
    return f"{-missing} messages that are there are counted as settled no more"
