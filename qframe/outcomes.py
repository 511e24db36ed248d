"""Outcomes of operations: values, not exceptions."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """The outcome of publishing a message."""

    STORED = "stored"
    MERGED = "merged"
    REPLACED = "replaced"
    DUPLICATE = "duplicate"
    FULL = "full"


class Published(msgspec.Struct, frozen=True, gc=False):
    """The answer to a publish: the message's id, and what became of it."""

    id: str
    outcome: Outcome


class Verdict(StrEnum):
    """How a delivery is settled, or given back."""

    ACK = "ack"
    RETRY = "retry"
    DEAD = "dead"
    RELEASE = "release"


class Settled(StrEnum):
    """The outcome of a settlement: a stale one changed nothing, one that is away is unknown.

    It is away where its server could not be reached, or did not answer; it is to be sent again.
    """

    SETTLED = "settled"
    STALE = "stale"
    AWAY = "away"


class Moved(StrEnum):
    """The outcome of a change to a timer."""

    DONE = "done"
    ABSENT = "absent"
    DOING = "doing"


class Applied(StrEnum):
    """The outcome of a change to a row with a version."""

    APPLIED = "applied"
    INSERTED = "inserted"
    OLD = "old"
    ABSENT = "absent"
