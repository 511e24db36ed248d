"""The gateway itself: what every front of it calls. It knows nothing of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, Unpack

from qframe.app.pull import Pull, PullKeywords
from qframe.app.qframe import QFrame
from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadInput, PublishUnknown, QFrameError
from qframe.outcomes import Published
from qframe.producing.outgoing import Outgoing
from qframe.runtime.demand import Demand
from qframe.runtime.handler.spec import OnSettled
from qframe.shares import Share
from qframe.topic import Topic
from qframe.web.gateway.asking import (
    ASKING,
    MOST_REQUEST_BYTES,
    MOST_REQUESTS,
    asking_client,
    hold_bytes,
)
from qframe.web.gateway.callers import TooMuch
from qframe.web.gateway.deliveries import Client, OpenDelivery, Settle, SettleOutcome, SettleReply
from qframe.web.gateway.making import Making
from qframe.web.gateway.open_group import MOST_BYTES, OpenGroup, PullMaker
from qframe.web.gateway.publishing import Publishing
from qframe.web.gateway.receipts import Receipts
from qframe.web.gateway.turns import FairThreads

THREADS: Final = 32
MOST_GROUPS: Final = 256
SETTLE_S: Final = 10.0
"""How long a settlement waits for the store."""
_LOOK_S: Final = 1.0
_AGAIN_S: Final = 30.0
_DRAIN_STEP_S: Final = 0.05

T = TypeVar("T")


class GatewayStopped(QFrameError):
    """Raised when a client pulls from a gateway that is stopping."""

    def __init__(self) -> None:
        super().__init__("this gateway is stopping; pull from another one, or again in a moment")


class GatewayFull(QFrameError):
    """Raised when clients pull from more groups than one gateway serves at once."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"this gateway serves {most} groups already; stop pulling from some, or start another "
            "gateway for them"
        )


