"""The operations on messages: send, receive, delete, change visibility, alone and in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast
from weakref import ref

from qframe.outcomes import Outcome
from qframe.runtime.handler.attempt import Attempt
from qframe.web.gateway.deliveries import OpenDelivery, Settle, SettleOutcome, SettleReply, Verb
from qframe.web.gateway.request_parts import unless_gone
from qframe.web.gateway.sqs.attributes import LONGEST_VISIBILITY_S, LONGEST_WAIT_S, MOST_BYTES
from qframe.web.gateway.sqs.batches import (
    MOST_AT_ONCE,
    batch_answer,
    check_entries,
    failed_entry,
    settled_batch,
)
from qframe.web.gateway.sqs.messages import DEAD_FROM, PreparedMessage, checked_word, prepared
from qframe.web.gateway.sqs.queues import GROUP, Queue
from qframe.web.gateway.sqs.received import Received, Taken, shown
from qframe.web.gateway.sqs.refusals import (
    SqsRefusal,
    expired_receipt,
    invalid_parameter,
    long_batch,
    not_in_flight,
    throttled,
    unavailable,
    wrong_receipt,
)
from qframe.web.gateway.sqs.remembered import Remembered
from qframe.web.gateway.sqs.requests import (
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityEntry,
    DeleteMessage,
    DeleteMessageBatch,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    SentMessage,
)
from qframe.web.gateway.sqs.service import SWEEP_S, SqsCall, SqsService

_REPEATED_S: Final = 300.0
_SHOWN_S: Final = 30.0  # for how long it has what is visible again at once
_MOST_RECEIVED_BYTES: Final = 4 * 2**20
MOST_FIRSTS: Final = 20_000
"""Of how many messages it is known, for each client, when they were first handed out."""

MOST_ATTEMPTS_KEPT: Final = 1000
"""How many attempts of each client may be repeated."""


class _Answered(NamedTuple):
    """The answer to a receive that named its attempt; what is settled since then takes no room."""

    until_s: float
    deliveries: list[ref[OpenDelivery]]


class MessageVerbs:
    """The operations on messages, each a request and who asks to an answer.

    Args:
        service: the parts that all operations share.
    """

    def __init__(self, service: SqsService) -> None:
        self._service = service
        self._gateway = service.gateway
        self._sequence = 0
        self._first_ms: Remembered[tuple[str, str], int] = Remembered(MOST_FIRSTS)
        self._attempts: Remembered[tuple[str, str, str], _Answered] = Remembered(MOST_ATTEMPTS_KEPT)

    # Sending.

    async def send(self, request: SendMessage, call: SqsCall) -> dict[str, Any]:
        """Sends a message."""
        queue = await self._service.target(request.queue_url, call, "publish")
        one = self._prepared(request, queue, call)
        call.caller.take(1)
        found = (await self._publish(queue, [one]))[0]
        if isinstance(found, SqsRefusal):
            raise found
        return {**one.answer, "MessageId": found}

    async def send_batch(self, request: SendMessageBatch, call: SqsCall) -> dict[str, Any]:
        """Sends up to ten messages; each that is refused is so for itself."""
        queue = await self._service.target(request.queue_url, call, "publish")
        most = call.caller.most_messages(MOST_AT_ONCE)
        check_entries(request.entries, "SendMessageBatchRequestEntry", most)
        total = sum(len(entry.message_body.encode()) for entry in request.entries)
        if total > MOST_BYTES:
            raise long_batch(total, MOST_BYTES)
        ready: dict[str, PreparedMessage] = {}
        failed: list[dict[str, Any]] = []
        for entry in request.entries:
            try:
                ready[entry.id] = self._prepared(entry, queue, call)
            except SqsRefusal as refusal:
                if _is_of_all(entry, queue):
                    raise
                failed.append(failed_entry(entry.id, refusal))
        call.caller.take(len(request.entries))
        done: list[dict[str, Any]] = []
        outcomes = await self._publish(queue, list(ready.values()))
        for (entry_id, one), found in zip(ready.items(), outcomes, strict=True):
            if isinstance(found, SqsRefusal):
                failed.append(failed_entry(entry_id, found))
            else:
                done.append({"Id": entry_id, **one.answer, "MessageId": found})
        return batch_answer(done, failed)

    def _prepared(self, sent: SentMessage, queue: Queue, call: SqsCall) -> PreparedMessage:
        most = int(queue.set_attribute("MaximumMessageSize", self._service.max_body))
        return prepared(
            sent, queue, sender=call.caller.name, sequence=self._next_sequence(), most=most
        )

    def _next_sequence(self) -> str:
        """Twenty digits that grow, also from one start of a gateway to the next."""
        self._sequence = max(self._sequence + 1, self._service.clock.now_ms() * 10_000)
        return f"{self._sequence:020d}"

    async def _publish(
        self, queue: Queue, ready: Sequence[PreparedMessage]
    ) -> list[str | SqsRefusal]:
        """The ids of the messages, or why the store has not taken one."""
        if not ready:
            return []
        published = await self._gateway.publish(queue.name, [one.outgoing for one in ready])
        return [
            throttled("The queue is full.") if each.outcome is Outcome.FULL else each.id
            for each in published
        ]

    # Receiving.

    async def receive(self, request: ReceiveMessage, call: SqsCall) -> dict[str, Any]:
        """Hands out messages."""
        queue = await self._service.queue(request.queue_url, call, "consume")
        wait_s, visibility_s = self._checked_times(request, queue)
        self._service.serve(queue)
        call.caller.take(1)
        deliveries = await self._repeated(request, queue, visibility_s, call)
        if not deliveries:
            receiving = self._received(queue, request, wait_s, visibility_s, call)
            deliveries, is_gone = await unless_gone(call.request, receiving)
            if is_gone:
                self._gateway.put_back(queue.name, GROUP, deliveries)
                deliveries = []
            self._keep_attempt(request, queue, deliveries, call)
        asked = Received(
            frozenset((*(request.attribute_names or ()),
                       *(request.message_system_attribute_names or ()))),
            request.message_attribute_names or (),
        )  # fmt: skip
        messages = [self._shown(one, asked, queue, call) for one in deliveries]
        return {"Messages": messages} if messages else {}

    def _checked_times(self, request: ReceiveMessage, queue: Queue) -> tuple[int, int]:
        """For how long to wait, and how long the messages are hidden."""
        if not 1 <= request.max_number_of_messages <= MOST_AT_ONCE:
            raise invalid_parameter(
                "MaxNumberOfMessages", request.max_number_of_messages,
                "Must be between 1 and 10, if provided.",
            )  # fmt: skip
        max_body = self._service.max_body
        wait_s, visibility_s = request.wait_time_seconds, request.visibility_timeout
        if wait_s is None:
            wait_s = int(queue.set_attribute("ReceiveMessageWaitTimeSeconds", max_body))
        if visibility_s is None:
            visibility_s = int(queue.set_attribute("VisibilityTimeout", max_body))
        if not 0 <= wait_s <= LONGEST_WAIT_S:
            raise invalid_parameter(
                "WaitTimeSeconds", wait_s, f"Must be >= 0 and <= {LONGEST_WAIT_S}, if provided."
            )
        _check_visibility(visibility_s)
        return wait_s, visibility_s

    async def _repeated(
        self, request: ReceiveMessage, queue: Queue, visibility_s: int, call: SqsCall
    ) -> list[OpenDelivery]:
        """The messages that the client's same attempt has got, as far as it has them still.

        They count as in flight since then, so there may be no room for others.
        """
        attempt = _attempt_of(request, queue, call)
        known = None if attempt is None else self._attempts.get(attempt)
        if known is None or known.until_s < self._service.clock.monotonic_s():
            return []
        most = call.caller.most_messages(request.max_number_of_messages)
        found = [one for each in known.deliveries if (one := each()) is not None][:most]
        lease_s = visibility_s or _SHOWN_S
        wanted = [Settle(one.receipt, Verb.EXTEND, lease_s=lease_s) for one in found]
        replies = await self._gateway.settle(queue.name, GROUP, wanted)
        return [
            one for one, reply in zip(found, replies, strict=True)
            if reply.outcome is SettleOutcome.EXTENDED
        ]  # fmt: skip

    def _keep_attempt(
        self, request: ReceiveMessage, queue: Queue, found: Sequence[OpenDelivery], call: SqsCall
    ) -> None:
        """Has the same attempt of this client get the same messages for a while."""
        attempt = _attempt_of(request, queue, call)
        if attempt is not None and found:
            until_s = self._service.clock.monotonic_s() + _REPEATED_S
            answered = _Answered(until_s, [ref(one) for one in found])
            self._attempts.keep(call.caller.name, attempt, answered)

    async def _received(
        self, queue: Queue, request: ReceiveMessage, wait_s: int, visibility_s: int, call: SqsCall
    ) -> list[OpenDelivery]:
        """Messages that are not older than the queue keeps them.

        None at once where the client has as many as it may: other requests of its took them.
        """
        clock = self._service.clock
        most = call.caller.room(request.max_number_of_messages)
        until_s = clock.monotonic_s() + wait_s
        while True:
            left_s = max(0.0, until_s - clock.monotonic_s())
            is_target = await self._service.gather(queue)
            found = await self._gateway.pull(
                queue.name, GROUP, most=most, lease_s=visibility_s or _SHOWN_S,
                client=call.caller.client, most_bytes=_MOST_RECEIVED_BYTES,
                wait_s=min(left_s, SWEEP_S) if is_target else left_s,
            )  # fmt: skip
            try:
                kept = await self._without_old(queue, found)
                if kept and not visibility_s:
                    again = [_visibility(one.receipt, 0) for one in kept]
                    await self._gateway.settle(queue.name, GROUP, again)
            except asyncio.CancelledError:  # its client has gone
                self._gateway.put_back(queue.name, GROUP, found)
                raise
            if kept or not (found or left_s) or call.caller.client.room < 1:
                return sorted(kept, key=_age)

    async def _without_old(
        self, queue: Queue, found: Sequence[OpenDelivery]
    ) -> list[OpenDelivery]:  # fmt: skip
        """Settles those that the queue keeps no more, and leaves them out."""
        period_s = int(queue.set_attribute("MessageRetentionPeriod", self._service.max_body))
        until_ms = self._service.clock.now_ms() - period_s * 1000
        old = [one for one in found if _delivery(one).published_at_ms < until_ms]
        if not old:
            return list(found)
        await self._gateway.settle(queue.name, GROUP, [Settle(one.receipt) for one in old])
        return [one for one in found if one not in old]

    def _shown(
        self, one: OpenDelivery, asked: Received, queue: Queue, call: SqsCall
    ) -> dict[str, Any]:  # fmt: skip
        delivery = _delivery(one)
        headers = delivery.headers or {}
        source = headers.get(DEAD_FROM)
        taken = Taken(
            one.receipt, delivery.id, delivery.key, headers, delivery.body,
            delivery.published_at_ms, delivery.attempt,
            self._first_received(queue, delivery.id, call.caller.name),
        )  # fmt: skip
        source_arn = None if source is None else self._service.place.arn(source)
        return shown(taken, asked, is_fifo=queue.is_fifo, source_arn=source_arn)

    def _first_received(self, queue: Queue, message_id: str, client: str) -> int:
        """When this gateway has first handed out a message, as far as it remembers."""
        name = queue.name, message_id
        at_ms = self._first_ms.get(name)
        if at_ms is None:
            at_ms = self._service.clock.now_ms()
            self._first_ms.keep(client, name, at_ms)
        return at_ms

    # Settling.

    async def delete(self, request: DeleteMessage, call: SqsCall) -> dict[str, Any]:
        """Acknowledges a message."""
        queue = await self._service.queue(request.queue_url, call, "consume")
        replies = await self._service.settle(queue, [Settle(request.receipt_handle)], call)
        refusal = self._refused_deletion(queue, replies[0])
        if refusal is not None:
            raise refusal
        return {}

    async def delete_batch(self, request: DeleteMessageBatch, call: SqsCall) -> dict[str, Any]:
        """Acknowledges up to ten messages."""
        queue = await self._service.queue(request.queue_url, call, "consume")
        check_entries(request.entries, "DeleteMessageBatchRequestEntry")
        wanted = [Settle(entry.receipt_handle) for entry in request.entries]
        replies = await self._service.settle(queue, wanted, call)
        return settled_batch(
            request.entries, replies, lambda reply: self._refused_deletion(queue, reply)
        )

    def _refused_deletion(self, queue: Queue, reply: SettleReply) -> SqsRefusal | None:
        """Why a message was not deleted; of a standard queue SQS does not say that it was late."""
        if reply.outcome is SettleOutcome.STALE:
            if not self._gateway.receipts.is_receipt(reply.receipt):
                return wrong_receipt()
            return expired_receipt(reply.receipt) if queue.is_fifo else None
        return _unsettled(reply)

    async def change(self, request: ChangeMessageVisibility, call: SqsCall) -> dict[str, Any]:
        """Changes how long a message stays hidden from now on; 0 makes it visible."""
        queue = await self._service.queue(request.queue_url, call, "consume")
        _check_visibility(request.visibility_timeout)
        wanted = _visibility(request.receipt_handle, request.visibility_timeout)
        refusal = self._refused_change((await self._service.settle(queue, [wanted], call))[0])
        if refusal is not None:
            raise refusal
        return {}

    async def change_batch(
        self, request: ChangeMessageVisibilityBatch, call: SqsCall
    ) -> dict[str, Any]:
        """Changes how long up to ten messages stay hidden; each is refused for itself."""
        queue = await self._service.queue(request.queue_url, call, "consume")
        check_entries(request.entries, "ChangeMessageVisibilityBatchRequestEntry")
        right: list[ChangeMessageVisibilityEntry] = []
        failed: list[dict[str, Any]] = []
        for entry in request.entries:
            try:
                _check_visibility(entry.visibility_timeout)
            except SqsRefusal as refusal:
                failed.append(failed_entry(entry.id, refusal))
            else:
                right.append(entry)
        wanted = [_visibility(entry.receipt_handle, entry.visibility_timeout) for entry in right]
        replies = await self._service.settle(queue, wanted, call)
        return settled_batch(right, replies, self._refused_change, failed)

    def _refused_change(self, reply: SettleReply) -> SqsRefusal | None:
        if reply.outcome is SettleOutcome.STALE:
            if not self._gateway.receipts.is_receipt(reply.receipt):
                return wrong_receipt()
            return not_in_flight()
        return _unsettled(reply)


def _delivery(one: OpenDelivery) -> Any:
    return cast("Attempt", one.message).delivery


def _attempt_of(
    request: ReceiveMessage, queue: Queue, call: SqsCall
) -> tuple[str, str, str] | None:  # fmt: skip
    """The attempt of a receive, which is its client's alone; None if it names none."""
    if (attempt := request.receive_request_attempt_id) is None:
        return None
    return call.caller.name, queue.name, checked_word("ReceiveRequestAttemptId", attempt)


