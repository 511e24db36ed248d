"""Messages that wait for their time: set, looked up, moved, changed and cancelled by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, Unpack

import msgspec

from qframe.admin.audit_log import user_at_host
from qframe.admin.search import LOOK, Hits
from qframe.admin.timer_changes import (
    cancel_timer,
    cancelled,
    checked_content,
    edit_timer,
    moved_to,
    no_time,
)
from qframe.admin.timer_search import (
    TimerChanges,
    TimerChoice,
    change_all,
    checked_choice,
    each_timer,
    found_timers,
    refuse_stream,
)
from qframe.admin.timer_status import TimerStatus, status_of
from qframe.codec import MAX_BODY
from qframe.errors import UnknownTopic
from qframe.outcomes import Moved, Published
from qframe.stores.base import Store
from qframe.stores.edits import Edit
from qframe.stores.records import Record
from qframe.topic import Body, Topic, checked_key, checked_name


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
    """Sets, finds and changes timers: `app.timers`.

    A message that is to join a `stream` later is found here, but not changed: it has no name.

    A timer is found by the message's key, or, where it has none, by the `subject` that `find`
    shows. Times are datetimes with a time zone, or seconds since 1970; delays are seconds, a text
    such as "10m", or a timedelta.

    Args:
        store: where timers are kept.
        producer: publishes them.
        max_body: the largest body, in bytes.
    """

    def __init__(self, store: Store, producer: Publisher, *, max_body: int = MAX_BODY) -> None:
        self._store = store
        self._producer = producer
        self._max_body = max_body

    def schedule(
        self,
        topic: Topic[Body] | str,
        body: Body,
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
        refuse_stream(topic if isinstance(topic, Topic) else self._topic(topic))
        if at is None and delay is None:
            raise no_time()
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
        if at is None and delay is None:
            raise no_time()
        return self.edit(topic, key, at=at, delay=delay)

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
        return self.edit(topic, key, body=body, headers=headers, tags=tags)

    def edit(
        self,
        topic: Topic | str,
        key: str,
        *,
        body: Any = msgspec.UNSET,
        headers: Mapping[str, str] | None = None,
        tags: Iterable[str] | None = None,
        at: datetime | float | None = None,
        delay: float | str | timedelta | None = None,
    ) -> Moved:
        """Replaces its time, or its body with headers and tags, or both in one step.

        Returns:
            As `move`.

        Raises:
            BadBody: if the body cannot be encoded, or is too large.
            BadOption: if neither time nor body is given, or headers or tags without a body.
        """
        found = self._found(topic)
        return edit_timer(
            self._store, found, key, by=user_at_host(), at=at, delay=delay,
            content=checked_content(body, headers, tags, self._max_body),
        )  # fmt: skip

    def cancel(self, topic: Topic | str, key: str) -> Moved:
        """Removes it for every group, counted as cancelled; returns the same as `move`.

        In an `ordered` topic it removes all messages of the key.
        """
        return cancel_timer(self._store, self._found(topic), key, by=user_at_host())

    def move_all(
        self,
        topic: Topic | str,
        *,
        at: datetime | float | None = None,
        shift: float | str | timedelta | None = None,
        dry_run: bool = False,
        on_progress: Callable[[TimerChanges], object] | None = None,
        **which: Unpack[TimerChoice],
    ) -> TimerChanges:
        """Makes all timers that are meant due at another time.

        A timer that is moved, handed out or set anew meanwhile is left alone.

        Args:
            topic: the topic.
            at: when they are due from now on, all of them.
            shift: or by how much later each is due; -3600 or "-1h" is earlier.
            dry_run: only counts them.
            on_progress: called after each step with how far it is; it may raise to stop.
            which: the timers that are meant, as in `find`; all without.

        Raises:
            BadOption: unless one of `at` and `shift` is given.
        """
        edit_of = moved_to(at, shift)
        return self._change_all(topic, which, edit_of, dry_run=dry_run, on_progress=on_progress)

    def cancel_all(
        self,
        topic: Topic | str,
        *,
        dry_run: bool = False,
        on_progress: Callable[[TimerChanges], object] | None = None,
        **which: Unpack[TimerChoice],
    ) -> TimerChanges:
        """Removes all timers that are meant; its arguments are those of `move_all`."""
        return self._change_all(topic, which, cancelled, dry_run=dry_run, on_progress=on_progress)

    def get(self, topic: Topic | str, key: str) -> list[Record]:
        """One record for each group that has it; empty if none has."""
        return self._store.timer(self._found(topic), checked_key(key))

    def status(
        self,
        topic: Topic | str,
        key: str | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the producer's own name for it
        look: int = LOOK,
    ) -> list[TimerStatus]:
        """How it stands with each group: waiting, due, doing, retrying, handled, dead, cancelled.

        Handled and cancelled ones are known in a topic with `history=`, for as long as that keeps
        them: each by its id, and by its key the last one, where none of that key is there.

        Args:
            topic: the topic.
            key: its key.
            id: the id of its message.
            look: how many timers to look at, at most, where no index leads to the id.

        Returns:
            One for each group; empty if all was looked at, and nothing is known of it. Where not
            all was looked at its state is `unknown`, and `place` says where `find` goes on.

        Raises:
            BadOption: if neither key nor id is given.
        """
        return status_of(self._store, self._topic(topic), key=key, message_id=id, look=look)

    def find(
        self,
        topic: Topic | str,
        *,
        limit: int = 100,
        look: int = LOOK,
        place: str | None = None,
        **which: Unpack[TimerChoice],
    ) -> Hits:
        """A page of the timers that are meant, the next one first, overdue ones included.

        Of a stream these are the messages that join it later, and those that wait for a retry.
        The page may be empty though there are such timers, if they are due after `look` others:
        it is the last one only if its `place` is None. `find_all` looks at all.

        Args:
            topic: the topic.
            limit: how many are enough.
            look: how many to look at, at most, where they are chosen by id, tag, header or state.
            place: where to go on: the `place` of the page before.
            which: the timers that are meant: `key`, `id`, `state`, `tag`, `headers`, and the span
                from `since` up to but not including `until` in which they are due; all without.

        Raises:
            BadOption: if a value is not as described.
        """
        return found_timers(
            self._store, self._topic(topic), which, limit=limit, look=look, place=place
        )

    def find_all(
        self,
        topic: Topic | str,
        *,
        on_progress: Callable[[int], object] | None = None,
        **which: Unpack[TimerChoice],
    ) -> Iterator[Record]:
        """All timers that are meant, the next one first, however many others are due before them.

        It looks at 500 timers at a time, as they are asked for: a timer that is moved meanwhile may
        be passed over or found twice.

        Args:
            topic: the topic.
            on_progress: called after each step with the number of timers that were looked at so
                far; it may raise to stop.
            which: the timers that are meant, as in `find`; all without.

        Raises:
            BadOption: if a value is not as described.
        """
        found = self._topic(topic)
        checked_choice(which)
        return each_timer(self._store, found, which, on_progress)

    def _change_all(
        self,
        topic: Topic | str,
        which: TimerChoice,
        edit_of: Callable[[Record], Edit],
        *,
        dry_run: bool,
        on_progress: Callable[[TimerChanges], object] | None,
    ) -> TimerChanges:
        counts = TimerChanges()
        change_all(
            self._store, self._found(topic), which, edit_of, by=user_at_host(), dry_run=dry_run,
            counts=counts, on_progress=on_progress,
        )  # fmt: skip
        return counts

    def _found(self, topic: Topic | str) -> Topic:
        found = self._topic(topic)
        refuse_stream(found)
        return found

    def _topic(self, topic: Topic | str) -> Topic:
        name = topic.name if isinstance(topic, Topic) else checked_name(topic, "topic")
        found = self._store.topic(name)
        if found is None:
            raise UnknownTopic(name)
        return found
