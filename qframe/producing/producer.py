"""Publishing: everything is checked and encoded before the store sees any of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Unpack
from zlib import crc32

from qframe.clock import Clock
from qframe.codec import (
    SLOT_BASIS_HEADER,
    basis_of,
    batch_mark,
    checked_id,
    encode_body,
    encode_headers,
    new_token,
    subject_of,
)
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
from qframe.producing.bulk import plain_entries
from qframe.producing.catalog import TopicCatalog
from qframe.producing.outgoing import MessageOptions, Outgoing, outgoing, refuse_one_body
from qframe.retry import checked_times
from qframe.stores.base import Publishing
from qframe.stores.types import Entry, SlotsClosed
from qframe.topic import Kind, Topic, checked_count, checked_key, duration_ms

TRIES: Final = 3
PIECE: Final = 500
CLOSED_S: Final = 10.0
LOOK_AGAIN_S: Final = 0.01
MAX_PRIORITY: Final = 2**31 - 1
MAX_SEQUENCE: Final = 2**53 - 1
_ID_OF: Final = attrgetter("id")


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
    ) -> None:
        self._pause = pause
        self._carry = carry
        self._store = store
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
        size = self._batch if batch is None else checked_count("batch", batch, "use 500")
        refuse_one_body(items)
        found = self._catalog.resolve(topic)
        entries = self._entries(found, items, size)
        published: list[Published] = []
        for start in range(0, len(entries), size):
            part = entries[start : start + size]
            outcomes = self._send(found, part)
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
        outcomes = self._send(topic, entries)
        return [
            Published(entry.id, outcome) for entry, outcome in zip(entries, outcomes, strict=True)
        ]

    def _send(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Repeats a call whose answer was lost, which is safe under the same ids."""
        lost: AnswerLost | None = None
        for _ in range(TRIES):
            try:
                return _with_copies(entries, self._store_all(topic, entries))
            except AnswerLost as error:
                lost = error
            except (StoreUnavailable, StoreFull) as error:
                # It says that this try has written nothing; an earlier one may have.
                if lost is None:
                    raise
                raise PublishUnknown(topic.name, [entry.id for entry in entries]) from error
        raise PublishUnknown(topic.name, [entry.id for entry in entries]) from lost

    def _store_all(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Gives entries to the store; those of slots that are being split again, when they are."""
        try:
            return self._store.publish(topic, entries)
        except SlotsClosed as error:
            outcomes, closed = list(error.outcomes), error
        try:
            self._store_rest(topic, entries, outcomes, closed)
        except AnswerLost:
            raise
        except (StoreUnavailable, StoreFull) as error:
            if all(outcome is None for outcome in outcomes):
                raise
            raise PublishUnknown(topic.name, [entry.id for entry in entries]) from error
        return [outcome for outcome in outcomes if outcome is not None]

    def _store_rest(
        self, topic: Topic, entries: Sequence[Entry], outcomes: list[Outcome | None],
        closed: SlotsClosed,
    ) -> None:  # fmt: skip
        """Stores those without an outcome in the slots that are theirs by now; fills these in."""
        until_s = self._clock.monotonic_s() + CLOSED_S
        while places := [place for place, outcome in enumerate(outcomes) if outcome is None]:
            topic = self._catalog.refresh(topic)
            rest = [entries[place] for place in places]
            for entry in rest:
                if entry.hash is not None:
                    entry.slot = topic.slot_of_hash(entry.hash)
            try:
                found: Sequence[Outcome | None] = self._store.publish(topic, rest)
            except SlotsClosed as error:
                found = error.outcomes
                if self._clock.monotonic_s() >= until_s:
                    raise closed from None
                self._pause(LOOK_AGAIN_S)
            for place, outcome in zip(places, found, strict=True):
                outcomes[place] = outcome

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
                plain.body = item
                item = plain
            entries.append(entry_of(topic, item, f"{token}-{number}", mark, max_body))
        return entries


def _with_copies(entries: Sequence[Entry], outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes, where a copy of a message that was `full` in the same call is so as well.

    The store takes it for a duplicate, though there is none.
    """
    if Outcome.FULL not in outcomes or Outcome.DUPLICATE not in outcomes:
        return outcomes
    pairs = list(zip(entries, outcomes, strict=True))
    full = {entry.id for entry, outcome in pairs if outcome is Outcome.FULL}
    return [
        Outcome.FULL if outcome is Outcome.DUPLICATE and entry.id in full else outcome
        for entry, outcome in pairs
    ]


def entry_of(topic: Topic, item: Outgoing, made_up: str, mark: str, max_body: int) -> Entry:
    """One message, checked and encoded. The way of a plain body and key through here is hot.

    Raises:
        BadInput: if anything about it is wrong.
    """
    body, raw = encode_body(item.body, max_body)
    key = item.key
    if key is not None:
        checked_key(key)
    headers = None
    if raw or item.headers is not None or item.tags is not None:
        headers = encode_headers(item.headers, item.tags, raw, max_body)
    basis = body if key is None else key.encode()
    if item.id is not None:
        made_up = mark = checked_id(item.id)
        basis = basis_of(topic, None, key, body, made_up)
    subject = subject_of(topic, key, body, made_up) if topic.has_subjects else None
    number = crc32(basis)
    slot = topic.slot_of_hash(number)
    entry = Entry(slot, subject, made_up, mark, key, headers, body, number)
    if (
        item.delay is not None
        or item.at is not None
        or item.priority
        or item.within is not None
        or item.sequence is not None
        or item.slot_basis is not None
    ):
        _add_options(entry, topic, item)
    return entry


def _add_options(entry: Entry, topic: Topic, item: Outgoing) -> None:
    """The rarer options, each only where the topic's kind has a use for it."""
    kind = topic.kind
    entry.delay_ms, entry.at_ms = checked_times(item.delay, item.at)
    timed = item.delay is not None or item.at is not None
    if item.slot_basis is not None:
        basis = _slot_basis(topic, item, timed=timed)
        entry.hash = crc32(basis.encode())
        entry.slot = topic.slot_of_hash(entry.hash)
        entry.headers = {**(entry.headers or {}), SLOT_BASIS_HEADER: basis}
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
            raise BadOption("within", item.within, "a time is given too", "give one of them")
        entry.within_ms = duration_ms(item.within, "within")
    if item.sequence is not None:
        _refuse_unless(kind is Kind.ORDERED, "sequence", item.sequence, topic)
        if timed:
            raise BadOption("sequence", item.sequence, "a time is given too", "give one of them")
        whole = isinstance(item.sequence, int) and not isinstance(item.sequence, bool)
        if not whole or not 1 <= item.sequence <= MAX_SEQUENCE:
            raise BadOption(
                "sequence", item.sequence, "it must be a whole number from 1", "count from 1"
            )
        entry.sequence = item.sequence


def _slot_basis(topic: Topic, item: Outgoing, *, timed: bool) -> str:
    """The `slot_basis` of a message, where nobody looks for the key in its own slot."""
    basis = item.slot_basis
    if item.key is not None and topic.has_subjects:
        remedy = "leave one of the two out, or publish to a stream"
        if topic.kind is not Kind.ORDERED:
            why = (
                f"equal keys must share the key's slot in topic {topic.name!r} of kind {topic.kind}"
            )
            raise BadOption("slot_basis", basis, why, remedy)
        if timed:
            why = "a time and a key are given too, and a timer is in its key's slot"
            raise BadOption("slot_basis", basis, why, remedy)
    try:
        return checked_key(basis)
    except BadKey as error:
        raise BadOption("slot_basis", basis, error.why, "use a string, such as an id") from None


def _refuse_unless(fits: bool, option: str, value: object, topic: Topic) -> None:
    if not fits:
        raise BadOption(
            option, value, f"topic {topic.name!r} is of kind {topic.kind}, which has no use for it",
            "leave it out, or publish to a topic of another kind",
        )  # fmt: skip
