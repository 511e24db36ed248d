"""The stored audit: what was done through `app.admin` in any process, for 90 days.

It is a stream of the store itself, of one slot and without a group, so each store keeps it as it
keeps messages, and trims it as it trims them. An act and its entry are two steps: if the second one
fails the act stands, `audit.failed` tells of it, and so does the log, which has each act anyway.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from qframe.admin.context import AdminRole
from qframe.errors import QFrameError, UnknownTopic
from qframe.message import Delivery
from qframe.options.rules import checked_limit
from qframe.stores.base import Groups, Logs, Publishing, Topics
from qframe.stores.records import FOREVER_MS
from qframe.stores.types import Entry
from qframe.topic import INTERNAL, Kind, Topic

TOPIC: Final = Topic(f"{INTERNAL}audit", Kind.STREAM, 1, retain="90d")
MOST_VALUES: Final = 20
_NEWER: Final = "a newer version of qframe"


class AuditStore(Topics, Publishing, Groups, Logs, Protocol):
    """The roles of a store that keeps an audit."""


class AuditEntry(msgspec.Struct, kw_only=True, frozen=True):
    """Something that was done.

    Attributes:
        number: which entry it is; later ones have larger numbers.
        at_ms: when, by the store's clock, in milliseconds since 1970.
        verb: what was done: the name of a verb of `app.admin`; `unknown` if it cannot be read.
        by: who did it.
        source: where the call came from.
        topic: on which topic; of what has none, such as a schedule, where its messages go.
        group: on which group; None where it was done to all, or to the topic.
        count: how many messages, slots or groups it changed.
        facts: what else is known, by name; of long lists the first 20.
    """

    number: int = 0
    at_ms: int = 0
    verb: str
    by: str
    source: str
    topic: str
    group: str | None = None
    count: int = 0
    facts: dict[str, Any] = {}


def keep_action(store: AuditStore, facts: Mapping[str, Any]) -> None:
    """Keeps what an `admin.action` says; what is older than 90 days goes, if its role may do that.

    Raises:
        QFrameError: if the store cannot keep it.
    """
    known = {name: facts[name] for name in AuditEntry.__struct_fields__ if name in facts}
    others = {name: _bounded(value) for name, value in facts.items() if name not in known}
    body = msgspec.json.encode({**known, "facts": others})
    number = os.urandom(16).hex()
    store.declare(TOPIC)
    store.publish(TOPIC, [Entry(0, None, number, number, None, None, body)])
    with suppress(QFrameError):  # a producer has no right to; the entry is kept, so a later act can
        store.sweep(TOPIC)


class AuditAdmin(AdminRole):
    """The actions that the store has kept."""

    def audit(self, limit: int = 100, *, before: int | None = None) -> list[AuditEntry]:
        """The actions of all processes within 90 days, the last first.

        Args:
            limit: how many at most.
            before: only those before this number, the last one of those that were listed.
        """
        context = self._context
        context.require("view")
        most, store = checked_limit(limit), context.store
        try:
            end = before if before is not None else store.offsets_at(TOPIC, FOREVER_MS)[0]
            first = max(0, end - most)
            found = store.read_log(TOPIC, 0, first, min(most, end - first))
        except UnknownTopic:  # nothing was ever done
            return []
        read = [_entry_of(each) for each in found if each.seq < end]
        return read[::-1]


def _entry_of(delivery: Delivery) -> AuditEntry:
    """The entry of a message; one of a newer version, which cannot be read, is `unknown`."""
    try:
        entry = msgspec.json.decode(delivery.body, type=AuditEntry)
    except (ValueError, RecursionError):
        entry = AuditEntry(verb="unknown", by="unknown", source=_NEWER, topic="unknown")
    return msgspec.structs.replace(entry, number=delivery.seq, at_ms=delivery.published_at_ms)


def _bounded(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(list(value.items())[:MOST_VALUES])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value[:MOST_VALUES])
    return value
