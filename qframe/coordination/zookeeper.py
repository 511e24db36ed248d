"""Sharing slots out through ZooKeeper.

    /<chroot>/<namespace>/<topic>/<group>/
        members/<worker>~<session>   ephemeral: its seat; written now and then as a sign of life
        owners/<slot>                ephemeral: the slot's owner; its czxid is the epoch
        plan                         which member is to own which slot

Everybody watches members and plan. When the plan names other members than there are, whoever is
first among them writes a new one, made by `allocate` from the old; if that one does not, any other
does a moment later. The plan is replaced by version, so one of several wins, and the others read.
Then each lets go of what is not its own any more, once that is drained, and creates the owner nodes
of what is; where a node is still there it watches it. A change costs everybody two reads, and four
operations for each slot that moves: slots plus members, not their product.

A seat's name bears its session. What deletes an owner node checks in the same transaction that the
seat is there, so a request that was left over from a session that has passed can delete nobody
else's. A create whose answer was lost is found again by the name that the node holds.

The sign of life is a write: only a server that is joined to a quorum can answer it. (A server that
is cut off from the others may answer reads for a while.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError

from qframe.clock import Clock
from qframe.coordination.allocation import allocate
from qframe.coordination.base import CERTAIN, OnFailure, View
from qframe.coordination.member import Expiry
from qframe.coordination.member import Member as Participant
from qframe.drivers.zookeeper import ZooKeeper
from qframe.errors import CoordinatorUnavailable
from qframe.events import Events
from qframe.identity import is_dead
from qframe.roster import Member, Owner, Roster
from qframe.topic import Topic

SIGNS_OF_LIFE: Final = 6
SETTLE_S: Final = 0.05
PATIENCE_S: Final = 0.25
START_S: Final = 5.0
AT_ONCE: Final = 500


class Plan(msgspec.Struct):
    """Who is to own what: each slot's place in the list of members."""

    members: list[str] = []
    slots: list[int] = []

    def owners(self) -> dict[int, str]:
        """The member of each slot."""
        return {slot: self.members[place] for slot, place in enumerate(self.slots)}


