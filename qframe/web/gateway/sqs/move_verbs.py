"""The operations that move dead letters back to where they came from, or elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast
from uuid import uuid4

import msgspec

from qframe.errors import QFrameError, TopicFull, UnknownGroup, UnknownTopic
from qframe.outcomes import Outcome
from qframe.runtime.handler.attempt import Attempt
from qframe.shares import Share
from qframe.web.gateway.deliveries import OpenDelivery, Settle, Verb
from qframe.web.gateway.sqs.messages import DEAD_FROM, id_of, resent
from qframe.web.gateway.sqs.moves import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    FAILED,
    KEPT,
    RUNNING,
    MoveTask,
)
from qframe.web.gateway.sqs.queues import GROUP, Queue
from qframe.web.gateway.sqs.refusals import (
    SqsRefusal,
    invalid_parameter,
    no_resource,
    throttled,
    unsupported,
)
from qframe.web.gateway.sqs.requests import (
    CancelMessageMoveTask,
    ListMessageMoveTasks,
    StartMessageMoveTask,
)
from qframe.web.gateway.sqs.service import Right, SqsCall, SqsService

MOST_MOVES: Final = 100
"""How many moves a gateway does at once, as many as SQS does for an account."""

_AT_ONCE: Final = 100
_FASTEST: Final = 500
_LEASE_S: Final = 60.0
_WAIT_S: Final = 0.5
_NOTED_S: Final = 20.0  # it says so often that it goes on


class MoveVerbs:
    """The operations on moves, each a request and who asks to an answer.

    A move goes on in the gateway that was asked for it, and ends with it: it is started again then.
    Every message is published before it is acknowledged, under an id that a repetition has too.
    What it publishes counts against the rate of the client that has started it.

    Args:
        service: the parts that all operations share.
    """

    def __init__(self, service: SqsService) -> None:
        self._service = service
        self._gateway = service.gateway
        self._running = Share(MOST_MOVES)

    async def start(self, request: StartMessageMoveTask, call: SqsCall) -> dict[str, Any]:
        """Starts a move."""
        queue = await self._queue(request.source_arn, call, "admin")
        rate = request.max_number_of_messages_per_second
        if rate is not None and not 1 <= rate <= _FASTEST:
            raise invalid_parameter(
                "MaxNumberOfMessagesPerSecond", rate, f"It must be from 1 to {_FASTEST}."
            )
        if not await self._service.blocking(self._service.book.sources_of, queue.name):
            raise invalid_parameter(
                "SourceArn", request.source_arn,
                "Source queue must be configured as a Dead Letter Queue.",
            )  # fmt: skip
        destination = None
        if request.destination_arn is not None:
            destination = (await self._queue(request.destination_arn, call, "publish")).name
            call.check_way(queue.name, destination)
        now_ms = self._service.clock.now_ms()
        task = MoveTask(
            handle=f"{queue.name}/{uuid4()}", status=RUNNING, destination=destination, rate=rate,
            to_move=await self._service.blocking(self._count, queue), started_ms=now_ms,
            seen_ms=now_ms,
        )  # fmt: skip

        def begun(found: Queue) -> Queue:
            if any(each.at(now_ms).is_active for each in found.moves):
                raise unsupported("There is already a task running. Only one active task is "
                                  "allowed for a source queue arn at a given time.")  # fmt: skip
            return msgspec.structs.replace(found, moves=[task, *found.moves][:KEPT])

        self._take_place(call)
        try:
            await self._service.blocking(self._service.book.change, queue.name, begun)
        except BaseException:
            self._running.give_back(call.caller.client)
            raise
        self._gateway.spawn(self._run(queue, task, call))
        return {"TaskHandle": task.handle}

    def _take_place(self, call: SqsCall) -> None:
        """Counts one more move that this gateway does for the client."""
        client = call.caller.client
        if not self._running.take(client):
            raise throttled(
                f"This gateway does {self._running.held(client)} moves for {call.caller.name}, its "
                f"share of {MOST_MOVES}. Wait until one has ended, or cancel one."
            )

    async def cancel(self, request: CancelMessageMoveTask, call: SqsCall) -> dict[str, Any]:
        """Has a move end after the messages that it has in hand."""
        name = request.task_handle.partition("/")[0]
        call.check(name, "admin")
        queue = await self._service.blocking(self._service.book.find, name)
        now_ms = self._service.clock.now_ms()
        task = next(
            (each.at(now_ms) for each in (queue.moves if queue is not None else ())
             if each.handle == request.task_handle), None,
        )  # fmt: skip
        if task is None:
            raise no_resource("Task does not exist.")
        if not task.is_active:
            raise unsupported(f"Only active tasks can be cancelled. This one is {task.status}.")
        await self._note(name, task.handle, lambda one: _as(one, status=CANCELLING))
        return {"ApproximateNumberOfMessagesMoved": task.moved}

    async def list_moves(self, request: ListMessageMoveTasks, call: SqsCall) -> dict[str, Any]:
        """The last moves out of a queue, the newest first."""
        queue = await self._queue(request.source_arn, call, "admin")
        most = 1 if request.max_results is None else request.max_results
        if not 1 <= most <= KEPT:
            raise invalid_parameter("MaxResults", most, f"It must be from 1 to {KEPT}.")
        now_ms, place = self._service.clock.now_ms(), self._service.place
        return {"Results": [
            one.at(now_ms).shown(
                request.source_arn, None if one.destination is None else place.arn(one.destination)
            ) for one in queue.moves[:most]
        ]}  # fmt: skip

    async def _queue(self, arn: str, call: SqsCall, right: Right) -> Queue:
        name = self._service.place.named_by(arn)
        if name is not None:
            call.check(name, right)
            queue = await self._service.blocking(self._service.book.find, name)
            if queue is not None:
                return queue
        raise no_resource(f"There is no queue {arn[:200]!r}.")

    def _count(self, queue: Queue) -> int:
        """How many messages stand in a queue, and dead in those that name it."""
        store = self._gateway.app.store
        total = 0
        for each in (queue, *self._service.book.sources_of(queue.name)):
            topic = store.topic(each.name)
            try:
                slots = [] if topic is None else store.stats(topic, GROUP)
            except UnknownGroup:
                continue
            if each.name == queue.name:
                total += sum(slot.waiting + slot.todo + slot.doing for slot in slots)
            else:
                total += sum(slot.dead for slot in slots)
        return total

    # The move itself.

    async def _run(self, queue: Queue, task: MoveTask, call: SqsCall) -> None:
        status, reason = FAILED, "its gateway has ended"
        moved = 0
        try:
            if task.destination is None:
                moved = await self._service.blocking(self._retry_dead, queue, call)
            await self._service.gather(queue)
            status, reason, moved = await self._move(queue, task, moved, call)
        except (QFrameError, SqsRefusal) as error:
            reason = str(error)
        finally:
            self._running.give_back(call.caller.client)
            await asyncio.shield(self._note(
                queue.name, task.handle,
                lambda one: _as(one, status=status, moved=max(one.moved, moved),
                                reason=reason if status == FAILED else None),
            ))  # fmt: skip

    def _retry_dead(self, queue: Queue, call: SqsCall) -> int:
        """Retries what is dead in its own queue still, where the client may publish."""
        admin = call.acting(self._gateway.app)
        count = 0
        for source in self._service.book.sources_of(queue.name):
            if call.may(source.name, "publish"):
                with suppress(UnknownTopic, UnknownGroup):
                    count += admin.dead_retry(source.name, GROUP, "all")
        return count

    async def _move(
        self, queue: Queue, task: MoveTask, moved: int, call: SqsCall
    ) -> tuple[str, str, int]:
        """Moves what is in the queue; returns how that has ended, and how many were moved."""
        rate = task.rate or _FASTEST
        self._service.serve(queue)
        while True:
            call.check(queue.name, "admin")  # it may have lost the right
            found = await self._gateway.pull(
                queue.name, GROUP, most=min(_AT_ONCE, rate), wait_s=_WAIT_S, lease_s=_LEASE_S
            )
            if not found:
                return COMPLETED, "", moved
            count, reason = await self._sent(found, queue, task, call)
            moved += count
            if reason:
                return FAILED, reason, moved
            if not await self._goes_on(queue, task, moved):
                return CANCELLED, "", moved
            while wait_s := call.caller.wait_s(len(found)):
                await asyncio.sleep(min(wait_s, _NOTED_S))
                if not await self._goes_on(queue, task, moved):
                    return CANCELLED, "", moved
            if task.rate is not None:
                await asyncio.sleep(len(found) / rate)

    async def _goes_on(self, queue: Queue, task: MoveTask, moved: int) -> bool:
        """Writes how far a move is; whether nobody has cancelled it."""
        noted = await self._note(queue.name, task.handle, partial(_as, moved=moved))
        return noted is not None and noted.status == RUNNING

    async def _sent(
        self, found: list[OpenDelivery], queue: Queue, task: MoveTask, call: SqsCall
    ) -> tuple[int, str]:
        """Publishes and acknowledges messages; returns how many, and why the others were not."""
        moved, reason = 0, ""
        by_target: dict[str, list[OpenDelivery]] = {}
        homeless: list[OpenDelivery] = []
        for one in found:
            headers = cast("Attempt", one.message).delivery.headers or {}
            target = task.destination or headers.get(DEAD_FROM, "")
            is_there = await self._service.blocking(self._service.book.find, target) is not None
            if is_there and call.may(target, "publish"):
                by_target.setdefault(target, []).append(one)
            else:
                homeless.append(one)
        for target, several in by_target.items():
            published = await self._gateway.publish(target, [_copy(one, queue) for one in several])
            # One that is handed out again after all is a duplicate where it has gone.
            await self._gateway.settle(queue.name, GROUP, [
                _left(one, "there is no room for it") if each.outcome is Outcome.FULL
                else Settle(one.receipt)
                for one, each in zip(several, published, strict=True)
            ])  # fmt: skip
            full = [each for each in published if each.outcome is Outcome.FULL]
            moved += len(published) - len(full)
            if full:
                reason = str(TopicFull(target, published))
        if homeless:
            left = [_left(one, "it came from no queue") for one in homeless]
            await self._gateway.settle(queue.name, GROUP, left)
            reason = "CouldNotDetermineMessageSource"
        return moved, reason

    async def _note(
        self, name: str, handle: str, how: Callable[[MoveTask], MoveTask]
    ) -> MoveTask | None:
        """Writes how far a move is; returns it as it is now."""
        now_ms = self._service.clock.now_ms()

        def noted(found: Queue) -> Queue:
            return msgspec.structs.replace(found, moves=[
                _as(how(one), seen_ms=now_ms) if one.handle == handle else one
                for one in found.moves
            ])  # fmt: skip

        queue = await self._service.blocking(self._service.book.change, name, noted)
        return next((one for one in queue.moves if one.handle == handle), None)


def _as(task: MoveTask, **facts: Any) -> MoveTask:
    return msgspec.structs.replace(task, **facts)


def _left(one: OpenDelivery, why: str) -> Settle:
    """Leaves a message where it is."""
    return Settle(one.receipt, Verb.RETRY, delay=0, error=why)


def _copy(one: OpenDelivery, queue: Queue) -> Any:
    delivery = cast("Attempt", one.message).delivery
    return resent(
        delivery.body, delivery.headers, key=delivery.key if queue.is_fifo else None,
        message_id=id_of(f"{queue.name} {delivery.id} {delivery.published_at_ms} moved"), more={},
    )  # fmt: skip
