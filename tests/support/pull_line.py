"""A pull loop alone, on a line that is its slots, its receiver and its bell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from contexts import context_of
from late import Late

from qframe.clock import VirtualClock
from qframe.codec import batch_mark
from qframe.errors import UnknownGroup
from qframe.message import Delivery
from qframe.runtime.feed.pull_loop import PullLoop
from qframe.runtime.feed.slots import Slots
from qframe.runtime.flow.admission import AdmissionControl
from qframe.runtime.flow.in_flight import InFlight
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry, LateReply, PullRequest, PullResult, PullTerms, RevokeResult
from qframe.topic import Topic

FIRST, SECOND = f"{1:016x}", f"{2:016x}"
Step = Callable[[], object]


class Line:
    """A line with nothing but its pull loop, on a clock that stands still while nobody waits.

    It is the loop's slots, its receiver and its bell. Each wait is a step: it is noted, then what
    is to happen meanwhile happens. The last one stops the loop.

    Attributes:
        asked: the slots that each pull has asked, in order.
        slept: how long each wait was to be.
        rung: the slots for which the bell rings next; None for all of them.
        replies: what it brings then.
        breaks: whether others may have been lost.
        keeping: what it keeps for the thread that pulls.
        standing: the receipts under which pulls stand, by slot.
        revoked: the slots and the receipt of each revocation.
    """

    def __init__(
        self, kind: str = "stream", slots: int = 2, address: str = "", room: int = 99
    ) -> None:
        self.clock = VirtualClock()
        self.topic = Topic("t", kind, slots)
        self.model = ModelStore(clock=self.clock)
        self.model.declare(self.topic)
        self.model.subscribe(self.topic, "g")
        self.store: Any = Late(self.model)
        self.epochs: Mapping[int, str] = dict.fromkeys(range(slots), FIRST)
        self.model.take(self.topic, "g", self.epochs)
        self.has_unread = False
        self.gone: set[int] = set()
        self.got: list[Delivery] = []
        self.asked: list[list[int]] = []
        self.positions: list[int | None] = []
        self.slept: list[float] = []
        self.rung: frozenset[int] | None = None
        self.address = address
        self.replies: list[LateReply] = []
        self.breaks = False
        self.keeping: Callable[[], None] | None = None
        self.standing: dict[int, str] = {}
        self.revoked: list[tuple[list[int], str]] = []
        self.in_flight = InFlight(max_messages=room, max_bytes=101 * room, on_room=lambda: None)
        self.context = context_of(self.topic, clock=self.clock, max_attempts=9)
        self.flow = AdmissionControl(
            self.context, store=self.model, in_flight=self.in_flight, give_back=list,
            wake=lambda: None,
        )  # fmt: skip
        self.flow._slow_start._allowed = 512  # a worker that has begun with one has long had more
        self._steps: list[Step] = []

    def run(self, *steps: Step) -> None:
        """Has the loop run; at each of its waits the next of these steps happens meanwhile."""

        def noted(
            topic: Topic, group: str, asks: list[PullRequest], terms: PullTerms
        ) -> PullResult:
            self.asked.append(sorted(ask.slot for ask in asks))
            self.positions += [ask.position for ask in asks]
            if terms.standing.address:
                assert terms.standing.address == self.address
                self.standing |= {ask.slot: terms.standing.receipt for ask in asks}
            pulled: PullResult = self.store.pull(topic, group, asks, terms)
            return pulled

        def revoke(topic: Topic, group: str, asks: list[PullRequest], receipt: str) -> RevokeResult:
            self.revoked.append((sorted(ask.slot for ask in asks), receipt))
            for ask in asks:
                self.standing.pop(ask.slot, None)
            revoked: RevokeResult = self.store.revoke(topic, group, asks, receipt)
            return revoked

        self._steps = list(steps)
        store: Any = Late(self.store)
        store.pull, store.revoke = noted, revoke
        self.loop = PullLoop(
            self.context, store=store, bell=self, slots=cast("Slots", self), receiver=self,
            in_flight=self.in_flight, flow=self.flow,
        )  # fmt: skip
        planner = self.loop._planner
        for turns in (planner._turns, planner._deep_turns, planner._drained_turns):
            turns._first = 0
        self.loop.run()
        assert not self.store.waits

    def publish(self, slot: int, *bodies: int, **options: Any) -> None:
        for body in bodies:
            token = f"{body:020d}"
            entry = Entry(
                slot, "s" if self.topic.has_subjects else None, f"{token}-0", batch_mark(token),
                f"k{slot}", None, str(body).encode(), **options,
            )  # fmt: skip
            self.model.publish(self.topic, [entry])

    def answer(self, slot: int, body: int, *, arrives: bool = True) -> None:
        """A message comes into a slot in which a pull stands; its reply arrives, or is lost."""
        self.publish(slot, body)
        receipt, epoch = self.standing.pop(slot), self.epochs[slot]
        # Of a stream the receipt to settle by is another one, so that revoking goes by position.
        own = receipt if self.topic.has_subjects else f"{body}-{receipt}"
        [one] = self.model.pull(
            self.topic, "g", [PullRequest(slot, epoch, 1)],
            PullTerms(own, 30_000, 9),
        ).deliveries  # fmt: skip
        rings(self)
        if arrives:
            self.replies.append(LateReply(slot, epoch, receipt, one))
            rings(self, slot)

    def settle(self) -> None:
        """All that was pulled is handled and acknowledged."""
        self.model.acknowledge(self.topic, "g", self.in_flight.all(), self.epochs)
        self.in_flight.remove(self.in_flight.all())

    @property
    def bodies(self) -> list[int]:
        return [int(one.body) for one in self.got]

    # The bell.

    def wait(self, timeout_s: float) -> bool:
        self.slept.append(round(timeout_s, 6))
        if not self._steps:
            self.loop._stopping.set()
            return False
        self._steps.pop(0)()
        return True

    def late(self) -> list[LateReply]:
        replies, self.replies = self.replies, []
        return replies

    def has_lost(self) -> bool:
        has_lost, self.breaks = self.breaks, False
        return has_lost

    def hints(self) -> frozenset[int] | None:
        hints, self.rung = self.rung, None
        return hints

    def ring(self) -> None:
        """Nobody waits beside the loop itself."""

    def close(self) -> None:
        """Holds nothing."""

    # Its slots.

    def open(self) -> Mapping[int, str]:
        return self.epochs

    def still_owned(self, deliveries: list[Delivery]) -> list[Delivery]:
        return [one for one in deliveries if one.slot not in self.gone]

    def fenced(self, slots: list[int]) -> None:
        self.epochs = {slot: each for slot, each in self.epochs.items() if slot not in slots}

    def note_full(self, asked: Collection[int], full: Collection[int]) -> None:
        """Nothing is full here."""

    # The receiver.

    def offer(self, deliveries: list[Delivery]) -> None:
        self.got += deliveries

    def kept(self) -> Callable[[], None] | None:
        kept, self.keeping = self.keeping, None
        return kept

    def before_pull(self) -> None:
        """No key is parked here."""

    def held_back(self) -> None:
        """Nothing is held back here."""

    def subscribe_anew(self, error: UnknownGroup) -> None:
        self.model.subscribe(self.topic, "g")
        self.model.take(self.topic, "g", self.epochs)
        self.in_flight.remove(self.in_flight.all())
        self.epochs = dict(self.epochs)


def rings(line: Line, *slots: int) -> None:
    line.rung = frozenset(slots)


def later(line: Line, ms: int) -> Step:
    return lambda: line.clock.advance(ms)
