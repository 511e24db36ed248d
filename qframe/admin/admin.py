"""The operations for a person on call: find messages, settle dead letters, move groups.

Every operation takes a topic and a group, and first refuses names that do not exist. Reading
changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, Protocol

from qframe.admin.owners import GroupRoster, OwnerInfo, WorkerInfo, owners_of, workers_of
from qframe.admin.totals import TopicTotals, summed
from qframe.errors import BadOption, UnknownGroup, UnknownTopic
from qframe.options.rules import checked_limit
from qframe.options.tuning import YES, Reset, Tuning, texts_of, tuning_of
from qframe.retry import checked_times
from qframe.roster import Roster
from qframe.stores.base import Store
from qframe.stores.records import DeadPlace, Record, Stats
from qframe.topic import Kind, Topic, checked_group, checked_name

STATES: Final = ("waiting", "todo", "doing", "dead")
_STEP: Final = 500
_DEAD_PLACE: Final = re.compile(r"[0-9]{1,18}-[0-9]{1,4}-[0-9]{1,18}")


class Admin:
    """Looks at topics and groups, and changes them: `app.admin`.

    A topic is given by its name or as a `Topic`; only the name counts.

    Args:
        store: where the messages are.
        roster: returns the members of a topic's group.
    """

    def __init__(self, store: Store, *, roster: Callable[[Topic, str], Roster]) -> None:
        self._store = store
        self._roster = roster

    def topics(self) -> list[TopicTotals]:
        """All topics, by name, with the totals of each group."""
        return [self._totals(topic) for topic in self._store.topics()]

    def topic(self, topic: Topic | str) -> TopicTotals:
        """One topic, with the totals of each group."""
        return self._totals(self._topic(topic))

    def groups(self, topic: Topic | str) -> list[str]:
        """The names of the groups that have subscribed to a topic."""
        return self._store.groups(self._topic(topic))

    def stats(self, topic: Topic | str, group: str | None = None) -> list[Stats]:
        """Counts per slot, for each group or for one."""
        found = self._topic(topic)
        return self._store.stats(found, None if group is None else self._group(found, group))

    def lag(self, topic: Topic | str, group: str) -> int:
        """The number of messages that a group has not settled: waiting, due and in hand."""
        return summed(group, self.stats(topic, group)).lag

    def peek(
        self,
        topic: Topic | str,
        group: str,
        *,
        states: Sequence[str] = ("waiting", "todo", "doing"),
        limit: int = 20,
    ) -> list[Record]:
        """A group's messages in one of these states, slot by slot, the next ones first."""
        found = self._topic(topic)
        self._group(found, group)
        for state in states:
            if state not in STATES:
                raise BadOption(
                    "state",
                    state,
                    "there is no such state",
                    f"use one or more of {', '.join(STATES)}",
                )
        return self._store.peek(found, group, states=states, limit=checked_limit(limit))

    def explain(self, topic: Topic | str, message_id: str) -> list[Record]:
        """Finds a message: one record for each place that holds it; empty if none does."""
        return self._store.explain(self._topic(topic), message_id)

    def verify(self, topic: Topic | str | None = None) -> list[str]:
        """Audits one topic or all; returns what is wrong, in sentences, or nothing."""
        topics = self._store.topics() if topic is None else [self._topic(topic)]
        return [
            f"topic {each.name}: {fault}" for each in topics for fault in self._store.verify(each)
        ]

    def dead(
        self, topic: Topic | str, group: str, limit: int = 100, *, after: Record | str | None = None
    ) -> list[Record]:
        """A group's dead letters, the longest dead first.

        Args:
            topic: the topic.
            group: the group.
            limit: how many at most.
            after: the last of those that were listed before, or its `dead_place` as a text; it may
                have been retried or dropped meanwhile.

        Raises:
            BadOption: if `limit` or `after` is not as described.
        """
        found = self._topic(topic)
        self._group(found, group)
        place = None if after is None else _dead_place(after)
        return self._store.dead(found, group, limit=checked_limit(limit), after=place)

    def dead_show(self, topic: Topic | str, group: str, message_id: str) -> Record:
        """One dead letter, with its error and traceback.

        Raises:
            BadOption: if it is not among the group's dead letters.
        """
        found = self._topic(topic)
        records = self._store.dead(found, self._group(found, group), ids=[message_id], limit=1)
        if not records:
            raise BadOption(
                "message", message_id, f"it is not a dead letter of {found.name}/{group}",
                f"see: qframe dead list {found.name} {group}",
            )  # fmt: skip
        return records[0]

    def dead_retry(
        self, topic: Topic | str, group: str, ids: Sequence[str] | Literal["all"]
    ) -> int:
        """Makes dead messages due again, their attempts from zero; returns how many."""
        found = self._topic(topic)
        self._group(found, group)
        return self._in_steps(self._store.retry_dead, found, group, ids)

    def dead_drop(self, topic: Topic | str, group: str, ids: Sequence[str] | Literal["all"]) -> int:
        """Removes dead messages for good, counted as cancelled; returns how many."""
        found = self._topic(topic)
        self._group(found, group)
        return self._in_steps(self._store.drop_dead, found, group, ids)

    def drop_group(self, topic: Topic | str, group: str, *, force: bool = False) -> None:
        """Deletes a group and all that it holds; other groups keep their messages.

        Args:
            topic: the topic.
            group: the group.
            force: whether to drop it even while its workers are alive. They create it again, and
                it starts where a new group starts.

        Raises:
            BadOption: if its workers are alive and `force` is not given.
        """
        found = self._topic(topic)
        self._group(found, group)
        if not force and (alive := len(self._roster(found, group).members)):
            raise BadOption(
                "group", group, f"{alive} of its workers are alive and would create it again",
                "stop them first, or drop it by force",
            )  # fmt: skip
        if not self._store.drop_group(found, group):
            raise UnknownGroup(found.name, group, self._store.groups(found))

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

        Waiting retries are dropped; dead letters stay.

        Args:
            topic: a stream.
            group: the group.
            to: `earliest`, the oldest message kept; or `latest`, only what comes from now on.
            offset: one offset for every slot, or an offset for each slot named.
            time: a moment, as a datetime with a time zone or as seconds since 1970.

        Returns:
            The offset of each slot that was moved.

        Raises:
            BadOption: unless exactly one of `to`, `offset` and `time` is given, and fits.
        """
        found = self._topic(topic)
        if found.kind is not Kind.STREAM:
            raise BadOption(
                "topic", found.name, f"its kind is {found.kind}, and only a stream can be replayed",
                "publish the messages again",
            )  # fmt: skip
        self._group(found, group)
        if sum(each is not None for each in (to, offset, time)) != 1:
            raise BadOption(
                "position",
                to,
                "exactly one position is needed",
                'give "earliest", "latest", offset= or time=',
            )
        positions = self._positions(found, group, to, offset, time)
        self._store.seek(found, group, positions)
        return positions

    def workers(
        self, topic: Topic | str | None = None, group: str | None = None
    ) -> list[WorkerInfo]:
        """The live workers of all topics, of one topic, or of one group.

        Raises:
            CoordinatorUnavailable: if whoever shares out slots cannot be reached.
        """
        if topic is not None:
            return workers_of(self._group_rosters(self._topic(topic), group))
        if group is not None:
            raise BadOption("group", group, "it needs its topic", "give topic= as well")
        return workers_of(
            roster for each in self._store.topics() for roster in self._group_rosters(each)
        )

    def owners(self, topic: Topic | str, group: str | None = None) -> list[OwnerInfo]:
        """The owner of each slot, for each group of a topic or for one; slots without an owner too.

        Raises:
            CoordinatorUnavailable: if whoever shares out slots cannot be reached.
        """
        return owners_of(self._group_rosters(self._topic(topic), group))

    def pause(self, topic: Topic | str, group: str) -> None:
        """Pauses a group: within 2 s its workers stop handling messages, until it is resumed.

        Handlers finish the messages in hand; the others are given back, uncounted. The group still
        collects new messages.
        """
        self._tune(topic, group, {"paused": YES})

    def resume(self, topic: Topic | str, group: str) -> None:
        """Ends a group's pause."""
        self._tune(topic, group, {"paused": None})

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
        """
        self._tune(topic, group, texts_of(threads, rate, in_flight))

    def tuned(self, topic: Topic | str, group: str) -> Tuning:
        """The settings of a group's running consumers."""
        found = self._topic(topic)
        [tuning] = self._tunings(found, [self._group(found, group)])
        return tuning

    def _topic(self, topic: Topic | str) -> Topic:
        name = topic.name if isinstance(topic, Topic) else checked_name(topic, "topic")
        found = self._store.topic(name)
        if found is None:
            raise UnknownTopic(name, [each.name for each in self._store.topics()])
        return found

    def _group(self, topic: Topic, group: str) -> str:
        known = self._store.groups(topic)
        if checked_group(group) not in known:
            raise UnknownGroup(topic.name, group, known)
        return group

    def _group_rosters(self, topic: Topic, group: str | None = None) -> Iterator[GroupRoster]:
        names = self._store.groups(topic) if group is None else [self._group(topic, group)]
        for name, tuning in zip(names, self._tunings(topic, names), strict=True):
            yield GroupRoster(topic, name, self._roster(topic, name), tuning.paused)

    def _totals(self, topic: Topic) -> TopicTotals:
        by_group: dict[str, list[Stats]] = {}
        for stats in self._store.stats(topic):
            by_group.setdefault(stats.group, []).append(stats)
        tunings = self._tunings(topic, list(by_group))
        groups = [
            summed(group, stats, tuning)
            for (group, stats), tuning in zip(by_group.items(), tunings, strict=True)
        ]
        return TopicTotals(name=topic.name, kind=topic.kind, slots=topic.slots, groups=groups)

    def _tune(self, topic: Topic | str, group: str, texts: Mapping[str, str | None]) -> None:
        found = self._topic(topic)
        self._store.tune(found, self._group(found, group), texts)

    def _tunings(self, topic: Topic, groups: Sequence[str]) -> list[Tuning]:
        found = self._store.tunings([(topic, group) for group in groups])
        return [tuning_of(texts or {})[0] for texts in found]

    def _in_steps(
        self, step: _DeadStep, topic: Topic, group: str, ids: Sequence[str] | Literal["all"]
    ) -> int:
        """Applies a step of limited size until all is done."""
        if isinstance(ids, str):
            if ids != "all":
                raise BadOption("ids", ids, "it is a single string", f'use ids=[{ids!r}], or "all"')
            # Counted before: what dies again meanwhile would be retried for ever.
            left = summed(group, self._store.stats(topic, group)).dead
            done = 0
            while done < left:
                changed = step(topic, group, None, min(_STEP, left - done))
                if not changed:
                    break
                done += changed
            return done
        return sum(
            step(topic, group, ids[first : first + _STEP], _STEP)
            for first in range(0, len(ids), _STEP)
        )

    def _positions(
        self,
        topic: Topic,
        group: str,
        to: str | None,
        offset: int | Mapping[int, int] | None,
        time: datetime | float | None,
    ) -> dict[int, int]:
        heads = {stats.slot: stats.head for stats in self._store.stats(topic, group)}
        if to is not None:
            if to not in ("earliest", "latest"):
                raise BadOption(
                    "position", to, "there is no such position", "use earliest or latest"
                )
            return dict.fromkeys(heads, 0) if to == "earliest" else heads
        if offset is not None:
            asked = offset if isinstance(offset, Mapping) else dict.fromkeys(heads, offset)
            for slot, position in asked.items():
                if slot not in heads or type(position) is not int or position < 0:
                    raise BadOption(
                        "offset", {slot: position}, f"slots are 0 to {topic.slots - 1}, "
                        "and an offset is a whole number from 0", "look at admin.stats",
                    )  # fmt: skip
            return {slot: min(position, heads[slot]) for slot, position in asked.items()}
        _, at_ms = checked_times(None, time)
        return heads | self._store.offsets_at(topic, at_ms or 0)


class _DeadStep(Protocol):
    """A store's `retry_dead` or `drop_dead`."""

    def __call__(
        self, topic: Topic, group: str, ids: Sequence[str] | None, limit: int, /
    ) -> int: ...


def _dead_place(after: object) -> DeadPlace:
    """The place of a dead letter, from itself or from a text."""
    if isinstance(after, Record) and after.state == "dead":
        return after.dead_place
    if not isinstance(after, str) or not _DEAD_PLACE.fullmatch(after):
        raise BadOption(
            "after", after, "it is neither a dead letter nor the place of one",
            "give the last dead letter of the previous page, or its dead_place",
        )  # fmt: skip
    return DeadPlace(*map(int, after.split("-")))
