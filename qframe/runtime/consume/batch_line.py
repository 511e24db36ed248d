"""A line whose handler takes batches, which `qframe.runtime.order.batches` gathers."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, cast

from qframe.message import Delivery, Message
from qframe.retry import NeedRetry
from qframe.runtime.consume.line import Line
from qframe.runtime.executors.batch_pool import BatchHand, BatchPool
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.executors.loop_call import LoopCall
from qframe.runtime.handler.binding import BatchHandler, check_answer
from qframe.runtime.handler.retry_policy import Ending
from qframe.runtime.order.batches import Batches
from qframe.runtime.order.settlement_order import Turns
from qframe.runtime.order.suspects import Suspects
from qframe.runtime.order.tag_filter import parted
from qframe.topic import Kind

LAST_WORDS_S: Final = 5.0


class BatchLine(Line):
    """A line that is the `BatchWork` of its pool.

    What a handler has not acknowledged itself when it raises is handed to it again, in halves,
    until a message is alone: only then is an error that message's own, and decides on its fate.
    `NeedRetry` is taken at its word instead: it is said of all that are not acknowledged.

    Its lanes are in `Batches`; those of `Line` stay empty. What is unwanted by its tags does not
    get that far: it is acknowledged as it comes in, on an ordered topic when its turn has come.

    Args:
        event_loop: the worker's, where the handler is async; it is called there, and one of the
            pool's threads waits for it.
        line: the arguments of `Line`.
    """

    pool: BatchPool

    def __init__(self, *, event_loop: EventLoop | None = None, **line: Any) -> None:
        self._event_loop = event_loop
        options = line["options"]
        self._batches = Batches(
            size=options.batch.size, within_s=options.batch.within_s, clock=line["clock"],
            by_subject=line["topic"].has_subjects, by_slot=options.serial,
        )  # fmt: skip
        self._turns: Turns | None = None
        self._skipped: deque[Delivery] = deque()
        self._suspects = Suspects()
        super().__init__(**line)
        self._batch_handler = cast("BatchHandler", line["handler"])
        if self._topic.kind is Kind.ORDERED:
            self._turns = Turns(self._put_one)

    def _make_pool(self, on_failure: Callable[[str, BaseException], None]) -> BatchPool:
        return BatchPool(
            name=f"qframe.pool.{self.topic}.{self.group}", threads=self._options.threads,
            batches=self._batches, time_limit=self._time_limit, clock=self._clock, work=self,
            on_failure=on_failure,
        )  # fmt: skip

    # Starting and stopping.

    def start(self) -> None:
        """Starts the loop of an async handler, and all parts."""
        if self._event_loop is not None:
            self._event_loop.start()
        super().start()

    def abandon(self) -> None:
        """Cancels async handlers, then gives back, uncounted, what is still in hand."""
        self.pool.end()
        if self._event_loop is not None:
            self.pool.interrupt(LAST_WORDS_S)
        self.give_back()
        super().abandon()
        self.give_back()  # what had to stay before something in hand

    def close(self) -> None:
        """Ends the loop, which its worker's lines share."""
        super().close()
        if self._event_loop is not None:
            self._event_loop.stop(LAST_WORDS_S)

    def is_done(self, *, drained: bool) -> bool:
        """Whether all is done; where nothing more is due now, a batch does not wait for more."""
        if self.pull_loop.idle:
            self.pool.hasten()
        return super().is_done(drained=drained)

    # For the pull loop.

    def offer(self, deliveries: list[Delivery]) -> None:
        """Gathers what was pulled."""
        if self._turns is not None:
            self._turns.note(deliveries)
        if self._options.tags is not None:
            deliveries, unwanted = parted(deliveries, self._options.tags.matches)
            self._put(unwanted)
            self._tell_skipped(0 if self._turns is not None else len(unwanted))
        self.flow.prefetch(len(deliveries))
        self.pool.dispatch(self._messages(deliveries))
        if self.flow.gate is not None:
            self.flow.parked(self._batches.behind())

    def _tell_skipped(self, count: int) -> None:
        """Tells of what is not wanted, once it is acknowledged."""
        if self._events and count:
            self._events.emit("delivery.skipped", count=count, **self._where)

    def held_back(self) -> None:
        """Nothing more will come to what was gathered, unless something else is in hand."""
        self.pool.hasten()

    # For the pool.

    def handle_batch(self, hand: BatchHand) -> None:
        """Calls the handler for a batch, and for parts of it where that fails."""
        while hand.next_part():
            if hand.given_up:
                self._drop(hand.part)
                continue
            hand.part = self._still_here(hand.part)
            parts = self._suspects.apart(hand.part)
            hand.put(self._handle_part(hand) if len(parts) == 1 else parts)

    def _handle_part(self, hand: BatchHand) -> list[list[Message]]:
        """Calls the handler for what is in hand; answers the parts that are to be tried again."""
        here, late, wait_s = self._let_in(hand.part)
        self._hold_back(late, wait_s)
        hand.part = here  # not before, so that the line is not taken for quiet
        if not here:
            return []
        error = self._call(hand)
        try:
            if hand.given_up:
                self._drop(hand.part)
            elif self._was_lost(hand, error):
                return [hand.part]
            elif error is not None:
                return self._end_badly(hand.part, error)
            else:
                self._end_well(hand.part)
            return []
        finally:
            del error  # its traceback leads here, and would keep all messages in a circle

    def _call(self, hand: BatchHand) -> BaseException | None:
        """Calls the handler; answers what it has raised, or would have, had it been in time."""
        given = list(hand.part)  # the user's own to change
        error: BaseException | None = None
        if self._event_loop is not None:
            call = LoopCall(self._event_loop, cast("Any", self._batch_handler), given, hand)
            self.pool.call(hand, call)
            error = call.run()
        else:
            self.pool.call(hand, None)
            try:
                if (answer := self._batch_handler(given)) is not None:
                    check_answer(answer)
            except BaseException as raised:  # a handler's SystemExit must not end a thread
                error = raised
        hand.end()
        late = [message for message in hand.part if message.overdue and not message.settled]
        try:
            if late and (error is None or (hand.stopped and isinstance(error, CancelledError))):
                return self._time_limit.error_of(late[0])
            return error
        finally:
            del error

    def _was_lost(self, hand: BatchHand, error: BaseException | None) -> bool:
        """Whether a call was cancelled since nothing in it was this worker's any more."""
        is_cancelled = hand.stopped and isinstance(error, CancelledError)
        return is_cancelled and not any(message.overdue for message in hand.part)

    def _still_here(self, part: list[Message]) -> list[Message]:
        """Those that are to be handled now; the others are let go, or put behind in their lane."""
        here = []
        held = set(self._batches.held(part))
        certain = self.slots.certain()
        for message in part:
            if message.overdue:
                message.overdue = message.cancelled = False
            if message.settled or not certain or message.delivery not in self.in_flight:
                message.cancelled = message.cancelled or not message.settled
                message.settled = True
                self._let_go(message)
            elif message in held:
                self._set_aside(message, 0)
            else:
                message.auto_ack = self._options.auto_ack
                here.append(message)
        return here

    def _let_in(self, part: list[Message]) -> tuple[list[Message], list[Message], float]:
        """Those that may begin now, the others, and after how long to ask again for these."""
        gate = self.flow.gate
        if gate is None:
            return part, [], 0.0
        here: list[Message] = []
        late: list[Message] = []
        lanes: set[str | int] = set()  # of those that may not: who is behind one waits with it
        longest_s = self.flow.gather_s  # so that some more may begin with it then
        for message in part:
            lane = self._batches.lane_of(message.delivery)
            wait_s = 0.0 if lane in lanes else gate(message.delivery)
            if lane not in lanes and not wait_s:
                here.append(message)
                continue
            late.append(message)
            longest_s = max(longest_s, wait_s)
            if lane is not None:
                lanes.add(lane)
        return here, late, longest_s

    def _hold_back(self, messages: list[Message], wait_s: float) -> None:
        """Has messages that may not begin now wait here, in their order."""
        self._suspects.held_back(messages)
        for message in messages:
            self._set_aside(message, wait_s)

    def _end_well(self, part: list[Message]) -> None:
        """The handler has returned: what is not acknowledged is, unless it was taken over."""
        done, others = self._to_be_settled(part)
        deliveries = [message.delivery for message in done]
        self._ack(deliveries)
        self._batches.free(deliveries)
        for message in others:
            self._returned(message)

    def _to_be_settled(self, part: list[Message]) -> tuple[list[Message], list[Message]]:
        """Those that the handler's return settles, which are its caller's from now on; the rest."""
        done, others = [], []
        with self._custody.guard:
            for message in part:
                if message.auto_ack and not message.settled:
                    message.settled = True
                    done.append(message)
                else:
                    others.append(message)
        return done, others

    def _end_badly(
        self, part: list[Message], error: BaseException, *, alone: bool | None = None
    ) -> list[list[Message]]:
        """The handler has raised: answers in which parts what is not settled is tried again.

        An error is a message's own only where its handler was called with it `alone`. What is left
        of several is not: the one at fault may be settled by now, or taken back by the store.
        """
        left = [message for message in part if not message.settled]
        for message in part:
            if message.settled:
                self._let_go(message)
        if part and not left:
            self._endings.tell("delivery.failed", part[0], error, settled=True)
        is_own = len(part) == 1 if alone is None else alone
        if not is_own and not isinstance(error, NeedRetry):
            if self.flow.gate is not None:
                self._suspects.failed(left)
            middle = len(left) // 2
            return [left[:middle], left[middle:]]
        for message in left:
            if message.settled:  # the store has taken it back, with one before it
                self._let_go(message)
            else:
                self._failed(message, error)
        return []

    def _drop(self, part: list[Message]) -> None:
        """Gives back, uncounted, what was cancelled at the end of a stop's grace."""
        deliveries = []
        for message in part:
            message.cancelled = True
            if not message.settled:
                message.settled = True
                deliveries.append(message.delivery)
        self._release_uncounted([one for one in deliveries if one in self.in_flight])
        for message in part:
            self._let_go(message)

    def _let_go(self, message: Message) -> None:
        """A message will not be handled in this hand, and it is settled, or somebody else's."""
        self._free(message.delivery)

    # Settling, and lanes.

    def _ack(self, deliveries: list[Delivery]) -> None:
        self.flow.succeeded(deliveries)
        self._put(deliveries)

    def _put(self, deliveries: list[Delivery]) -> None:
        """Acknowledges, whether these were handled or not."""
        if self._turns is not None:
            for delivery in deliveries:
                self._end(self._turns, delivery, delivery)
        elif deliveries:
            self.settler.put(deliveries)

    def _send(self, ending: Ending) -> None:
        if self._turns is None:
            self.settler.put(ending)
        else:
            self._end(self._turns, ending.delivery, ending)

    def _end(self, turns: Turns, delivery: Delivery, how: Delivery | Ending) -> None:
        """Ends a delivery when its turn has come, and with it what has waited for that."""
        self._take_back(turns.settle(delivery, how))
        skipped = 0
        with suppress(IndexError):
            while self._skipped.popleft():
                skipped += 1
        self._tell_skipped(skipped)

    def _put_one(self, one: Delivery | Ending) -> None:
        self.settler.put(one if isinstance(one, Ending) else [one])
        tags = self._options.tags
        if tags is not None and isinstance(one, Delivery) and not tags.matches(one.headers):
            self._skipped.append(one)  # it is told when no lock is held

    def _take_back(self, deliveries: Collection[Delivery]) -> None:
        """The store has taken these back, with one before them; they come again in their order."""
        if not deliveries:
            return
        gone = set(deliveries)
        self.in_flight.remove(gone)
        for message in self._in_hand():
            if message.delivery in gone:
                message.cancelled = message.settled = True
        waiting = self.pool.withdraw(gone.__contains__)
        self._withdrawn(waiting)
        for message in waiting:
            self._free(message.delivery)
        for delivery in gone:
            if self._custody.let_go(delivery):
                self._free(delivery)

    def _release_uncounted(self, deliveries: list[Delivery]) -> None:
        super()._release_uncounted(deliveries)
        if self._turns is not None:
            self.in_flight.remove(self._turns.give_back(deliveries))

    def _free(self, delivery: Delivery) -> None:
        self._batches.free([delivery])

    def _lose(self, deliveries: list[Delivery]) -> None:
        super()._lose(deliveries)
        if self._turns is not None:
            self._turns.forget(deliveries)
        for hand in self.pool.hands:
            if all(message.cancelled or message.settled for message in hand.part):
                hand.interrupt()
