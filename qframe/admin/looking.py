"""Looking at topics, groups, messages and workers, and changing nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qframe.admin.context import AdminRole
from qframe.admin.owners import OwnerInfo, WorkerInfo, owners_of, workers_of
from qframe.admin.scale import PER_WORKER, Scale, scale_of
from qframe.admin.totals import TopicTotals, is_overdue, summed, totals_in, unknown_in
from qframe.errors import BadInput, BadOption
from qframe.options.rules import checked_limit
from qframe.options.tuning import Tuning
from qframe.stores.faults import Fault
from qframe.stores.records import Record, Stats
from qframe.stores.types import TopicList
from qframe.topic import Topic

STATES: Final = ("waiting", "todo", "doing", "dead")


def unknown_fault(error: BadInput) -> str:
    """A topic that this version of qframe cannot read, as `verify` says it."""
    fault = Fault("the topic is unknown", error.why, None, 0, left=error.remedy)
    return str(fault)


class LookingAdmin(AdminRole):
    """Counts, messages, workers and owners."""

    def topics(self) -> list[TopicTotals]:
        """All topics, by name, with the totals of each group; what is damaged is named."""
        topics = self._context.topics()
        found = [totals_in(self._context.store, topic) for topic in topics]
        return sorted([*found, *unknown_in(topics)], key=lambda each: each.name)

    def topic(self, topic: Topic | str) -> TopicTotals:
        """One topic, with the totals of each group."""
        return totals_in(self._context.store, self._context.topic(topic))

    def groups(self, topic: Topic | str) -> list[str]:
        """The names of the groups that have subscribed to a topic."""
        return self._context.store.groups(self._context.topic(topic))

    def retired(self, topic: Topic | str) -> list[str]:
        """The groups of a stream that keep messages for longer than `retain`, and have no worker.

        The stream cannot be trimmed because of them. If nobody needs one, `drop_group` deletes it.
        """
        context = self._context
        found = context.topic(topic)
        now_ms = context.store.now_ms(found)
        return [
            totals.group
            for totals in totals_in(context.store, found).groups
            if totals.group
            and is_overdue(found, totals, now_ms)
            and not context.alive(found, totals.group)
        ]

    def stats(self, topic: Topic | str, group: str | None = None) -> list[Stats]:
        """Counts per slot, for each group or for one."""
        context = self._context
        found = context.topic(topic)
        return context.store.stats(found, None if group is None else context.group(found, group))

    def lag(self, topic: Topic | str, group: str) -> int:
        """The number of messages that a group has not settled: waiting, due and in hand."""
        return summed(group, self.stats(topic, group)).lag

    def scale(
        self, topic: Topic | str, group: str, *, per_worker: int = PER_WORKER,
        before: Scale | None = None,
    ) -> Scale:  # fmt: skip
        """A group's load, and how many workers it has use for.

        Args:
            topic: the topic.
            group: the group.
            per_worker: how many messages, due or in flight, one worker is to have, from 1.
            before: an earlier look, from which the rates are told; without it they are None.

        Raises:
            CoordinatorUnavailable: if whoever shares out slots cannot be reached.
        """
        context = self._context
        found = context.topic(topic)
        stats = context.store.stats(found, context.group(found, group))
        [tuning] = context.tunings(found, [group])
        return scale_of(
            found.name, summed(group, stats, tuning), slots=found.slots,
            workers=context.alive(found, group), now_ms=context.store.now_ms(found),
            per_worker=per_worker, before=before,
        )  # fmt: skip

    def peek(
        self,
        topic: Topic | str,
        group: str,
        *,
        states: Sequence[str] = ("waiting", "todo", "doing"),
        limit: int = 20,
    ) -> list[Record]:
        """A group's messages in one of these states, slot by slot, the next ones first."""
        found = self._context.topic(topic)
        self._context.group(found, group)
        for state in states:
            if state not in STATES:
                raise BadOption(
                    "state",
                    state,
                    "there is no such state",
                    f"use one or more of {', '.join(STATES)}",
                )
        context = self._context
        return context.all_shown(
            context.store.peek(found, group, states=states, limit=checked_limit(limit))
        )

    def verify(self, topic: Topic | str | None = None) -> list[str]:
        """Audits one topic or all; returns what is wrong, in sentences, or nothing.

        Of all topics it says, too, which ones this version of qframe cannot read.
        """
        context = self._context
        topics = context.topics() if topic is None else TopicList([context.topic(topic)])
        return [
            *(
                f"topic {each.name}: {fault}"
                for each in topics
                for fault in context.store.verify(each)
            ),
            *(f"topic {error.value}: {unknown_fault(error)}" for error in topics.unread),
        ]

    def workers(
        self, topic: Topic | str | None = None, group: str | None = None
    ) -> list[WorkerInfo]:
        """The live workers of all topics, of one topic, or of one group.

        Raises:
            CoordinatorUnavailable: if whoever shares out slots cannot be reached.
        """
        if topic is not None:
            return workers_of(self._context.rosters(self._context.topic(topic), group))
        if group is not None:
            raise BadOption("group", group, "it needs its topic", "give topic= as well")
        return workers_of(
            roster for each in self._context.topics() for roster in self._context.rosters(each)
        )

    def owners(self, topic: Topic | str, group: str | None = None) -> list[OwnerInfo]:
        """The owner of each slot, for each group of a topic or for one; slots without an owner too.

        Raises:
            CoordinatorUnavailable: if whoever shares out slots cannot be reached.
        """
        return owners_of(self._context.rosters(self._context.topic(topic), group))

    def tuned(self, topic: Topic | str, group: str) -> Tuning:
        """The settings of a group's running consumers, and what is paused."""
        found = self._context.topic(topic)
        [tuning] = self._context.tunings(found, [self._context.group(found, group)])
        return tuning
