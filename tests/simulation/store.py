"""The store of a run, and each process's connection to it, over which everything takes time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from qframe.coordination.lease import LONGER
from qframe.errors import AnswerLost, StoreForbidden, StoreUnavailable, UnknownGroup
from qframe.outcomes import Moved, Settled
from qframe.roster import Owner
from qframe.schedules.records import TOPIC as SCHEDULES
from qframe.stores.controls import Controls
from qframe.stores.documents import Space
from qframe.stores.edits import Becomes, Edit
from qframe.stores.model.pages import records_of
from qframe.stores.model.state import TopicState
from qframe.stores.model.store import ModelStore
from qframe.stores.reads import Reads
from qframe.stores.records import ChosenDead, Record, Section
from qframe.stores.redis.pull import LOOK_AGAIN_MS
from qframe.stores.rosters import Rosters
from qframe.stores.types import (
    LateReply,
    LeaseRef,
    PullResult,
    PullTerms,
    RenewResult,
    RevokeResult,
    SlotsAway,
    SlotsClosed,
)  # fmt: skip
from qframe.topic import Topic
from simulation.bell import SimulatedBell
from simulation.ledger import Ledger
from simulation.scheduler import Process, Scheduler

Lease = tuple[str, int, str | None, str]
"""Of a group: its slot, its subject, its receipt."""
SHORTEST_S = 0.0002
SHORT_S = 0.002
"""A way back that is shorter takes no turn of its own."""
SLOW_S = 0.1
LATE_S = 3.0
HALF_OPEN_S = 8.0
"""Within so long a worker of a harsh plan notices that its bell's connection is broken."""
TICKS = "ticks"
"""The topic of what schedules publish."""
REDECLARED = "redeclared"
"""The topic that is deleted and declared anew."""
_UNTOLD: Final = (TICKS, SCHEDULES.name, REDECLARED)
"""Topics of which the ledger is not told, and from which no worker pulls."""
REFUSED: Final = 0.5
"""The share of operations that a missing right refuses; of partial ones the share of slots."""
PARTIAL: Final = 0.5
"""The share of missing rights that are those of some slots."""
_PARTS: Final = {
    "publish": 1, "pull": 2, "settle": 2, "acknowledge": 2, "renew": 2, "revoke": 2, "take": 2,
}  # fmt: skip
"""For each operation on several slots the place of its argument that has a part for each."""
PATIENCE_S = 1.0
"""After so long a client gives a call up."""


