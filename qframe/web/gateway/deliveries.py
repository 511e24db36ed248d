"""Values between a front and the gateway: deliveries, and how they are settled."""

from __future__ import annotations

import sys
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, cast

import msgspec

from qframe.message import Message
from qframe.retry import NeedRetry, Reject

if TYPE_CHECKING:
    from qframe.runtime.handler.attempt import Attempt

MOST_OPEN_BYTES: Final = 256 * 2**20
"""How large the open deliveries of a client may be before it gets no more."""


class Verb(StrEnum):
    """The ways in which a client ends a delivery, or keeps it."""

    ACK = "ack"
    RETRY = "retry"
    REJECT = "reject"
    EXTEND = "extend"


class SettleOutcome(StrEnum):
    """The outcome of a `Settle`.

    `settled` and `extended`: done. `stale`: the delivery is not the client's any more, and nothing
    was changed. `elsewhere`: it belongs to another gateway. `unknown`: the store, or another
    gateway that was asked, has not replied in time; it is settled, or handed out again.
    """

    SETTLED = "settled"
    EXTENDED = "extended"
    STALE = "stale"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


class ClientFailure(Exception):
    """Raised for nobody: the error that a client has named for a delivery."""


class Client:
    """Somebody who holds deliveries.

    Attributes:
        open: how many are open.
        open_bytes: how large their bodies are together.
        most: how many may be open.
    """

    def __init__(self, most: int = sys.maxsize) -> None:
        self.open: int = 0
        self.open_bytes: int = 0
        self.most = most

    @property
    def room(self) -> int:
        """How many more it may be handed."""
        return self.most - self.open if self.open_bytes < MOST_OPEN_BYTES else 0

    def hold(self, size: int) -> None:
        """Notes one more open delivery, of so many bytes."""
        self.open += 1
        self.open_bytes += size

    def let_go(self, size: int) -> None:
        """Notes that one is open no more."""
        self.open -= 1
        self.open_bytes -= size


class OpenDelivery(msgspec.Struct, eq=False, weakref=True):
    """A delivery in a client's hands.

    Attributes:
        receipt: settles it.
        message: what was delivered.
        until_s: when its lease ends, by the gateway's monotonic clock.
        lease_until_ms: the same by its wall clock, in milliseconds since 1970.
        client: who has it, if that is counted.
    """

    receipt: str
    message: Message
    until_s: float
    lease_until_ms: int
    client: Client | None = None

    @property
    def size(self) -> int:
        """How many bytes its body has."""
        return len(cast("Attempt", self.message).delivery.body)


class Settle(msgspec.Struct):
    """One delivery, and what is to be done with it.

    Attributes:
        receipt: the delivery's.
        verb: what to do.
        error: why, for `retry` and `reject`; it is kept with the message.
        delay: for `retry`, how much later it is due: seconds, or a text such as "10m". Without
            `delay` and `at`, as long as the group's backoff says.
        at: for `retry`, when it is due: a datetime with a time zone, or seconds since 1970.
        lease_s: for `extend`, how long the lease is from now.
    """

    receipt: str
    verb: Verb = Verb.ACK
    error: str | None = None
    delay: float | str | None = None
    at: float | datetime | None = None
    lease_s: float = 0.0

    def failure(self) -> Exception | None:
        """The error that the message ends with, as if a handler had raised it.

        Raises:
            BadOption: if delay or time are none, or both are given.
        """
        if self.verb is Verb.REJECT:
            return Reject(self.error or "the client rejected it")
        if self.verb is not Verb.RETRY:
            return None
        why = self.error or "the client asked for a retry"
        if self.delay is None and self.at is None:
            return ClientFailure(why)
        return NeedRetry(why, delay=self.delay, at=self.at)


class SettleReply(msgspec.Struct, omit_defaults=True):
    """The reply to one `Settle`.

    Attributes:
        receipt: the delivery's.
        outcome: what came of it.
        gateway: the address of the gateway to which it belongs, where it is elsewhere.
        lease_until_ms: of an extended one, the new end of its lease.
    """

    receipt: str
    outcome: SettleOutcome
    gateway: str | None = None
    lease_until_ms: int | None = None