def _age(one: OpenDelivery) -> tuple[int, int]:
    delivery = _delivery(one)
    return delivery.published_at_ms, delivery.seq


def _check_visibility(seconds: int) -> None:
    if not 0 <= seconds <= LONGEST_VISIBILITY_S:
        reason = f"Must be >= 0 and <= {LONGEST_VISIBILITY_S}, if provided."
        raise invalid_parameter("VisibilityTimeout", seconds, reason)


def _visibility(receipt: str, seconds: int) -> Settle:
    if seconds:
        return Settle(receipt, Verb.EXTEND, lease_s=seconds)
    return Settle(receipt, Verb.RETRY, delay=0, error="its client made it visible again")


def _unsettled(reply: SettleReply) -> SqsRefusal | None:
    """Why a settlement was not done, other than that it came too late."""
    if reply.outcome is SettleOutcome.ELSEWHERE:
        where = reply.gateway or "another gateway"
        return unavailable(f"The message was received from {where}, and is settled there.")
    if reply.outcome is SettleOutcome.UNKNOWN:
        return unavailable("The store has not answered in time.")
    return None


def _is_of_all(entry: SentMessage, queue: Queue) -> bool:
    """Whether an entry lacks what a FIFO queue cannot do without, which refuses its whole batch."""
    return queue.is_fifo and (
        entry.message_group_id is None
        or (entry.message_deduplication_id is None and queue.needs_deduplication_id)
    )