class SimulatedServer(ModelStore):
    """The model, in a process of its own, which tells the ledger what it has done.

    Where pulls stand it rings as Redis does: for slots alone that a pull has left quiet.

    Attributes:
        tuned: what operators want each group's settings to be.
        closes: whether a publisher that knows a deleted topic finds its slots closed, as on Redis.
            Otherwise it is told, as by databases.
    """

    def __init__(self, process: Process, ledger: Ledger, *, stands: bool) -> None:
        super().__init__(clock=StoreClock(process))
        self._now_ms = self._clock.now_ms  # type: ignore[method-assign] # every call asks
        self.ledger = ledger
        self._scheduler = process.scheduler
        self.tuned: dict[str, dict[str, str | None]] = defaultdict(dict)
        self.rung: list[SimulatedBell] = []
        self.space_rung: list[SimulatedBell] = []
        self.on_ticks: Callable[..., None] = lambda *_: None
        self.on_published: Callable[..., None] = lambda *_: None
        self.on_timers: Callable[..., None] = lambda *_: None
        self.on_deleted: Callable[[Topic], None] = lambda _: None
        self.closes = False
        self._group_at: dict[str, str] | None = {} if stands else None

    def publish(self, topic: Topic, entries: Any) -> Any:
        if topic.name in _UNTOLD:
            if self.closes and topic.name == REDECLARED and not self._is_current(topic):
                raise SlotsClosed(Connection.url, topic.name, [None] * len(entries))
            outcomes = super().publish(topic, entries)
            if topic.name == TICKS:
                self.on_ticks(entries, outcomes, self.now_ms())
            return outcomes
        try:
            outcomes = super().publish(topic, entries)
        except SlotsClosed as error:
            told = dict(zip(entries, error.outcomes, strict=True))
            stored = {entry: outcome for entry, outcome in told.items() if outcome is not None}
            self.ledger.stored(list(stored), list(stored.values()), self.now_ms())
            raise
        self.ledger.stored(entries, outcomes, self.now_ms())
        self.on_published(entries, outcomes, self.now_ms())
        return outcomes

    def _is_current(self, topic: Topic) -> bool:
        """Whether a topic is declared, and as its publisher knows it."""
        state = self._states.get(topic.name)
        if state is None:
            return False
        known = state.topic
        return known.kind is topic.kind and known.declared_slots == topic.declared_slots

    def delete(self, topic: Topic, limit: int = 500) -> bool:
        if is_done := super().delete(topic, limit):
            self.on_deleted(topic)
        return is_done

    def rewrite(self, topic: Topic, edits: Sequence[Edit], *, by: str | None = None) -> list[Moved]:
        before = [self._meant(topic, edit) for edit in edits]
        outcomes = super().rewrite(topic, edits, by=by)
        told = list(zip(edits, before, outcomes, strict=True))
        timers = [each for each in told if not each[0].is_of_dead]
        if timers:
            self.on_timers(*map(list, zip(*timers, strict=True)))
        for edit, places, outcome in told:
            for group, name in places if edit.is_of_dead and outcome is Moved.DONE else ():
                is_retried = edit.becomes is Becomes.RETRIED
                (self.ledger.retries if is_retried else self.ledger.drops)(group or "", [name])
        return outcomes

    def _meant(self, topic: Topic, edit: Edit) -> list[tuple[str | None, str]]:
        """The messages that an edit is for, by group and id."""
        if edit.group is None or not edit.is_of_dead:
            return [(one.group, one.id) for one in self.timer(topic, edit.subject)]
        letters = self.dead(topic, edit.group, ChosenDead(limit=2**31))
        return [
            (one.group, one.id) for one in letters if (one.slot, one.seq) == (edit.slot, edit.seq)
        ]

    def _group(self, topic: Topic, group: str, slots: Iterable[int] = ()) -> Any:
        """A group; of a topic that it has forgotten there is none, as processes know its number."""
        if topic.name not in self._states:
            raise UnknownGroup(topic.name, group)
        return super()._group(topic, group, slots)

    def grown(self, topic: Topic) -> Topic:
        """The topic as far as it has grown."""
        return self._state(topic).topic

    def pull(self, topic: Topic, group: str, asks: Any, terms: PullTerms) -> PullResult:
        if self._group_at is not None and terms.standing.address:
            self._group_at[_bell_of(terms.standing.address)] = group
        pulled = super().pull(topic, group, asks, terms)
        self.ledger.handed_out(group, pulled.deliveries)
        return pulled

    def settle(self, topic: Topic, group: str, settlements: Any) -> list[Settled]:
        results = super().settle(topic, group, settlements)
        self.ledger.settled(group, settlements, results)
        return results

    def tune(self, topic: Topic, group: str, values: Mapping[str, str | None]) -> None:
        if group not in self.groups(topic):
            values = dict.fromkeys(values)  # nobody wants that of a group that is gone
        self.tuned[group].update(values)
        super().tune(topic, group, values)

    def subscribe(self, topic: Topic, group: str, *args: Any, **more: Any) -> bool:
        is_new = super().subscribe(topic, group, *args, **more)
        if is_new and group in self.ledger.groups:
            self.ledger.subscribed(group)
        return is_new

    def drop_group(self, topic: Topic, group: str) -> bool:
        found = self._unsettled(topic, group)
        if is_there := super().drop_group(topic, group):
            self.ledger.emptied(group, found)
            self.tuned[group] = dict.fromkeys(self.tuned[group])
            until_s = self._scheduler.now + LONGER * self.ledger.plan.session_s
            self.ledger.unsubscribed(group, until_s)
        return is_there

    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        before = self._unsettled(topic, group)
        super().seek(topic, group, positions)
        after = self._unsettled(topic, group)
        if any(positions.values()) and (again := after - before):
            self.ledger._broken(f"{group} is sent to the latest, and gets {sorted(again)} again")
        self.ledger.comes_back(group, after)
        if before - after:
            self.ledger.emptied(group, before - after)

    def _unsettled(self, topic: Topic, group: str) -> set[str]:
        """What a group has to handle still, or has given up."""
        slots = self._state(topic).topic.all_slots
        return {one.id for one in self._records(topic, group, slots)}

    def _records(self, topic: Topic, group: str, slots: Iterable[int]) -> Iterator[Record]:
        """What a group has to handle still, or has given up; nothing where it was dropped."""
        state = self._state(topic)
        cursors = state.groups.get(group, {})
        for number in cursors.keys() & set(slots):
            yield from standing(state, group, number, self._now_ms())

    def standing(self, topic: Topic) -> set[str]:
        """The workers whose pulls stand in slots that are in use."""
        slots = self._state(topic).in_use.values()
        pulls = [pull for slot in slots for pull in slot.asleep.values() if pull is not None]
        return {pull.address.split("/")[0] for pull in pulls}

    def owners(self, topic: Topic, group: str) -> list[Owner]:
        """Whose slots are; nobody's where the group was dropped."""
        if group not in self.groups(topic):
            return []
        roster = self.roster(topic, group)
        return list(roster.owners.values()) if roster else []

    def group_at(self, address: str) -> str:
        """The group whose replies go to an address."""
        assert self._group_at is not None
        return self._group_at[_bell_of(address)]

    def is_open(self, topic: Topic, group: str, slot: int, name: str) -> bool:
        """Whether a message is still to be handled for a group."""
        slots = self._state(topic).topic.all_slots
        return any(
            one.id == name and one.state != "dead"
            for one in self._records(topic, group, [slot] if slot in slots else slots)
        )  # in all of them, if its slot was split

    def is_in_force(self, topic: Topic, group: str, delivery: Any) -> bool:
        """Whether a delivery is handed out still: no seek, and nobody else, has taken it back."""
        cursor = self._state(topic).groups.get(group, {}).get(delivery.slot)
        if cursor is None:  # it was dropped, or a failover has forgotten that there was this slot
            return False
        if delivery.subject is not None:
            head = cursor.heads.get(delivery.subject)
            return head is not None and head.receipt == delivery.receipt
        is_in_window = cursor.floor <= delivery.seq < cursor.read
        is_open = is_in_window and delivery.seq not in cursor.settled
        return is_open and cursor.receipt == delivery.receipt

    def _ring(self, topic: Topic, slots: Iterable[int] | None = None) -> None:
        if topic.name in _UNTOLD:
            return
        state = self._state(topic)
        if self._group_at is not None:
            slots = [n for n in (state.slots if slots is None else slots) if state.slots[n].asleep]
            for number in slots:
                state.slots[number].asleep.clear()
        rung = None if slots is None else frozenset(slots)
        if rung is None or rung:
            for bell in self.rung:
                bell.rings(rung)

    def _ring_spaces(self) -> None:
        for bell in self.space_rung:
            bell.rings(None)

    def _tell(self, address: str, reply: LateReply) -> bool:
        for bell in self.rung:
            if bell.address == address and bell.replies(reply):
                group = self.group_at(address)
                self.ledger.handed_out(group, [reply.delivery])
                self.ledger.log("store", "answers {} for {} with {}", address, group, reply)
                return True
        return False


