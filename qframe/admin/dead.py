"""Dead letters: looked at, grouped by cause, retried and dropped in steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final, Literal

from qframe.admin.causes import CauseCounts, DeadCauses, cause_of
from qframe.admin.context import AdminRole
from qframe.errors import BadOption
from qframe.options.rules import checked_limit
from qframe.retry import checked_moment
from qframe.stores.records import ChosenDead, DeadPlace, Record
from qframe.topic import Topic

STEP: Final = 500
_FIRST: Final = DeadPlace(0, 0, 0)
_DEAD_PLACE: Final = re.compile(r"[0-9]{1,18}-[0-9]{1,4}-[0-9]{1,18}")

Progress = Callable[[int], object]
DeadStep = Callable[[Topic, str, ChosenDead], int]
"""A store's `retry_dead` or `drop_dead`."""


class DeadAdmin(AdminRole):
    """Dead letters, as the groups left them."""

    def dead(
        self, topic: Topic | str, group: str, limit: int = 100, *,
        after: Record | str | None = None, since: datetime | float | None = None,
    ) -> list[Record]:  # fmt: skip
        """A group's dead letters, the longest dead first.

        Args:
            topic: the topic.
            group: the group.
            limit: how many at most.
            after: the last of those that were listed before, or its `dead_place` as a text; it may
                have been retried or dropped meanwhile.
            since: only those that died from then on: a datetime with a time zone, or seconds since
                1970.

        Raises:
            BadOption: if `limit`, `after` or `since` is not as described.
        """
        found = self._context.topic(topic)
        self._context.group(found, group)
        place = _place_before(since)
        if after is not None:
            place = max(dead_place(after), place or _FIRST)
        context = self._context
        return context.all_shown(
            context.store.dead(found, group, ChosenDead(limit=checked_limit(limit), after=place))
        )

    def dead_show(self, topic: Topic | str, group: str, message_id: str) -> Record:
        """One dead letter, with its error and traceback.

        Raises:
            BadOption: if it is not among the group's dead letters.
        """
        context = self._context
        found = context.topic(topic)
        records = context.store.dead(
            found, context.group(found, group), ChosenDead(ids=[message_id], limit=1)
        )
        if not records:
            raise BadOption(
                "message", message_id, f"it is not a dead letter of {found.name}/{group}",
                f"see: qframe dead list {found.name} {group}",
            )  # fmt: skip
        return context.shown(records[0])

    def dead_causes(
        self, topic: Topic | str, group: str, limit: int = 10_000, *,
        since: datetime | float | None = None,
    ) -> DeadCauses:  # fmt: skip
        """A group's dead letters by cause: the class of the error, and the line that raised it.

        Args:
            topic: the topic.
            group: the group.
            limit: how many dead letters are looked at, the longest dead first.
            since: only those that died from then on: a datetime with a time zone, or seconds since
                1970.
        """
        found = self._context.topic(topic)
        self._context.group(found, group)
        most = checked_limit(limit)
        now_ms = self._context.store.now_ms(found)
        counts = CauseCounts(now_ms, has_text="body" in self._context.rights)
        looked_at, last = 0, None
        for page in self._pages(found, group, ChosenDead(None, STEP, _place_before(since))):
            for record in page[: most - looked_at]:
                counts.add(record)
                last = record.dead_place
            looked_at += len(page)
            if looked_at >= most:
                break
        return DeadCauses(
            causes=counts.by_frequency(), looked_at=min(looked_at, most),
            is_all=looked_at < most, until=None if last is None else str(last),
        )  # fmt: skip

    def dead_retry(
        self,
        topic: Topic | str,
        group: str,
        ids: Sequence[str] | Literal["all"],
        *,
        since: datetime | float | None = None,
        until: Record | str | None = None,
        cause: str | None = None,
        on_progress: Progress | None = None,
    ) -> int:
        """Makes dead messages due again, their attempts from zero; returns how many.

        It works in steps of 500. A message that dies meanwhile stays dead.

        Args:
            topic: the topic.
            group: the group.
            ids: the messages' ids; `"all"` for those that are dead when it begins.
            since: of all, only those that died from then on: a datetime with a time zone, or
                seconds since 1970.
            until: of all, only those up to this dead letter, or its `dead_place`: the last one that
                was seen.
            cause: of all, only those of this cause, by its name from `dead_causes`.
            on_progress: called after each step with how many were done so far; it may raise to
                stop.

        Raises:
            BadOption: if `ids`, `since`, `until` or `cause` is not as described, or one of the
                last three is given beside ids.
            NotAllowed: without the right to retry.
        """
        self._context.require("retry")
        return self._decide(
            "dead_retry",
            topic,
            group,
            ids,
            since=since,
            until=until,
            cause=cause,
            on_progress=on_progress,
        )

    def dead_drop(
        self,
        topic: Topic | str,
        group: str,
        ids: Sequence[str] | Literal["all"],
        *,
        since: datetime | float | None = None,
        until: Record | str | None = None,
        cause: str | None = None,
        on_progress: Progress | None = None,
    ) -> int:
        """Removes dead messages for good, counted as cancelled; returns how many.

        Its arguments are those of `dead_retry`; its right is to drop.
        """
        self._context.require("drop")
        return self._decide(
            "dead_drop",
            topic,
            group,
            ids,
            since=since,
            until=until,
            cause=cause,
            on_progress=on_progress,
        )

    def _decide(
        self,
        verb: Literal["dead_retry", "dead_drop"],
        topic: Topic | str,
        group: str,
        ids: Sequence[str] | Literal["all"],
        *,
        since: datetime | float | None,
        until: Record | str | None,
        cause: str | None,
        on_progress: Progress | None,
    ) -> int:
        """Retries or drops dead letters in steps; returns how many."""
        context = self._context
        found = context.topic(topic)
        context.group(found, group)
        if isinstance(ids, str) and ids != "all":
            raise BadOption("ids", ids, "it is a single string", f'use ids=[{ids!r}], or "all"')
        for name, value in (("since", since), ("until", until), ("cause", cause)):
            if ids != "all" and value is not None:
                raise BadOption(
                    name, value, "it chooses among all, and ids are given",
                    f'use ids="all", or leave {name} out',
                )  # fmt: skip
        store = context.store
        step: DeadStep = store.retry_dead if verb == "dead_retry" else store.drop_dead
        first = _place_before(since)
        now = DeadPlace(store.now_ms(found), 2**20, 2**60)
        last = None if until is None else dead_place(until)
        chosen = ChosenDead(None, STEP, first, now if last is None else min(now, last))
        if ids != "all":
            steps = _steps_by_id(step, found, group, ids)
        else:
            if cause is None:
                steps = _steps_of_all(step, found, group, chosen)
            else:
                named = self._by_id(found, group, chosen, cause)
                steps = _steps_of_named(step, found, group, named)
            # Those that died before the clock was set back; what dies meanwhile stands among them.
            later = ChosenDead(None, STEP, now if first is None else max(now, first), last)
            before = list(self._by_id(found, group, later, cause))
            steps = chain(steps, _steps_of_named(step, found, group, before))
        done = 0
        try:
            for changed in steps:
                done += changed
                if on_progress is not None:
                    on_progress(done)
        finally:  # also of one that was stopped on its way
            if done:
                context.audit.record(
                    verb, found, group, count=done, cause=cause,
                    ids=None if ids == "all" else list(ids[:STEP]),
                    since_ms=None if first is None else first.died_at_ms + 1,
                )  # fmt: skip
        return done

    def _by_id(
        self, topic: Topic, group: str, chosen: ChosenDead, cause: str | None
    ) -> Iterator[ChosenDead]:
        """The same dead letters by their ids, page by page; of one cause, or of all."""
        for page in self._pages(topic, group, chosen):
            ids = [each.id for each in page if cause is None or cause_of(each).name == cause]
            place = page[-1].dead_place
            yield chosen._replace(ids=ids, until=place)
            chosen = chosen._replace(after=place)

    def _pages(self, topic: Topic, group: str, chosen: ChosenDead) -> Iterator[list[Record]]:
        """The dead letters that are chosen, in pages."""
        while page := self._context.store.dead(topic, group, chosen):
            yield page
            chosen = chosen._replace(after=page[-1].dead_place)


