"""Timers for a person on call: looked at, moved and cancelled, with rights and an audit."""

from __future__ import annotations

from datetime import datetime

from qframe.admin.context import AdminRole
from qframe.errors import BadOption, BadTopic
from qframe.options.rules import checked_limit
from qframe.outcomes import Moved
from qframe.retry import checked_times
from qframe.stores.records import Record
from qframe.topic import Kind, Topic, checked_key


class TimerAdmin(AdminRole):
    """Timers of a topic that is not a stream; `app.timers` is the same for programs."""

    def timers(
        self,
        topic: Topic | str,
        *,
        since: datetime | float | None = None,
        until: datetime | float | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """The timers due from `since` up to but not including `until`, the next one first.

        Raises:
            BadTopic: if the topic is a stream.
        """
        context = self._context
        _, from_ms = checked_times(None, since)
        _, until_ms = checked_times(None, until)
        return context.all_shown(
            context.store.timers(
                self._timed(topic), from_ms=from_ms or 0, until_ms=until_ms,
                limit=checked_limit(limit),
            )
        )  # fmt: skip

    def timer(self, topic: Topic | str, key: str) -> list[Record]:
        """A timer by its key, or by the `subject` of one without a key: a record for each group."""
        context = self._context
        return context.all_shown(context.store.timer(self._timed(topic), checked_key(key)))

    def move_timer(self, topic: Topic | str, key: str, *, at: datetime | float) -> Moved:
        """Makes a timer due at another time, for every group.

        Returns:
            `done`; `absent` if there is none; `doing` if a handler has it, and nothing is changed.

        Raises:
            BadOption: if `at` is no time.
            NotAllowed: without the right to retry.
        """
        context = self._context
        context.require("retry")
        found = self._timed(topic)
        _, at_ms = checked_times(None, at)
        if at_ms is None:
            raise BadOption("at", at, "a timer needs a time", "give a datetime with a time zone")
        moved = context.store.edit(found, checked_key(key), due_ms=at_ms)
        if moved is Moved.DONE:
            context.audit.record("move_timer", found, None, count=1, key=key, at_ms=at_ms)
        return moved

    def cancel_timer(self, topic: Topic | str, key: str) -> Moved:
        """Removes a timer for every group, counted as cancelled; returns the same as `move_timer`.

        In an `ordered` topic it removes all messages of the key.

        Raises:
            NotAllowed: without the right to drop.
        """
        context = self._context
        context.require("drop")
        found = self._timed(topic)
        moved = context.store.cancel(found, checked_key(key))
        if moved is Moved.DONE:
            context.audit.record("cancel_timer", found, None, count=1, key=key)
        return moved

    def _timed(self, topic: Topic | str) -> Topic:
        found = self._context.topic(topic)
        if found.kind is Kind.STREAM:
            raise BadTopic(
                "topic", found.name, "a stream's messages cannot be changed or looked up",
                "see: qframe search, or qframe explain",
            )  # fmt: skip
        return found
