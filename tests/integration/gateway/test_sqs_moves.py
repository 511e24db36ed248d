"""Dead letters of SQS: how they come into their queue, and how they are moved out of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from eventually import eventually
from sqs_web import ARN, SqsRefused, SqsWeb, rules, sqs_web

from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.errors import StoreUnavailable
from qframe.topic import Topic
from qframe.web.gateway.sqs import move_verbs, service
from qframe.web.gateway.sqs.moves import CANCELLING, COMPLETED, FAILED, RUNNING, MoveTask
from qframe.web.gateway.sqs.queues import GROUP, Queue

pytestmark = pytest.mark.gate


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now_ms=SYSTEM_CLOCK.now_ms())


@pytest.fixture
def sqs(tmp_path: Path, clock: VirtualClock) -> Iterator[SqsWeb]:
    """`jobs` has its dead letters go to `dead`, of which alone `other` is the admin."""
    with sqs_web(tmp_path, tokens=rules(shop="", other='admin = ["dead"]'), clock=clock) as sqs:
        sqs.made("dead")
        policy = json.dumps({"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 1})
        sqs.made("jobs", RedrivePolicy=policy)
        yield sqs


def died(sqs: SqsWeb, *bodies: str, queue: str = "jobs", **fields: Any) -> list[str]:
    """Sends messages and has them die; returns their ids."""
    ids = [sqs.sent(queue, body, **fields) for body in bodies]
    while sum(slot.dead for slot in _stats(sqs, queue)) < len(ids):
        sqs.received(queue, VisibilityTimeout=0)
    return ids


def _stats(sqs: SqsWeb, queue: str) -> Any:
    store = sqs.gateway.app.store
    topic = store.topic(queue)
    assert topic is not None
    return store.stats(topic, GROUP)


def ended(sqs: SqsWeb, queue: str = "dead", **asked: Any) -> dict[str, Any]:
    """A move out of a queue, once it has ended."""
    sqs.ask("StartMessageMoveTask", SourceArn=f"{ARN}{queue}", **asked)

    def found() -> Any:
        [one] = sqs.ask("ListMessageMoveTasks", SourceArn=f"{ARN}{queue}")["Results"]
        return one if one["Status"] not in (RUNNING, CANCELLING) else None

    move: dict[str, Any] = eventually(found, within=30)
    return move


def running(sqs: SqsWeb, clock: VirtualClock) -> MoveTask:
    """A move of another gateway, written down as one that goes on."""
    now_ms = clock.now_ms()
    task = MoveTask(handle="dead/1", status=RUNNING, started_ms=now_ms, seen_ms=now_ms)
    sqs.front.service.book.change("dead", lambda one: msgspec.structs.replace(one, moves=[task]))
    return task


def test_all_dead_letters_are_gathered_under_their_first_ids(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_PAGE", 1)
    ids = died(sqs, "a", "b")
    assert sqs.attributes("dead", "ApproximateNumberOfMessages").popitem()[1] == "2"
    found = sqs.received("dead")
    assert sorted(one["MessageId"] for one in found) == sorted(ids)
    assert {one["Attributes"]["DeadLetterQueueSourceArn"] for one in found} == {f"{ARN}jobs"}


def test_a_queue_for_dead_letters_is_one_also_between_two_looks(sqs: SqsWeb) -> None:
    portal, book = sqs.web.portal, sqs.front.service.book
    assert portal is not None
    for name, is_target in (("dead", True), ("jobs", False)):
        queue = book.queue(name)
        found = [portal.call(sqs.front.service.gather, queue) for _ in range(2)]
        assert found == [is_target] * 2


def test_a_dead_letter_of_a_fifo_queue_keeps_its_group_there_and_back(sqs: SqsWeb) -> None:
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    sqs.made("dead.fifo", **fifo)
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}dead.fifo", "maxReceiveCount": 1})
    sqs.made("jobs.fifo", RedrivePolicy=policy, **fifo)
    died(sqs, "a", queue="jobs.fifo", MessageGroupId="group")
    [one] = sqs.received("dead.fifo", VisibilityTimeout=0)
    assert one["Attributes"]["MessageGroupId"] == "group"
    assert ended(sqs, "dead.fifo")["Status"] == COMPLETED
    [one] = sqs.received("jobs.fifo")
    assert (one["Body"], one["Attributes"]["MessageGroupId"]) == ("a", "group")


def test_a_dead_letter_that_cannot_be_published_stays_where_it_is(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    died(sqs, "a")

    def publish_many(*_: object) -> None:
        raise StoreUnavailable("store", "it is away")

    with monkeypatch.context() as away:
        away.setattr(sqs.gateway.app, "publish_many", publish_many)
        with pytest.raises(SqsRefused, match="ServiceUnavailable"):
            sqs.received("dead")
    [one] = sqs.received("dead")
    assert one["Body"] == "a"


def test_a_move_brings_back_what_died_twice_under_its_first_id(
    sqs: SqsWeb, clock: VirtualClock
) -> None:
    [first] = died(sqs, "a")
    for _ in range(2):
        clock.advance(1000)  # dead letters are gathered once a second
        assert sqs.attributes("dead", "ApproximateNumberOfMessages").popitem()[1] == "1"
        move = ended(sqs)
        assert (move["Status"], move["ApproximateNumberOfMessagesMoved"]) == (COMPLETED, 1)
        assert "TaskHandle" not in move
        [one] = sqs.received("jobs", VisibilityTimeout=0)
        assert one["MessageId"] == first


def test_a_move_goes_only_where_its_client_may_publish(sqs: SqsWeb) -> None:
    died(sqs, "a")
    move = ended(sqs, by="other")
    assert (move["Status"], move["FailureReason"]) == (FAILED, "CouldNotDetermineMessageSource")
    assert sqs.received("jobs") == []
    assert [one["Body"] for one in sqs.received("dead")] == ["a"]


def test_who_had_dead_letters_retried_is_known(sqs: SqsWeb) -> None:
    died(sqs, "a", "b")
    assert ended(sqs)["ApproximateNumberOfMessagesMoved"] == 2
    act = sqs.gateway.app.admin.audit()[0]
    assert (act.verb, act.topic, act.by, act.count) == ("dead_retry", "jobs", "owner", 2)


def test_a_move_elsewhere_takes_what_is_dead_in_its_own_queue_too(sqs: SqsWeb) -> None:
    died(sqs, "a")
    sqs.made("elsewhere")
    assert ended(sqs, DestinationArn=f"{ARN}elsewhere")["ApproximateNumberOfMessagesMoved"] == 1
    assert [one["Body"] for one in sqs.received("elsewhere")] == ["a"]


def test_a_move_is_as_slow_as_was_asked(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    died(sqs, "a", "b", "c")
    sqs.attributes("dead")
    monkeypatch.setattr(move_verbs, "asyncio", SimpleNamespace(sleep=sleep, shield=asyncio.shield))
    assert ended(sqs, MaxNumberOfMessagesPerSecond=2)["ApproximateNumberOfMessagesMoved"] == 3
    assert sum(pauses) == 1.5


def test_a_cancelled_move_ends_after_what_it_has_in_hand(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    died(sqs, "a", "b")
    sqs.attributes("dead")
    pull = sqs.gateway.pull

    async def pull_and_cancel(*given: Any, **more: Any) -> Any:
        found = await pull(*given, **more)
        [task] = sqs.front.service.book.queue("dead").moves
        await sqs.gateway.in_thread(
            lambda: sqs.front.service.book.change("dead", lambda one: _cancelled(one, task.handle))
        )
        return found

    monkeypatch.setattr(sqs.gateway, "pull", pull_and_cancel)
    move = ended(sqs, MaxNumberOfMessagesPerSecond=1)
    assert (move["Status"], move["ApproximateNumberOfMessagesMoved"]) == ("CANCELLED", 1)


def _cancelled(queue: Queue, handle: str) -> Queue:
    return msgspec.structs.replace(queue, moves=[
        msgspec.structs.replace(one, status=CANCELLING) if one.handle == handle else one
        for one in queue.moves
    ])  # fmt: skip


def test_one_move_at_a_time_until_it_is_cancelled_and_its_gateway_was_silent(
    sqs: SqsWeb, clock: VirtualClock
) -> None:
    task = running(sqs, clock)
    with pytest.raises(SqsRefused, match="UnsupportedOperation"):
        sqs.ask("StartMessageMoveTask", SourceArn=f"{ARN}dead")
    with pytest.raises(SqsRefused, match="AccessDenied"):
        sqs.ask("CancelMessageMoveTask", by="shop", TaskHandle=task.handle)
    sqs.ask("CancelMessageMoveTask", TaskHandle=task.handle)
    [one] = sqs.ask("ListMessageMoveTasks", SourceArn=f"{ARN}dead")["Results"]
    assert one["Status"] == CANCELLING
    clock.advance(60_001)
    [one] = sqs.ask("ListMessageMoveTasks", SourceArn=f"{ARN}dead")["Results"]
    assert (one["Status"], one["FailureReason"]) == (FAILED, "its gateway has ended")
    with pytest.raises(SqsRefused, match="UnsupportedOperation"):
        sqs.ask("CancelMessageMoveTask", TaskHandle=task.handle)
    assert ended(sqs)["Status"] == COMPLETED


def test_a_long_move_goes_on_while_its_gateway_tells_of_it(
    sqs: SqsWeb, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    died(sqs, "a")
    pull, seen = sqs.gateway.pull, []

    async def slowly(*given: Any, **more: Any) -> Any:
        clock.advance(60_000)
        seen.extend(
            one.at(clock.now_ms()).status for one in sqs.front.service.book.queue("dead").moves
        )
        return await pull(*given, **more)

    monkeypatch.setattr(sqs.gateway, "pull", slowly)
    sqs.made("elsewhere")
    ended(sqs, DestinationArn=f"{ARN}elsewhere")
    assert seen == [RUNNING, RUNNING]


@pytest.mark.parametrize("why", ["full", "away"])
def test_a_move_that_fails_on_its_way_loses_nothing_and_says_how_many_it_has_moved(
    why: str, sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqs.gateway.app.declare(Topic("small", kind="delay", slots=1, max_length=2))
    for queue in ("small", "dead", "dead", "dead"):
        sqs.sent(sqs.made(queue))
    if why == "away":
        monkeypatch.setattr(move_verbs, "_AT_ONCE", 1)
        publish, asked = sqs.gateway.publish, []

        async def once(*given: Any) -> Any:
            asked.append(given)
            if len(asked) > 1:
                raise StoreUnavailable("store", "it is away")
            return await publish(*given)

        monkeypatch.setattr(sqs.gateway, "publish", once)
    move = ended(sqs, DestinationArn=f"{ARN}small")
    assert (move["Status"], move["ApproximateNumberOfMessagesMoved"]) == (FAILED, 1)
    assert why in move["FailureReason"]
    counts = sqs.attributes(
        "dead", "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"
    )
    assert sum(int(each) for each in counts.values()) == 2


def test_the_move_of_a_gateway_that_ends_has_failed(sqs: SqsWeb) -> None:
    died(sqs, "a", "b", "c")
    sqs.attributes("dead")
    asked = {"SourceArn": f"{ARN}dead", "MaxNumberOfMessagesPerSecond": 1}
    sqs.ask("StartMessageMoveTask", **asked)
    sqs.web.portal.call(sqs.gateway.close)  # type: ignore[union-attr]
    [task] = sqs.front.service.book.queue("dead").moves
    assert (task.status, task.reason) == (FAILED, "its gateway has ended")