def _steps_of_all(step: DeadStep, topic: Topic, group: str, chosen: ChosenDead) -> Iterator[int]:
    """Settles all that are chosen, in steps; a death meanwhile stands behind them."""
    while changed := step(topic, group, chosen):
        yield changed


def _steps_of_named(
    step: DeadStep, topic: Topic, group: str, named: Iterable[ChosenDead]
) -> Iterator[int]:
    """Settles those that are chosen by their ids."""
    for chosen in named:
        yield step(topic, group, chosen) if chosen.ids else 0


def _steps_by_id(step: DeadStep, topic: Topic, group: str, ids: Sequence[str]) -> Iterator[int]:
    for first in range(0, len(ids), STEP):
        yield step(topic, group, ChosenDead(ids[first : first + STEP], STEP))


def _place_before(since: datetime | float | None) -> DeadPlace | None:
    """The place before all that died from a moment on; None for no moment."""
    at_ms = checked_moment(since, "since")
    return DeadPlace(at_ms - 1, 9999, 10**18 - 1) if at_ms else None


def dead_place(after: object) -> DeadPlace:
    """The place of a dead letter, from itself or from a text.

    Raises:
        BadOption: if it is neither.
    """
    if isinstance(after, Record) and after.state == "dead":
        return after.dead_place
    if not isinstance(after, str) or not _DEAD_PLACE.fullmatch(after):
        raise BadOption(
            "after", after, "it is neither a dead letter nor the place of one",
            "give the last dead letter of the previous page, or its dead_place",
        )  # fmt: skip
    return DeadPlace(*map(int, after.split("-")))
