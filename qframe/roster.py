"""A snapshot of a topic and group: its members, and the owner of each slot."""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

NO_VERSION: Final = 0
LARGEST_VERSION: Final = 2**53 - 1


class Member(msgspec.Struct, frozen=True):
    """A worker that takes part.

    Attributes:
        id: the worker's id.
        since_ms: when it joined, in milliseconds since 1970 by the clock of whoever keeps this.
        until_ms: when it counts as dead unless it is heard again.
        retiring: whether it is to own no slot: it keeps each of its slots until that has drained.
    """

    id: str
    since_ms: int
    until_ms: int
    retiring: bool = False


class Owner(msgspec.Struct, frozen=True):
    """The owner of a slot.

    Attributes:
        slot: the slot.
        member: the worker's id.
        epoch: under which epoch it owns the slot, 16 hexadecimal digits.
        since_ms: since when, in milliseconds since 1970.
    """

    slot: int
    member: str
    epoch: str
    since_ms: int


class Roster(msgspec.Struct, frozen=True):
    """The living members and what they own.

    Attributes:
        version: another one whenever members or owners have changed; `NO_VERSION` where nobody
            has attended, or a lease has passed and nothing was changed since.
        members: by when they joined, then by id.
        owners: the owned slots only.
    """

    version: int
    members: list[Member]
    owners: dict[int, Owner]


def fresh_version() -> int:
    """A roster's next version: not 0, none that was before, and exact in every language's JSON."""
    return 1 + secrets.randbelow(LARGEST_VERSION)
