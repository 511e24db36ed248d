"""What may be done with messages of SQS, how much of it, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqs_web import ARN, TOKENS, SqsRefused, SqsWeb, rules, sqs_web

from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.web.gateway.callers import Caller
from qframe.web.gateway.deliveries import Settle, SettleOutcome, SettleReply
from qframe.web.gateway.receipts import Receipts
from qframe.web.gateway.sqs.queues import GROUP
from qframe.web.gateway.sqs.requests import ReceiveMessage
from qframe.web.gateway.sqs.service import SqsCall

pytestmark = pytest.mark.gate

CLOCK = VirtualClock(now_ms=SYSTEM_CLOCK.now_ms())


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsWeb]:
    once = 'publish = ["*"]\nconsume = ["*"]\nrate = "1/h"'
    one = 'publish = ["*"]\nconsume = ["*"]\nin_flight = 1'
    small = 'publish = ["*"]\nconsume = ["*"]\nmax_request = 200\nmax_batch = 2'
    tokens = rules(shop=once, batcher=once, reader=once, other=small, single=one)
    with sqs_web(tmp_path_factory.mktemp("sqs"), tokens=tokens, clock=CLOCK) as sqs:
        sqs.made("q")
        sqs.made("q.fifo", FifoQueue="true", ContentBasedDeduplication="true")
        yield sqs


def _entries(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"Id": str(number), "MessageBody": "x", **fields} for number in range(count)]


@pytest.mark.parametrize(
    ("operation", "by"),
    [("SendMessage", "shop"), ("SendMessageBatch", "batcher"), ("ReceiveMessage", "reader")],
)
def test_each_operation_on_messages_counts_against_the_rate(
    operation: str, by: str, sqs: SqsWeb
) -> None:
    asked = {"QueueUrl": "q", "MessageBody": "x", "Entries": _entries(2)}
    sqs.ask(operation, by=by, **asked)
    with pytest.raises(SqsRefused, match="RequestThrottled"):
        sqs.ask(operation, by=by, **asked)


def test_a_request_is_as_large_as_its_token_allows_in_both_protocols(sqs: SqsWeb) -> None:
    with pytest.raises(SqsRefused) as refused:
        sqs.ask("SendMessage", by="other", QueueUrl="q", MessageBody="x" * 200)
    assert refused.value.status == 413
    key = {"authorization": f"AWS4-HMAC-SHA256 Credential={TOKENS['other'][0]}/x"}
    for size, status in ((20, 200), (200, 413)):
        form = f"Action=SendMessage&MessageBody={'x' * size}"
        reply = sqs.web.post("/000000000000/q", content=form, headers=key)
        assert reply.status_code == status


@pytest.mark.parametrize(
    ("operation", "fields", "code"),
    [
        ("SendMessageBatch", {"Entries": []}, "EmptyBatchRequest"),
        ("SendMessageBatch", {"Entries": _entries(11)}, "TooManyEntriesInBatchRequest"),
        ("SendMessageBatch", {"Entries": _entries(1) * 2}, "BatchEntryIdsNotDistinct"),
        ("SendMessageBatch", {"Entries": [{"Id": "a b", "MessageBody": "x"}]}, "InvalidBatchEntry"),
        ("SendMessageBatch", {"Entries": _entries(5, MessageBody="x" * 220_000)}, "BatchRequestTo"),
        ("ReceiveMessage", {"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        ("ReceiveMessage", {"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        ("ReceiveMessage", {"VisibilityTimeout": 43_201}, "InvalidParameterValue"),
        ("ReceiveMessage", {"ReceiveRequestAttemptId": "x" * 129}, "InvalidParameterValue"),
        ("StartMessageMoveTask", {"MaxNumberOfMessagesPerSecond": 0}, "InvalidParameterValue"),
        ("StartMessageMoveTask", {"MaxNumberOfMessagesPerSecond": 501}, "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_what_is_beyond_the_limits_is_refused_whole(
    operation: str, fields: dict[str, Any], code: str, sqs: SqsWeb
) -> None:
    with pytest.raises(SqsRefused, match=code) as refused:
        sqs.ask(operation, QueueUrl="q", SourceArn=f"{ARN}q", **fields)
    assert "Source queue" not in refused.value.message


def test_a_batch_has_no_more_messages_than_its_token_may_send_or_receive(sqs: SqsWeb) -> None:
    sqs.made("few")
    asked = {"QueueUrl": "few", "by": "other"}
    with pytest.raises(SqsRefused, match="TooManyEntriesInBatchRequest"):
        sqs.ask("SendMessageBatch", Entries=_entries(3), **asked)
    for _ in range(2):
        sqs.ask("SendMessageBatch", Entries=[{"Id": each, "MessageBody": "x"} for each in "ab"],
                **asked)  # fmt: skip
    assert len(sqs.received("few", by="other")) == 2


def test_numbers_of_a_sequence_grow_within_a_millisecond_too(sqs: SqsWeb) -> None:
    answer = sqs.ask("SendMessageBatch", QueueUrl="q.fifo", Entries=[
        {"Id": str(number), "MessageBody": f"sequence {number}", "MessageGroupId": "sequence"}
        for number in range(10)
    ])  # fmt: skip
    numbers = [one["SequenceNumber"] for one in answer["Successful"]]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 10


def test_a_client_that_has_all_it_may_is_answered_and_does_not_wait(sqs: SqsWeb) -> None:
    sqs.made("single")

    def take() -> list[dict[str, Any]]:
        with suppress(SqsRefused):  # one that comes so late that the other has the message
            return sqs.received("single", by="single", WaitTimeSeconds=20)
        return []

    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(take) for _ in range(2)]
        for _ in range(2):
            sqs.sent("single")
        assert sorted(len(each.result()) for each in waiting) == [0, 1]


def test_what_is_visible_again_at_once_is_not_in_flight(sqs: SqsWeb) -> None:
    sqs.made("again")
    sent = sqs.sent("again")
    counts = []
    for _ in range(2):
        [one] = sqs.received("again", VisibilityTimeout=0)
        assert (one["MessageId"], one["Attributes"]["SenderId"]) == (sent, "owner")
        counts.append(one["Attributes"]["ApproximateReceiveCount"])
        assert sqs.gateway.open_in("again", GROUP) == 0
    assert counts == ["1", "2"]


def test_each_answer_has_the_oldest_first(sqs: SqsWeb) -> None:
    sqs.made("oldest")
    sent = [sqs.sent("oldest") for _ in range(8)]
    while sent:  # an answer may have less than there is
        answer = [one["MessageId"] for one in sqs.received("oldest", WaitTimeSeconds=20)]
        assert answer
        assert answer == sent[: len(answer)]
        del sent[: len(answer)]


def test_what_is_older_than_its_queue_keeps_is_removed_and_not_received(sqs: SqsWeb) -> None:
    sqs.made("short", MessageRetentionPeriod="600")
    CLOCK.advance(max(0, SYSTEM_CLOCK.now_ms() - CLOCK.now_ms()))  # as the store's
    sqs.sent("short")
    CLOCK.advance(300_000)
    assert len(sqs.received("short", VisibilityTimeout=0)) == 1
    CLOCK.advance(600_000)
    assert sqs.received("short") == []
    counts = sqs.attributes("short")
    assert counts["ApproximateNumberOfMessages"] == "0"
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_what_is_too_old_is_not_all_that_a_client_gets(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqs.made("old")
    sent = [sqs.sent("old"), sqs.sent("old")]

    async def without_first(_queue: object, found: Sequence[Any]) -> list[Any]:
        return [one for one in found if one.message.delivery.id != sent[0]]

    verbs = sqs.front._operations["ReceiveMessage"][1].__self__  # type: ignore[attr-defined]
    monkeypatch.setattr(verbs, "_without_old", without_first)
    found = sqs.received("old", MaxNumberOfMessages=1)
    assert [one["MessageId"] for one in found] == sent[1:]


def test_an_attempt_is_repeated_for_its_queue_and_its_time_alone(sqs: SqsWeb) -> None:
    sqs.made("attempt.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    sqs.sent("attempt.fifo", "first", MessageGroupId="attempt")
    asked = {"ReceiveRequestAttemptId": "one", "MaxNumberOfMessages": 1}
    sqs.made("empty")
    first, again = sqs.received("attempt.fifo", **asked), sqs.received("attempt.fifo", **asked)
    assert first == again
    assert sqs.received("empty", **asked) == []
    CLOCK.advance(299_000)
    assert sqs.received("attempt.fifo", **asked) == first
    CLOCK.advance(2000)
    assert sqs.received("attempt.fifo", **asked) != first


def test_an_attempt_of_which_all_is_settled_gets_what_comes_next(sqs: SqsWeb) -> None:
    sqs.made("next.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    asked = {"ReceiveRequestAttemptId": "two", "MaxNumberOfMessages": 1}
    for body in ("one", "two"):
        sqs.sent("next.fifo", body, MessageGroupId="next")
    for body in ("one", "two"):
        [found] = sqs.received("next.fifo", **asked)
        assert found["Body"] == body
        sqs.ask("DeleteMessage", QueueUrl="next.fifo", ReceiptHandle=found["ReceiptHandle"])


def test_a_receipt_that_settles_nothing_is_told_by_what_it_is(sqs: SqsWeb) -> None:
    elsewhere = Receipts("http://10.0.0.7:8380", "another secret").new()
    late = {}
    for queue, fields in {"q": {}, "q.fifo": {"MessageGroupId": "late"}}.items():
        sqs.sent(queue, "late", **fields)
        [late[queue]] = [
            one["ReceiptHandle"] for one in sqs.received(queue) if one["Body"] == "late"
        ]
        sqs.ask("DeleteMessage", QueueUrl=queue, ReceiptHandle=late[queue])
    for queue, receipt, deleted, changed in [
        ("q", late["q"], None, "MessageNotInflight"),
        ("q.fifo", late["q.fifo"], "InvalidParameterValue", "MessageNotInflight"),
        ("q", elsewhere, "ServiceUnavailable", "ServiceUnavailable"),
        ("q", "none", "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
    ]:
        for operation, code in (("DeleteMessage", deleted), ("ChangeMessageVisibility", changed)):
            asked = {"QueueUrl": queue, "ReceiptHandle": receipt, "VisibilityTimeout": 5}
            if code is None:
                sqs.ask(operation, **asked)
                continue
            with pytest.raises(SqsRefused, match=code):
                sqs.ask(operation, **asked)


def test_a_wrong_visibility_in_a_batch_is_refused_for_its_entry_alone(sqs: SqsWeb) -> None:
    sqs.sent("q", "batch")
    [receipt] = [one["ReceiptHandle"] for one in sqs.received("q") if one["Body"] == "batch"]
    answer = sqs.ask("ChangeMessageVisibilityBatch", QueueUrl="q", Entries=[
        {"Id": name, "ReceiptHandle": receipt, "VisibilityTimeout": seconds}
        for name, seconds in (("late", 43_201), ("right", 60), ("early", -1))
    ])  # fmt: skip
    assert answer["Successful"] == [{"Id": "right"}]
    assert {(each["Id"], each["Code"], each["SenderFault"]) for each in answer["Failed"]} == {
        (name, "InvalidParameterValue", True) for name in ("late", "early")
    }
    sqs.ask("DeleteMessage", QueueUrl="q", ReceiptHandle=receipt)


def test_what_a_client_that_hangs_up_was_about_to_receive_is_put_back(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs up as soon as something is settled for it, which the store does not answer."""
    sqs.made("left")
    sqs.sent("left")
    is_asked = asyncio.Event()

    class Leaving:
        async def receive(self) -> dict[str, str]:
            await is_asked.wait()
            return {"type": "http.disconnect"}

    async def settle(*_: object) -> None:
        is_asked.set()
        await asyncio.Event().wait()

    caller, request = Caller("one", None, SYSTEM_CLOCK), Leaving()
    call = SqsCall("http://x", caller, "", request)  # type: ignore[arg-type]
    asked = ReceiveMessage(queue_url="left", visibility_timeout=0, wait_time_seconds=20)
    receive = sqs.front._operations["ReceiveMessage"][1]
    with monkeypatch.context() as silent:
        silent.setattr(sqs.gateway, "settle", settle)
        assert sqs.web.portal is not None
        assert sqs.web.portal.call(receive, asked, call) == {}
    assert (sqs.gateway.open_in("left", GROUP), caller.client.open) == (0, 0)
    [one] = sqs.received("left")
    assert one["Attributes"]["ApproximateReceiveCount"] == "1"


def test_what_the_store_has_not_answered_is_tried_again(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def settle(_topic: str, _group: str, wanted: Sequence[Settle]) -> list[SettleReply]:
        return [SettleReply(one.receipt, SettleOutcome.UNKNOWN) for one in wanted]

    monkeypatch.setattr(sqs.gateway, "settle", settle)
    for operation in ("DeleteMessage", "ChangeMessageVisibility"):
        with pytest.raises(SqsRefused, match="ServiceUnavailable"):
            sqs.ask(operation, QueueUrl="q", ReceiptHandle="x", VisibilityTimeout=5)
