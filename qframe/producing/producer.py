"""Publishing: everything is checked and encoded before the store sees any of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Protocol, Unpack

from qframe.clock import Clock
from qframe.codec import batch_mark, new_token
from qframe.current import HOLDER
from qframe.errors import TopicFull
from qframe.outcomes import Outcome, Published
from qframe.producing.bulk import plain_entries
from qframe.producing.catalog import TopicCatalog
from qframe.producing.entry import entry_of
from qframe.producing.entry_sender import EntrySender
from qframe.producing.outgoing import (
    MessageOptions,
    Outgoing,
    outgoing,
    refuse_envelope,
    refuse_one_body,
)
from qframe.producing.sweeping import OccasionalSweeper
from qframe.stores.base import Publishing
from qframe.stores.types import Entry
from qframe.topic import Topic, checked_count

PIECE: Final = 500
_ID_OF: Final = attrgetter("id")


class Hints(Protocol):
    """Something that looks at what handlers publish."""

    def look(self, topic: str) -> None:
        """The caller, in whose context a handler may run, publishes to a topic."""


class Producer:
    """Publishes to topics; safe to use from many threads.

    Args:
        store: where messages go.
        catalog: finds the topic that is meant, and declares it if need be.
        max_body: the largest body, in bytes.
        batch: how many messages go to the store in one call by default.
        clock: for made-up ids, and for how long a slot may be closed.
        pause: waits for so many seconds.
        carry: adds to the headers of a message that another thread may send what is to go with it,
            such as the context of a trace; None for nothing.
        hints: looks at what handlers publish under an id that is made up.
        sweeper: removes what is no longer needed, now and then; None if others do.
    """

    def __init__(
        self,
        store: Publishing,
        *,
        catalog: TopicCatalog,
        max_body: int,
        batch: int,
        clock: Clock,
        pause: Callable[[float], object] = time.sleep,
        carry: Callable[[Mapping[str, str] | None], dict[str, str] | None] | None = None,
        hints: Hints | None = None,
        sweeper: OccasionalSweeper | None = None,
    ) -> None:
        self._sender = EntrySender(store, catalog, clock, pause)
        self._sweeper = sweeper
        self._carry = carry
        self._hints = hints
        self._catalog = catalog
        self._max_body = max_body
        self._batch = batch
        self._clock = clock

    def publish(
        self, topic: Topic | str, body: Any, **options: Unpack[MessageOptions]
    ) -> Published:
        """Publishes one message; `Outgoing` tells what the options mean.

        Raises:
            BadInput: if anything about it is wrong; nothing was written.
            TopicFull: if the topic is at its `max_length`.
            PublishUnknown: if the store's answer was lost.
            StoreUnavailable: if the store cannot be reached; nothing was written.
            StoreFull: if the store has no room left; nothing was written.
        """
        item = outgoing(body, options)
        found = self._catalog.resolve(topic)
        token = new_token(self._clock)
        entry = entry_of(found, item, f"{token}-0", batch_mark(token), self._max_body)
        if HOLDER.get() is not None:
            self._hint(found, (entry,))
        [outcome] = self._sent(found, (entry,))
        published = Published(entry.id, outcome)
        if outcome is Outcome.FULL:
            raise TopicFull(found.name, [published])
        return published

    def publish_many(
        self, topic: Topic | str, items: Iterable[Any], batch: int | None = None
    ) -> list[Published]:
        """Publishes many messages, in order; nothing is written if one of them is wrong.

        Args:
            topic: the topic, or the name of one that is declared.
            items: bodies, or `Outgoing`.
            batch: how many go to the store in one call. A batch's share of a slot is stored
                whole or not at all; on Redis in parts, if messages times groups are over 20,000.

        Raises:
            BadInput: if anything about one of them is wrong; nothing was written.
            TopicFull: if the topic is at its `max_length`; its `outcomes` tell what was stored.
            PublishUnknown: if the store's answer was lost; its `ids` are those in doubt.
            StoreUnavailable: if the store cannot be reached; earlier batches were written.
            StoreFull: if the store has no room left; earlier batches were written.
        """
        size = self._batch if batch is None else checked_count("batch", batch, "use 500")
        refuse_one_body(items)
        found = self._catalog.resolve(topic)
        entries = self._entries(found, items, size)
        if HOLDER.get() is not None:
            self._hint(found, entries)
        published: list[Published] = []
        for start in range(0, len(entries), size):
            part = entries[start : start + size]
            outcomes = self._sent(found, part)
            published += map(Published, map(_ID_OF, part), outcomes)
            if Outcome.FULL in outcomes:
                rest = entries[start + size :]
                published += [Published(entry.id, Outcome.FULL) for entry in rest]
                raise TopicFull(found.name, published)
        return published

    def check(self, topic: Topic | str, items: Iterable[Any]) -> None:
        """Refuses what `publish_many` would refuse for itself, and writes nothing.

        Raises:
            BadInput: if anything about one of them is wrong.
        """
        self._entries(self._catalog.resolve(topic), items, self._batch)

    def prepared(self, topic: Topic | str, item: Outgoing) -> tuple[Topic, Entry]:
        """A message, checked and encoded, for `send`; it has no id yet unless it is a named one.

        Raises:
            BadInput: if anything about it is wrong.
        """
        found = self._catalog.resolve(topic)
        entry = entry_of(found, item, "", "", self._max_body)
        if HOLDER.get() is not None:
            self._hint(found, (entry,))
        if self._carry is not None:
            entry.headers = self._carry(entry.headers)
        return found, entry

    def send(self, topic: Topic, entries: Sequence[Entry]) -> list[Published]:
        """Publishes what was prepared, in one call; those that are `full` were not stored.

        Raises:
            PublishUnknown, StoreUnavailable, StoreFull: as `publish_many` does.
        """
        token = new_token(self._clock)
        mark = batch_mark(token)
        for number, entry in enumerate(entries):
            if not entry.id:
                entry.name(f"{token}-{number}", mark)
        outcomes = self._sent(topic, entries)
        return [
            Published(entry.id, outcome) for entry, outcome in zip(entries, outcomes, strict=True)
        ]

    def _sent(self, topic: Topic, entries: Sequence[Entry]) -> Sequence[Outcome]:
        outcomes = self._sender.send(topic, entries)
        if self._sweeper is not None:
            self._sweeper.look(topic)
        return outcomes

    def _hint(self, topic: Topic, entries: Iterable[Entry]) -> None:
        """Has what a handler publishes looked at, unless each attempt publishes the same ids."""
        if self._hints is not None and any(not each.id or each.mark != each.id for each in entries):
            self._hints.look(topic.name)

    def _entries(self, topic: Topic, items: Iterable[Any], batch: int) -> list[Entry]:
        """All items, checked and encoded."""
        entries: list[Entry] = []
        rest = iter(items)
        # A generator may yield one dict again and again, each time with something else in it: so
        # only what is all there is looked at together.
        is_there = type(items) in (list, tuple)
        while True:
            token = new_token(self._clock)
            for place in range(0, batch, PIECE):
                most = min(PIECE, batch - place)
                piece = islice(rest, most)
                made = self._piece(topic, list(piece) if is_there else piece, token, place)
                entries += made
                if len(made) < most:
                    return entries

    def _piece(self, topic: Topic, items: Iterable[Any], token: str, place: int) -> list[Entry]:
        """A part of a batch, from its place there on."""
        if isinstance(items, list):
            made = plain_entries(topic, items, token, place, self._max_body)
            if made is not None:
                return made
        mark = batch_mark(token)
        max_body = self._max_body
        entries: list[Entry] = []
        plain = Outgoing(None)
        for number, item in enumerate(items, place):
            if not isinstance(item, Outgoing):
                refuse_envelope(item)
                plain.body = item
                item = plain
            entries.append(entry_of(topic, item, f"{token}-{number}", mark, max_body))
        return entries
