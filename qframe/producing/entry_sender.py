"""The way of entries into the store, past slots that are closed and replies that are lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from qframe.clock import Clock
from qframe.errors import (
    AnswerLost,
    PublishUnknown,
    StoreUnavailable,
    TopicMismatch,
    UnknownTopic,
)
from qframe.outcomes import Outcome
from qframe.producing.catalog import TopicCatalog
from qframe.stores.base import Publishing
from qframe.stores.types import Entry, SlotsClosed
from qframe.topic import Topic

TRIES: Final = 3
CLOSED_S: Final = 10.0
LOOK_AGAIN_S: Final = 0.01

Found = TypeVar("Found", Outcome, Outcome | None)


class EntrySender:
    """Sends entries to the store until the outcome of each is known.

    Entries of slots that are being split are sent again until these are split, each to the slot
    that is its by then. A call whose reply was lost is sent again too, which is safe under the same
    ids. A topic that this process has declared, and that the store has lost since, is declared
    again, as by a process that starts.

    Args:
        store: where entries go.
        catalog: knows how far a topic has grown.
        clock: for how long a slot may be closed.
        pause: waits for so many seconds.
    """

    def __init__(
        self, store: Publishing, catalog: TopicCatalog, clock: Clock,
        pause: Callable[[float], object],
    ) -> None:  # fmt: skip
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._pause = pause

    def send(self, topic: Topic, entries: Sequence[Entry]) -> Sequence[Outcome]:
        """Stores entries; returns the outcome of each.

        Raises:
            PublishUnknown: if some may be stored, and the outcomes are not all known.
            StoreUnavailable: if none is stored; also if there is no room, or slots stay closed.
            UnknownTopic: if the topic was deleted, and is known here by its name alone.
            TopicMismatch: if it was deleted, and was declared since with another kind.
        """
        rest = entries
        outcomes: Sequence[Outcome | None] = ()
        closed_until_s: float | None = None
        lost, is_anew = 0, False
        try:
            while True:
                try:
                    if closed_until_s is not None:
                        topic = self._followed(topic, rest)
                    found = self._store.publish(topic, rest)
                    return _with_copies(entries, _filled(outcomes, found))
                except SlotsClosed as error:
                    outcomes = _filled(outcomes, error.outcomes)
                    pairs = zip(entries, outcomes, strict=True)
                    rest = [entry for entry, outcome in pairs if outcome is None]
                    now_s = self._clock.monotonic_s()
                    if closed_until_s is None:
                        closed_until_s = now_s + CLOSED_S
                    elif now_s < closed_until_s:
                        self._pause(LOOK_AGAIN_S)
                    else:
                        raise
                except UnknownTopic:
                    if is_anew:
                        raise
                    topic, is_anew = self._catalog.declare_again(topic), True
                except TopicMismatch:
                    if is_anew:
                        raise
                    # It raises this again, and forgets the kind of a topic known by its name.
                    topic, is_anew = self._followed(topic, rest), True
                except AnswerLost:
                    lost += 1
                    if lost == TRIES:
                        raise
        except StoreUnavailable as error:
            # It says that this try has written nothing; an earlier one may have.
            if lost or len(rest) < len(entries):
                raise PublishUnknown(topic.name, [entry.id for entry in entries], error) from error
            raise

    def _followed(self, topic: Topic, entries: Sequence[Entry]) -> Topic:
        """The topic as far as it has grown by now; the entries go to the slots that are theirs."""
        topic = self._catalog.refresh(topic)
        for entry in entries:
            if entry.hash is not None:
                entry.slot = topic.slot_of_hash(entry.hash)
        return topic


def _filled(outcomes: Sequence[Outcome | None], found: Sequence[Found]) -> Sequence[Found]:
    """The outcomes, with those that were found since in place of None."""
    if not outcomes:
        return found
    rest = iter(found)
    return [next(rest) if outcome is None else outcome for outcome in outcomes]


def _with_copies(entries: Sequence[Entry], outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
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
