"""A group that clients pull from: its pull, and what is open in their hands."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Final, cast

from qframe.app.pull import Pull
from qframe.clock import Clock
from qframe.errors import AlreadySettled, QFrameError
from qframe.message import Delivery, Message
from qframe.outcomes import Settled
from qframe.retry import NeedRetry
from qframe.runtime.demand import Demand
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.spec import OnSettled
from qframe.web.gateway.deliveries import (
    Client,
    OpenDelivery,
    Settle,
    SettleOutcome,
    SettleReply,
    Verb,
)
from qframe.web.gateway.feed import Feed
from qframe.web.gateway.receipts import Receipts
from qframe.web.gateway.turns import Lines
from qframe.web.gateway.waiting import SettleCall, WaitingPull

MOST_AT_ONCE: Final = 500
MOST_BYTES: Final = 64 * 2**20
_FEW: Final = 1000
_FIRST_STEP_S: Final = 0.001
_LONGEST_STEP_S: Final = 0.02
JOINING_S: Final = 3.0  # a client that does not wait, waits as long for a group to be joined

PullMaker = Callable[[OnSettled, Demand], Pull]


class OpenGroup:
    """Hands a group's messages to clients, and settles them; all in the event loop.

        waiting for a client ──take──► open ──settle──► being settled ──the store──► settled
               ▲ (spare)                │ └─extend─┐          │                      or stale
               │                        ◄──────────┘          └ no reply in time: unknown
               └── (another attempt) ◄──┴─ the lease ends: back to the store

    Args:
        topic, group: names.
        make_pull: makes its pull, given what is called with results of settlements, and what says
            how much it may read.
        receipts: makes receipts.
        clock: measures leases.
        on_end: called when its pull has ended, with the error that ended it, if one has.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        *,
        make_pull: PullMaker,
        receipts: Receipts,
        clock: Clock,
        on_end: Callable[[OpenGroup, BaseException | None], None],
    ) -> None:
        self.topic = topic
        self.group = group
        self._receipts = receipts
        self._clock = clock
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        demand = Demand()
        self._feed = Feed(
            f"qframe.gateway.{topic}.{group}", make_pull(self._settled_by_store, demand), demand,
            clock=clock, tell=self._tell, on_arrived=self._arrived, on_end=self._end,
        )  # fmt: skip
        self._waiters: Lines[WaitingPull] = Lines()
        self._spare: deque[Message] = deque()
        self._open: dict[str, OpenDelivery] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._settling: dict[Delivery, tuple[SettleCall, int]] = {}
        self._asked_s = clock.monotonic_s()
        self._is_leaving = False
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._feed.start()

    @property
    def open_count(self) -> int:
        """How many deliveries are in clients' hands, or being settled."""
        return len(self._open) + len(self._settling)

    def idle_s(self) -> float:
        """For how long nobody has asked for messages."""
        if self._waiters:
            self._asked_s = self._clock.monotonic_s()
        return self._clock.monotonic_s() - self._asked_s

    def __contains__(self, receipt: object) -> bool:
        """Whether a receipt is that of an open delivery."""
        return receipt in self._open

    def find(self, receipt: str) -> OpenDelivery | None:
        """The open delivery of a receipt."""
        return self._open.get(receipt)

    # Handing out.

    async def take(
        self, most: int, wait_s: float, lease_s: float, most_bytes: int, client: Client | None
    ) -> list[OpenDelivery]:
        """Messages for a client, as soon as there is one; none if none has come in time.

        Cancelled, it hands out nothing.

        Raises:
            QFrameError: what has ended the pull.
        """
        self._check_failure()
        found: asyncio.Future[list[OpenDelivery]] = self._loop.create_future()
        waiter = WaitingPull(min(most, MOST_AT_ONCE), lease_s, most_bytes, client, found)
        self._waiters.add(client, waiter)
        self._serve()
        try:
            await self._wait_for(found, wait_s)
        except asyncio.CancelledError:
            if found.done() and not found.cancelled() and found.exception() is None:
                self.put_back(found.result())
            raise
        finally:
            if self._waiters.remove(client, waiter):  # it goes with nothing
                self._ask(is_less=True)
            self._asked_s = self._clock.monotonic_s()
        return found.result() if found.done() else []

    async def _wait_for(self, found: asyncio.Future[list[OpenDelivery]], wait_s: float) -> None:
        """Waits so long; or, who does not wait, until the slots were looked at."""
        if wait_s > 0:
            await asyncio.wait([found], timeout=wait_s)
            return
        until_s = self._clock.monotonic_s() + JOINING_S
        number, step_s = self._feed.look(), _FIRST_STEP_S
        while not found.done() and self._clock.monotonic_s() < until_s:
            if self._feed.has_looked(number):
                return
            await asyncio.wait([found], timeout=step_s)
            step_s = min(2 * step_s, _LONGEST_STEP_S)

    def _serve(self) -> None:
        """Hands what is there to those who wait: each client in its turn, its pulls in order."""
        if self._spare:
            self._feed.is_certain()  # what may be somebody else's meanwhile is cancelled
        while self._waiters and self._spare:
            waiter = self._waiters.next()
            if waiter.found.done():
                self._waiters.pop(waiter.client)
                continue
            most = waiter.most if waiter.client is None else min(waiter.most, waiter.client.room)
            if most < 1:  # other pulls of the same client have taken all that it may have
                self._waiters.pop(waiter.client)
                waiter.found.set_result([])
                continue
            now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
            until_s, until_ms = now_s + waiter.lease_s, now_ms + int(waiter.lease_s * 1000)
            opened: list[OpenDelivery] = []
            size = 0
            while self._spare and len(opened) < most:
                message = self._spare[0]
                if message.cancelled:
                    self._let_go(self._spare.popleft())
                    continue
                size += len(cast("Attempt", message).delivery.body)
                if opened and size > waiter.most_bytes:
                    break
                self._spare.popleft()
                opened.append(
                    OpenDelivery(self._receipts.new(), message, until_s, until_ms, waiter.client)
                )
            if opened:
                self._feed.hand_out(len(opened))
                self._waiters.pop(waiter.client)
                self._keep(opened)
                waiter.found.set_result(opened)
        self._ask()

    def _keep(self, opened: Sequence[OpenDelivery]) -> None:
        if len(self._deadlines) > _FEW + 2 * len(self._open):  # most are of what is settled
            self._deadlines = [(one.until_s, one.receipt) for one in self._open.values()]
            heapify(self._deadlines)
        for one in opened:
            self._open[one.receipt] = one
            heappush(self._deadlines, (one.until_s, one.receipt))
            if one.client is not None:
                one.client.hold(one.size)
        self._set_timer()

    def put_back(self, opened: Sequence[OpenDelivery]) -> None:
        """Keeps for the next client what this one has not seen."""
        for one in reversed(opened):
            if self._closed(one.receipt) is not None:
                self._spare.appendleft(one.message)
        self._go_on()

    def _closed(self, receipt: str) -> OpenDelivery | None:
        """Takes a delivery out of its client's hands; None if it was in none."""
        one = self._open.pop(receipt, None)
        if one is not None and one.client is not None:
            one.client.let_go(one.size)
        return one

    # Settling.

    async def settle(
        self, asked: Sequence[tuple[Settle, Exception | None]], timeout_s: float
    ) -> list[SettleReply]:
        """Settles deliveries, and waits until the store has replied, or for so long.

        Args:
            asked: each with the error that its message ends with, if with one.
            timeout_s: how long to wait, in seconds.
        """
        replies = [SettleReply(one.receipt, SettleOutcome.STALE) for one, _ in asked]
        settling = SettleCall(replies, asyncio.Event())
        for place, (one, failure) in enumerate(asked):
            self._settle(one, failure, settling, place)
        if settling.left:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await settling.done.wait()
            if settling.left:
                for delivery in [one for one, (of, _) in self._settling.items() if of is settling]:
                    del self._settling[delivery]
        return replies

    def _settle(
        self, one: Settle, failure: Exception | None, settling: SettleCall, place: int
    ) -> None:
        opened = self._open.get(one.receipt)
        if opened is None:
            return
        reply = settling.replies[place]
        now_s = self._clock.monotonic_s()
        if opened.until_s <= now_s:
            self._expire()
        elif opened.message.cancelled or (
            one.verb is Verb.EXTEND and not self._feed.is_certain()  # else the store is asked
        ):
            self._closed(one.receipt)
            self._let_go(opened.message)
        elif one.verb is Verb.EXTEND:
            opened.until_s = now_s + one.lease_s
            opened.lease_until_ms = self._clock.now_ms() + int(one.lease_s * 1000)
            heappush(self._deadlines, (opened.until_s, one.receipt))
            self._set_timer()
            reply.outcome, reply.lease_until_ms = SettleOutcome.EXTENDED, opened.lease_until_ms
        else:
            self._closed(one.receipt)
            delivery = cast("Attempt", opened.message).delivery
            self._settling[delivery] = settling, place
            settling.left += 1
            reply.outcome = SettleOutcome.UNKNOWN
            try:
                opened.message.ack(error=failure)
            except AlreadySettled:
                del self._settling[delivery]
                settling.left -= 1
                reply.outcome = SettleOutcome.STALE

    def _settled_by_store(self, deliveries: Sequence[Delivery], results: Sequence[Settled]) -> None:
        """Hears what the store has said, in a thread of the pull."""
        self._tell(self._heard, deliveries, results)

    def _heard(self, deliveries: Sequence[Delivery], results: Sequence[Settled]) -> None:
        for delivery, result in zip(deliveries, results, strict=True):
            waiting = self._settling.pop(delivery, None)
            if waiting is None:
                continue
            settling, place = waiting
            is_settled = result is Settled.SETTLED
            settling.replies[place].outcome = (
                SettleOutcome.SETTLED if is_settled else SettleOutcome.STALE
            )
            settling.left -= 1
            if not settling.left:
                settling.done.set()

    # Leases.

    def _set_timer(self) -> None:
        """Sets the timer to the earliest end of a lease."""
        if not self._deadlines:
            return
        left_s = max(0.0, self._deadlines[0][0] - self._clock.monotonic_s())
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + left_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(left_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._expire()

    def _expire(self) -> None:
        """Gives back to the store what has not been settled or extended in time."""
        now_s = self._clock.monotonic_s()
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, receipt = heappop(self._deadlines)
            one = self._open.get(receipt)
            if one is not None and one.until_s <= now_s:
                self._closed(receipt)
                self._let_go(one.message)
        self._set_timer()

    def _let_go(self, message: Message) -> None:
        """Has a message handed out again at once; it counts."""
        with suppress(AlreadySettled):
            message.ack(error=NeedRetry("the lease of its client ended", delay=0))

    # What is read for clients.

    def _ask(self, *, is_less: bool = False) -> None:
        """Says how many messages clients wait for."""
        asked = sum(waiter.most for waiter in self._waiters if not waiter.found.done())
        self._feed.ask(asked - len(self._spare), is_less=is_less)

    def _arrived(self, messages: list[Message]) -> None:
        self._spare += messages
        self._go_on()

    def _go_on(self) -> None:
        """Hands on what is there: to clients, or back to the store if it leaves."""
        if not self._is_leaving:
            self._serve()
        elif self._spare:
            self._feed.put_back(list(self._spare))
            self._spare.clear()

    def _tell(self, function: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *args)

    # Its end.

    async def leave(self) -> None:
        """Hands out nothing more, and leaves the group once all that is open is settled.

        Each slot goes to others once nothing of it is open.
        """
        self._is_leaving = True
        self._turn_away()
        self._go_on()
        self._feed.leave()
        await self._ended.wait()

    async def close(self) -> None:
        """Leaves the group now; what is not settled is given back, uncounted."""
        await asyncio.to_thread(self._feed.close)
        await self._ended.wait()

    def _turn_away(self) -> None:
        """Has those who wait go away with nothing."""
        for waiter in self._waiters:
            if not waiter.found.done():
                waiter.found.set_result([])

    def _end(self, failure: BaseException | None) -> None:
        self._failure = failure
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        for receipt in list(self._open):
            self._closed(receipt)
        self._spare.clear()
        for waiter in self._waiters:
            if isinstance(failure, Exception) and not waiter.found.done():
                waiter.found.set_exception(failure)
        self._turn_away()
        self._on_end(self, failure)

    def _check_failure(self) -> None:
        if isinstance(self._failure, QFrameError):
            raise self._failure