class ZooKeeperCoordinator:
    """Coordinates through an ensemble; one session for all consumers of a worker.

    Args:
        url: see `qframe.drivers.zookeeper.ZooKeeper`.
        namespace: keeps apart what several systems keep in one ensemble.
        worker: this worker's id.
        session_s: how long a worker may be unheard before its slots are given to others.
        events: told of what happens.
        clock: for what is certain until when.
        on_failure: called with a part's name and an error after which the worker must end.

    Raises:
        BadUrl: if the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        worker: str,
        session_s: float,
        events: Events,
        clock: Clock,
        on_failure: OnFailure,
    ) -> None:
        self._seats: frozenset[ZooKeeperSeat] = frozenset()
        self._starting = threading.Lock()
        self._zookeeper = ZooKeeper(url, session_s=session_s, on_state=self._on_state)
        self._namespace = namespace
        self._worker = worker
        self._events = events
        self._clock = clock
        self._on_failure = on_failure
        self._expiry = Expiry(session_s / 20, on_failure)

    def join(self, topic: Topic, group: str, *, on_change: Callable[[], None]) -> Participant:
        """Takes part."""
        self.check()
        seat = ZooKeeperSeat(
            self._zookeeper, self._path(topic, group), slots=topic.slots, worker=self._worker,
            salt=f"{topic.name}/{group}", clock=self._clock,
        )  # fmt: skip
        self._seats |= {seat}

        def forget(member: Participant) -> None:
            self._seats -= {seat}
            self._expiry.forget(member)

        member = Participant(
            topic=topic, group=group, seat=seat, on_change=on_change, events=self._events,
            clock=self._clock, on_failure=self._on_failure, on_left=forget,
        )  # fmt: skip
        self._expiry.watch(member)
        member.start()
        return member

    def roster(self, topic: Topic, group: str) -> Roster:
        """Who takes part, and who owns what."""
        self.check()
        zookeeper, path = self._zookeeper, self._path(topic, group)
        until_ms = self._clock.now_ms() + round(zookeeper.session_s * 1000)
        seats = _all(zookeeper, f"{path}/members")
        members = [Member(_worker_of(name), stat.ctime, until_ms) for name, (_, stat) in seats]
        owners = [
            Owner(int(slot), _worker_of(data.decode()), _epoch(stat), stat.ctime)
            for slot, (data, stat) in _all(zookeeper, f"{path}/owners")
        ]
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
        for seat in self._seats:
            seat.note_state()


class ZooKeeperSeat:
    """A member's nodes.

    Args:
        zookeeper: the session.
        path: the group's node.
        slots: how many slots the topic has.
        worker: this worker's id.
        salt: spreads the odd slots of many groups evenly.
        clock: for the signs of life.
    """

    def __init__(
        self, zookeeper: ZooKeeper, path: str, *, slots: int, worker: str, salt: str, clock: Clock
    ) -> None:
        self._zookeeper = zookeeper
        self._client = zookeeper.client
        self._path = path
        self._slots = slots
        self._worker = worker
        self._salt = salt
        self._clock = clock
        self._session = 0
        self._name = ""
        self._heard_s = float("-inf")
        self._was_cut = True
        self._stale = True
        self._seen: frozenset[str] = frozenset()
        self._seen_since_s = 0.0
        self._look_at_s: float | None = None
        self._wanted: frozenset[int] = frozenset()
        self._mine: dict[int, str] = {}
        self._blocked: set[int] = set()
        self._awake = threading.Event()

    # What others threads ask and tell.

    @property
    def heard(self) -> bool:
        """Whether the session is the one under which it has looked, and connected."""
        zookeeper = self._zookeeper
        return zookeeper.connected and zookeeper.session_id == self._session and not self._was_cut

    @property
    def certain_until_s(self) -> float:
        """Two thirds of the session after the last sign of life that was answered was sent."""
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
        """Waits for a watch, or until a sign of life or a look is due."""
        now_s = self._clock.monotonic_s()
        due_s = [self._heard_s + self._zookeeper.session_s / SIGNS_OF_LIFE - now_s]
        if timeout_s is not None:
            due_s.append(timeout_s)
        if self._look_at_s is not None:
            due_s.append(self._look_at_s - now_s)
        self._awake.wait(max(0.0, min(due_s)))
        self._awake.clear()

    # The member's turns.

    def look(self, owned: Mapping[int, str]) -> View | None:
        """Gives its sign of life, and reads members and plan if they may have changed."""
        session = self._zookeeper.session_id
        now_s = self._clock.monotonic_s()
        was_cut, self._was_cut = self._was_cut, False
        lost: frozenset[int] = frozenset()
        try:
            if was_cut or session != self._session:
                # Watches are gone with the connection.
                self._stale = True
                self._blocked.clear()
            if session != self._session:
                self._session = session
                self._name = f"{self._worker}~{session & (2**64 - 1):x}"
                self._mine.clear()
                lost = frozenset(owned)
            elif was_cut:
                lost = self._not_mine(owned)
            if self._stale or now_s >= self._heard_s + self._zookeeper.session_s / SIGNS_OF_LIFE:
                self._give_sign_of_life()
                self._heard_s = now_s
            if not self._stale:
                return View(self._wanted, lost) if lost else None
            self._stale = False
            self._wanted = self._read(now_s)
        except BaseException:
            self._was_cut = self._stale = True
            raise
        return View(self._wanted, lost)

    def claim(self, slots: Sequence[int]) -> dict[int, str]:
        """Creates owner nodes; where there is one already it is watched."""
        wanted = [slot for slot in slots if slot not in self._blocked]
        answers = self._ask(
            lambda slot: self._client.create_async(
                self._owner(slot), self._name.encode(), acl=self._zookeeper.acl, ephemeral=True,
                include_data=True,
            ),
            wanted,
        )  # fmt: skip
        taken = {slot: _epoch(answer[1]) for slot, answer in answers if _is_good(answer)}
        taken |= self._watch([slot for slot, answer in answers if not _is_good(answer)])
        self._mine |= taken
        return taken

    def let_go(self, slots: Mapping[int, str]) -> None:
        """Deletes owner nodes, as far as they are this session's."""

        def delete(slot: int) -> Any:
            transaction = self._client.transaction()
            transaction.check(self._seat, -1)
            transaction.delete(self._owner(slot))
            return transaction.commit_async()

        # What it held under a session that has passed may be another's by now.
        others = self._not_mine(slots)
        # Refused means: there is no such node, or the session and all its nodes have passed.
        self._ask(delete, [slot for slot in slots if slot not in others])
        for slot in slots:
            self._mine.pop(slot, None)

    def leave(self) -> None:
        """Deletes all its nodes; what cannot be deleted ends with the session."""
        if self._session and self._zookeeper.connected:
            self.let_go(dict(self._mine))
            self._ask(self._client.delete_async, [self._seat])

    # Steps of these.

    def _give_sign_of_life(self) -> None:
        """Writes its seat; makes it where it is not there."""
        [(_, answer)] = self._ask(lambda path: self._client.set_async(path, b""), [self._seat])
        if isinstance(answer, NoNodeError):
            for path in (f"{self._path}/members", f"{self._path}/owners"):
                self._make(path, makepath=True)
            self._make(f"{self._path}/plan", msgspec.json.encode(Plan()))
            self._make(self._seat, ephemeral=True)

    def _make(self, path: str, value: bytes = b"", **options: bool) -> None:
        """Creates a node, unless it is there."""
        acl = self._zookeeper.acl
        self._ask(lambda path: self._client.create_async(path, value, acl=acl, **options), [path])

    def _read(self, now_s: float) -> frozenset[int]:
        """Reads members and plan, makes a new plan if it is time, and answers what is wanted."""
        [(_, names)] = self._ask(partial(self._client.get_children_async, watch=self._on_watch), [
            f"{self._path}/members"
        ])  # fmt: skip
        [(_, found)] = self._ask(partial(self._client.get_async, watch=self._on_watch), [
            f"{self._path}/plan"
        ])  # fmt: skip
        if not (_is_good(names) and _is_good(found)):
            self._stale = True  # somebody removed them; the next sign of life makes them again
            self._heard_s = float("-inf")
            return frozenset()
        plan = msgspec.json.decode(found[0], type=Plan)
        members = frozenset(name for name in names if not self._evicted(name, plan))
        self._look_at_s = None
        if members != self._seen:
            self._seen, self._seen_since_s = members, now_s
        if members != set(plan.members) or len(plan.slots) != self._slots:
            is_first = self._name == min(members, default="")
            ripe_s = self._seen_since_s + SETTLE_S + (0 if is_first else PATIENCE_S)
            if now_s >= ripe_s:
                plan = self._propose(members, plan, found[1].version)
            else:
                self._stale = True
                self._look_at_s = ripe_s
        return frozenset(slot for slot, name in plan.owners().items() if name == self._name)

    def _evicted(self, name: str, plan: Plan) -> bool:
        """Whether a member was found dead, and its nodes have been deleted.

        Its process ran on this machine and is gone, so its session need not be waited for. Its seat
        and the nodes of its slots are deleted together or not at all, so that of several who find
        it dead only one does that.
        """
        if not is_dead(_worker_of(name)):
            return False
        slots = [slot for slot, member in plan.owners().items() if member == name]
        owners = self._ask(lambda slot: self._client.get_async(self._owner(slot)), slots)
        transaction = self._client.transaction()
        transaction.delete(f"{self._path}/members/{name}")
        for slot, answer in owners:
            if _is_good(answer) and answer[0] == name.encode():
                transaction.delete(self._owner(slot))
        [(_, results)] = self._ask(lambda each: each.commit_async(), [transaction])
        return all(_is_good(result) for result in results)

    def _propose(self, members: Iterable[str], plan: Plan, version: int) -> Plan:
        """Replaces the plan; if somebody else has done so meanwhile, its watch tells."""
        names = sorted(members)
        places = {name: place for place, name in enumerate(names)}
        allocation = allocate(self._slots, names, plan.owners(), self._salt)
        following = Plan(names, [places[allocation[slot]] for slot in range(self._slots)])
        value = msgspec.json.encode(following)
        [(_, answer)] = self._ask(
            lambda path: self._client.set_async(path, value, version), [f"{self._path}/plan"]
        )
        if isinstance(answer, BadVersionError | NoNodeError):
            self._stale = True
            return plan
        return following

    def _not_mine(self, owned: Mapping[int, str]) -> frozenset[int]:
        """Those of the slots that ZooKeeper does not show as this session's."""
        answers = self._ask(lambda slot: self._client.get_async(self._owner(slot)), list(owned))
        return frozenset(
            slot for slot, answer in answers
            if not _is_good(answer)
            or answer[1].ephemeralOwner != self._session
            or _epoch(answer[1]) != owned[slot]
        )  # fmt: skip

    def _watch(self, slots: Sequence[int]) -> dict[int, str]:
        """Watches nodes that are there; answers those that are its own after all."""
        self._blocked.update(slots)
        answers = self._ask(
            lambda slot: self._client.get_async(
                self._owner(slot), watch=partial(self._on_freed, slot)
            ),
            slots,
        )
        mine: dict[int, str] = {}
        for slot, answer in answers:
            if not _is_good(answer):
                self._on_freed(slot)
            elif answer[0] == self._name.encode() and answer[1].ephemeralOwner == self._session:
                self._blocked.discard(slot)
                mine[slot] = _epoch(answer[1])
        return mine

    def _ask(self, send: Callable[[Any], Any], items: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Sends a request for each item, and gathers the answers, errors about nodes among them.

        Raises:
            CoordinatorUnavailable: if an answer is lost.
        """
        zookeeper = self._zookeeper
        if not zookeeper.connected:
            raise CoordinatorUnavailable(zookeeper.shown, "the connection is lost")
        return _gathered(zookeeper, send, items)

    def _owner(self, slot: int) -> str:
        return f"{self._path}/owners/{slot}"

    @property
    def _seat(self) -> str:
        return f"{self._path}/members/{self._name}"

    def _on_watch(self, _: object) -> None:
        self._stale = True
        self._awake.set()

    def _on_freed(self, slot: int, _: object = None) -> None:
        self._blocked.discard(slot)
        self._awake.set()


_ABOUT_NODES: Final = (
    BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency,
)  # fmt: skip


def _gathered(
    zookeeper: ZooKeeper, send: Callable[[Any], Any], items: Sequence[Any]
) -> list[tuple[Any, Any]]:
    answers: list[tuple[Any, Any]] = []
    for start in range(0, len(items), AT_ONCE):
        sent = [(item, send(item)) for item in items[start : start + AT_ONCE]]
        for item, answer in sent:
            try:
                answers.append((item, answer.get(timeout=zookeeper.session_s)))
            except _ABOUT_NODES as error:
                answers.append((item, error))
            except (KazooException, KazooTimeoutError) as error:
                raise CoordinatorUnavailable(
                    zookeeper.shown, str(error) or type(error).__name__
                ) from error
    return answers


def _all(zookeeper: ZooKeeper, path: str) -> list[tuple[str, Any]]:
    """The children of a node with what they hold, those that are there."""
    client = zookeeper.client
    [(_, names)] = _gathered(zookeeper, client.get_children_async, [path])
    if not _is_good(names):
        return []
    answers = _gathered(zookeeper, lambda name: client.get_async(f"{path}/{name}"), names)
    return [(name, answer) for name, answer in answers if _is_good(answer)]


def _is_good(answer: object) -> bool:
    return not isinstance(answer, BaseException)


def _epoch(stat: Any) -> str:
    return f"{stat.czxid:016x}"


def _worker_of(name: str) -> str:
    return name.partition("~")[0]
