"""The JSON of requests and replies: what is decoded, checked and described by the same structs."""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from qframe.codec import decode_body
from qframe.errors import BadBody, BadOption
from qframe.message import Delivery
from qframe.outcomes import Outcome
from qframe.producing.outgoing import Outgoing
from qframe.runtime.handler.attempt import Attempt
from qframe.topic import Topic, duration_ms
from qframe.web.gateway.deliveries import OpenDelivery, Settle, SettleReply, Verb
from qframe.web.gateway.kept_names import check_headers

MOST_MESSAGES: Final = 500
LONGEST_WAIT_S: Final = 60.0
SHORTEST_LEASE_S: Final = 0.1
LONGEST_LEASE_S: Final = 12 * 3600.0

Span = Annotated[
    Annotated[float, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$")],
    Meta(description='Seconds, or a text such as "500ms", "30s", "10m", "2h".'),
]


class MessageIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message to be published.

    Exactly one of `body` and `body_base64` is given: a JSON value, or bytes.
    """

    body: Any = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | None = None
    id: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    delay: Span | None = None
    at: float | datetime | None = None
    priority: int = 0
    within: Span | None = None
    sequence: int | None = None
    slot_basis: str | None = None

    def outgoing(self) -> Outgoing:
        """The message as a producer takes it.

        Raises:
            BadInput: unless there is one body, or if a header is one that qframe writes itself.
        """
        check_headers(self.headers)
        body = self.body
        if self.body_base64 is not UNSET:
            if body is not UNSET:
                raise BadBody("body", "…", "body_base64 is given too", "give one of them")
            try:
                body = b64decode(self.body_base64, validate=True)
            except ValueError as error:
                raise BadBody(
                    "body_base64", "…", f"it is not base64 ({error})", "encode the bytes"
                ) from None
        elif body is UNSET:
            raise BadBody("body", None, "it is missing", "give body, or body_base64 for bytes")
        return Outgoing(
            body, self.key, self.headers, self.tags, self.id, delay=self.delay, at=self.at,
            priority=self.priority, within=self.within, sequence=self.sequence,
            slot_basis=self.slot_basis,
        )  # fmt: skip


Several = Annotated[list[MessageIn], Meta(max_length=MOST_MESSAGES, min_length=1)]


class MessagesIn(msgspec.Struct, forbid_unknown_fields=True):
    """Up to 500 messages to be published together, in order."""

    messages: Several


class PublishRequest(MessageIn, forbid_unknown_fields=True, omit_defaults=True):
    """One message, or several under `messages`."""

    messages: Several | UnsetType = UNSET


class PublishedOut(msgspec.Struct):
    """A message's id, and the outcome of its publishing."""

    id: str
    outcome: Outcome


class RefusedOut(msgspec.Struct):
    """Why a message of a stream was refused; it was not stored."""

    outcome: Literal["refused"]
    type: str
    detail: str


class UnknownOut(msgspec.Struct):
    """A message of a stream that may have been stored: published under this id, it is safe."""

    id: str
    outcome: Literal["unknown"]
    type: str
    detail: str


class PublishedListOut(msgspec.Struct):
    """The outcomes of several messages, in their order."""

    results: list[PublishedOut]


class PullIn(msgspec.Struct, forbid_unknown_fields=True):
    """The messages to hand out.

    Attributes:
        max: how many messages at most.
        wait: how long to wait for the first, at most a minute.
        lease: after how long they are handed out again unless settled or extended.
    """

    max: Annotated[int, Meta(ge=1, le=MOST_MESSAGES)] = 10
    wait: Span = 0.0
    lease: Span = 30.0


class DeliveryOut(msgspec.Struct, omit_defaults=True):
    """A message handed out; `body` is its JSON, `body_base64` its bytes where it is none."""

    receipt: str
    id: str
    slot: int
    attempt: Annotated[int, Meta(description="How often it was handed out, this time included.")]
    published_at_ms: int
    lease_until_ms: int
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None


class DeliveriesOut(msgspec.Struct):
    """The messages handed out; none if none has come in time."""

    deliveries: list[DeliveryOut]


class RetryIn(msgspec.Struct, forbid_unknown_fields=True):
    """A delivery to be handed out again: at a time, or when the group's backoff says."""

    receipt: str
    delay: Span | None = None
    at: float | datetime | None = None
    error: str | None = None


class RejectIn(msgspec.Struct, forbid_unknown_fields=True):
    """A delivery that no retry can help: it becomes a dead letter at once."""

    receipt: str
    error: str | None = None


class ExtendIn(msgspec.Struct, forbid_unknown_fields=True):
    """A delivery whose lease is to be as long as this from now."""

    receipt: str
    lease: Span


class SettleIn(msgspec.Struct, forbid_unknown_fields=True):
    """Deliveries to be settled, up to 500 in all."""

    ack: list[str] = []
    retry: list[RetryIn] = []
    reject: list[RejectIn] = []
    extend: list[ExtendIn] = []

    def wanted(self) -> list[Settle]:
        """One `Settle` for each receipt.

        Raises:
            BadOption: if there are too many or none, or a lease is too long.
        """
        found = [Settle(each) for each in self.ack]
        found += [
            Settle(each.receipt, Verb.RETRY, each.error, each.delay, each.at) for each in self.retry
        ]
        found += [Settle(each.receipt, Verb.REJECT, each.error) for each in self.reject]
        for extend in self.extend:
            lease_s = lease_of(extend.lease)
            found.append(Settle(extend.receipt, Verb.EXTEND, lease_s=lease_s))
        if not 1 <= len(found) <= MOST_MESSAGES:
            raise BadOption(
                "settle", len(found), f"it must have 1 to {MOST_MESSAGES} receipts",
                "send several requests",
            )  # fmt: skip
        return found


class SettledOut(msgspec.Struct):
    """The outcome of each receipt: ack first, then retry, reject and extend."""

    results: list[SettleReply]


class TimerChangeIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A timer's new time, or what it says from now on, or both."""

    body: Any = UNSET
    body_base64: str | UnsetType = UNSET
    delay: Span | None = None
    at: float | datetime | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None

    def new_body(self) -> Any:
        """The body; UNSET if it stays.

        Raises:
            BadInput: if there are two, or a header is one that qframe writes itself.
        """
        if self.body is UNSET and self.body_base64 is UNSET:
            return UNSET
        return MessageIn(self.body, self.body_base64, headers=self.headers).outgoing().body


class TimerIn(TimerChangeIn, forbid_unknown_fields=True, omit_defaults=True):
    """A timer: a message that is due at a time."""

    id: str | None = None

    def outgoing(self) -> Outgoing:
        """Its message, without its time.

        Raises:
            BadBody: unless there is one body.
        """
        return MessageIn(
            self.body, self.body_base64, id=self.id, headers=self.headers, tags=self.tags
        ).outgoing()


class MovedOut(msgspec.Struct):
    """The outcome of a change to a timer."""

    outcome: Literal["done", "absent", "doing"]


class NothingIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that needs none."""


class TopicIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A topic, as it is declared; its kind is for ever, and its slots only grow.

    A topic that is there keeps the options that are not named; a new one has no
    `max_length`, "1h" as `dedupe_window`, and as a stream "24h" as `retain`.
    """

    kind: Literal["stream", "ordered", "delay", "priority", "merge"] = "stream"
    slots: Annotated[int, Meta(ge=1)] = 16
    retain: Span | UnsetType = UNSET
    max_length: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    dedupe_window: Span | UnsetType = UNSET

    def topic(self, name: str, known: Topic | None) -> Topic:
        """The topic to be declared.

        Args:
            name: its name.
            known: the topic of this name as it is declared now; None if there is none.

        Raises:
            BadInput: if one of the options is wrong.
        """
        options: dict[str, Any] = {}
        if known is not None and known.kind == self.kind:
            options = {
                "max_length": known.max_length, "dedupe_window": f"{known.dedupe_window_ms}ms",
                "subject": known.subject,
                "history": f"{known.history_ms}ms" if known.history_ms else None,
            }  # fmt: skip
            if known.kind == "stream":
                options["retain"] = f"{known.retain_ms}ms"
            if known.kind == "ordered":
                options["gap_timeout"] = f"{known.gap_timeout_ms}ms"
        for option in ("retain", "max_length", "dedupe_window"):
            if (given := getattr(self, option)) is not UNSET:
                options[option] = given
        return Topic(name, self.kind, self.slots, **options)


class TopicOut(msgspec.Struct):
    """A topic."""

    name: str
    kind: str
    slots: int


class StatsOut(msgspec.Struct):
    """Where a group's messages stand."""

    topic: str
    group: str
    waiting: int
    retrying: int
    todo: int
    doing: int
    settled: int
    dead: int
    oldest_ms: int | None
    open_here: Annotated[int, Meta(description="In the hands of this gateway's clients.")]


class HealthOut(msgspec.Struct):
    """Whether the gateway works."""

    status: Literal["ok", "stopping"]


class ProblemOut(msgspec.Struct, omit_defaults=True):
    """A problem, as RFC 9457 describes it; `detail` is the sentence of the error."""

    type: str
    title: str
    status: int
    detail: str
    ids: list[str] | None = None
    results: list[SettleReply] | None = None


def wait_of(span: float | str) -> float:
    """A wait in seconds.

    Raises:
        BadOption: if it is none, or too long.
    """
    return _within("wait", span, 0.0, LONGEST_WAIT_S)


def lease_of(span: float | str) -> float:
    """A lease in seconds.

    Raises:
        BadOption: if it is none, too short or too long.
    """
    return _within("lease", span, SHORTEST_LEASE_S, LONGEST_LEASE_S)


def _within(what: str, span: float | str, least_s: float, most_s: float) -> float:
    found_s = duration_ms(span, what) / 1000
    if not least_s <= found_s <= most_s:
        raise BadOption(
            what, span, f"it must be from {least_s:g} to {most_s:g} seconds", "choose one of them"
        )
    return found_s


def delivery_out(opened: OpenDelivery) -> DeliveryOut:
    """A delivery as its client sees it."""
    message = opened.message
    assert isinstance(message, Attempt)  # noqa: S101 - a pull hands out nothing else
    delivery: Delivery = message.delivery
    out = DeliveryOut(
        opened.receipt, delivery.id, delivery.slot, delivery.attempt, delivery.published_at_ms,
        opened.lease_until_ms, key=delivery.key,
    )  # fmt: skip
    if delivery.headers:
        out.headers = dict(message.headers) or None
        out.tags = list(message.tags) or None
    body = _json_of(delivery)
    if body is None:
        out.body_base64 = msgspec.to_builtins(delivery.body)
    else:
        out.body = body
    return out


def _json_of(delivery: Delivery) -> Raw | None:
    """The body as it lies in the store, if it is JSON."""
    try:
        found = decode_body(delivery.body, delivery.headers)
    except RecursionError:  # it was published as JSON from where the stack was less deep
        return Raw(delivery.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if found is delivery.body else Raw(delivery.body)
