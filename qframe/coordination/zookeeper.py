"""Sharing slots out through ZooKeeper.

    /<chroot>/<namespace>/<topic>/<group>/
        members/<worker>~<session>   ephemeral: a member; written now and then as a sign of life
        retiring/<worker>~<session>  ephemeral: one that was a member; it frees its slots one by one
        owners/<slot>                ephemeral: the slot's owner; base + czxid is the epoch
        plan                         which member is to own which slot, and the base of epochs

Everybody watches members and plan. When the plan names other members than there are, whoever is
first among them writes a new one, made by `assign` from the old; if that one does not, any other
does a moment later. The plan is replaced by version, so one of several wins, and the others read.
Then each lets go of what is not its own any more, once that is drained, and creates the owner nodes
of what is; where a node is still there it watches it. A change costs everybody two reads, and four
operations for each slot that moves: slots plus members, not their product.

A plan says as well for which slots it is, and how far the topic had grown. A member that knows more
proposes another; one that may know less reads that in the store first, so it never goes back.

A member's name ends with its session. A request that deletes an owner node checks in the same
transaction that the node of its member is there, so a request that was left over from an expired
session cannot delete the node of another member. A create whose reply was lost is found again by
the name that the node holds.

A czxid only grows, but for an ensemble that has lost its data, or that follows on another
coordinator. The store refuses what it gives then, and the base is raised by what is missing.

The sign of life is a write: only a server that is joined to a quorum can answer it. (A server that
is cut off from the others may answer reads for a while.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from qframe.clock import Clock
from qframe.coordination.base import LeaseStore, OnFailure
from qframe.coordination.known_topic import KnownTopic
from qframe.coordination.member import Expiry, MembershipService
from qframe.coordination.znodes import (
    MEMBERS,
    RETIRING,
    base_of,
    children_of,
    epoch_of,
    name_of,
    worker_of,
)
from qframe.coordination.zookeeper_session import ZooKeeperSession
from qframe.drivers.zookeeper import ZooKeeper
from qframe.events import Events
from qframe.roster import Member, Owner, Roster
from qframe.topic import Topic

START_S: Final = 5.0


class ZooKeeperCoordinator:
    """Coordinates through an ensemble; one session for all consumers of a worker.

    Args:
        url: see `qframe.drivers.zookeeper.ZooKeeper`.
        store: the store, which knows the epochs that there have been.
        namespace: keeps apart what several systems keep in one ensemble.
        worker: this worker's id.
        session_s: how long a worker may be silent before others get its slots.
        events: hears what happens.
        clock: for what is certain until when.
        on_failure: called with a part's name and an error after which the worker must end.

    Raises:
        BadUrl: if the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        store: LeaseStore,
        *,
        namespace: str,
        worker: str,
        session_s: float,
        events: Events,
        clock: Clock,
        on_failure: OnFailure,
    ) -> None:
        self._sessions: frozenset[ZooKeeperSession] = frozenset()
        self._starting = threading.Lock()
        self._zookeeper = ZooKeeper(url, session_s=session_s, on_state=self._on_state)
        self._store = store
        self._namespace = namespace
        self._worker = worker
        self._events = events
        self._clock = clock
        self._on_failure = on_failure
        self._expiry = Expiry(session_s, on_failure)

    def join(self, topic: Topic, group: str, *, on_change: Callable[[], None]) -> MembershipService:
        """Takes part."""
        self.check()
        session = ZooKeeperSession(
            self._zookeeper, self._path(topic, group),
            topic=KnownTopic(topic, lambda: self._store.latest([topic])[0]),
            worker=self._worker, salt=f"{topic.name}/{group}", clock=self._clock,
            latest=lambda: _latest(self._store, topic, group),
        )  # fmt: skip
        self._sessions |= {session}

        def forget(member: MembershipService) -> None:
            self._sessions -= {session}
            self._expiry.forget(member)

        member = MembershipService(
            topic=topic, group=group, session=session, on_change=on_change, events=self._events,
            clock=self._clock, on_failure=self._on_failure, on_left=forget,
        )  # fmt: skip
        self._expiry.watch(member)
        member.start()
        return member

    def roster(self, topic: Topic, group: str) -> Roster:
        """The members, and the slots that each owns."""
        self.check()
        zookeeper, path = self._zookeeper, self._path(topic, group)
        until_ms = self._clock.now_ms() + round(zookeeper.session_s * 1000)
        members = [
            Member(worker_of(name), stat.ctime, until_ms, retiring=folder == RETIRING)
            for folder in (MEMBERS, RETIRING)
            for name, (_, stat) in children_of(zookeeper, f"{path}/{folder}")
        ]
        owners: list[Owner] = []
        for slot, (data, stat) in children_of(zookeeper, f"{path}/owners"):
            with suppress(ValueError):  # a newer version's: its slot is seen without an owner
                epoch = epoch_of(base_of(data), stat.czxid)
                owners.append(Owner(int(slot), worker_of(name_of(data)), epoch, stat.ctime))
        return Roster(
            0,
            sorted(members, key=lambda one: (one.since_ms, one.id)),
            {owner.slot: owner for owner in sorted(owners, key=lambda one: one.slot)},
        )

    def check(self) -> None:
        """Returns if the ensemble can be reached."""
        with self._starting:
            self._zookeeper.start(START_S)

    def close(self) -> None:
        """Ends the session, and with it all that was this worker's."""
        self._expiry.stop()
        with self._starting:
            self._zookeeper.close()

    def _path(self, topic: Topic, group: str) -> str:
        return f"/{self._namespace}/{topic.name}/{group}"

    def _on_state(self) -> None:
        for session in self._sessions:
            session.note_state()


def _latest(store: LeaseStore, topic: Topic, group: str) -> int:
    """The largest epoch of a group's slots; 0 if the only one is being split."""
    return max((int(epoch, 16) for epoch in store.epochs(topic, group).values()), default=0)