def standing(state: TopicState, group: str, number: int, now_ms: int) -> Iterator[Record]:
    """What a group has to handle still in a slot, or has given up."""
    cursor = state.groups[group][number]
    for one in records_of(state, Section(number, "line", ""), now_ms):
        if cursor.floor <= (one.seq or 0) and one.seq not in cursor.settled:
            yield one
    for part in ("heads", "behind", "dead"):
        yield from records_of(state, Section(number, part, group), now_ms)


def _bell_of(address: str) -> str:
    """The bell that an address is of, which has another one for each connection."""
    return address.rpartition("/")[0]


class StoreClock:
    """The store's clock, which may stand still, and go back."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._read = process.now_ms
        self.stands_until = 0.0
        self.stood_at_ms = 0

    def stand(self, seconds: float) -> None:
        self.stood_at_ms = self.now_ms()
        self.stands_until = self._process.scheduler.now + seconds

    def now_ms(self) -> int:
        if self.stands_until:
            process = self._process
            if process.scheduler.now < self.stands_until:
                return self.stood_at_ms
            self.stands_until = 0.0  # it has stood still, and stays behind
            process.jumped_ms += self.stood_at_ms - process.now_ms()
        return self._read()

    def monotonic_s(self) -> float:
        return self._process.monotonic_s()


class Trouble:
    """Something wrong with a connection until a moment.

    Attributes:
        is_partial: whether a right is missing for some slots only.
    """

    def __init__(self, what: str, until: float, size: float) -> None:
        self.what, self.until, self.size = what, until, size
        self.is_partial = self._is_drawn("partial", PARTIAL)

    def refuses(self, name: object) -> bool:
        """Whether the right to an operation, or to a slot, is missing: always the same ones."""
        return self._is_drawn(name, REFUSED)

    def _is_drawn(self, name: object, share: float) -> bool:
        return Random(f"{self.size}/{name}").random() < share


class Connection:
    """A process's way to the store, as the `Store` that its parts use.

    Each call takes a drawn time to get there and a drawn time back. While there is trouble it is
    refused, is lost on the way there or back, comes late, or reaches some slots only. If its user
    lacks a right, some operations are refused, and all others are done.

    Attributes:
        troubles: what is wrong with it, and was.
        patience_s: after how long a call is given up.
        gone: when it was heard of a lease that it is not held any more.
        stands: whether pulls stand over it.
        is_harsh: whether a break of it is noticed late.
    """

    url = "simulated://"
    namespace = "qframe"

    def __init__(self, server: SimulatedServer, process: Process, seed: object) -> None:
        self.server = server
        self.process = process
        self.scheduler: Scheduler = process.scheduler
        self.capabilities = server.capabilities
        self.troubles: list[Trouble] = []
        self.patience_s = PATIENCE_S
        self.gone: dict[Lease, float] = {}
        self.stands = self.is_harsh = False
        self.log: Callable[..., None] = lambda *_: None
        self._random = Random(f"{seed}/{process.name}")
        self._draw = self._random.random
        self._bells = 0

    def latency_s(self) -> float:
        """How long one way takes."""
        drawn = self._draw()
        drawn *= drawn
        return SHORTEST_S + drawn * drawn * 0.01

    def loses_bells(self) -> bool:
        return self._trouble("bells lost") is not None

    def reply_in_s(self) -> float:
        """How long the reply to a pull that stood takes."""
        trouble = self._trouble("late", "slow") if self.troubles else None
        most_s = 0.0 if trouble is None else LATE_S if trouble.what == "late" else SLOW_S
        return self.latency_s() + (self._draw() * most_s if most_s else 0.0)

    def breaks_in_s(self) -> float:
        """How long it takes until its process notices that it is broken."""
        return self._draw() ** 2 * HALF_OPEN_S if self.is_harsh else SHORTEST_S

    def is_open_still(self) -> bool:
        """Whether the store has not heard yet that its process is dead."""
        return self._draw() < 0.5

    def bell(self, topics: Sequence[Topic]) -> SimulatedBell:
        self._bells += self.stands
        address = f"{self.process.name}/{self._bells}" if self.stands else ""
        return SimulatedBell(self, self.server.rung, address)

    def document_bell(self, topic: Topic, group: str, space: Space) -> SimulatedBell:
        return SimulatedBell(self, self.server.space_rung)

    def now_ms(self, topic: Topic | None = None) -> int:
        return self.server.now_ms()

    def renew(
        self, topic: Topic, group: str, holds: Sequence[LeaseRef], lease_ms: int
    ) -> RenewResult:
        renewed: RenewResult = self._call("renew", self.server.renew, topic, group, holds, lease_ms)
        for hold in renewed.gone:
            lease = group, hold.slot, hold.subject, hold.receipt
            self.gone.setdefault(lease, self.scheduler.now)
        return renewed

    def pull(self, topic: Topic, group: str, asks: Any, terms: PullTerms) -> PullResult:
        pulled: PullResult = self._call("pull", self.server.pull, topic, group, asks, terms)
        for one in pulled.deliveries:
            self.pulled(group, one)
        return pulled

    def pulled(self, group: str, one: Any) -> None:
        """A delivery has come, later than news that its lease is gone: the next renewal tells."""
        self.gone.pop((group, one.slot, one.subject, one.receipt), None)

    def reconnect(self) -> None:
        """Has nothing that could be broken."""

    def close(self) -> None:
        """Has nothing to close."""

    def _trouble(self, *names: str) -> Trouble | None:
        now = self.scheduler.now
        self.troubles = [trouble for trouble in self.troubles if trouble.until > now]
        found = [trouble for trouble in self.troubles if trouble.what in names]
        return found[0] if found else None

    def _call(self, name: str, operation: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
        draw, sleep = self._draw, self.scheduler.block
        there_s, back_s = draw(), draw()  # each as `latency_s` has it, which this is too often for
        there_s *= there_s
        back_s *= back_s
        there_s = SHORTEST_S + there_s * there_s * 0.01
        back_s = SHORTEST_S + back_s * back_s * 0.01
        if self.troubles and (what := self._fate(name)) is not None:
            return self._go_wrong(what, name, partial(operation, *args, **more), there_s, back_s)
        sleep(there_s)
        result = operation(*args, **more)
        if back_s > SHORT_S:
            sleep(back_s)
        return result

    def _forbidding(self, name: str) -> Trouble | None:
        """Why its user may not do an operation, or not on all slots; None if it may."""
        now = self.scheduler.now
        for trouble in self.troubles:
            if trouble.what == "forbidden" and trouble.until > now and trouble.refuses(name):
                return trouble
        return None

    def _fate(self, name: str) -> str | None:
        """What goes wrong with a call, if anything."""
        if self._forbidding(name) is not None:
            return "forbidden"
        trouble = self._trouble("refused", "lost before", "lost after", "late", "slow", "cut")
        if trouble is None or self._draw() >= 0.3 + 0.7 * trouble.size:
            return None
        return trouble.what

    def _go_wrong(
        self, what: str, name: str, call: partial[Any], there_s: float, back_s: float
    ) -> Any:
        sleep = self.scheduler.block
        if what == "slow":
            there_s += self._draw() * SLOW_S
            back_s += self._draw() * SLOW_S
        elif what == "late":
            there_s += self._draw() * LATE_S
            back_s += self._draw() * LATE_S
        self.log(self.process.name, f"{name} is {what}")
        sleep(there_s)
        if what == "refused":
            raise StoreUnavailable(self.url, "refused")
        if what == "lost before":
            sleep(self.patience_s * self._draw())
            raise AnswerLost(self.url, "no reply")
        if what == "forbidden":
            result = self._refuse(name, call)
        elif what == "cut" and (cut := getattr(self, f"_cut_{name}", None)) is not None:
            result = cut(call.func, *call.args, **call.keywords)
        else:
            result = call()
        if what == "lost after":
            sleep(self.patience_s * self._draw())
            raise AnswerLost(self.url, "no reply")
        sleep(back_s)
        return result

    def _refuse(self, name: str, call: partial[Any]) -> Any:
        """Refuses a call, or its parts of some slots; the others are done and not answered.

        Raises:
            StoreForbidden: if nothing was done.
            AnswerLost: if a part was done.
        """
        trouble = self._forbidding(name)
        if trouble is not None and trouble.is_partial and name in _PARTS:
            place = _PARTS[name]
            arguments = list(call.args)
            parts = arguments[place]
            allowed = [one for one in parts if not trouble.refuses(getattr(one, "slot", one))]
            if len(allowed) == len(parts):
                return call()
            if allowed:
                is_mapping = isinstance(parts, Mapping)
                arguments[place] = {one: parts[one] for one in allowed} if is_mapping else allowed
                with suppress(SlotsClosed):
                    call.func(*arguments, **call.keywords)
                raise AnswerLost(self.url, "no permission", what="has refused its user a part")
        raise StoreForbidden(self.url, "no permission")

    # Calls of which some slots hear nothing, or are not heard.

    def _fates(self, slots: set[int]) -> dict[int, str]:
        """What becomes of each slot's part: it is done, done and not heard, or not done."""
        return {slot: self._random.choice(["done", "unheard", "away"]) for slot in sorted(slots)}

    def _cut_pull(
        self, pull: Callable[..., PullResult], topic: Topic, group: str, asks: Any, terms: PullTerms
    ) -> PullResult:
        fates = self._fates({ask.slot for ask in asks})
        pulled = pull(topic, group, [a for a in asks if fates[a.slot] != "away"], terms)
        heard = [one for one in pulled.deliveries if fates[one.slot] == "done"]
        fenced = [slot for slot in pulled.fenced if fates[slot] == "done"]
        pulled.deliveries, pulled.fenced = heard, fenced
        pulled.unreachable = [slot for slot, fate in fates.items() if fate == "away"]
        if pulled.unreachable and not 0 <= (pulled.next_due_ms or 10**9) <= LOOK_AGAIN_MS:
            pulled.next_due_ms = LOOK_AGAIN_MS
        pulled.in_doubt = [slot for slot, fate in fates.items() if fate == "unheard"]
        return pulled

    def _cut_settle(
        self, settle: Callable[..., list[Settled]], topic: Topic, group: str, settlements: Any
    ) -> list[Settled]:
        fates = self._fates({one.slot for one in settlements})
        done = iter(settle(topic, group, [a for a in settlements if fates[a.slot] != "away"]))
        results = []
        for one in settlements:
            result = Settled.AWAY if fates[one.slot] == "away" else next(done)
            results.append(result if fates[one.slot] == "done" else Settled.AWAY)
        return results

    def _cut_acknowledge(
        self, acknowledge: Callable[..., list[Settled]], topic: Topic, group: str,
        deliveries: Any, epochs: Any,
    ) -> list[Settled]:  # fmt: skip
        def settle(topic: Topic, group: str, some: Any) -> list[Settled]:
            return acknowledge(topic, group, some, epochs)

        return self._cut_settle(settle, topic, group, deliveries)

    def _cut_renew(
        self, renew: Callable[..., RenewResult], topic: Topic, group: str, holds: Any, lease_ms: int
    ) -> RenewResult:
        fates = self._fates({hold.slot for hold in holds})
        asked = [hold for hold in holds if fates[hold.slot] != "away"]
        gone = renew(topic, group, asked, lease_ms).gone
        return RenewResult(
            [hold for hold in gone if fates[hold.slot] == "done"],
            [hold for hold in holds if fates[hold.slot] != "done"],
        )

    def _cut_revoke(
        self, revoke: Callable[..., RevokeResult], topic: Topic, group: str, asks: Any, receipt: str
    ) -> RevokeResult:
        fates = self._fates({ask.slot for ask in asks})
        asked = [ask for ask in asks if fates[ask.slot] != "away"]
        count = revoke(topic, group, asked, receipt).count
        return RevokeResult(count, [slot for slot, fate in fates.items() if fate != "done"])

    def _cut_take(
        self, take: Callable[..., list[int]], topic: Topic, group: str, epochs: Any
    ) -> list[int]:
        fates = self._fates(set(epochs))
        asked = {slot: epoch for slot, epoch in epochs.items() if fates[slot] != "away"}
        taken = [slot for slot in take(topic, group, asked) if fates[slot] == "done"]
        away = {slot: None for slot, fate in fates.items() if fate != "done"}
        if away:
            raise SlotsAway(self.url, taken, away)
        return taken

    def _cut_epochs(self, epochs: Callable[..., Any], topic: Topic, group: str) -> dict[int, str]:
        found: dict[int, str] = epochs(topic, group)
        fates = self._fates(set(found))
        fates[min(found, default=-1)] = "done"  # if none can be asked, it raises
        return {slot: epoch for slot, epoch in found.items() if fates[slot] == "done"}


def _through(name: str) -> Callable[..., Any]:
    def call(self: Connection, /, *args: Any, **more: Any) -> Any:
        return self._call(name, getattr(self.server, name), *args, **more)

    return call


# What is written once for all stores runs in the process, and each of its steps goes to the store.
for _role in (Rosters, Controls, Reads):
    for _name, _above in vars(_role).items():
        if callable(_above) and not _name.startswith("_"):
            setattr(Connection, _name, _above)

# Not by `__getattr__`: with it each look at any attribute is a slow one.
for _name in dir(SimulatedServer):
    if not (_name.startswith("_") or hasattr(Connection, _name)):
        setattr(Connection, _name, _through(_name))
