"""Moving, tuning and dropping groups."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

import msgspec

from qframe.admin.context import AdminRole
from qframe.errors import BadOption, UnknownGroup
from qframe.options.tuning import Reset, texts_of
from qframe.retry import checked_moment
from qframe.stores.types import SlotSplit
from qframe.topic import Kind, Topic, span_of

_BEYOND: Final = 2**53
"""No offset is as high; every store's numbers are exact up to there."""


class SeekPreview(msgspec.Struct, kw_only=True, frozen=True):
    """The effect that a `seek` would have, summed over the slots that it would move.

    Handled messages come again, and unsettled ones are passed, by these counts at the least: which
    of the messages in hand lie before the offset is known to the store alone.

    Attributes:
        offsets: the offset at which each slot would go on.
        coming: how many messages lie from there on, and would be handed out.
        again: how many of these are settled or dead already, and would come again.
        passed: how many messages that are not settled yet would never come.
        retries: how many waiting retries would be dropped; those from the offset on come anew.
        doing: how many messages that workers have in hand would be fenced off.
    """

    offsets: dict[int, int]
    coming: int
    again: int
    passed: int
    retries: int
    doing: int


class GroupAdmin(AdminRole):
    """Groups, as a whole."""

    def tune(
        self,
        topic: Topic | str,
        group: str,
        *,
        threads: int | Reset | None = None,
        rate: str | Reset | None = None,
        in_flight: int | Reset | None = None,
    ) -> None:
        """Changes a group's running consumers within 2 s, and those that start later.

        An option that is left out stays as it is; `"reset"` restores the value in the code. See
        docs/tuning.md.

        Args:
            topic: the topic.
            group: the group, of a broadcast consumer `group@instance`.
            threads: how many handlers run at once in each worker.
            rate: how often a handler may begin, such as "100/s".
            in_flight: how many messages each worker holds at once.

        Raises:
            BadOption: if `@consumer` would refuse the value too.
            NotAllowed: without the right to tune.
        """
        context = self._context
        context.require("tune")
        texts = texts_of(threads, rate, in_flight)
        found = context.topic(topic)
        context.store.tune(found, context.group(found, group), texts)
        if texts:
            changed = {name: text or "reset" for name, text in texts.items()}
            context.audit.record("tune", found, group, count=1, **changed)

    def drop_group(self, topic: Topic | str, group: str, *, force: bool = False) -> None:
        """Deletes a group and all that it holds; other groups keep their messages.

        Args:
            topic: the topic.
            group: the group.
            force: whether to drop it even while its workers are alive. They create it again, and
                it starts where a new group starts.

        Raises:
            BadOption: if its workers are alive and `force` is not given.
            NotAllowed: without the right to drop.
        """
        context = self._context
        context.require("drop")
        found = context.topic(topic)
        context.group(found, group)
        if not force and (alive := context.alive(found, group)):
            raise BadOption(
                "group", group, f"{alive} of its workers are alive and would create it again",
                "stop them first, or drop it with --force (force=True)",
            )  # fmt: skip
        if not context.store.drop_group(found, group):
            raise UnknownGroup(found.name, group, context.store.groups(found))
        context.audit.record("drop_group", found, group, count=1, force=force or None)

    def seek(
        self,
        topic: Topic | str,
        group: str,
        to: Literal["earliest", "latest"] | None = None,
        *,
        offset: int | Mapping[int, int] | None = None,
        time: datetime | float | None = None,
    ) -> dict[int, int]:
        """Moves a group of a stream: it handles next the messages published from there on.

        Waiting retries are dropped. So are dead letters from there on, since they come again; those
        before it stay.

        Args:
            topic: a stream.
            group: the group.
            to: `earliest`, the oldest message kept; or `latest`, only what comes from now on.
            offset: one offset for every slot, or an offset for each slot named.
            time: a moment, as a datetime with a time zone or as seconds since 1970.

        Returns:
            The offset of each slot that was moved; of `latest` that of a moment before.

        Raises:
            BadOption: unless exactly one of `to`, `offset` and `time` is given, and fits.
            NotAllowed: without the right to seek.
        """
        context = self._context
        context.require("seek")
        found, positions = self._asked(topic, group, to, offset, time)
        try:
            context.store.seek(found, group, _meant(positions, to))
        except SlotSplit:  # since its offsets were read
            found, positions = self._asked(topic, group, to, offset, time)
            context.store.seek(found, group, _meant(positions, to))
        context.took_from_workers(found, group)
        context.audit.record("seek", found, group, count=len(positions), offsets=positions)
        return positions

    def seek_preview(
        self,
        topic: Topic | str,
        group: str,
        to: Literal["earliest", "latest"] | None = None,
        *,
        offset: int | Mapping[int, int] | None = None,
        time: datetime | float | None = None,
    ) -> SeekPreview:
        """How many messages a `seek` with these arguments would hand out again, or pass."""
        found, positions = self._asked(topic, group, to, offset, time)
        store = self._context.store
        kept = store.offsets_at(found, 0)
        coming = again = passed = retries = doing = 0
        for one in store.stats(found, group):
            if one.slot not in positions:
                continue
            first = max(positions[one.slot], kept.get(one.slot, one.head))
            positions[one.slot] = first
            unsettled = one.todo + one.doing + one.retrying
            coming += one.head - first
            again += max(0, one.head - first - unsettled)
            passed += max(0, unsettled - (one.head - first))
            retries += one.retrying
            doing += one.doing
        return SeekPreview(
            offsets=positions, coming=coming, again=again, passed=passed, retries=retries,
            doing=doing,
        )  # fmt: skip

    def _asked(
        self,
        topic: Topic | str,
        group: str,
        to: str | None,
        offset: int | Mapping[int, int] | None,
        time: datetime | float | None,
    ) -> tuple[Topic, dict[int, int]]:
        """The topic, and the offset that is asked for in each slot."""
        context = self._context
        found = context.topic(topic)
        if found.kind is not Kind.STREAM:
            raise BadOption(
                "topic", found.name, f"its kind is {found.kind}, and only a stream can be replayed",
                "publish the messages again",
            )  # fmt: skip
        context.group(found, group)
        if sum(each is not None for each in (to, offset, time)) != 1:
            raise BadOption(
                "position",
                to,
                "exactly one position is needed",
                'give "earliest", "latest", offset= or time=',
            )
        return found, self._positions(found, group, to, offset, time)

    def _positions(
        self,
        topic: Topic,
        group: str,
        to: str | None,
        offset: int | Mapping[int, int] | None,
        time: datetime | float | None,
    ) -> dict[int, int]:
        store = self._context.store
        heads = {stats.slot: stats.head for stats in store.stats(topic, group)}
        if to is not None:
            if to not in ("earliest", "latest"):
                raise BadOption(
                    "position", to, "there is no such position",
                    'use "earliest" or "latest", offset= or time=',
                )  # fmt: skip
            return dict.fromkeys(heads, 0) if to == "earliest" else heads
        if offset is not None:
            asked = offset if isinstance(offset, Mapping) else dict.fromkeys(heads, offset)
            SlotSplit.check(topic, asked)
            for slot, position in asked.items():
                if slot not in heads or type(position) is not int or position < 0:
                    raise BadOption(
                        "offset", {slot: position}, f"slots are {span_of(topic)}, "
                        "and an offset is a whole number from 0", "look at admin.stats",
                    )  # fmt: skip
            return {slot: min(position, heads[slot]) for slot, position in asked.items()}
        at_ms = checked_moment(time, "time")
        return heads | store.offsets_at(topic, at_ms or 0)


def _meant(positions: dict[int, int], to: str | None) -> dict[int, int]:
    """The offsets for the store, which cuts them: of `latest` the end that each slot has then.

    The end that was read may be passed by now, and the group would go back to it.
    """
    return dict.fromkeys(positions, _BEYOND) if to == "latest" else positions
