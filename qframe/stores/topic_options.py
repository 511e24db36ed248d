"""Options of a topic that may change after it was declared, as a store keeps them."""

from __future__ import annotations

from typing import Self

import msgspec

from qframe.topic import NOT_GROWN, Growth, Kind, SubjectRule, Topic


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

    def to_json(self) -> bytes:
        """As they are kept."""
        return msgspec.json.encode(self)


def topic_of(
    name: str, kind: str, slots: int, options: str | bytes, growth: Growth = NOT_GROWN
) -> Topic:
    """The topic that was declared with such options, and has grown so far."""
    known = msgspec.json.decode(options, type=TopicOptions)
    topic = Topic(name, Kind(kind), slots, max_length=known.max_length, subject=known.subject)
    topic.retain_ms = known.retain_ms
    topic.dedupe_window_ms = known.dedupe_window_ms
    topic.gap_timeout_ms = known.gap_timeout_ms
    topic.history_ms = known.history_ms
    return topic if growth == NOT_GROWN else topic.grown(slots, growth)