class Gateway:
    """Publishes, hands out and settles for clients in other programs, in one event loop.

    Use it as `async with Gateway(app) as gateway`. Its methods are coroutines of one event loop;
    what asks the store runs in threads.

    Args:
        app: the app; its consumers are not run.
        address: the URL under which clients and other gateways reach this one, and no other; it is
            in receipts.
        secret: shared by gateways that pass settlements on to each other.
        groups: the options of a group's pull, such as `max_attempts`, by topic and group.
        idle_s: how long it stays in a group that nobody pulls from, in seconds.

    Attributes:
        stopping: set once it hands out nothing more.
        requests, sizes: what its callers share besides: places of requests, and their bytes.
    """

    def __init__(
        self,
        app: QFrame,
        *,
        address: str = "",
        secret: str | None = None,
        groups: Mapping[tuple[str, str], PullKeywords] | None = None,
        idle_s: float = 30.0,
    ) -> None:
        self.app = app
        self.receipts: Receipts = Receipts(address, secret)
        self.stopping: asyncio.Event = asyncio.Event()
        self._options: dict[tuple[str, str], PullKeywords] = dict(groups or {})
        self._idle_s = idle_s
        self._clock = SYSTEM_CLOCK
        self._groups: dict[tuple[str, str], OpenGroup] = {}
        self._leaving: list[OpenGroup] = []  # these hand out nothing more
        self._ending: set[asyncio.Task[None]] = set()
        self._beside: set[asyncio.Task[None]] = set()
        self._threads = FairThreads(THREADS, "qframe.gateway")
        self._places = Share(MOST_GROUPS)
        self.requests: Share = Share(MOST_REQUESTS)
        self.sizes: Share = Share(MOST_REQUEST_BYTES)
        self._making = Making(app)
        self._publishing = Publishing(app)
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Gateway:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Calls what may block, such as a verb of `app.admin`, in a thread of the gateway's.

        Callers share the threads.
        """
        return await self._threads.call(asking_client(), function, *args)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts work beside the requests; it is cancelled before the gateway ends."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    # Making.

    async def has_group(self, topic: str, group: str) -> bool:
        """Whether a group exists; the store is asked unless clients pull from it.

        Raises:
            UnknownTopic: if there is no such topic.
        """
        return (topic, group) in self._groups or await self.in_thread(
            self._making.has_group, topic, group
        )

    async def make_group(self, topic: str, group: str, *, is_named: bool) -> None:
        """Has a group collect from now on; as `Making.make_group`."""
        options = self._options.get((topic, group), {})
        make = partial(self._making.make_group, is_named=is_named)
        await self.in_thread(make, topic, group, options)

    async def make_topic(self, topic: Topic, counts: Callable[[str], bool]) -> Topic:
        """Declares a topic; as `Making.make_topic`."""
        return await self.in_thread(self._making.make_topic, topic, counts)

    # Publishing.

    async def publish(self, topic: str, items: Sequence[Outgoing]) -> list[Published]:
        """Publishes messages, in order; nothing is written if one of them is wrong.

        Returns:
            One for each; those with the outcome `full` were not stored.

        Raises:
            QFrameError: as `app.publish_many`, but for `TopicFull`.
        """
        return await self.in_thread(self._publishing.publish, topic, items)

    async def publish_each(
        self, topic: str, items: Sequence[Outgoing]
    ) -> list[Published | BadInput | PublishUnknown]:
        """Publishes those of the messages that are right, in order.

        Args:
            topic: its name.
            items: as many as one call to the store has, so that all of them have its fate.

        Returns:
            One for each; for a wrong one, why it was refused; for one that may have been stored,
            an error of its own.

        Raises:
            QFrameError: as `publish`, but for what is wrong with a single message; nothing was
                stored.
        """
        return await self.in_thread(self._publishing.publish_each, topic, items)

    # Pulling.

    def set_options(self, topic: str, group: str, **options: Unpack[PullKeywords]) -> None:
        """Sets the options of a group's pull: where they are new, the next client joins anew."""
        name = topic, group
        if self._options.get(name, {}) == options:
            return
        self._options[name] = options
        if not options:
            del self._options[name]
        if (joined := self._groups.get(name)) is not None:
            self._leave(joined)

    async def pull(
        self,
        topic: str,
        group: str,
        *,
        most: int = 1,
        wait_s: float = 0.0,
        lease_s: float = 30.0,
        most_bytes: int = MOST_BYTES,
        client: Client | None = None,
    ) -> list[OpenDelivery]:
        """Hands out messages, as soon as there is one; none if none has come in time.

        A client that does not wait gets the messages that are due now; joining a group takes a
        moment.
        Cancelled, it hands out nothing.

        Args:
            topic: its name.
            group: its name; a group that is new subscribes.
            most: how many at most.
            wait_s: how long to wait for the first, in seconds.
            lease_s: after how long they are handed out again, in seconds.
            most_bytes: how large their bodies are together, at most; one is handed out anyway.
            client: counts what is open.

        Raises:
            QFrameError: what keeps the group from being joined.
            TooMuch: if the client has its share of the groups, or of bytes, of this gateway.
        """
        joined = self._group(topic, group, client)
        opened = await joined.take(most, wait_s, lease_s, most_bytes, client)
        try:
            hold_bytes(sum(one.size for one in opened))
        except TooMuch:
            joined.put_back(opened)
            raise
        if (asking := ASKING.get()) is not None:
            asking.on_lost = partial(self.put_back, topic, group, opened)
        return opened

    def put_back(self, topic: str, group: str, opened: Sequence[OpenDelivery]) -> None:
        """Keeps for the next client what this one has not seen."""
        for found in self._all_of(topic, group):
            found.put_back(opened)

    async def settle(self, topic: str, group: str, wanted: Sequence[Settle]) -> list[SettleReply]:
        """Settles deliveries; each has a reply of its own, in order.

        Raises:
            BadOption: if one of them asks for what is no time; nothing was settled.
        """
        asked = [(one, one.failure()) for one in wanted]
        replies = [SettleReply(one.receipt, SettleOutcome.STALE) for one in wanted]
        for opened in self._all_of(topic, group):
            places = [place for place, one in enumerate(wanted) if one.receipt in opened]
            if places:
                found = await opened.settle([asked[place] for place in places], SETTLE_S)
                for place, reply in zip(places, found, strict=True):
                    replies[place] = reply
        for reply in replies:
            if reply.outcome is SettleOutcome.STALE:
                owner = self.receipts.owner(reply.receipt)
                if owner is not None:
                    reply.outcome, reply.gateway = SettleOutcome.ELSEWHERE, owner.address or None
        return replies

    def _group(self, topic: str, group: str, client: Client | None) -> OpenGroup:
        if self.stopping.is_set():
            raise GatewayStopped
        found = self._groups.get((topic, group))
        if found is None:
            self._take_place(client)
            found = self._groups[topic, group] = OpenGroup(
                topic, group, make_pull=self._pull_maker(topic, group), receipts=self.receipts,
                clock=self._clock, on_end=partial(self._ended, client),
            )  # fmt: skip
        return found

    def _take_place(self, client: Client | None) -> None:
        """Takes one of the places of groups, for the client that pulls first."""
        if self._places.take(client):
            return
        if not self._places.free:
            raise GatewayFull(MOST_GROUPS)
        raise TooMuch(
            f"this gateway serves {self._places.held(client)} groups for this caller, its share; "
            "stop pulling from some, or start another gateway for them", _AGAIN_S,
        )  # fmt: skip

    def _pull_maker(self, topic: str, group: str) -> PullMaker:
        options = self._options.get((topic, group), {})
        parts = self.app.parts

        def make(on_settled: OnSettled, demand: Demand) -> Pull:
            return Pull(
                topic, group, options, pulls=parts.opened.pulls, make_assembly=parts.assembly,
                open_coordinator=parts.open_coordinator, on_settled=on_settled, demand=demand,
            )  # fmt: skip

        return make

    def _ended(
        self, client: Client | None, group: OpenGroup, failure: BaseException | None
    ) -> None:
        """A group's pull has ended: the next client joins anew."""
        self._places.give_back(client)
        self._forget(group)
        if group in self._leaving:
            self._leaving.remove(group)
        meters = self.app.parts.meters
        if meters is not None and not self._all_of(group.topic, group.group):
            meters.forget(group.topic, group.group)
        if failure is not None and not isinstance(failure, BadInput) and self.app.events:
            self.app.events.emit(
                "part.failed", part=f"gateway {group.topic}/{group.group}", error=failure
            )

    async def _watch(self) -> None:
        """Leaves groups that nobody pulls from."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for group in list(self._groups.values()):
                if group.idle_s() >= self._idle_s:
                    self._leave(group)

    def _leave(self, group: OpenGroup) -> None:
        """Hands out nothing more of a group, and leaves it once nothing of it is open."""
        self._forget(group)
        self._leaving.append(group)
        task = asyncio.create_task(group.leave())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _forget(self, group: OpenGroup) -> None:
        """Has the next client join anew."""
        if self._groups.get((group.topic, group.group)) is group:
            del self._groups[group.topic, group.group]

    async def leave(self, topic: str, group: str) -> None:
        """Leaves a group now, and gives back what is open; the next client joins anew."""
        await self._close(self._all_of(topic, group))

    async def _close(self, groups: Iterable[OpenGroup]) -> None:
        for group in groups:
            self._forget(group)
        await asyncio.gather(*(group.close() for group in groups), return_exceptions=True)

    def _all_of(self, topic: str, group: str) -> list[OpenGroup]:
        """The group, if it is handed out, and those of its name that are being left."""
        joined = self._groups.get((topic, group))
        left = [one for one in self._leaving if (one.topic, one.group) == (topic, group)]
        return left if joined is None else [joined, *left]

    def _all(self) -> list[OpenGroup]:
        return [*self._groups.values(), *self._leaving]

    # Looking.

    @property
    def open_count(self) -> int:
        """How many deliveries are in clients' hands."""
        return sum(group.open_count for group in self._all())

    def open_in(self, topic: str, group: str) -> int:
        """How many deliveries of a group are in clients' hands."""
        return sum(one.open_count for one in self._all_of(topic, group))

    def opened(self, topic: str, group: str, receipts: Iterable[str]) -> list[OpenDelivery]:
        """The deliveries of receipts, as far as they are in clients' hands."""
        groups = self._all_of(topic, group)
        found = (one.find(receipt) for receipt in receipts for one in groups)
        return [delivery for delivery in found if delivery is not None]

    def groups(self) -> Iterable[tuple[str, str]]:
        """The groups of which it is a worker now."""
        return list(dict.fromkeys((one.topic, one.group) for one in self._all()))

    # Its end.

    async def drain(self, grace_s: float) -> None:
        """Leaves all groups, and waits so long for what is open to be settled."""
        self.stopping.set()
        for group in list(self._groups.values()):
            self._leave(group)
        until_s = self._clock.monotonic_s() + grace_s
        while self.open_count and self._clock.monotonic_s() < until_s:
            await asyncio.sleep(_DRAIN_STEP_S)

    async def close(self) -> None:
        """Leaves all groups; what is not settled is given back, uncounted."""
        self.stopping.set()
        if self._watching is not None:
            self._watching.cancel()
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self._close(self._all())
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._threads.close()
