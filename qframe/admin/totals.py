"""Totals of a topic: its messages for each group, summed over all slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from qframe.errors import StoreDamaged
from qframe.options.tuning import Tuning, tuning_of
from qframe.stores.base import Groups, Inspecting
from qframe.stores.controls import Controls
from qframe.stores.records import Stats
from qframe.stores.types import TopicList
from qframe.topic import Kind, Topic

UNKNOWN: Final = "unknown"
_COUNTS: Final = (
    "published", "waiting", "retrying", "todo", "doing", "settled", "dead", "cancelled",
)  # fmt: skip


class Totals(msgspec.Struct, kw_only=True, frozen=True):
    """The counts of a topic's messages for a group, summed over all slots.

    The group is `""` for what is kept in a topic that no group has subscribed to yet. `retrying`
    are those of the waiting that were handed out before; `oldest_ms` is since when
    the one is due that has waited longest of all that may be handed out now, in milliseconds since
    1970; None where there is none. `tuning` is what is set
    for the group's running consumers.
    """

    group: str
    published: int = 0
    waiting: int = 0
    retrying: int = 0
    todo: int = 0
    doing: int = 0
    settled: int = 0
    dead: int = 0
    cancelled: int = 0
    oldest_ms: int | None = None
    tuning: Tuning = Tuning()

    @property
    def lag(self) -> int:
        """The number of messages that the group has not settled."""
        return self.waiting + self.todo + self.doing


class TopicTotals(msgspec.Struct, kw_only=True, frozen=True):
    """A topic, and where its messages stand for each of its groups.

    `growing_to` is how many slots it is to have, while it grows; else None.
    `damaged` has the groups that cannot be counted, because their keys hold what qframe did not
    write, each with the error; `""` stands for the topic itself. A topic that this version of
    qframe cannot read has the kind `unknown`, no slots, and the reason in `damaged`.
    """

    name: str
    kind: str
    slots: int
    groups: list[Totals]
    growing_to: int | None = None
    damaged: dict[str, str] = {}


class CountedStore(Groups, Controls, Inspecting, Protocol):
    """The roles of a store that counts messages, and keeps the settings of groups."""


def summed(group: str, stats: Sequence[Stats], tuning: Tuning | None = None) -> Totals:
    """The totals of a group, of its counts slot by slot."""
    counts = {name: sum(getattr(each, name) for each in stats) for name in _COUNTS}
    oldest = [each.next_ms for each in stats if each.next_ms is not None]
    return Totals(
        group=group, oldest_ms=min(oldest, default=None), tuning=tuning or Tuning(), **counts
    )


def unknown_in(topics: TopicList) -> list[TopicTotals]:
    """The topics that this version of qframe cannot read, each with the reason."""
    return [
        TopicTotals(
            name=str(error.value), kind=UNKNOWN, slots=0, groups=[],
            damaged={"": f"{error.why}; {error.remedy}"},
        )
        for error in topics.unread
    ]  # fmt: skip


def is_overdue(topic: Topic, totals: Totals, now_ms: int) -> bool:
    """Whether a stream keeps messages for longer than `retain`, for this group alone."""
    if topic.kind is not Kind.STREAM or totals.oldest_ms is None or not totals.lag:
        return False
    return now_ms - totals.oldest_ms > topic.retain_ms


def totals_in(store: CountedStore, topic: Topic) -> TopicTotals:
    """The totals of a topic; a damaged group is named, and the others are read without it."""
    try:
        return _totals(store, topic, None)
    except StoreDamaged as error:
        why = error.why
    try:
        names = store.groups(topic)
    except StoreDamaged:
        names = []
    found: list[Totals] = []
    damaged: dict[str, str] = {}
    for name in names:
        try:
            found += _totals(store, topic, name).groups
        except StoreDamaged as error:
            damaged[name] = error.why
    return TopicTotals(
        name=topic.name, kind=topic.kind, slots=len(topic.all_slots), groups=found,
        growing_to=topic.growth.target or None, damaged=damaged if names else {"": why},
    )  # fmt: skip


def _totals(store: CountedStore, topic: Topic, group: str | None) -> TopicTotals:
    by_group: dict[str, list[Stats]] = {}
    for stats in store.stats(topic, group):
        by_group.setdefault(stats.group, []).append(stats)
    tunings = store.tunings([(topic, name) for name in by_group])
    groups = [
        summed(name, stats, tuning_of(texts or {})[0])
        for (name, stats), texts in zip(by_group.items(), tunings, strict=True)
    ]
    return TopicTotals(
        name=topic.name, kind=topic.kind, slots=len(topic.all_slots), groups=groups,
        growing_to=topic.growth.target or None,
    )  # fmt: skip
