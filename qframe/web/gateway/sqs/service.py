"""The parts that all operations share: the gateway, the book of queues, who calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from starlette.requests import Request

from qframe.clock import Clock
from qframe.errors import BadTopic, UnknownGroup, UnknownTopic
from qframe.stores.records import ChosenDead, Record
from qframe.web.gateway.callers import Caller, GatewayRight, NotPermitted
from qframe.web.gateway.deliveries import Settle, SettleReply
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.gateway import Gateway
from qframe.web.gateway.sqs.messages import DEAD_FROM, FIRST_ID, id_of, resent
from qframe.web.gateway.sqs.names import Place, queue_named_by
from qframe.web.gateway.sqs.queues import GROUP, Queue, QueueBook
from qframe.web.gateway.sqs.refusals import access_denied

if TYPE_CHECKING:
    from qframe.admin.admin import Admin
    from qframe.app.qframe import QFrame

SWEEP_S: Final = 1.0
_PAGE: Final = 500

Right = Literal["publish", "consume", "admin", "any"]
_RIGHTS: Final[tuple[GatewayRight, ...]] = ("publish", "consume", "admin")
T = TypeVar("T")


@dataclass(frozen=True)
class SqsCall:
    """The client of a request, and the request itself.

    Attributes:
        base: the address of the gateway as the client called it, such as http://localhost:8380.
        caller: the client.
        token: its token, by which it is known to other gateways too.
        request: the request.
    """

    base: str
    caller: Caller
    token: str
    request: Request

    def check(self, topic: str, right: Right) -> None:
        """Checks that the client has a right on a queue.

        Raises:
            SqsRefusal: if it has not.
        """
        if not self.may(topic, right):
            wanted = "look at" if right == "any" else right
            raise access_denied(str(NotPermitted(self.caller.name, wanted, topic)))

    def check_way(self, source: str, target: str) -> None:
        """Checks that the client may have messages leave one queue for another of its choice.

        Where they go it could read them, and it could not write there without the right to.

        Raises:
            SqsRefusal: if it may not.
        """
        self.check(source, "consume")
        self.check(target, "publish")

    def acting(self, app: QFrame) -> Admin:
        """The operations in the client's name; its rights were checked as those of SQS."""
        return app.admin.acting(by=self.caller.name)

    def may(self, topic: str, right: Right) -> bool:
        """Whether the client has a right on a queue."""
        if right == "any":
            return any(self.may(topic, each) for each in _RIGHTS)
        return self.caller.may(right, topic, GROUP if right == "consume" else None)


class SqsService:
    """The parts of the front, and what several operations do.

    Args:
        gateway: publishes, pulls, settles.
        forwarder: passes settlements on to other gateways.
        place: where the queues seem to be.
        clock: for times of queues, and how fresh what was read is.
    """

    def __init__(
        self, gateway: Gateway, forwarder: Forwarder, *, place: Place, clock: Clock
    ) -> None:
        self.gateway = gateway
        self._forwarder = forwarder
        self.place = place
        self.clock = clock
        self.max_body: int = gateway.app.settings.max_body
        self.book: QueueBook = QueueBook(gateway.app.store, clock=clock, place=place)
        self._swept_s: dict[str, float] = {}

    async def queue(self, url: str, call: SqsCall, right: Right) -> Queue:
        """The queue of an address, for who may use it so.

        Raises:
            SqsRefusal: if there is none, or who asks may not.
        """
        name = queue_named_by(url)
        call.check(name, right)
        return await self.blocking(self.book.queue, name)

    async def target(self, url: str, call: SqsCall, right: Right) -> Queue:
        """The queue of an address, or the topic that is not a queue, to send to.

        Raises:
            SqsRefusal: if there is neither, or who asks may not.
        """
        name = queue_named_by(url)
        call.check(name, right)
        return await self.blocking(self.book.target, name)

    async def blocking(self, function: Callable[..., T], *args: object) -> T:
        """Calls what asks the store, in a thread."""
        return await self.gateway.in_thread(function, *args)

    def serve(self, queue: Queue) -> None:
        """Has the gateway pull for a queue by its redrive policy as it is now."""
        self.gateway.set_options(queue.name, GROUP, max_attempts=queue.max_attempts)

    async def leave(self, name: str) -> None:
        """Has the gateway pull no more for a queue, and forgets it."""
        self._swept_s.pop(name, None)
        self.gateway.set_options(name, GROUP)
        await self.gateway.leave(name, GROUP)

    async def settle(
        self, queue: Queue, wanted: Sequence[Settle], call: SqsCall
    ) -> list[SettleReply]:
        """Settles deliveries, those of other gateways there."""
        replies = await self.gateway.settle(queue.name, GROUP, wanted)
        await self._forwarder.settle(queue.name, GROUP, wanted, replies, f"Bearer {call.token}")
        return replies

    # Dead letters.

    async def gather(self, queue: Queue) -> bool:
        """Moves into a queue the dead letters of those that name it; whether it is such a queue.

        Not more than once a second: they are dead letters of their own queue until somebody looks
        for them here.
        """
        now_s = self.clock.monotonic_s()
        if now_s - self._swept_s.get(queue.name, -SWEEP_S) < SWEEP_S:
            return True
        is_target = await self.blocking(self._gather, queue)
        if is_target:
            swept = self._swept_s.items()
            self._swept_s = {name: at_s for name, at_s in swept if now_s - at_s < SWEEP_S}
            self._swept_s[queue.name] = now_s
        return is_target

    def _gather(self, queue: Queue) -> bool:
        sources = self.book.sources_of(queue.name)
        for source in sources:
            while self._gather_page(source, queue) == _PAGE:
                pass
        return bool(sources)

    def _gather_page(self, source: Queue, queue: Queue) -> int:
        """Published before it is dropped, under an id of this death, so that nothing is lost."""
        store = self.gateway.app.store
        try:
            topic = store.topic(source.name)
            found = [] if topic is None else store.dead(topic, GROUP, ChosenDead(limit=_PAGE))
        except (UnknownTopic, UnknownGroup, BadTopic):
            return 0
        if topic is None or not found:
            return 0
        self.gateway.app.publish_many(
            queue.name, [_dead_letter(record, source) for record in found]
        )
        store.drop_dead(
            topic, GROUP, ChosenDead([record.id for record in found], until=found[-1].dead_place)
        )
        return len(found)


def _dead_letter(record: Record, source: Queue):  # type: ignore[no-untyped-def]
    headers = record.headers or {}
    return resent(
        record.body, headers, key=record.key if source.is_fifo else None,
        message_id=id_of(f"{source.name} {record.id} {record.died_at_ms}"),
        more={DEAD_FROM: source.name, FIRST_ID: headers.get(FIRST_ID, record.id)},
    )  # fmt: skip
