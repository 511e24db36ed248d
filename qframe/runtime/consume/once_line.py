"""Lines whose consumer asks for each message at most once: it is settled before it is handled."""

from __future__ import annotations

import asyncio
import random
import threading
from asyncio import CancelledError, Future
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from itertools import islice
from typing import Any, Final, cast

from qframe.errors import NotSupported
from qframe.message import Delivery, Message
from qframe.outcomes import Settled
from qframe.retry import NeedRetry
from qframe.runtime.consume.async_line import AsyncLine
from qframe.runtime.consume.line import Line
from qframe.runtime.executors.daemon_threads import DaemonThreadExecutor
from qframe.runtime.executors.pool import Hand
from qframe.runtime.handler.binding import check_answer
from qframe.runtime.order.lanes import Lanes
from qframe.tags import Matches

AGAIN_S: Final = 0.25
_NO_RETRY: Final = "raise another exception, or leave out at_most_once= to allow retries"


class Wish:
    """What one thread wants to have settled, and what became of it."""

    __slots__ = ("answers", "deliveries")

    def __init__(self, deliveries: list[Delivery]) -> None:
        self.deliveries = deliveries
        self.answers: list[Settled] = []


class OnceLine(Line):
    """Settles whole runs in one call to the store, and calls the handler for what that has settled.

    What the store has refused is not handled, since somebody else may do that; nor is what it has
    refused the second time, after an answer was lost. What cannot be settled now is asked again.

    What may not begin yet, for want of a token or since the breaker is open, is not settled: it
    would be lost. Under a rate or a breaker messages are settled one by one, each just before its
    handler is called, so that the rest of a run neither outlives its tokens nor goes on after the
    breaker has opened.

    Of a subject's run what its tags make unwanted is settled in its turn, as all others are, and
    then let go.

    A delivery that has begun so stays in flight until its handler has ended, so that its slot is
    not given to another worker before; but it is not to be given back.

    Args:
        line: the arguments of `Line`.
    """

    def __init__(self, **line: Any) -> None:
        self._begun: set[Delivery] = set()
        self._wishes: deque[Wish] = deque()
        self._telling = threading.Lock()
        super().__init__(**line)
        self._time_limit.is_measured = True
        options = self._options
        self._matches: Matches | None = None
        if options.tags is not None and self._topic.has_subjects:
            # A tag filter leaves what it skips to the settler, and a subject is settled in its
            # order: a delivery behind it would be refused if it were settled first.
            self._matches = options.tags.matches
            self._lanes = Lanes(by_subject=True, by_slot=options.serial)

    # For the pool.

    def handle(self, hand: Hand) -> None:
        """Settles a run, then calls the handler for each message of it."""
        if self.flow.gate is None:
            self._begin_run(hand)
        while True:
            try:
                message = hand.run.popleft()
            except IndexError:
                hand.message = None
                return
            hand.message = message
            if self._begun_with(message, hand) and self._called(message):
                hand.done.append(message.delivery)
            hand.message = message = None  # type: ignore[assignment] # let it go
            hand.handled += 1

    def _begun_with(self, message: Message, hand: Hand) -> bool:
        """Whether a message's handler is to be called; settles it if it was not yet."""
        if message.delivery not in self._begun:
            started_s = self._clock.monotonic_s()
            begun = self._settled_first([message])
            hand.waited_s += self._clock.monotonic_s() - started_s
            if not begun:
                return False
        return self._may_begin(message)

    def _begin_run(self, hand: Hand) -> None:
        """Leaves in a run what may be handled; it is taken off meanwhile."""
        with suppress(IndexError):
            while True:
                hand.asked.append(hand.run.popleft())
        started_s = self._clock.monotonic_s()
        hand.run.extend(self._settled_first(hand.asked))
        hand.asked = []
        # Else a slow store would make runs short, and there would be a call for each message.
        hand.waited_s += self._clock.monotonic_s() - started_s

    def _settled_first(self, messages: list[Message]) -> list[Message]:
        """Settles what is not yet; answers those messages whose handlers are to be called."""
        begun = [message for message in messages if message.delivery in self._begun]
        fresh = [message for message in messages if message.delivery not in self._begun]
        fresh = [each for each in fresh if self._may_begin(each) and self._let_in(each)]
        if not fresh:
            return begun
        deliveries = [message.delivery for message in fresh]
        self._begun.update(deliveries)  # before it: renewal may find them gone from the store
        skipped = 0
        for message, answer in zip(fresh, self._told(deliveries), strict=True):
            if message.cancelled:  # given back at a stop, or lost, while the store was asked
                message.settled = True
                self._free(message.delivery)
            elif answer is Settled.SETTLED:
                message.settled = True
                if self._is_wanted(message):
                    begun.append(message)
                else:
                    skipped += 1
                    self._free(message.delivery)
            elif answer is Settled.AWAY:
                self._begun.discard(message.delivery)
                wait_s = AGAIN_S * random.uniform(0.5, 1)  # noqa: S311 - jitter, no secret
                self._set_aside(message, wait_s)
            else:
                message.cancelled = message.settled = True
                self._free(message.delivery)
        if skipped and self._events:
            self._events.emit("delivery.skipped", count=skipped, **self._where)
        return begun

    def _is_wanted(self, message: Message) -> bool:
        """Whether a message is to be handled, and not only settled in its turn."""
        return self._matches is None or self._matches(message.delivery.headers)

    def _let_in(self, message: Message) -> bool:
        """Whether a message may begin now; if not, it waits here, unsettled."""
        gate = self.flow.gate
        wait_s = 0.0 if gate is None or not self._is_wanted(message) else gate(message.delivery)
        if wait_s:
            self._set_aside(message, wait_s)
        return not wait_s

    def _told(self, deliveries: list[Delivery]) -> list[Settled]:
        """Has deliveries settled; threads that come while one asks the store ask it together."""
        mine = Wish(deliveries)
        self._wishes.append(mine)
        with self._telling:
            if not mine.answers:
                wishes: list[Wish] = []
                with suppress(IndexError):
                    while True:
                        wishes.append(self._wishes.popleft())
                together = [one for wish in wishes for one in wish.deliveries]
                answers = iter(self.settler.settle_now(together))
                for wish in wishes:
                    wish.answers = list(islice(answers, len(wish.deliveries)))
        return mine.answers

    def _called(self, message: Message) -> bool:
        """Calls the handler; whether it has returned."""
        try:
            with self._time_limit.running(message):
                if (answer := self.flow.own_handler(message)) is not None:
                    check_answer(answer)
        except BaseException as error:  # a handler's SystemExit must not end a thread
            self._failed(message, error)
            return False
        self._tell_flow(message)
        return True

    def _tell_flow(self, message: Message) -> None:
        """Has the breaker know that a handler has returned, in time or too late."""
        if message.overdue:
            self.flow.failed(message.delivery, self._time_limit.error_of(message))
        else:
            self.flow.succeeded([message.delivery])

    def through(self, deliveries: list[Delivery]) -> list[Message]:
        """Lets go of what is done, and answers what waited behind."""
        if not deliveries:
            return []
        self._let_go(deliveries)
        return self._messages(self._lanes.free(deliveries))

    # For `shutdown`.

    def abandon(self) -> None:
        """Cancels handlers; what is settled and has not reached one is lost."""
        super().abandon()
        for message in self.pool.withdraw(self._begun.__contains__):
            message.cancelled = True
            self._free(message.delivery)

    def _stays(self, delivery: Delivery) -> bool:
        return delivery in self._begun

    # What becomes of a message.

    def _failed(self, message: Message, error: BaseException) -> None:
        """The handler raised: that is told, and all there is to do."""
        self.flow.failed(message.delivery, error)
        if isinstance(error, NeedRetry):
            problem = NotSupported("NeedRetry of a consumer with at_most_once=True", _NO_RETRY)
            problem.__cause__ = error
            error = problem
        self._endings.of_settled(message, error)
        self._free(message.delivery)

    def _free(self, delivery: Delivery) -> None:
        if delivery in self._begun:
            self._let_go([delivery])
        super()._free(delivery)

    def _let_go(self, deliveries: Collection[Delivery]) -> None:
        """What has begun has ended: its slots may be given to others now."""
        self._begun.difference_update(deliveries)
        self.in_flight.remove(deliveries)
        self.slots.drain()

    def _being_settled(self) -> list[Delivery]:
        return [*super()._being_settled(), *self._begun.copy()]


