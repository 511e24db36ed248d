"""The ground of all verbs: the store, the rosters, names, rights, and the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from qframe.admin.audit_log import AuditLog
from qframe.admin.owners import GroupRoster, reports_in
from qframe.admin.rights import Right, without_body, without_text
from qframe.errors import NotAllowed, UnknownGroup, UnknownTopic
from qframe.options.tuning import TAKEN, Tuning, tuning_of
from qframe.roster import Roster
from qframe.schedules.verbs import Schedules
from qframe.stores.base import Store
from qframe.stores.records import HistoryEntry, Record
from qframe.stores.types import TopicList
from qframe.topic import Topic, checked_group, checked_name


class AdminContext:
    """Finds topics and groups by name, and knows who asks and what they may.

    Args:
        store: where the messages are.
        roster: returns the members of a topic's group.
        audit: told of what is changed.
        rights: of who asks.
        max_body: the largest body, in bytes.
        schedules: returns the schedules of the store; None where they are not to be reached.
    """

    def __init__(
        self,
        store: Store,
        *,
        roster: Callable[[Topic, str], Roster],
        audit: AuditLog,
        rights: frozenset[Right],
        max_body: int,
        schedules: Callable[[], Schedules] | None = None,
    ) -> None:
        self.store = store
        self.roster = roster
        self.audit = audit
        self.rights = rights
        self.max_body = max_body
        self.schedules_of = schedules

    def schedules(self) -> Schedules:
        """The schedules of the store.

        Raises:
            RuntimeError: if these operations were made without them.
        """
        if self.schedules_of is None:
            raise RuntimeError("Admin(schedules=) is not given")
        return self.schedules_of()

    def require(self, right: Right) -> None:
        """Sees that who asks has a right.

        Raises:
            NotAllowed: if they do not.
        """
        if right not in self.rights:
            raise NotAllowed(self.audit.by, right, self.rights)

    def shown(self, record: Record) -> Record:
        """A record with what they may see of it."""
        return record if "body" in self.rights else without_body(record)

    def end_shown(self, entry: HistoryEntry) -> HistoryEntry:
        """The end of an attempt with what they may see of it."""
        return entry if "body" in self.rights else without_text(entry)

    def all_shown(self, records: Iterable[Record]) -> list[Record]:
        """Records with what they may see of them."""
        return [self.shown(record) for record in records]

    def topics(self) -> TopicList:
        """All topics; those that this version of qframe cannot read are named apart.

        Raises:
            NotAllowed: if they may not even look.
        """
        self.require("view")
        return self.store.topics()

    def topic(self, topic: Topic | str) -> Topic:
        """The topic as it is declared.

        Raises:
            NotAllowed: if they may not even look.
            UnknownTopic: if there is none of this name.
            BadTopic: if this version of qframe cannot read it.
        """
        self.require("view")
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

    def took_from_workers(self, topic: Topic, group: str) -> None:
        """Has a group's workers see, within 2 s, what they have in hand and is not theirs any more.

        Otherwise they would see it when they renew its lease: after a third of that.
        """
        self.store.tune(topic, group, {TAKEN: str(self.store.now_ms(topic))})

    def rosters(self, topic: Topic, group: str | None = None) -> Iterator[GroupRoster]:
        """The rosters of all groups of a topic, or of one."""
        names = self.groups(topic, group)
        for name, tuning in zip(names, self.tunings(topic, names), strict=True):
            roster, reports = self.roster(topic, name), reports_in(self.store, topic, name)
            yield GroupRoster(topic, name, roster, tuning.paused, reports)

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
