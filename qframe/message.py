"""A message as its handler sees it, and the delivery behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, Protocol, TypeAlias

import msgspec

from qframe.codec import decode_body, decode_json, own_headers, tags_of
from qframe.durations import with_unit
from qframe.errors import BadOption, UndecodableBody
from qframe.topic import duration_ms

# No number is both: so no envelope is decoded that has more than its four fields.
_OURS: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=0)]


class Delivery(msgspec.Struct, array_like=True, gc=False, eq=False):
    """One handing of one message to one group, as a store gives it out.

    Its first four fields are those of an envelope, so that a store that keeps envelopes in msgpack
    decodes them into deliveries, and then says which.

    Attributes:
        id: the message's id.
        key: the message's key.
        headers: the message's headers, ours among them; None where it has none.
        body: the message's body, as stored.
        published_at_ms: when the store took it, in milliseconds since 1970 by the store's clock.
        slot: the slot it came from.
        subject: what it is queued under; None for a message in the line of a stream. One that
            left that line is queued under the text of its offset or, where its group keeps order,
            under a text that stands for its key.
        seq: its offset in a stream; elsewhere a number that grows with each message of the slot.
        receipt: without it the delivery cannot be settled.
        attempt: how often the message was handed out to the group, this time included.
        lost: how many of its last deliveries in a row ended without a word from their worker.
        due_ms: since when it could be handed out, by the store's clock; 0 where that is when it was
            published, or not known.
        taken_s: when its worker got it, by the worker's monotonic clock, where its topic keeps a
            history; else 0.
    """

    id: str
    key: str | None
    headers: dict[str, str] | None
    body: bytes
    published_at_ms: _OURS = 0
    slot: int = 0
    subject: str | None = None
    seq: int = 0
    receipt: str = ""
    attempt: int = 1
    lost: int = 0
    due_ms: int = 0
    taken_s: float = 0.0


class Acknowledger(Protocol):
    """The calls of a message to the consumer that handed it out."""

    topic: str
    group: str

    def acknowledge(
        self, message: Message, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        """Settles the message for its handler."""

    def acknowledge_many(self, messages: list[Message]) -> list[Message]:
        """Acknowledges what is not settled yet, in one step; returns those it can only singly."""

    def extend(self, message: Message, seconds: float) -> None:
        """Renews the message's lease."""


class AutoAck(int):
    """True or False, as a message has it until its handler sets it: called, it says how.

    It is made of a `bool`, and is used like one.
    """

    def __call__(self, value: object = False, *_: object) -> NoReturn:
        """Refuses a call.

        Raises:
            BadOption: always.
        """
        remedy = f"write message.auto_ack = {value!r}"
        raise BadOption("auto_ack", value, "it is an attribute, and no method", remedy)

    def __repr__(self) -> str:
        return repr(bool(self))


class Message(msgspec.Struct, eq=False, weakref=True):
    """One message, in its handler's hands.

    Attributes:
        auto_ack: whether it is settled when its handler returns. A handler that sets it to False
            at its entry settles the message itself, by `ack`, from any thread.
        local_retries: how often this worker has handed it to its handler again already.
        cancelled: whether its handler should stop. It has run for longer than `timeout=`, or the
            message is no longer this worker's: what it does now may be done again, by another one
            too.
    """

    _delivery: Delivery
    _acknowledger: Acknowledger
    auto_ack: bool = True
    local_retries: int = 0
    cancelled: bool = False
    _decoded: Any = msgspec.UNSET

    @property
    def id(self) -> str:
        """The id it was published under."""
        return self._delivery.id

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._acknowledger.topic

    @property
    def group(self) -> str:
        """The group it was handed to."""
        return self._acknowledger.group

    @property
    def key(self) -> str | None:
        """Messages of one key are handled in order, one at a time; None without a key."""
        return self._delivery.key

    @property
    def slot(self) -> int:
        """The slot it came from."""
        return self._delivery.slot

    @property
    def attempt(self) -> int:
        """How often it was handed out to this group, this time included; from 1."""
        return self._delivery.attempt

    @property
    def published_at(self) -> datetime:
        """When the store took it, by the store's clock, in UTC."""
        return datetime.fromtimestamp(self._delivery.published_at_ms / 1000, UTC)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers it was published with, without those of qframe's own."""
        return own_headers(self._delivery.headers)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags it was published with."""
        return tags_of(self._delivery.headers)

    @property
    def body(self) -> Any:
        """Its body: JSON decoded to builtins (once), or the bytes that were published.

        Raises:
            UndecodableBody: if it is not JSON; left alone, it sends the message to dead.
        """
        body = self._decoded
        if body is msgspec.UNSET:
            delivery = self._delivery
            try:
                if delivery.headers is None:  # JSON, as nearly always, and without another call
                    body = self._decoded = decode_json(delivery.body)
                else:
                    body = self._decoded = decode_body(delivery.body, delivery.headers)
            except msgspec.DecodeError as error:
                raise UndecodableBody(delivery.id, "JSON", error) from error
        return body

    @with_unit("elapsed")
    def ack(self, elapsed: float | str | None = None, error: BaseException | None = None) -> None:
        """Settles it, once, from any thread.

        Args:
            elapsed: how long its handling took, for the event `delivery.acknowledged`: a text such
                as "5ms", or by keyword a number of seconds.
            error: an exception, which then counts as if the handler had raised it; a `NeedRetry()`
                without a time is retried by the backoff, not in place.

        Raises:
            AlreadySettled: if it is settled already.
            NotSupported: in the child of a fork, or if its transaction ends with its handler.
            BadOption: if one of these is not as described; nothing is settled then.
        """
        self._acknowledger.acknowledge(self, _checked_ending(elapsed, error), error)

    @with_unit("seconds")
    def extend(self, seconds: float | str) -> None:
        """Keeps it hidden for so long from now; leases are renewed anyway while a handler runs.

        Args:
            seconds: how long: a text such as "10m", or by keyword a number of seconds; never less
                than the lease.

        Raises:
            BadOption: if it is no such time.
        """
        self._acknowledger.extend(self, duration_ms(seconds, "seconds") / 1000)

    def __repr__(self) -> str:
        where = f"{self.topic}/{self.slot}"
        return f"<Message {self.id} {where} key={self.key!r} attempt={self.attempt}>"


def ack_together(messages: Iterable[Message]) -> list[Message]:
    """Acknowledges what is not settled yet, in few steps; returns what has to be acked singly."""
    by_consumer: dict[Acknowledger, list[Message]] = {}
    for message in messages:
        by_consumer.setdefault(message._acknowledger, []).append(message)  # noqa: SLF001 - a friend
    return [
        message
        for acknowledger, theirs in by_consumer.items()
        for message in acknowledger.acknowledge_many(theirs)
    ]


def _checked_ending(elapsed: Any, error: Any) -> float | None:
    """The seconds; refuses what would break on the way, after the message counts as settled.

    A time below 0 is none of that: a clock was set back.
    """
    if error is not None and not isinstance(error, BaseException):
        remedy = 'use one, such as ValueError("why") or Reject("why")'
        raise BadOption("error", error, "it is not an exception", remedy)
    if elapsed is None:
        return None
    if isinstance(elapsed, str):
        return duration_ms(elapsed, "elapsed") / 1000
    if not isinstance(elapsed, int | float) or isinstance(elapsed, bool) or elapsed != elapsed:
        raise BadOption("elapsed", elapsed, "it is not a number of seconds", "leave it out")
    return elapsed
