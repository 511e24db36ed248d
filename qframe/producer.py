"""Publishing: everything is checked and encoded before the store sees any of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, Unpack
from zlib import crc32

import msgspec

from qframe.clock import Clock
from qframe.codec import batch_mark, checked_id, encode_body, encode_headers, new_token, subject_of
from qframe.errors import (
    AnswerLost,
    BadKey,
    BadOption,
    PublishUnknown,
    StoreFull,
    StoreUnavailable,
    TopicFull,
)
from qframe.outcomes import Outcome, Published
from qframe.retry import checked_times
from qframe.stores.base import Entry, Store
from qframe.topic import Kind, Topic, checked_key, duration_ms

TRIES: Final = 3
MAX_PRIORITY: Final = 2**31 - 1


class Outgoing(msgspec.Struct, gc=False, eq=False):
    """A message on its way out, for `publish_many`.

    Attributes:
        body: anything that JSON can hold, a dataclass or Struct of such, or bytes.
        key: what must be handled serially and in order with it.
        headers: texts that go with it.
        tags: texts by which consumers may choose.
        id: its id; one is made up where there is none. The same id again within the topic's
            `dedupe_window` is a duplicate.
        delay: due so much later: seconds, a text such as "10m", or a timedelta.
        at: due then: a datetime with a time zone, or seconds since 1970.
        priority: higher goes first; in `priority` and `ordered` topics.
        within: in `merge` topics, the window: due so much later unless due already.
        sequence: its number among its key's messages, from 1; in `ordered` topics.
    """

    body: Any
    key: str | None = None
    headers: Mapping[str, str] | None = None
    tags: Iterable[str] | None = None
    id: str | None = None
    delay: float | str | timedelta | None = None
    at: datetime | float | None = None
    priority: int = 0
    within: float | str | None = None
    sequence: int | None = None


class MessageOptions(TypedDict, total=False):
    """The keyword arguments of every `publish`; `Outgoing` tells what they mean."""

    key: str | None
    headers: Mapping[str, str] | None
    tags: Iterable[str] | None
    id: str | None
    delay: float | str | timedelta | None
    at: datetime | float | None
    priority: int
    within: float | str | None
    sequence: int | None


class Producer:
    """Publishes to topics; safe to use from many threads.

    Args:
        store: where messages go.
        resolve: finds the topic that is meant, declares it if need be.
        max_body: the largest body, in bytes.
        batch: how many messages go to the store in one call by default.
        clock: for made-up ids.
    """

    def __init__(
        self,
        store: Store,
        *,
        resolve: Callable[[Topic | str], Topic],
        max_body: int,
        batch: int,
        clock: Clock,
    ) -> None:
        self._store = store
        self._resolve = resolve
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
        found = self._resolve(topic)
        token = new_token(self._clock)
        item = Outgoing(body, **options)
        entry = self._entry(
            found, found.has_subjects, found.slots - 1, item, f"{token}-0", batch_mark(token)
        )
        [outcome] = self._send(found, (entry,))
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
                whole or not at all.

        Raises:
            BadInput: if anything about one of them is wrong; nothing was written.
            TopicFull: if the topic is at its `max_length`; its `outcomes` tell what was stored.
            PublishUnknown: if the store's answer was lost; its `ids` are those in doubt.
            StoreUnavailable: if the store cannot be reached; earlier batches were written.
            StoreFull: if the store has no room left; earlier batches were written.
        """
        size = self._batch if batch is None else batch
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise BadOption("batch", batch, "it must be a whole number from 1", "use 500")
        found = self._resolve(topic)
        entries = self._entries(found, items, size)
        published: list[Published] = []
        for start in range(0, len(entries), size):
            part = entries[start : start + size]
            outcomes = self._send(found, part)
            published += [
                Published(entry.id, outcome) for entry, outcome in zip(part, outcomes, strict=True)
            ]
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
        self._entries(self._resolve(topic), items, self._batch)

    def prepared(self, topic: Topic | str, item: Outgoing) -> tuple[Topic, Entry]:
        """A message, checked and encoded, for `send`; it has no id yet unless it is a named one.

        Raises:
            BadInput: if anything about it is wrong.
        """
        found = self._resolve(topic)
        return found, self._entry(found, found.has_subjects, found.slots - 1, item, "", "")

    def send(self, topic: Topic, entries: Sequence[Entry]) -> list[Published]:
        """Publishes what was prepared, in one call; those that are `full` were not stored.

        Raises:
            PublishUnknown, StoreUnavailable, StoreFull: as `publish_many` does.
        """
        token = new_token(self._clock)
        mark = batch_mark(token)
        for number, entry in enumerate(entries):
            if not entry.id:
                entry.id, entry.mark = f"{token}-{number}", mark
        outcomes = self._send(topic, entries)
        return [
            Published(entry.id, outcome) for entry, outcome in zip(entries, outcomes, strict=True)
        ]

    def _send(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Repeats a call whose answer was lost, which is safe under the same ids."""
        lost: AnswerLost | None = None
        for _ in range(TRIES):
            try:
                return self._store.publish(topic, entries)
            except AnswerLost as error:
                lost = error
            except (StoreUnavailable, StoreFull) as error:
                # It says that this try has written nothing; an earlier one may have.
                if lost is None:
                    raise
                raise PublishUnknown(topic.name, [entry.id for entry in entries]) from error
        raise PublishUnknown(topic.name, [entry.id for entry in entries]) from lost

    def _entries(self, topic: Topic, items: Iterable[Any], batch: int) -> list[Entry]:
        """All items, checked and encoded."""
        entries: list[Entry] = []
        add = entries.append
        plain = Outgoing(None)
        has_subjects, last_slot = topic.has_subjects, topic.slots - 1
        token = mark = ""
        for number, item in enumerate(items):
            place = number % batch
            if not place:
                token = new_token(self._clock)
                mark = batch_mark(token)
            if not isinstance(item, Outgoing):
                plain.body = item
                item = plain
            add(self._entry(topic, has_subjects, last_slot, item, f"{token}-{place}", mark))
        return entries

    def _entry(
        self,
        topic: Topic,
        has_subjects: bool,
        last_slot: int,
        item: Outgoing,
        made_up: str,
        mark: str,
    ) -> Entry:
        """One item. The way of a plain body and key through here is hot."""
        body, raw = encode_body(item.body, self._max_body)
        key = item.key
        if key is not None:
            checked_key(key)
        headers = None
        if raw or item.headers is not None or item.tags is not None:
            headers = encode_headers(item.headers, item.tags, raw)
        if item.id is not None:
            made_up = mark = checked_id(item.id)
        subject = subject_of(key, body) if has_subjects else None
        slot = crc32(body if key is None else key.encode()) & last_slot
        entry = Entry(slot, subject, made_up, mark, key, headers, body)
        if (
            item.delay is not None
            or item.at is not None
            or item.priority
            or item.within is not None
            or item.sequence is not None
        ):
            _add_options(entry, topic, item)
        return entry


def _add_options(entry: Entry, topic: Topic, item: Outgoing) -> None:
    """The rarer options, each only where the topic's kind has a use for it."""
    kind = topic.kind
    entry.delay_ms, entry.at_ms = checked_times(item.delay, item.at)
    timed = item.delay is not None or item.at is not None
    if item.priority:
        _refuse_unless(kind in (Kind.PRIORITY, Kind.ORDERED), "priority", item.priority, topic)
        whole = isinstance(item.priority, int) and not isinstance(item.priority, bool)
        if not whole or abs(item.priority) > MAX_PRIORITY:
            raise BadOption(
                "priority", item.priority, "it must be a whole number within ±2147483647", "use 0"
            )
        entry.priority = item.priority
    if item.within is not None:
        _refuse_unless(kind is Kind.MERGE, "within", item.within, topic)
        if timed:
            raise BadOption("within", item.within, "a time is given as well", "give one of them")
        entry.within_ms = duration_ms(item.within, "within")
    if item.sequence is not None:
        _refuse_unless(kind is Kind.ORDERED, "sequence", item.sequence, topic)
        if item.key is None:
            raise BadKey("key", None, "sequence= counts a key's messages", "give key=")
        if timed:
            raise BadOption(
                "sequence", item.sequence, "a time is given as well", "give one of them"
            )
        whole = isinstance(item.sequence, int) and not isinstance(item.sequence, bool)
        if not whole or not 1 <= item.sequence < 2**53:
            raise BadOption(
                "sequence", item.sequence, "it must be a whole number from 1", "count from 1"
            )
        entry.sequence = item.sequence


def _refuse_unless(fits: bool, option: str, value: object, topic: Topic) -> None:
    if not fits:
        raise BadOption(
            option, value, f"topic {topic.name!r} is of kind {topic.kind}, which has no use for it",
            "leave it out, or publish to a topic of another kind",
        )  # fmt: skip
