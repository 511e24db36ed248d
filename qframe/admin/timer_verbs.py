"""Timers for a person on call: looked at, moved and cancelled, with rights and an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Unpack

import msgspec

from qframe.admin.context import AdminRole
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
    found_timers,
    refuse_stream,
)
from qframe.outcomes import Moved
from qframe.retry import checked_times
from qframe.stores.edits import Edit
from qframe.stores.records import Record
from qframe.topic import Topic, checked_key


class TimerAdmin(AdminRole):
    """Timers of a topic that is not a stream; `app.timers` is the same for programs."""

    def timers(
        self,
        topic: Topic | str,
        *,
        limit: int = 100,
        look: int = LOOK,
        place: str | None = None,
        **which: Unpack[TimerChoice],
    ) -> Hits:
        """The timers that are meant, the next one first, as `app.timers.find`.

        Raises:
            NotAllowed: if headers are asked for without the right to see bodies.
        """
        context = self._context
        if which.get("headers"):
            context.require("body")
        hits = found_timers(
            context.store, context.topic(topic), which, limit=limit, look=look, place=place
        )
        return replace(hits, records=context.all_shown(hits.records))

    def timer(self, topic: Topic | str, key: str) -> list[Record]:
        """A timer by its key, or by the `subject` of one without a key: a record for each group."""
        context = self._context
        return context.all_shown(context.store.timer(self._timed(topic), checked_key(key)))

    def edit_timer(
        self,
        topic: Topic | str,
        key: str,
        *,
        at: datetime | float | None = None,
        delay: float | str | timedelta | None = None,
        body: Any = msgspec.UNSET,
        headers: Mapping[str, str] | None = None,
        tags: Iterable[str] | None = None,
    ) -> Moved:
        """Replaces a timer's time, or its body with headers and tags, or both in one step.

        A `delay` is a number of seconds from now, a text such as "10m", or a timedelta.

        Returns:
            `done`; `absent` if there is none; `doing` if a handler has it, and nothing is changed.

        Raises:
            BadBody: if the body cannot be encoded, or is too large.
            BadOption: if neither time nor body is given, or `at` is no time.
            NotAllowed: without the right to retry.
        """
        context = self._context
        context.require("retry")
        found = self._timed(topic)
        content = checked_content(body, headers, tags, context.max_body)
        moved = edit_timer(
            context.store, found, key, by=context.audit.by, at=at, delay=delay, content=content
        )
        if moved is Moved.DONE:
            delay_ms, at_ms = checked_times(delay, at)
            verb = "move_timer" if content is None else "edit_timer"
            context.audit.record(
                verb, found, None, count=1, key=key, at_ms=at_ms, delay_ms=delay_ms
            )
        return moved

    def move_timer(self, topic: Topic | str, key: str, *, at: datetime | float) -> Moved:
        """Makes a timer due at another time, for every group; returns the same as `edit_timer`.

        Raises:
            BadOption: if `at` is no time.
            NotAllowed: without the right to retry.
        """
        if at is None:
            raise no_time()
        return self.edit_timer(topic, key, at=at)

    def cancel_timer(self, topic: Topic | str, key: str) -> Moved:
        """Removes a timer for every group, counted as cancelled; returns the same as `edit_timer`.

        In an `ordered` topic it removes all messages of the key.

        Raises:
            NotAllowed: without the right to drop.
        """
        context = self._context
        context.require("drop")
        found = self._timed(topic)
        moved = cancel_timer(context.store, found, key, by=context.audit.by)
        if moved is Moved.DONE:
            context.audit.record("cancel_timer", found, None, count=1, key=key)
        return moved

    def move_timers(
        self,
        topic: Topic | str,
        *,
        at: datetime | float | None = None,
        shift: float | str | timedelta | None = None,
        dry_run: bool = False,
        on_progress: Callable[[TimerChanges], object] | None = None,
        **which: Unpack[TimerChoice],
    ) -> TimerChanges:
        """Makes all timers that are meant due at another time, as `app.timers.move_all`.

        A `shift` is a number of seconds, a text such as "10m", or a timedelta.

        Raises:
            BadOption: unless one of `at` and `shift` is given.
            NotAllowed: without the right to retry.
        """
        context = self._context
        context.require("retry")
        return self._change_all(
            "move_timers", topic, which, moved_to(at, shift), on_progress, dry_run=dry_run
        )

    def cancel_timers(
        self,
        topic: Topic | str,
        *,
        dry_run: bool = False,
        on_progress: Callable[[TimerChanges], object] | None = None,
        **which: Unpack[TimerChoice],
    ) -> TimerChanges:
        """Removes all timers that are meant, as `app.timers.cancel_all`.

        Raises:
            NotAllowed: without the right to drop.
        """
        context = self._context
        context.require("drop")
        return self._change_all(
            "cancel_timers", topic, which, cancelled, on_progress, dry_run=dry_run
        )

    def _change_all(
        self,
        verb: str,
        topic: Topic | str,
        which: TimerChoice,
        edit_of: Callable[[Record], Edit],
        on_progress: Callable[[TimerChanges], object] | None,
        *,
        dry_run: bool,
    ) -> TimerChanges:
        context, found = self._context, self._timed(topic)
        counts = TimerChanges()
        try:
            change_all(
                context.store, found, which, edit_of, by=context.audit.by, dry_run=dry_run,
                counts=counts, on_progress=on_progress,
            )  # fmt: skip
        finally:  # also of one that was stopped on its way
            if counts.done and not dry_run:
                facts = {name: str(value) for name, value in which.items() if value is not None}
                context.audit.record(verb, found, None, count=counts.done, **facts)
        return counts

    def _timed(self, topic: Topic | str) -> Topic:
        found = self._context.topic(topic)
        refuse_stream(found)
        return found
