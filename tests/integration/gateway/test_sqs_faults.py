"""Clients of SQS at their limits, and queues with messages that nobody should have sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from eventually import eventually
from gatewaying import GatewayProcess
from sqs_client import client_of, made, received, refusal_of

from qframe.web.gateway.callers import new_token


def test_a_client_that_has_all_it_may_is_answered_and_does_not_wait(tmp_path: Path) -> None:
    token, digest = new_token()
    (tmp_path / "tokens.toml").write_text(
        f'[tokens.one]\nhashes = ["{digest}"]\npublish = ["*"]\nconsume = ["*"]\nadmin = ["*"]\n'
        "in_flight = 1\n",
        encoding="utf-8",
    )
    flags = ("--sqs", "--tokens", "tokens.toml", "--grace", "0.2s")
    store = f"sqlite:///{tmp_path}/q.db"
    with GatewayProcess(tmp_path, store, *flags) as gateway, ThreadPoolExecutor(2) as threads:
        sqs = client_of(gateway, token)
        url = made(sqs, "limited")

        def take() -> list[Any]:
            with suppress(ClientError):  # one that comes so late that the other has the message
                return received(client_of(gateway, token), url, WaitTimeSeconds=20)
            return []

        waiting = [threads.submit(take) for _ in range(2)]
        for body in "ab":
            sqs.send_message(QueueUrl=url, MessageBody=body)
        eventually(lambda: all(each.done() for each in waiting), within=10)
        assert sorted(len(each.result()) for each in waiting) == [0, 1]


def test_receipts_of_a_gateway_that_was_started_again_are_late_and_not_another_gateways(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path}/q.db"
    flags = ("--sqs", "--grace", "0s", "--address", "http://queues.local:8380")
    receipts = {}
    with GatewayProcess(tmp_path, store, *flags) as before:
        sqs = client_of(before)
        for url in (made(sqs, "plain"), made(sqs, "in-order.fifo", FifoQueue="true")):
            group = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if "fifo" in url else {}
            sqs.send_message(QueueUrl=url, MessageBody="x", **group)
            [one] = received(sqs, url)
            receipts["fifo" if group else "plain"] = one["ReceiptHandle"]
        assert before.stop() == 0
    with GatewayProcess(tmp_path, store, *flags) as gateway:
        sqs = client_of(gateway)
        sqs.delete_message(QueueUrl="plain", ReceiptHandle=receipts["plain"])
        codes = []
        for late in (
            lambda: sqs.delete_message(QueueUrl="in-order.fifo", ReceiptHandle=receipts["fifo"]),
            lambda: sqs.change_message_visibility(
                QueueUrl="plain", ReceiptHandle=receipts["plain"], VisibilityTimeout=60
            ),
        ):
            with pytest.raises(ClientError) as refused:
                late()
            codes.append(refusal_of(refused))
        assert codes == ["InvalidParameterValue", "AWS.SimpleQueueService.MessageNotInflight"]


def test_a_batch_has_no_more_messages_than_its_token_may_send_or_receive(tmp_path: Path) -> None:
    token, digest = new_token()
    (tmp_path / "tokens.toml").write_text(
        f'[tokens.few]\nhashes = ["{digest}"]\npublish = ["*"]\nconsume = ["*"]\nadmin = ["*"]\n'
        "max_batch = 2\n",
        encoding="utf-8",
    )
    flags = ("--sqs", "--tokens", "tokens.toml", "--grace", "0.2s")
    with GatewayProcess(tmp_path, f"sqlite:///{tmp_path}/q.db", *flags) as gateway:
        sqs = client_of(gateway, token)
        url = made(sqs, "few")
        entries = [{"Id": str(number), "MessageBody": "x"} for number in range(3)]
        with pytest.raises(ClientError, match=r"per request are 2\. You have sent 3") as refused:
            sqs.send_message_batch(QueueUrl=url, Entries=entries)
        assert refusal_of(refused) == "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"
        for _ in range(2):
            sqs.send_message_batch(QueueUrl=url, Entries=entries[:2])
        assert 1 <= len(received(sqs, url)) <= 2


def test_a_wrong_visibility_in_a_batch_is_refused_for_its_entry_alone(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, f"sqlite:///{tmp_path}/q.db", "--sqs") as gateway:
        sqs = client_of(gateway)
        url = made(sqs, "times")
        sqs.send_message(QueueUrl=url, MessageBody="x")
        [one] = received(sqs, url)
        answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[
            {"Id": name, "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": seconds}
            for name, seconds in (("late", 43_201), ("right", 60), ("early", -1))
        ])  # fmt: skip
        assert answer["Successful"] == [{"Id": "right"}]
        assert {(each["Id"], each["Code"], each["SenderFault"]) for each in answer["Failed"]} == {
            (name, "InvalidParameterValue", True) for name in ("late", "early")
        }
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
