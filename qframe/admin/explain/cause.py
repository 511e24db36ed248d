"""The causes for which a message is where it is, and what was found of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from qframe.stores.records import HistoryEntry, Record

CauseName = Literal[
    "not-due", "retry", "running", "lease-over", "behind", "paused", "no-worker", "no-owner",
    "growing", "coordinator-away", "breaker-open", "rate-limited", "slot-full", "sequence-gap",
    "no-group", "ready", "dead", "settled", "filtered", "trimmed", "merged", "replaced",
    "forgotten", "unknown",
]  # fmt: skip
CAUSES: tuple[CauseName, ...] = get_args(CauseName)


@dataclass(frozen=True)
class Cause:
    """One reason.

    Attributes:
        name: which of the closed set it is.
        text: a sentence for people.
        facts: what it is known by, under names that stay the same: texts and numbers; those whose
            name ends in `_ms` are moments in milliseconds since 1970.
        of: the id of the message that it is said of, where that is the one before it in its key;
            None where it is said of the message itself, its group or its slot.
    """

    name: CauseName
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    of: str | None = None


@dataclass(frozen=True)
class Explanation:
    """Where a message is for a group, and why.

    Attributes:
        topic: the topic's name.
        group: the group; None where that of no group is told.
        id: the message's id, if it is known.
        key: its key, if it is known.
        slot: its slot, if it is known.
        offset: its offset in a stream, its number elsewhere, if it has one.
        state: waiting, todo, doing, settled, dead, held; absent where all was looked at and it is
            not there; unknown where not all was looked at.
        causes: why: the first one is what it waits for now, the others what it waits for then.
        record: the message as it stands; None where it is absent.
        duplicate_until_ms: until when publishing this id again would be a duplicate of it.
        looked: how many messages a scan has looked at; 0 where indexes led to it.
        place: where a search that did not look at everything goes on: `place` of
            `app.admin.search`, with the same topic.
        history: how its attempts have ended, the first that ended first; None where its topic
            keeps no history.
    """

    topic: str
    group: str | None
    state: str
    causes: tuple[Cause, ...]
    id: str | None = None
    key: str | None = None
    slot: int | None = None
    offset: int | None = None
    record: Record | None = None
    duplicate_until_ms: int | None = None
    looked: int = 0
    place: str | None = None
    history: tuple[HistoryEntry, ...] | None = None

    @property
    def is_found(self) -> bool:
        """Whether something is known of it, be it that it was settled."""
        return self.state not in ("absent", "unknown")

    @property
    def cause(self) -> Cause:
        """The first cause."""
        return self.causes[0]
