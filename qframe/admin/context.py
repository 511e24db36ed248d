"""The ground of all verbs: the store, the rosters, names that are looked up, and the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from qframe.admin.audit_log import AuditLog
from qframe.admin.owners import GroupRoster
from qframe.errors import UnknownGroup, UnknownTopic
from qframe.options.tuning import Tuning, tuning_of
from qframe.roster import Roster
from qframe.stores.base import Store
from qframe.topic import Topic, checked_group, checked_name


class AdminContext:
    """Finds topics and groups by name, and knows who asks.

    Args:
        store: where the messages are.
        roster: returns the members of a topic's group.
        audit: told of what is changed.
    """

    def __init__(
        self, store: Store, *, roster: Callable[[Topic, str], Roster], audit: AuditLog
    ) -> None:
        self.store = store
        self.roster = roster
        self.audit = audit

    def topic(self, topic: Topic | str) -> Topic:
        """The topic as it is declared.

        Raises:
            UnknownTopic: if there is none of this name.
        """
        name = topic.name if isinstance(topic, Topic) else checked_name(topic, "topic")
        found = self.store.topic(name)
        if found is None:
            raise UnknownTopic(name, [each.name for each in self.store.topics()])
        return found

    def group(self, topic: Topic, group: str) -> str:
        """The name of a group that has subscribed.

        Raises:
            UnknownGroup: if it has not.
        """
        known = self.store.groups(topic)
        if checked_group(group) not in known:
            raise UnknownGroup(topic.name, group, known)
        return group

    def groups(self, topic: Topic, group: str | None) -> list[str]:
        """All groups of a topic, or the one that is named."""
        return self.store.groups(topic) if group is None else [self.group(topic, group)]

    def tunings(self, topic: Topic, groups: Sequence[str]) -> list[Tuning]:
        """The settings of running consumers of groups."""
        found = self.store.tunings([(topic, group) for group in groups])
        return [tuning_of(texts or {})[0] for texts in found]

    def rosters(self, topic: Topic, group: str | None = None) -> Iterator[GroupRoster]:
        """The rosters of all groups of a topic, or of one."""
        names = self.groups(topic, group)
        for name, tuning in zip(names, self.tunings(topic, names), strict=True):
            yield GroupRoster(topic, name, self.roster(topic, name), tuning.paused)

    def alive(self, topic: Topic, group: str) -> int:
        """How many workers of a group are alive."""
        return len(self.roster(topic, group).members)


class AdminRole:
    """A part of `Admin`: the verbs of one module beside this one.

    Args:
        context: what all parts share.
    """

    def __init__(self, context: AdminContext) -> None:
        self._context = context