class AsyncOnceLine(OnceLine, AsyncLine):
    """Settles together what tasks begin with while another call to the store is under way.

    Args:
        line: the arguments of `AsyncLine`.
    """

    def __init__(self, **line: Any) -> None:
        name = f"qframe.once.{line['topic'].name}.{line['group']}"
        self._teller = DaemonThreadExecutor(1, name)
        self._beginning: list[tuple[Message, Future[bool]]] = []
        self._rounds: asyncio.Task[None] | None = None
        self._ask = self._ask_together
        super().__init__(**line)

    def close(self) -> None:
        """Ends its thread, which what begins may need until the loop has ended."""
        super().close()
        self._teller.shutdown(wait=False)

    def _awaited(self, message: Message) -> Awaitable[object]:
        return cast("Awaitable[object]", self.flow.own_handler(message))

    def returned(self, message: Message) -> bool:
        """Lets go of a message whose handler has returned."""
        self._tell_flow(message)
        return super().returned(message)

    async def _ask_together(self, function: Callable[..., Any], *args: Any) -> Any:
        if function != self.begins:
            return function(*args)
        [message] = args
        loop = asyncio.get_running_loop()
        answer: Future[bool] = loop.create_future()
        self._beginning.append((message, answer))
        if self._rounds is None:
            self._rounds = loop.create_task(self._begin_in_rounds())
        return await answer

    async def _begin_in_rounds(self) -> None:
        """Settles what waits, and what has come meanwhile, until nothing more waits."""
        loop = asyncio.get_running_loop()
        while self._beginning:
            asked, self._beginning = self._beginning, []
            messages = [message for message, _ in asked]
            try:
                begun = await loop.run_in_executor(self._teller, self._settled_first, messages)
            except CancelledError:  # the loop ends, and with it all that waits
                for _, answer in [*asked, *self._beginning]:
                    answer.cancel()
                raise
            except Exception as error:  # whoever waits has last words
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            ready = set(begun)
            for message, answer in asked:
                if not answer.done():
                    answer.set_result(message in ready)
        self._rounds = None
