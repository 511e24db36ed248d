"""A member's nodes in ZooKeeper, and the assignment plan that all members share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from kazoo.exceptions import NoNodeError
from msgspec import structs

from qframe.clock import Clock
from qframe.coordination.base import CERTAIN, SessionView
from qframe.coordination.known_topic import KnownTopic
from qframe.coordination.plan import AssignmentPlan, plan_of
from qframe.coordination.znodes import (
    MEMBERS,
    RETIRING,
    base_of,
    epoch_of,
    gathered,
    is_good,
    name_of,
    owner_value,
    worker_of,
)
from qframe.drivers.zookeeper import ZooKeeper
from qframe.errors import CoordinatorUnavailable
from qframe.identity import is_dead, is_neighbour
from qframe.topic import Topic

SIGNS_OF_LIFE: Final = 6
SETTLE_S: Final = 0.05
PATIENCE_S: Final = 0.25
LOOK_EVERY_S: Final = 0.2


class ZooKeeperSession:
    """The `CoordinatorSession` of one member: its nodes in ZooKeeper.

    Args:
        zookeeper: the session.
        path: the group's node.
        topic: the topic, as far grown as is known.
        worker: this worker's id.
        salt: spreads the odd slots of many groups evenly.
        latest: returns the largest epoch that the store has seen in the group.
        clock: for the signs of life.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        path: str,
        *,
        topic: KnownTopic,
        worker: str,
        salt: str,
        latest: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._zookeeper = zookeeper
        self._client = zookeeper.client
        self._path = path
        self._topic = topic
        self._worker = worker
        self._salt = salt
        self._latest = latest
        self._clock = clock
        self._session_id = 0
        self._name = ""
        self._folder = MEMBERS
        self._heard_s = float("-inf")
        self._was_cut = True
        self._stale = True
        self._seen: frozenset[str] = frozenset()
        self._seen_since_s = 0.0
        self._look_at_s: float | None = None
        self._wanted: frozenset[int] = frozenset()
        self._base = 0
        self._mine: dict[int, int] = {}
        self._blocked: set[int] = set()
        self._awake = threading.Event()

    # For other threads.

    @property
    def heard(self) -> bool:
        """Whether the session is the one under which it has looked, and connected."""
        zookeeper = self._zookeeper
        return (
            zookeeper.connected and zookeeper.session_id == self._session_id and not self._was_cut
        )

    @property
    def certain_until_s(self) -> float:
        """Two thirds of a session after the last acknowledged sign of life was sent."""
        return self._heard_s + CERTAIN * self._zookeeper.session_s

    def note_state(self) -> None:
        """The connection has come or gone."""
        if not self._zookeeper.connected:
            self._was_cut = True
        self._awake.set()

    def wake(self) -> None:
        """Ends a wait."""
        self._awake.set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits for a watch, the end of a neighbour, or until a sign of life or a look is due."""
        now_s = self._clock.monotonic_s()
        due_s = [self._heard_s + self._zookeeper.session_s / SIGNS_OF_LIFE - now_s]
        if timeout_s is not None:
            due_s.append(timeout_s)
        if self._look_at_s is not None:
            due_s.append(self._look_at_s - now_s)
        neighbours = [name for name in self._seen if is_neighbour(worker_of(name))]
        until_s = now_s + max(0.0, min(due_s))
        while (left_s := until_s - self._clock.monotonic_s()) > 0:
            if self._awake.wait(min(left_s, LOOK_EVERY_S) if neighbours else left_s):
                break
            if any(is_dead(worker_of(name)) for name in neighbours):
                self._stale = True
                break
        self._awake.clear()

    def share(self, topic: Topic) -> bool:
        """Has the next look make a plan for the topic's slots, unless there is one.

        Returns:
            Whether it went by another topic.
        """
        is_news = self._topic.replace(topic)
        if is_news:
            self._stale = True
        return is_news

    # For the member's thread.

    def look(self, owned: Mapping[int, str]) -> SessionView | None:
        """Gives its sign of life, and reads members and plan if they may have changed."""
        session_id = self._zookeeper.session_id
        now_s = self._clock.monotonic_s()
        if was_cut := self._was_cut:  # written only where it is set: it may be set just now
            self._was_cut = False
        lost: frozenset[int] = frozenset()
        try:
            if was_cut or session_id != self._session_id:
                # Watches are gone with the connection.
                self._stale = True
                self._blocked.clear()
            if session_id != self._session_id:
                self._session_id = session_id
                self._name = f"{self._worker}~{session_id & (2**64 - 1):x}"
                self._folder = MEMBERS
                lost = frozenset(owned)
            elif was_cut:
                lost = self._not_mine(list(owned))
            if self._stale or now_s >= self._heard_s + self._zookeeper.session_s / SIGNS_OF_LIFE:
                self._give_sign_of_life()
                self._heard_s = now_s
            if not self._stale:  # so nothing is lost
                return None
            self._stale = False
            self._wanted = self._read(now_s)
        except BaseException:
            self._was_cut = True
            raise
        return SessionView(self._wanted, lost)

    def claim(self, slots: Sequence[int]) -> dict[int, str]:
        """Creates owner nodes; watches those that exist already."""
        wanted = [slot for slot in slots if slot not in self._blocked]
        value, base = owner_value(self._name, self._base), self._base
        replies = self._ask(
            lambda slot: self._client.create_async(
                self._owner(slot), value, acl=self._zookeeper.acl, ephemeral=True,
                include_data=True,
            ),
            wanted,
        )  # fmt: skip
        taken = {slot: reply[1].czxid for slot, reply in replies if is_good(reply)}
        self._mine |= taken
        epochs = {slot: epoch_of(base, czxid) for slot, czxid in taken.items()}
        return epochs | self._watch([slot for slot, reply in replies if not is_good(reply)])

    def refused(self, slots: Collection[int]) -> None:
        """Raises the base of epochs if the store knows greater ones than ZooKeeper would give.

        It does where another coordinator was there before, or ZooKeeper has lost its data. The
        slots are this session's here all the same; if not, they were taken by another, and rightly
        refused.
        """
        others = self._not_mine(list(slots))
        czxids = [self._mine[slot] for slot in slots if slot not in others]
        if czxids and (base := self._latest() - min(czxids)) > self._base:
            plan, version = self._plan()
            if base > plan.base:
                self._replace(structs.replace(plan, base=base), version)

    def let_go(self, slots: Mapping[int, str]) -> None:
        """Deletes owner nodes, as far as they are this session's."""

        def delete(slot: int) -> Any:
            transaction = self._client.transaction()
            transaction.check(self._member_path, -1)
            transaction.delete(self._owner(slot))
            return transaction.commit_async()

        # What was let go before, or was held under a session that has passed, may be another's.
        others = self._not_mine(list(slots))
        # Refused means: there is no such node, or the session and all its nodes have passed.
        self._ask(delete, [slot for slot in slots if slot not in others])

    def retire(self) -> None:
        """Moves its node to those of the retiring, so that the next plan is made without it."""
        if self._folder == RETIRING or not self._session_id or not self.heard:
            return
        self._make(f"{self._path}/{RETIRING}", makepath=True)
        transaction = self._client.transaction()
        transaction.delete(self._member_path)
        transaction.create(
            f"{self._path}/{RETIRING}/{self._name}", acl=self._zookeeper.acl, ephemeral=True
        )
        [(_, results)] = self._ask(lambda each: each.commit_async(), [transaction])
        if all(is_good(result) for result in results):
            self._folder = RETIRING

    def leave(self) -> None:
        """Deletes all its nodes; what cannot be deleted ends with the session."""
        if self._session_id and self._zookeeper.connected:
            self.let_go(dict.fromkeys(self._mine, ""))
            self._ask(self._client.delete_async, [self._member_path])

    # Steps of these.

    def _give_sign_of_life(self) -> None:
        """Writes its member node, and creates the node if it is not there."""
        [(_, reply)] = self._ask(
            lambda path: self._client.set_async(path, b""), [self._member_path]
        )
        if self._zookeeper.session_id != self._session_id:
            # Its session has expired with it: created now, the node would belong to no session.
            raise CoordinatorUnavailable(self._zookeeper.shown, "the session has passed")
        if isinstance(reply, NoNodeError):
            for path in (f"{self._path}/{self._folder}", f"{self._path}/owners"):
                self._make(path, makepath=True)
            self._make(f"{self._path}/plan", msgspec.json.encode(AssignmentPlan()))
            self._make(self._member_path, ephemeral=True)

    def _make(self, path: str, value: bytes = b"", **options: bool) -> None:
        """Creates a node, unless it is there."""
        acl = self._zookeeper.acl
        self._ask(lambda path: self._client.create_async(path, value, acl=acl, **options), [path])

    def _read(self, now_s: float) -> frozenset[int]:
        """Reads members and plan, makes a new plan if it is time, and returns what is wanted."""
        [(_, names)] = self._ask(partial(self._client.get_children_async, watch=self._on_watch), [
            f"{self._path}/{MEMBERS}"
        ])  # fmt: skip
        [(_, leaving)] = self._ask(self._client.get_children_async, [f"{self._path}/{RETIRING}"])
        if not is_good(names):
            raise self._gone()
        plan, version = self._plan()
        self._base = plan.base
        for name in leaving if is_good(leaving) else ():
            self._evicted(name, plan, RETIRING)
        members = frozenset(name for name in names if not self._evicted(name, plan, MEMBERS))
        self._look_at_s = None
        if members != self._seen:
            self._seen, self._seen_since_s = members, now_s
        if self._folder == RETIRING:
            return frozenset()
        topic = self._topic_beside(plan)
        if members != set(plan.members) or not plan.shares(topic):
            is_first = self._name == min(members, default="")
            ripe_s = self._seen_since_s + SETTLE_S + (0 if is_first else PATIENCE_S)
            if now_s >= ripe_s:
                following = plan.following(topic, members, self._salt)
                if self._replace(following, version):  # else its watch fires
                    plan = following
            else:
                self._stale = True
                self._look_at_s = ripe_s
        return frozenset(slot for slot, name in plan.owners().items() if name == self._name)

    def _evicted(self, name: str, plan: AssignmentPlan, folder: str) -> bool:
        """Whether a member was found dead, and its nodes have been deleted.

        Its process ran on this machine and is gone, so there is no need to wait for its session.
        Its node and the nodes of its slots are deleted together or not at all, so that only one of
        several members that find it dead does that.
        """
        if not is_dead(worker_of(name)):
            return False
        planned = plan.owners() if folder == MEMBERS else {}  # of one that retires no plan tells
        numbers = {*self._topic.now.all_slots, *plan.slot_numbers}
        slots = [slot for slot in sorted(numbers) if planned.get(slot, name) == name]
        owners = self._ask(lambda slot: self._client.get_async(self._owner(slot)), slots)
        transaction = self._client.transaction()
        transaction.delete(f"{self._path}/{folder}/{name}")
        for slot, reply in owners:
            if is_good(reply) and name_of(reply[0]) == name:
                transaction.delete(self._owner(slot))
        [(_, results)] = self._ask(lambda each: each.commit_async(), [transaction])
        return all(is_good(result) for result in results)

    def _topic_beside(self, plan: AssignmentPlan) -> Topic:
        """The topic as far grown as is known; read where whoever made the plan may know more."""
        known = self._topic.now
        if not plan.members or plan.step < known.growth.step or plan.shares(known):
            return known
        return self._topic.ask()

    def _plan(self) -> tuple[AssignmentPlan, int]:
        """The plan and its version; a change of it is watched for.

        Raises:
            CoordinatorUnavailable: if a newer version has written it otherwise; it is left so.
        """
        [(_, found)] = self._ask(partial(self._client.get_async, watch=self._on_watch), [
            f"{self._path}/plan"
        ])  # fmt: skip
        if not is_good(found):
            raise self._gone()
        try:
            return plan_of(found[0]), found[1].version
        except ValueError as error:
            why = f"this version of qframe cannot read {self._path}/plan ({error})"
            remedy = "use the newer version that wrote it"
            raise CoordinatorUnavailable(self._zookeeper.shown, why, remedy=remedy) from error

    def _replace(self, plan: AssignmentPlan, version: int) -> bool:
        """Replaces one version of the plan; returns whether that was still the latest."""
        value = msgspec.json.encode(plan)
        [(_, reply)] = self._ask(
            lambda path: self._client.set_async(path, value, version), [f"{self._path}/plan"]
        )
        if not is_good(reply):
            self._stale = True
        return is_good(reply)

    def _gone(self) -> CoordinatorUnavailable:
        """The error if the group's nodes were removed: the next sign of life creates them again."""
        self._heard_s = float("-inf")
        return CoordinatorUnavailable(self._zookeeper.shown, f"{self._path} is gone")

    def _not_mine(self, slots: Sequence[int]) -> frozenset[int]:
        """The slots that ZooKeeper does not show as this session's."""
        replies = self._ask(lambda slot: self._client.get_async(self._owner(slot)), slots)
        return frozenset(
            slot for slot, reply in replies
            if not is_good(reply)
            or reply[1].ephemeralOwner != self._session_id
            or reply[1].czxid != self._mine.get(slot)
        )  # fmt: skip

    def _watch(self, slots: Sequence[int]) -> dict[int, str]:
        """Watches nodes that exist; returns the epochs of those that are its own after all."""
        self._blocked.update(slots)
        replies = self._ask(
            lambda slot: self._client.get_async(
                self._owner(slot), watch=partial(self._on_freed, slot)
            ),
            slots,
        )
        mine: dict[int, str] = {}
        for slot, reply in replies:
            if not is_good(reply):
                self._on_freed(slot)
            elif reply[1].ephemeralOwner == self._session_id:
                self._mine[slot] = reply[1].czxid
                mine[slot] = epoch_of(base_of(reply[0]), reply[1].czxid)
        return mine

    def _ask(self, send: Callable[[Any], Any], items: Sequence[Any]) -> list[tuple[Any, Any]]:
        """ZooKeeper's replies to a request for each item."""
        return gathered(self._zookeeper, send, items)

    def _owner(self, slot: int) -> str:
        return f"{self._path}/owners/{slot}"

    @property
    def _member_path(self) -> str:
        return f"{self._path}/{self._folder}/{self._name}"

    def _on_watch(self, _: object) -> None:
        self._stale = True
        self._awake.set()

    def _on_freed(self, slot: int, _: object = None) -> None:
        self._blocked.discard(slot)
        self._awake.set()
