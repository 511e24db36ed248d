"""Clients of SQS, as they are, against the real process: boto3 over SQLite and Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from gatewaying import GatewayProcess
from sqs_client import client_of, made, received

from qframe import QFrame


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('sqs')}/q.db"
    return str(request.getfixturevalue("redis_server").url)


@pytest.fixture(scope="module")
def gateway(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    with GatewayProcess(folder, store, "--sqs", "--grace", "0.2s") as gateway:
        yield gateway
        assert gateway.stop() == 0
        assert "secret body" not in gateway.log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sqs(gateway: GatewayProcess) -> Any:
    return client_of(gateway)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.originalname[5:60])


def _counts(sqs: Any, url: str) -> tuple[str, ...]:
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return tuple(
        found[f"ApproximateNumberOfMessages{state}"] for state in ("", "Delayed", "NotVisible")
    )


@pytest.mark.gate
def test_a_message_is_sent_received_and_deleted(sqs: Any, name: str) -> None:
    url = made(sqs, name)
    attributes = {
        "author": {"DataType": "String", "StringValue": "ann"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\0\1"},
    }
    body = '{"text": "secret body"}'
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)
    assert _counts(sqs, url) == ("1", "0", "0")
    [one] = received(sqs, url)  # boto3 itself compares the sums of body and attributes
    assert (one["Body"], one["MessageAttributes"]) == (body, attributes)
    assert (one["MessageId"], one["MD5OfMessageAttributes"]) == (
        sent["MessageId"], sent["MD5OfMessageAttributes"]
    )  # fmt: skip
    assert one["Attributes"]["ApproximateReceiveCount"] == "1"
    assert _counts(sqs, url) == ("0", "0", "1")
    sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    assert _counts(sqs, url) == ("0", "0", "0")


@pytest.mark.gate
def test_a_fifo_queue_keeps_the_order_of_its_groups_and_drops_duplicates(
    sqs: Any, name: str
) -> None:
    url = made(sqs, f"{name[:50]}.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    for number in range(3):
        entries = [
            {"Id": group, "MessageBody": f"{group}{number}", "MessageGroupId": group}
            for group in "ab"
        ]
        for _ in range(2):
            assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 2
    seen: list[str] = []
    while len(seen) < 6:
        found = received(sqs, url)
        bodies = [one["Body"] for one in found]
        assert len({body[0] for body in bodies}) == len(bodies)
        seen += bodies
        entries = [{"Id": one["MessageId"], "ReceiptHandle": one["ReceiptHandle"]} for one in found]
        assert "Failed" not in sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [body for body in seen if body[0] == "a"] == ["a0", "a1", "a2"]
    assert [body for body in seen if body[0] == "b"] == ["b0", "b1", "b2"]
    assert _counts(sqs, url) == ("0", "0", "0")


def test_a_producer_in_python_and_a_client_of_sqs_meet_in_one_queue(
    sqs: Any, name: str, store: str
) -> None:
    url = made(sqs, f"{name[:50]}.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    with QFrame(store) as app:
        topic = f"{name[:50]}.fifo"
        found = app.store.topic(topic)
        assert found is not None
        app.store.subscribe(found, "python")  # a group collects from when it subscribes
        app.publish(topic, {"from": "python"}, key="g", headers={"color": "red"})
        [one] = received(sqs, url)
        assert json.loads(one["Body"]) == {"from": "python"}
        assert one["MessageAttributes"]["color"]["StringValue"] == "red"
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
        sqs.send_message(QueueUrl=url, MessageBody='{"from": "sqs"}', MessageGroupId="g")
        with app.pull(topic, "python") as messages:
            bodies = []
            while len(bodies) < 2:
                message = messages.take("20s")
                assert message is not None
                bodies.append(message.body)
                message.ack()
        assert bodies == [{"from": "python"}, {"from": "sqs"}]


@pytest.mark.gate
def test_a_message_is_deleted_by_way_of_another_gateway(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/q.db"
    secret = {"QFRAME_GATEWAY_SECRET": "s" * 20}
    with (
        GatewayProcess(tmp_path, store, "--sqs", "--grace", "0.2s", **secret) as first,
        GatewayProcess(tmp_path, store, "--sqs", "--grace", "0.2s", **secret) as second,
    ):
        sqs, other = client_of(first), client_of(second)
        url = made(sqs, "shared")
        sqs.send_message(QueueUrl=url, MessageBody="x")
        [one] = received(sqs, url)
        receipt = {"QueueUrl": url, "ReceiptHandle": one["ReceiptHandle"]}
        other.change_message_visibility(**receipt, VisibilityTimeout=60)
        late = one["ReceiptHandle"][:-22] + "A" * 22  # of the same gateway
        changed = other.change_message_visibility_batch(QueueUrl=url, Entries=[
            {"Id": name, "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for name, handle, seconds in (
                ("right", one["ReceiptHandle"], 60), ("late", late, 0), ("later", late, 60)
            )
        ])  # fmt: skip
        assert [each["Id"] for each in changed["Successful"]] == ["right"]
        assert [each["Id"] for each in changed["Failed"]] == ["late", "later"]
        other.delete_message(**receipt)
        assert eventually(lambda: _counts(sqs, url) == ("0", "0", "0"), within=10)
