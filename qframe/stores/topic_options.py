"""Options of a topic that may change after it was declared, as a store keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import msgspec

from qframe.errors import BadTopic
from qframe.growth import NOT_GROWN, Growth
from qframe.topic import Kind, SubjectRule, Topic


class TopicOptions(msgspec.Struct):
    """A topic's options; they lie as JSON beside its kind and slot count."""

    retain_ms: int
    max_length: int | None
    dedupe_window_ms: int
    gap_timeout_ms: int
    subject: SubjectRule | None = None
    history_ms: int = 0

    @classmethod
    def of(cls, topic: Topic) -> Self:
        """The options of a topic."""
        return cls(
            topic.retain_ms, topic.max_length, topic.dedupe_window_ms, topic.gap_timeout_ms,
            topic.subject, topic.history_ms,
        )  # fmt: skip

    def topic(self, name: str, kind: Kind, slots: int) -> Topic:
        """The topic of these options, also of those that do nothing in its kind.

        Raises:
            BadTopic: if there can be no such topic.
        """
        topic: Topic = Topic(name, kind, slots, max_length=self.max_length, subject=self.subject)
        topic.retain_ms = self.retain_ms
        topic.dedupe_window_ms = self.dedupe_window_ms
        topic.gap_timeout_ms = self.gap_timeout_ms
        topic.history_ms = self.history_ms
        return topic

    def to_json(self, before: str | bytes = b"{}") -> bytes:
        """As they are kept, beside those of a newer version that were there before."""
        return msgspec.json.encode(_OPTIONS.decode(before) | msgspec.to_builtins(self))


_OPTIONS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def topic_of(
    name: str, kind: str, slots: int, options: str | bytes, growth: Growth = NOT_GROWN
) -> Topic:
    """The topic that was declared with such options, and has grown so far; see `reading`."""
    topic = msgspec.json.decode(options, type=TopicOptions).topic(name, Kind(kind), slots)
    return topic if growth == NOT_GROWN else topic.grown(slots, growth)


@contextmanager
def reading(name: str, kind: str) -> Iterator[None]:
    """Reads a topic as a store has it.

    Raises:
        BadTopic: if it cannot be read, as a newer version of qframe has written it.
    """
    try:
        yield
    except (ValueError, RecursionError) as error:
        why = f"this version of qframe cannot read its options ({error})"
        if kind not in list(Kind):
            why = f"it is of kind {kind!r}, which this version of qframe does not know"
        remedy = "use the newer version that wrote it; if there is none, restore a backup"
        raise BadTopic("topic", name, why, remedy) from error
