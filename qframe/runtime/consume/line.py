"""One consumer's line: what joins pull loop, lanes, pool, settler and renewal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from qframe.clock import Clock
from qframe.coordination.base import Coordinator
from qframe.errors import AlreadySettled, UnknownGroup
from qframe.events import Events
from qframe.message import Delivery, Message
from qframe.options.consumer import ConsumerOptions
from qframe.outcomes import Verdict
from qframe.runtime.consume.custody import Custody
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.pool import Callers, Hand, Pool
from qframe.runtime.feed.lease_renewer import LeaseRenewer
from qframe.runtime.feed.pull_loop import PullLoop
from qframe.runtime.feed.settler import Leak, Settler
from qframe.runtime.feed.slots import Slots
from qframe.runtime.feed.subscription import Subscription
from qframe.runtime.flow.admission import AdmissionControl, HeldBack
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.binding import Handler, check_answer
from qframe.runtime.handler.outcomes import Endings
from qframe.runtime.handler.retry_policy import Ending, pause_s, releases, retries_locally
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.order.tag_filter import lanes_of
from qframe.stores.base import Store
from qframe.topic import Topic


class Line:
    """Everything that one consumer of one worker needs between the store and its handler.

    It is its messages' `Acknowledger`, its pool's `Work` and its pull loop's `PullReceiver`.

    Args:
        topic: the topic, as declared.
        group: the group.
        handler: takes a message.
        options: the consumer's.
        store: the store.
        coordinator: says which slots are this worker's.
        max_bytes: the largest sum of bodies in flight.
        events: told of what happens.
        clock: the clock.
        on_failure: called with a part's name and the error that ended it.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        handler: Handler,
        options: ConsumerOptions,
        store: Store,
        coordinator: Coordinator,
        max_bytes: int,
        events: Events,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self.topic = topic.name
        self.group = group
        self._where: dict[str, Any] = {"topic": topic.name, "group": group}
        self._topic = topic
        self._options = options
        self._store = store
        self._coordinator = coordinator
        self._events = events
        self._clock = clock
        self._bell = store.bell([topic])
        self._context = context = ConsumerContext(
            topic=topic, group=group, events=events, clock=clock, fail=on_failure
        )
        self._time_limit = TimeLimit(context, options.timeout)
        # What the garbage collector says goes through a queue that allows it.
        self._custody = Custody(lambda leaked: self.settler.put(Leak(leaked)))
        self._subscription = Subscription(context, options=options, store=store)
        self._lanes = lanes_of(
            topic, group, options, events, lambda skipped: self.settler.put(skipped)
        )
        self.in_flight = InFlight(
            max_messages=options.max_in_flight, max_bytes=max_bytes, on_room=self._bell.ring
        )
        self.flow = AdmissionControl(
            context, handler=handler, options=options, store=store, in_flight=self.in_flight,
            give_back=self.give_back, wake=self._bell.ring,
        )  # fmt: skip
        self._endings = Endings(
            **self._where, options=options, events=events, on_failed=self.flow.failed
        )
        self.slots = Slots(
            context, store=store, busy=self.in_flight.slots, give_back=self.give_back,
            on_lost=lambda slots: self._lose(self.in_flight.of(slots)),
            on_change=self._bell.ring,
        )  # fmt: skip
        self.settler = Settler(
            context, store=store, in_flight=self.in_flight, epochs=lambda: self.slots.epochs,
            on_settled=self.slots.drain, on_leaked=self._on_leaked,
        )  # fmt: skip
        self.renewal = LeaseRenewer(
            context, store=store, in_flight=self.in_flight, lease_ms=options.lease_ms,
            epochs=lambda: self.slots.epochs, sending=self._being_settled, on_lost=self._lose,
        )  # fmt: skip
        self.pull_loop = PullLoop(
            context, store=store, bell=self._bell, receiver=self, in_flight=self.in_flight,
            flow=self.flow, lease_ms=options.lease_ms, max_attempts=options.max_attempts,
        )  # fmt: skip
        self.pool = self._make_pool(on_failure)

    def _make_pool(self, on_failure: Callable[[str, BaseException], None]) -> Callers:
        return Pool(
            name=f"qframe.pool.{self.topic}.{self.group}", threads=self._options.threads,
            time_limit=self._time_limit, clock=self._clock, work=self, on_failure=on_failure,
        )  # fmt: skip

    # Starting and stopping: `shutdown` stops the parts in their order.

    def start(self) -> None:
        """Subscribes the group, joins, and starts all parts."""
        self._subscription.begin()
        self.slots.join(self._coordinator)
        for part in (self.settler, self.renewal, self.pool, self.pull_loop):
            part.start()

    def leave(self) -> None:
        """Gives its slots up; the parts are stopped."""
        self._subscription.stop(1.0)
        self.slots.leave()

    def close(self) -> None:
        """Closes its bell; all lines of its worker have left."""
        self._bell.close()

    # For the pull loop.

    def owned(self) -> Mapping[int, str]:
        """The slots that may be pulled from now; takes those that are new in the store."""
        return self.slots.open()

    def still_owned(self, deliveries: list[Delivery]) -> list[Delivery]:
        """The deliveries of those just pulled whose slots were not lost in the meantime."""
        return self.slots.still_owned(deliveries)

    def lacks(self) -> bool:
        """Whether slots of its own could not be taken yet."""
        return self.slots.lacks

    def offer(self, deliveries: list[Delivery]) -> None:
        """Hands on what was pulled."""
        through = self._lanes.offer(deliveries)
        self.flow.prefetch(len(through))
        self._go(through)

    def fenced(self, slots: list[int]) -> None:
        """Tells the membership that its epochs have passed."""
        self.slots.fenced(slots)

    def subscribe_anew(self, error: UnknownGroup) -> None:
        """Begins anew where the group has expired: with nothing in hand, and no slot taken."""
        self._lose(self.in_flight.all())
        self._subscription.anew(error)
        self.slots.forget()

    def held_back(self) -> None:
        """Hears that nothing is pulled until some of what is in hand is settled."""

    # For the pool.

    def handle(self, hand: Hand) -> None:
        """Calls the handler for each message of a run. The hot path: see what each line costs."""
        take = hand.run.popleft
        done = self.flow.done(hand.done.append)
        handler = self.flow.handler
        now_s = self._clock.monotonic_s
        present = self.in_flight.deliveries
        until_s = self.slots.certain_until_s
        while True:
            try:
                message = take()
            except IndexError:
                hand.message = None
                return
            hand.message = message
            if now_s() >= until_s or message.delivery not in present:
                until_s = self.slots.certain_until_s
                if not self._may_begin(message):
                    hand.handled += 1
                    continue
            try:
                if (answer := handler(message)) is not None:
                    check_answer(answer)
            except BaseException as error:  # a handler's SystemExit must not end a thread
                self._failed(message, error)
            else:
                if message.auto_ack and not message.settled and not message.overdue:
                    message.settled = True
                    done(message.delivery)
                else:
                    self._returned(message)
                    hand.message = message = None  # type: ignore[assignment] # let it go
            hand.handled += 1

    def _may_begin(self, message: Message) -> bool:
        """Whether a message is this worker's still: it may have stood still; if not, lets it go."""
        if self.slots.certain() and message.delivery in self.in_flight:
            return True
        message.cancelled = message.settled = True
        self._withdrawn([message])
        self._free(message.delivery)
        return False

    def through(self, deliveries: list[Delivery]) -> list[Message]:
        """Acknowledges, and answers what waited behind."""
        if not deliveries:
            return []
        self.settler.put(deliveries)
        return self._messages(self._lanes.free(deliveries))

    # For `shutdown`.

    def give_back(self, slots: Collection[int] | None = None) -> list[Delivery]:
        """Gives back, uncounted, what no handler has in hand, of all slots or of these."""

        def wanted(one: Delivery) -> bool:
            return (slots is None or one.slot in slots) and not self._stays(one)

        messages = self.pool.withdraw(wanted)
        self._withdrawn(messages)
        let_through = [message.delivery for message in messages]
        deliveries = let_through + self._lanes.withdraw(wanted)
        self._release_uncounted(deliveries)
        for delivery in let_through:
            self._free(delivery)
        return deliveries

    def _stays(self, delivery: Delivery) -> bool:  # noqa: ARG002 - a line that settles first knows
        """Whether a delivery is to be handled here, or by nobody."""
        return False

    def abandon(self) -> None:
        """Gives back, uncounted, what handlers have in hand still; they are cancelled."""
        in_hand = self._in_hand()
        unsettled = [message.delivery for message in in_hand if not message.settled]
        for message in in_hand:
            message.cancelled = message.settled = True
        self._release_uncounted(unsettled)

    def _release_uncounted(self, deliveries: list[Delivery]) -> None:
        endings, implied = releases(deliveries, by_run=self._topic.has_subjects)
        self.in_flight.remove(implied)
        for ending in endings:
            self.settler.put(ending)

    def is_quiet(self) -> bool:
        """Whether nothing is in hand, nor waits for a thread or for its user's `ack`.

        What is on its way from one of them to another can be seen in neither, but is in flight
        until the settler, if it has not failed, sends it.
        """
        if self.pool.busy or self._custody:
            return False
        return not self.settler.alive or self.in_flight.deliveries <= self.settler.holds

    def is_done(self, *, drained: bool) -> bool:
        """Whether it is paused, or nothing is due, in doing, tried again, or (drained) waits."""
        if len(self.in_flight) or not self.is_quiet():
            return False
        if self.flow.paused or not (self.pull_loop.idle or self.flow.seeks):
            return self.flow.paused
        return not self.slots.have_work(drained=drained)

    def acknowledge(
        self, message: Message, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        """Settles a message at its user's word, from any thread."""
        self._settle(message, self._custody.settle(message), elapsed_s, error)

    def _settle(
        self, message: Message, returned: bool, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        if elapsed_s is not None:
            self._context.emit("delivery.acknowledged", elapsed_s=elapsed_s)
        if error is not None:
            self._send(self._endings.of(message, error))
        else:
            self._ack([message.delivery])
        # While its handler still runs, the lane stays busy: `_returned` frees it.
        if returned:
            self._free(message.delivery)

    def extend(self, message: Message, seconds: float) -> None:
        """Renews one message's lease, now, to end in `seconds` or later."""
        self.renewal.extend(message.delivery, seconds)

    # What becomes of a message whose handler did not simply return.

    def _returned(self, message: Message) -> None:
        """The handler has returned and does, or did, the settling itself."""
        if message.overdue and not message.settled:
            self._failed(message, self._time_limit.error_of(message))
        elif not self._custody.keep(message):
            self._settled_elsewhere(message)

    def _on_leaked(self, delivery: Delivery) -> None:
        """A message was let go unsettled: it is handed back at once, and counts."""
        if self._custody.let_go(delivery):
            self._send(self._endings.of_forgotten(delivery))
            self._free(delivery)

    def _retries_here(self, message: Message, error: BaseException) -> bool:
        """Whether the handler is to be called again in this worker."""
        most = self._options.local_retries
        return retries_locally(error, message.local_retries, most) and not message.cancelled

    def _failed(self, message: Message, error: BaseException) -> None:
        """The handler raised."""
        if message.settled:
            self._endings.tell("delivery.failed", message, error, settled=True)
        elif isinstance(error, HeldBack):
            self._set_aside(message, error.wait_s)
            return
        elif self._retries_here(message, error):
            message.local_retries += 1
            message.auto_ack = self._options.auto_ack
            self._set_aside(message, pause_s(message.local_retries))
            return
        else:
            with suppress(AlreadySettled):  # another thread may do so just now
                self._custody.settle(message)
                self._send(self._endings.of(message, error))
                self._free(message.delivery)
                return
        self._settled_elsewhere(message)

    def _settled_elsewhere(self, message: Message) -> None:
        """The handler has ended, and another thread has settled its message."""
        self._free(message.delivery)

    def _set_aside(self, message: Message, seconds: float) -> None:
        """Has the handler called again after a pause, unless the consumer itself is paused."""
        self.pool.pause(message, seconds)
        if self.flow.paused:
            self._bell.ring()  # the pull loop gives it back

    def _ack(self, deliveries: list[Delivery]) -> None:
        self.flow.succeeded(deliveries)
        self.settler.put(deliveries)

    def _send(self, ending: Ending) -> None:
        self.settler.put(ending)
        if self._topic.has_subjects and ending.verdict is not Verdict.DEAD:
            # The store parks the whole subject, so what waits behind goes back with it.
            self.in_flight.remove(self._lanes.drop(ending.delivery))

    def _free(self, delivery: Delivery) -> None:
        """Lets the next one of its lane through."""
        self._go(self._lanes.free([delivery]))

    def _go(self, deliveries: list[Delivery]) -> None:
        if deliveries:
            self.pool.dispatch(self._messages(deliveries))

    def _messages(self, deliveries: list[Delivery]) -> list[Message]:
        automatic = self._options.auto_ack
        self.flow.now_ready(deliveries)
        return [Message(delivery, self, automatic) for delivery in deliveries]

    def _withdrawn(self, messages: list[Message]) -> None:
        """Messages that were on their way to a handler are not this worker's any more."""

    def _lose(self, deliveries: list[Delivery]) -> None:
        """Stops what is not this worker's any more, as far as it can be stopped."""
        lost = set(self.in_flight.remove(deliveries))
        if not lost:
            return
        for message in self._in_hand():
            if message.delivery in lost:
                message.cancelled = True
        waiting = self.pool.withdraw(lost.__contains__)
        self._withdrawn(waiting)
        self._lanes.forget(lost)
        for message in waiting:
            self._free(message.delivery)
        self._context.emit("delivery.cancelled", count=len(lost))
        self.slots.drain()

    def _being_settled(self) -> list[Delivery]:
        """What the store may know to be settled, though it is in flight still."""
        return self.settler.sending

    def _in_hand(self) -> list[Message]:
        """The messages that handlers have in hand, and those they have taken over."""
        return [*[one for hand in self.pool.hands for one in hand.messages], *self._custody]
