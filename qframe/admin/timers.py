"""Messages that wait for their time: set, looked up, moved, changed and cancelled by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from qframe.codec import encode_body, encode_headers
from qframe.errors import BadOption, BadTopic, UnknownTopic
from qframe.options.rules import checked_limit
from qframe.outcomes import Moved, Published
from qframe.retry import checked_times
from qframe.stores.base import Store
from qframe.stores.records import Record
from qframe.topic import Kind, Topic, checked_key, checked_name


class Publisher(Protocol):
    """The part of a producer that timers need."""

    def publish(
        self,
        topic: Topic | str,
        body: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tags: Iterable[str] | None = None,
        id: str | None = None,  # noqa: A002 - the producer's own name for it
        delay: float | str | timedelta | None = None,
        at: datetime | float | None = None,
    ) -> Published:
        """Publishes a message."""


class Timers:
    """Sets, finds and changes timers: `app.timers`. A `stream` has none: its messages have no name.

    A timer is found by the message's key, or, where it has none, by the `subject` that `find`
    shows. Times are datetimes with a time zone, or seconds since 1970; delays are seconds, a text
    such as "10m", or a timedelta.

    Args:
        store: where timers are kept.
        producer: publishes them.
        max_body: the largest body, in bytes.
    """

    def __init__(self, store: Store, producer: Publisher, *, max_body: int = 262_144) -> None:
        self._store = store
        self._producer = producer
        self._max_body = max_body

    def schedule(
        self,
        topic: Topic | str,
        body: Any,
        *,
        key: str | None = None,
        at: datetime | float | None = None,
        delay: float | str | timedelta | None = None,
        headers: Mapping[str, str] | None = None,
        tags: Iterable[str] | None = None,
        id: str | None = None,  # noqa: A002 - the producer's own name for it
    ) -> Published:
        """Publishes a message that is due at a time.

        Scheduled again under the same key: `delay` and `priority` replace it, `merge` keeps its
        time, `ordered` puts a second one behind it.

        Raises:
            BadOption: unless one of `at` and `delay` is given.
            BadTopic: if the topic is a stream.
        """
        self._refuse_stream(topic if isinstance(topic, Topic) else self._topic(topic))
        if at is None and delay is None:
            raise _no_time()
        return self._producer.publish(
            topic, body, key=key, headers=headers, tags=tags, id=id, delay=delay, at=at
        )

    def move(
        self,
        topic: Topic | str,
        key: str,
        *,
        at: datetime | float | None = None,
        delay: float | str | timedelta | None = None,
    ) -> Moved:
        """Makes it due at another time, for every group.

        Returns:
            `done`; `absent` if there is none; `doing` if a handler has it, and nothing is changed.
        """
        found = self._found(topic)
        delay_ms, at_ms = checked_times(delay, at)
        if delay_ms is not None:
            at_ms = self._store.now_ms(found) + delay_ms
        if at_ms is None:
            raise _no_time()
        return self._store.edit(found, checked_key(key), due_ms=at_ms)

    def change(
        self,
        topic: Topic | str,
        key: str,
        body: Any,
        *,
        headers: Mapping[str, str] | None = None,
        tags: Iterable[str] | None = None,
    ) -> Moved:
        """Replaces its body, headers and tags; returns the same as `move`.

        Raises:
            BadBody: if the body cannot be encoded, or is too large.
        """
        found = self._found(topic)
        encoded, raw = encode_body(body, self._max_body)
        return self._store.edit(
            found, checked_key(key), body=encoded, headers=encode_headers(headers, tags, raw)
        )

    def cancel(self, topic: Topic | str, key: str) -> Moved:
        """Removes it for every group, counted as cancelled; returns the same as `move`.

        In an `ordered` topic it removes all messages of the key.
        """
        return self._store.cancel(self._found(topic), checked_key(key))

    def get(self, topic: Topic | str, key: str) -> list[Record]:
        """One record for each group that has it; empty if none has."""
        return self._store.timer(self._found(topic), checked_key(key))

    def find(
        self,
        topic: Topic | str,
        *,
        since: datetime | float | None = None,
        until: datetime | float | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """The timers due from `since` up to but not including `until`, the next one first."""
        found = self._found(topic)
        _, from_ms = checked_times(None, since)
        _, until_ms = checked_times(None, until)
        return self._store.timers(
            found, from_ms=from_ms or 0, until_ms=until_ms, limit=checked_limit(limit)
        )

    def _found(self, topic: Topic | str) -> Topic:
        found = self._topic(topic)
        self._refuse_stream(found)
        return found

    def _topic(self, topic: Topic | str) -> Topic:
        name = topic.name if isinstance(topic, Topic) else checked_name(topic, "topic")
        found = self._store.topic(name)
        if found is None:
            raise UnknownTopic(name)
        return found

    def _refuse_stream(self, topic: Topic) -> None:
        if topic.kind is Kind.STREAM:
            raise BadTopic(
                "topic", topic.name, "a stream's messages cannot be changed or looked up",
                'declare a topic of kind="delay", or publish(…, delay=…) if it need not change',
            )  # fmt: skip


def _no_time() -> BadOption:
    return BadOption("at", None, "a timer needs a time", 'give at=, or delay=30 or delay="2h"')
