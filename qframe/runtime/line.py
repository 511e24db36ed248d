"""One consumer's line: what joins pull loop, lanes, pool, settler and renewal."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

from qframe.clock import Clock
from qframe.coordination.base import Coordinator
from qframe.errors import AlreadySettled, Forgotten, UnknownGroup
from qframe.events import Events
from qframe.message import Delivery, Message
from qframe.outcomes import Verdict
from qframe.retry import Backoff
from qframe.runtime.binding import Handler
from qframe.runtime.handling import Ending, ending_of, pause_s, releases, retries_locally
from qframe.runtime.lanes import Lanes
from qframe.runtime.limits import InFlight
from qframe.runtime.pool import Hand, Pool
from qframe.runtime.pull_loop import PullLoop
from qframe.runtime.renewal import Renewal
from qframe.runtime.settler import Leak, Settler
from qframe.runtime.slots import Slots
from qframe.runtime.subscription import Subscription
from qframe.settings import ConsumerOptions
from qframe.stores.base import Store
from qframe.topic import Topic


class Line:
    """Everything that one consumer of one worker needs between the store and its handler.

    It is the `Acknowledger` of its messages, the `Work` of its pool and the `Taker` of its pull
    loop; each part knows it by these narrow faces only.

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
        self._topic = topic
        self._handler = handler
        self._options = options
        self._store = store
        self._coordinator = coordinator
        self._events = events
        self._clock = clock
        self._bell = store.bell([topic])
        self._acknowledging = threading.Lock()
        self._handed_over: dict[Delivery, weakref.ref[Message]] = {}
        self._subscription = Subscription(
            topic=topic, group=group, options=options, store=store, events=events,
            on_failure=on_failure,
        )  # fmt: skip
        self._lanes = Lanes(by_subject=topic.has_subjects, by_slot=options.serial)
        self.in_flight = InFlight(
            max_messages=options.max_in_flight, max_bytes=max_bytes, on_room=self._bell.ring
        )
        common: dict[str, Any] = {
            "topic": topic, "group": group, "store": store, "in_flight": self.in_flight,
            "events": events, "clock": clock, "on_failure": on_failure,
        }  # fmt: skip
        self.slots = Slots(
            topic=topic, group=group, store=store, in_flight=self.in_flight,
            give_back=self.give_back, on_lost=self._lose, on_change=self._bell.ring, events=events,
        )  # fmt: skip
        self.settler = Settler(
            epochs=lambda: self.slots.epochs,
            on_settled=self.slots.drain,
            on_leaked=self._on_leaked,
            **common,
        )
        self.renewal = Renewal(
            lease_ms=options.lease_ms,
            epochs=lambda: self.slots.epochs,
            on_lost=self._lose,
            **common,
        )
        self.pull_loop = PullLoop(
            bell=self._bell, taker=self, lease_ms=options.lease_ms,
            max_attempts=options.max_attempts, **common,
        )  # fmt: skip
        self.pool = Pool(
            name=f"qframe.pool.{topic.name}.{group}", threads=options.threads, clock=clock,
            work=self, on_failure=on_failure,
        )  # fmt: skip

    # Starting and stopping: `terminator` stops the parts in their order.

    def start(self) -> None:
        """Subscribes the group, joins, and starts all parts."""
        self._subscription.begin()
        self.slots.join(self._coordinator)
        for part in (self.settler, self.renewal, self.pool, self.pull_loop):
            part.start()

    def leave(self) -> None:
        """Gives its slots up and closes its bell; the parts are stopped."""
        self._subscription.stop(1.0)
        self.slots.leave()
        self._bell.close()

    def reconnect(self) -> None:
        """Lets go of connections that may be broken."""
        self._store.reconnect()
        self._bell.ring()

    # For the pull loop.

    def owned(self) -> Mapping[int, str]:
        """The slots that may be pulled from now; takes those that are new in the store."""
        return self.slots.open()

    def offer(self, deliveries: list[Delivery]) -> None:
        """Hands on what was pulled."""
        self._go(self._lanes.offer(self.slots.still_owned(deliveries)))

    def fenced(self, slots: list[int]) -> None:
        """Tells the membership that its epochs have passed."""
        self.slots.fenced(slots)

    def subscribe_anew(self, error: UnknownGroup) -> None:
        """Begins anew where the group has expired: with nothing in hand, and no slot taken."""
        self._lose(self.in_flight.all())
        self._subscription.anew(error)
        self.slots.forget()

    # For the pool.

    def handle(self, hand: Hand) -> None:
        """Calls the handler for each message of a run. The hot path: see what each line costs."""
        take = hand.run.popleft
        done = hand.done.append
        handler = self._handler
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
                handler(message)
            except BaseException as error:  # a handler's SystemExit must not end a thread
                self._failed(message, error)
            else:
                if message.auto_ack and not message.settled:
                    message.settled = True
                    done(message.delivery)
                else:
                    self._returned(message)
                    hand.message = message = None  # type: ignore[assignment] # let it go
            hand.handled += 1

    def _may_begin(self, message: Message) -> bool:
        """Whether a message is this worker's still; if not, it is let go of.

        The process may have stood still since it was pulled, or its slot was lost while it was on
        its way to its thread.
        """
        if self.slots.certain() and message.delivery in self.in_flight:
            return True
        message.cancelled = message.settled = True
        self._free(message.delivery)
        return False

    def through(self, deliveries: list[Delivery]) -> list[Message]:
        """Acknowledges, and answers what waited behind."""
        if not deliveries:
            return []
        self.settler.put(deliveries)
        return self._messages(self._lanes.free(deliveries))

    # For the terminator.

    def give_back(self, slots: Collection[int] | None = None) -> None:
        """Gives back, uncounted, what no handler has in hand, of all slots or of these."""

        def wanted(one: Delivery) -> bool:
            return slots is None or one.slot in slots

        let_through = [message.delivery for message in self.pool.withdraw(wanted)]
        deliveries = let_through + self._lanes.withdraw(wanted)
        endings, implied = releases(deliveries, by_run=self._topic.has_subjects)
        self.in_flight.remove(implied)
        for ending in endings:
            self.settler.put(ending)
        for delivery in let_through:
            self._free(delivery)

    def abandon(self) -> None:
        """Gives back, uncounted, what handlers have in hand still; they are cancelled."""
        for message in self._in_hand():
            message.cancelled = True
            if not message.settled:
                message.settled = True
                self.settler.put(Ending(message.delivery, Verdict.RELEASE))

    def is_quiet(self) -> bool:
        """Whether nothing is in hand, nor waits for a thread or for its user's `ack`."""
        return not self.pool.busy and not self._handed_over

    def is_done(self, *, drained: bool) -> bool:
        """Whether all is done: nothing is due, in doing or waiting for a retry.

        Args:
            drained: whether nothing may wait for its time either.
        """
        if not self.pull_loop.idle or len(self.in_flight) or not self.is_quiet():
            return False
        return not any(
            slot.todo or slot.doing or (slot.waiting if drained else slot.retrying)
            for slot in self._store.stats(self._topic, self.group)
        )

    # For messages.

    def acknowledge(
        self, message: Message, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        """Settles a message at its user's word, from any thread."""
        with self._acknowledging:
            if message.settled:
                raise AlreadySettled(message.id)
            message.settled = True
            delivery = message.delivery
            was_handed_over = self._handed_over.pop(delivery, None) is not None
        if self._events and elapsed_s is not None:
            self._events.emit(
                "delivery.acknowledged", topic=self.topic, group=self.group, elapsed_s=elapsed_s
            )
        if error is not None:
            self._end(message, error)
        else:
            self.settler.put([delivery])
        # While its handler still runs, the lane stays busy: `_returned` frees it.
        if was_handed_over:
            self._free(delivery)

    def extend(self, message: Message, seconds: float) -> None:
        """Renews one message's lease, now, to end in `seconds` or later."""
        lease_ms = max(self._options.lease_ms, int(seconds * 1000))
        self.renewal.renew([message.delivery], lease_ms)

    # What becomes of a message whose handler did not simply return.

    def _returned(self, message: Message) -> None:
        """The handler has returned and does, or did, the settling itself."""
        delivery = message.delivery
        with self._acknowledging:
            if not message.settled:
                # When its last user lets it go unsettled, the garbage collector says so. It may do
                # that while any lock is held, so the word goes through a queue that allows it.
                leaks = self.settler.put
                self._handed_over[delivery] = weakref.ref(message, lambda _: leaks(Leak(delivery)))
                return
        self._free(delivery)

    def _on_leaked(self, delivery: Delivery) -> None:
        """A message was let go unsettled: it is handed back at once, and counts."""
        with self._acknowledging:
            if self._handed_over.pop(delivery, None) is None:
                return
        ending = ending_of(
            delivery,
            Forgotten(delivery.id),
            max_attempts=self._options.max_attempts,
            backoff=Backoff(0),
        )
        if self._events:
            self._events.emit(
                "delivery.leaked", topic=self.topic, group=self.group, id=delivery.id,
                key=delivery.key, attempt=delivery.attempt,
            )  # fmt: skip
        self._send(ending)
        self._free(delivery)

    def _failed(self, message: Message, error: BaseException) -> None:
        """The handler raised."""
        if message.settled:
            if self._events:
                self._emit("delivery.failed", message, error, settled=True)
            self._free(message.delivery)
            return
        if retries_locally(error, message.local_retries) and not message.cancelled:
            message.local_retries += 1
            message.auto_ack = self._options.auto_ack
            self.pool.pause(message, pause_s(message.local_retries))
            return
        message.settled = True
        self._end(message, error)
        self._free(message.delivery)

    def _end(self, message: Message, error: BaseException) -> None:
        """Sends a message to its retry, or to dead."""
        options = self._options
        ending = ending_of(
            message.delivery, error, max_attempts=options.max_attempts, backoff=options.backoff
        )
        is_dead = ending.verdict is Verdict.DEAD
        if self._events:
            self._emit("delivery.dead" if is_dead else "delivery.retried", message, error)
        if is_dead and options.on_dead is not None:
            try:
                options.on_dead(message, error)
            except Exception as problem:  # the message dies whatever its mourners do
                if self._events:
                    self._emit("on_dead.failed", message, problem)
        self._send(ending)

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
        return [Message(delivery, self, automatic) for delivery in deliveries]

    # What the store or the coordinator tells.

    def _lose(self, deliveries: list[Delivery]) -> None:
        """Stops what is not this worker's any more, as far as it can be stopped."""
        lost = set(self.in_flight.remove(deliveries))
        if not lost:
            return
        for message in self._in_hand():
            if message.delivery in lost:
                message.cancelled = True
        waiting = self.pool.withdraw(lost.__contains__)
        self._lanes.forget(lost)
        for message in waiting:
            self._free(message.delivery)
        if self._events:
            self._events.emit(
                "delivery.cancelled", topic=self.topic, group=self.group, count=len(lost)
            )
        self.slots.drain()

    def _in_hand(self) -> list[Message]:
        """The messages that handlers have in hand, and those they have taken over."""
        held = [hand.message for hand in self.pool.hands]
        held += [reference() for reference in list(self._handed_over.values())]
        return [message for message in held if message is not None]

    def _emit(self, name: str, message: Message, error: BaseException, **facts: Any) -> None:
        self._events.emit(
            name, topic=self.topic, group=self.group, id=message.id, key=message.key,
            attempt=message.attempt, error=error, **facts,
        )  # fmt: skip
