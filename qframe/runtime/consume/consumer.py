"""One consumer of a worker: what joins feed, order, engine and executor."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import cast

from msgspec import structs

from qframe.clock import Clock
from qframe.coordination.base import Coordinator
from qframe.errors import UnknownGroup
from qframe.message import Delivery
from qframe.options.report import MOST_STACKS, ConsumerReport
from qframe.outcomes import Settled
from qframe.runtime.consume.engine import Engine
from qframe.runtime.consume.executor_parts import ExecutorParts
from qframe.runtime.consume.in_hand import AttemptsInHand
from qframe.runtime.consume.manual_acks import ManualAcks
from qframe.runtime.consume.manual_finisher import ManualFinisher
from qframe.runtime.consume.mark_sender import MarkSender
from qframe.runtime.consume.orders import order_of
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.base import Executor, KeepingExecutor
from qframe.runtime.feed.lease_renewer import LeaseRenewer
from qframe.runtime.feed.pull_loop import PullLoop
from qframe.runtime.feed.settlement_sender import SettlementSender
from qframe.runtime.feed.settler import SettlementReceiver, Settler
from qframe.runtime.feed.slots import Slots
from qframe.runtime.feed.subscription import Subscription
from qframe.runtime.flow.admission import AdmissionControl
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.binding import Handler
from qframe.runtime.handler.meter import Meter
from qframe.runtime.handler.spec import ConsumerSpec
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.policies.base import EffectPolicy
from qframe.service import LAST_WORDS_S, ServiceLoop
from qframe.stores.base import Store
from qframe.tags import AllOf
from qframe.topic import Topic

SettleNow = Callable[[list[Delivery]], list[Settled]]
SettlerMaker = Callable[[ConsumerContext, SettlementSender], SettlementReceiver]


class Consumer:
    """Everything that one consumer of one worker needs between the store and its handler.

    Args:
        context: its own.
        spec: its handler, and what it says of its messages; its options are the context's.
        make_policy: makes what stands around the handler, given what settles deliveries at once.
        make_executor: makes what calls the handler.
        store: the store.
        coordinator: says which slots are this worker's.
        max_bytes: the largest sum of bodies in flight.
        subscribe_all: subscribes all groups of the app to the topic, where it has others.
        make_settler: makes what tells the store of settlements.
        flow_clock: the clock of rates, pauses and the breaker, if it is another one.
        meter: counts what it does, if somebody wants to know.
    """

    def __init__(
        self,
        context: ConsumerContext,
        spec: ConsumerSpec,
        *,
        make_policy: Callable[[SettleNow], EffectPolicy],
        make_executor: Callable[[ExecutorParts], Executor],
        store: Store,
        coordinator: Coordinator,
        max_bytes: int,
        subscribe_all: Callable[[], object] = lambda: None,
        make_settler: SettlerMaker = Settler,
        flow_clock: Clock | None = None,
        meter: Meter | None = None,
    ) -> None:
        # Each part is made of those above it. What is named before it is made, such as `self.lose`,
        # is called after `start` alone. One circle is closed at the end: `in_hand.connect`.
        #
        # What is pulled, and what goes back.
        self.context: ConsumerContext = context
        self.topic: str = context.topic.name
        self.group: str = context.group
        self._coordinator = coordinator
        self._bell = bell = store.bell([context.topic])
        self._subscription = Subscription(context, store, subscribe_all)
        self.in_flight: InFlight = InFlight(
            max_messages=context.options.max_in_flight, max_bytes=max_bytes, on_room=bell.ring
        )
        self.flow: AdmissionControl = AdmissionControl(
            structs.replace(context, clock=flow_clock or context.clock), store=store,
            in_flight=self.in_flight, give_back=self.give_back, wake=bell.ring, demand=spec.demand,
            starts_slowly=not spec.is_handled_elsewhere,
        )  # fmt: skip
        self.slots: Slots = Slots(
            context, store=store, busy=self.in_flight.busy_slots, give_back=self.give_back,
            on_lost=lambda slots: self.lose(self.in_flight.of(slots)), on_change=bell.ring,
        )  # fmt: skip
        self._sender = SettlementSender(
            context, store=store, in_flight=self.in_flight, slots=self.slots,
            on_results=spec.on_settled, meter=meter,
        )  # fmt: skip
        self.settler: SettlementReceiver = make_settler(context, self._sender)
        self.pull_loop: PullLoop = PullLoop(
            context, store=store, bell=bell, slots=self.slots, receiver=self,
            in_flight=self.in_flight, flow=self.flow,
        )  # fmt: skip
        self.renewal: LeaseRenewer = LeaseRenewer(
            context, store=store, in_flight=self.in_flight, slots=self.slots, on_lost=self.lose,
            sending=lambda: [*self._sender.holds, *self.policy.asked],
        )  # fmt: skip
        # How a delivery becomes an attempt, and where that may go.
        self.policy: EffectPolicy = make_policy(self.settler.settle_now)
        self._order, batches = order_of(
            context, self.in_flight, self.settler.put, filters_first=self.policy.filters
        )
        self._acks = ManualAcks(lambda one: self.settler.put(partial(users.leaked, one)))
        self._in_hand = in_hand = AttemptsInHand(
            context, policy=self.policy, order=self._order, flow=self.flow,
            in_flight=self.in_flight, slots=self.slots, acks=self._acks,
        )  # fmt: skip
        # How attempts end: by their users, or with their handlers.
        users = ManualFinisher(context, in_hand, self.renewal.extend)
        time_limit = TimeLimit(context, is_measured=self.policy.blocks)
        engine = Engine(context, cast("Handler", spec.handler), in_hand, time_limit)
        self.marks: MarkSender | None = engine.marks
        self.executor: Executor = make_executor(
            ExecutorParts(engine, batches, time_limit, meter, self.pull_loop.relieve)
        )
        in_hand.connect(users, self.executor)
        self._keeping: KeepingExecutor | None = None
        if isinstance(self.executor, KeepingExecutor):
            self._keeping = self.executor

    # Starting and stopping: `shutdown` stops the parts in their order.

    def start(self, wait: Callable[[float], bool]) -> None:
        """Subscribes the group, joins, and starts all parts; `wait` is as for `Subscription`."""
        self.executor.start()  # first: a checker may be asked in its event loop
        self.policy.start()
        self._subscription.begin(wait)
        self.join()
        for part in (self.settler, self.renewal, self.pull_loop):
            part.start()

    def join(self) -> None:
        """Takes part in the sharing of slots."""
        self.slots.join(self._coordinator)

    def share(self, topic: Topic, asked: Topic | None = None) -> None:
        """Shares the slots that its topic has now, as `Slots.share`; from any thread."""
        self.slots.share(topic, asked)

    def stop_handling(self) -> None:
        """Calls no more handlers; what has returned is marked."""
        self.executor.stop(0)
        if self.marks is not None:
            self.marks.stop(LAST_WORDS_S)

    def leave(self) -> None:
        """Gives its slots up; the parts are stopped."""
        self._subscription.stop(1.0)
        self.slots.leave()
        self.policy.stop()

    def close(self) -> None:
        """Closes its bell; all consumers of its worker have left."""
        self._bell.close()
        self.executor.close()

    def loops(self) -> list[ServiceLoop]:
        """Its loops, of which none may stand still; a harness has some of them in no thread."""
        found = (
            self.pull_loop, self.settler, self.renewal, self.slots.membership, self.marks,
        )  # fmt: skip
        return [loop for loop in found if isinstance(loop, ServiceLoop)]

    # For the pull loop.

    def before_pull(self) -> None:
        """A pull is asked for: what is answered until now it knows."""
        self._order.before_pull()

    def offer(self, deliveries: list[Delivery]) -> None:
        """Hands on what was pulled."""
        self._order.offer(deliveries, self._hand_on)
        if self.flow.gate is not None:
            self.flow.parked(self._order.behind())

    def _hand_on(self, deliveries: list[Delivery]) -> None:
        self.flow.prefetch(len(deliveries))
        if not deliveries:
            return
        attempts = self._in_hand.attempts(deliveries)
        if self._keeping is None or not self._keeping.keep(attempts):
            self.executor.dispatch(attempts)

    def kept(self) -> Callable[[], None] | None:
        """Handles what its executor has kept for the thread that pulls; None if that is nothing."""
        return None if self._keeping is None else self._keeping.kept()

    def subscribe_anew(self, error: UnknownGroup) -> None:
        """Begins anew where the group has expired: with nothing in hand, and no slot taken."""
        self.lose(self.in_flight.all())
        self.slots.forget(self._subscription.anew(error, self.slots.topic))

    def held_back(self) -> None:
        """Nothing more comes until some of what is in hand is settled."""
        self.executor.flush()

    # For the shutdown.

    def give_back(self, slots: Collection[int] | None = None) -> list[Delivery]:
        """Gives back, uncounted, what no handler has in hand, of all slots or of these."""
        settled = self.policy.settled

        def wanted(one: Delivery) -> bool:
            return (slots is None or one.slot in slots) and one not in settled

        attempts = self.executor.withdraw(wanted)
        self.policy.let_go(attempts)
        let_through = [attempt.delivery for attempt in attempts]
        deliveries = self._order.give_back(let_through, wanted)
        self.in_flight.note_given_back(deliveries)
        self._in_hand.free(let_through)
        return deliveries

    def put_back(self, attempts: Collection[Attempt]) -> None:
        """Hands on anew what was left to a user who has not begun it; from any thread."""
        self.executor.dispatch(self._in_hand.attempts(self._acks.take_back(attempts)))

    def abandon(self) -> None:
        """Cancels handlers; gives back, uncounted, what they have in hand still."""
        self.executor.cancel_all(LAST_WORDS_S)
        self.give_back()
        if self.policy.is_joint:  # what was left to users is not committed
            held = list(self._acks)
            for attempt in held:
                attempt.cancel()
            self.policy.let_go(held)
        in_hand = list(self._in_hand)
        released = [attempt.delivery for attempt in in_hand if not attempt.settled]
        for attempt in in_hand:
            attempt.lose()
        self._order.release(released)
        self.give_back()  # what had to stay before something in hand
        if self.policy.settles_first:  # what is settled and has not reached a handler is lost
            for attempt in self.executor.withdraw(self.policy.settled.__contains__):
                attempt.cancel()
                self._in_hand.free([attempt.delivery])
        if not self.policy.blocks:
            self._acks.clear()  # who lets one of these go forgets nothing

    def is_quiet(self) -> bool:
        """Whether nothing is in hand, nor waits for a thread or for its user's `ack`.

        A delivery that is being handed from one part to another belongs to neither; `in_flight`
        still counts it, until the settler, if it has not failed, has sent it.
        """
        if self.executor.busy or self._acks:
            return False
        return not self.settler.alive or self.in_flight.deliveries <= self._sender.holds

    def is_settled(self) -> bool:
        """Whether nothing in flight has still to be settled, once all is given back."""
        settled = self._sender.holds | self.policy.settled.copy()
        return not self.settler.alive or self.in_flight.deliveries <= settled

    def is_done(self, *, drained: bool) -> bool:
        """Whether it is paused, or nothing is due, in doing, tried again, or (drained) waits.

        Messages of paused keys are not waited for.
        """
        if self.pull_loop.idle:  # nothing more is due now: a batch does not wait for more
            self.executor.flush()
        if self.flow.holds(self.in_flight.deliveries):
            return self.pull_loop.idle
        if len(self.in_flight) or not self.is_quiet():
            return False
        if self.flow.paused or not (self.pull_loop.idle or self.flow.seeks):
            return self.flow.paused
        return not self.slots.have_work(drained=drained)

    # For those who ask why messages wait.

    def report(self, *, with_stacks: bool = False) -> ConsumerReport:
        """The facts that stand here alone; on request, where its handlers are in their code."""
        options, limit, breaker = self.context.options, self.flow.limit, self.flow.breaker
        tags = options.tags
        return ConsumerReport(
            max_attempts=options.max_attempts,
            tags=None if tags is None else tuple(sorted(tags.tags)),
            all_tags=isinstance(tags, AllOf),
            rate=None if limit is None else limit.rate, limited=self.flow.limited,
            failures=0 if breaker is None or breaker.closed else breaker.failures,
            pause_ms=None if breaker is None else breaker.pause_ms,
            full=tuple(sorted(self.slots.full)),
            stacks=tuple(self.executor.stacks()[:MOST_STACKS]) if with_stacks else None,
        )  # fmt: skip

    # What the store or the coordinator says.

    def lose(self, deliveries: list[Delivery]) -> None:
        """Stops what is not this worker's any more, as far as it can be stopped."""
        lost = set(self.in_flight.remove(deliveries))
        if not lost:
            return
        for attempt in self._in_hand:
            if attempt.delivery in lost:
                attempt.cancel()
        waiting = self.executor.withdraw(lost.__contains__)
        self.policy.let_go(waiting)
        self._order.forget(lost)
        self._in_hand.free([attempt.delivery for attempt in waiting])
        self.executor.cancel_lost()
        self.context.emit("delivery.cancelled", count=len(lost))
        self.slots.drain()
