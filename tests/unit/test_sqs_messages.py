"""Messages of SQS: what may be sent, how it is stored, how it is shown again."""

from __future__ import annotations

from hashlib import md5
from typing import Any

import msgspec
import pytest

from qframe.codec import encode_body, encode_headers
from qframe.web.gateway.sqs.digests import md5_of_attributes
from qframe.web.gateway.sqs.messages import PreparedMessage, prepared, resent
from qframe.web.gateway.sqs.queues import Queue
from qframe.web.gateway.sqs.received import Received, Taken, shown
from qframe.web.gateway.sqs.refusals import SqsRefusal
from qframe.web.gateway.sqs.requests import AttributeValue, SentMessage

STANDARD = Queue(name="q")
FIFO = Queue(name="q.fifo")
BY_CONTENT = Queue(name="q.fifo", attributes={"ContentBasedDeduplication": "true"})
BY_GROUP = Queue(
    name="q.fifo",
    attributes={"ContentBasedDeduplication": "true", "DeduplicationScope": "messageGroup"},
)
ALL = Received(frozenset(["All"]), ["All"])


def _text(value: str, kind: str = "String") -> AttributeValue:
    return AttributeValue(data_type=kind, string_value=value)


def _prepared(queue: Queue = STANDARD, **fields: object) -> PreparedMessage:
    sent = SentMessage(**{"message_body": "body", **fields})  # type: ignore[arg-type]
    return prepared(sent, queue, sender="me", sequence="0" * 19 + "7", most=1000)


def _shown(taken: Taken, asked: Received = ALL, *, is_fifo: bool = False) -> dict[str, Any]:
    return shown(taken, asked, is_fifo=is_fifo, source_arn=None)


def _taken(one: PreparedMessage) -> Taken:
    """The message as the store would hand it out."""
    outgoing = one.outgoing
    body, is_raw = encode_body(outgoing.body, 10_000)
    headers = encode_headers(outgoing.headers, None, is_raw, max_body=1000) or {}
    return Taken("r", outgoing.id or "id", outgoing.key, headers, body, 5, 2, 9)


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        ({"SOME_Valid.attribute-Name": ("1493147359900", "Number")},
         "36655e7e9d7c0e8479fa3f3f42247ae7"),
        ({"id": ("2018fc74-4f77-1a5a-1be0-c2d037d5052b", "String"),
          "contentType": ("application/json", "String"),
          "timestamp": ("1602845432024", "Number.java.lang.Long")},
         "b12289320bb6e494b18b645ef562b4a9"),
        ({"somevalue": ("somevalue", "String.custom")}, "9e05cca738e70ff6c6041e82d5e77ef1"),
    ],
)  # fmt: skip
def test_the_sum_of_attributes_is_that_of_sqs(
    attributes: dict[str, tuple[str, str]], digest: str
) -> None:
    """Sums that AWS itself has returned for these attributes."""
    assert md5_of_attributes({name: _text(*each) for name, each in attributes.items()}) == digest


@pytest.mark.parametrize(
    "body", ['{"a": 1}', '{"a":\n null}', "plain", "7", "content:\rline", '"x" ', "[1,", "ä😀"]
)
def test_a_body_comes_back_letter_by_letter(body: str) -> None:
    message = _shown(_taken(_prepared(message_body=body)))
    assert message["Body"] == body


def test_a_body_that_is_json_is_stored_as_json_for_other_consumers() -> None:
    stored, is_raw = encode_body(_prepared(message_body='{"a": 1}').outgoing.body, 1000)
    assert (stored, is_raw) == (b'{"a": 1}', False)
    stored, is_raw = encode_body(_prepared(message_body="plain").outgoing.body, 1000)
    assert (stored, is_raw) == (b"plain", True)


def test_attributes_are_headers_of_their_names_and_come_back_with_their_types() -> None:
    attributes = {
        "author": _text("me"), "n": _text("7", "Number.int"),
        "raw": AttributeValue(data_type="Binary", binary_value=b"\0\1"),
    }  # fmt: skip
    one = _prepared(message_attributes=attributes)
    headers = one.outgoing.headers
    assert headers is not None
    assert (headers["author"], headers["n"], headers["raw"]) == ("me", "7", "AAE=")
    message = _shown(_taken(one))
    assert message["MessageAttributes"] == {
        "author": {"DataType": "String", "StringValue": "me"},
        "n": {"DataType": "Number.int", "StringValue": "7"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\0\1"},
    }
    assert message["MD5OfMessageAttributes"] == one.answer["MD5OfMessageAttributes"]


def test_attributes_are_shown_as_far_as_they_were_asked_for() -> None:
    taken = _taken(_prepared(message_attributes={"a.x": _text("1"), "a.y": _text("2"),
                                                 "b": _text("3")}))  # fmt: skip
    asked = Received(frozenset(["SenderId"]), ["a.*"])
    message = _shown(taken, asked)
    assert set(message["MessageAttributes"]) == {"a.x", "a.y"}
    assert message["Attributes"] == {"SenderId": "me"}
    bare = _shown(taken, Received(frozenset(), []))
    assert set(bare) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


def test_the_sum_is_that_of_the_attributes_that_are_shown() -> None:
    attributes = {
        "author": _text("ann"), "raw": AttributeValue(data_type="Binary", binary_value=b"\0\1"),
    }  # fmt: skip
    taken = _taken(_prepared(message_attributes=attributes))
    message = _shown(taken, Received(frozenset(), ["raw"]))
    counted = b"\0\0\0\3raw\0\0\0\6Binary\2\0\0\0\2\0\1"
    assert message["MD5OfMessageAttributes"] == md5(counted).hexdigest()


def test_times_are_in_milliseconds_and_receives_are_counted_from_one() -> None:
    taken = _taken(_prepared())._replace(attempt=1)
    found = _shown(taken)["Attributes"]
    assert (found["SentTimestamp"], found["ApproximateReceiveCount"]) == ("5", "1")


def test_a_message_is_late_by_seconds_its_own_or_its_queues() -> None:
    slow = Queue(name="q", attributes={"DelaySeconds": "7"})
    delays = [
        _prepared(queue, delay_seconds=delay).outgoing.delay
        for queue, delay in ((STANDARD, 5), (STANDARD, None), (slow, None), (slow, 0))
    ]
    assert delays == [5, None, 7, None]


def test_ten_attributes_and_a_trace_are_sent_with_their_sums() -> None:
    trace = {"AWSTraceHeader": _text("Root=1")}
    one = _prepared(
        message_attributes={f"x{n}": _text("y") for n in range(10)},
        message_system_attributes=trace,
    )
    assert one.answer["MD5OfMessageSystemAttributes"] == md5_of_attributes(trace)


def test_a_header_of_another_producer_is_an_attribute() -> None:
    taken = Taken("r", "id", None, {"color": "red", "no name of sqs": "x"}, b"1", 5, 1, 9)
    message = _shown(taken)
    assert message["MessageAttributes"] == {"color": {"DataType": "String", "StringValue": "red"}}
    assert message["Attributes"]["SenderId"] == "qframe"


@pytest.mark.parametrize(
    ("types", "value"),
    [
        ("{not json", "red"),
        ('["color"]', "red"),
        ('{"color": 7}', "red"),
        ('{"color": "Binary"}', "no base64"),
        ('{"color": "Binary.png"}', "abc"),
        ('{"color": "Binary"}', "rückwärts"),
    ],
)
def test_what_cannot_be_read_as_an_attribute_of_its_type_is_shown_as_text(
    types: str, value: str
) -> None:
    headers = {"color": value, "size": "7", "sqs-types": types}
    message = _shown(Taken("r", "id", None, headers, b"1", 5, 1, 9))
    assert message["MessageAttributes"] == {
        "color": {"DataType": "String", "StringValue": value},
        "size": {"DataType": "String", "StringValue": "7"},
    }
    assert message["MD5OfMessageAttributes"] == md5_of_attributes(
        {"color": _text(value), "size": _text("7")}
    )


def test_a_message_of_a_fifo_queue_has_its_group_as_key_and_one_id_for_its_duplicates() -> None:
    first = _prepared(BY_CONTENT, message_group_id="g")
    again = _prepared(BY_CONTENT, message_group_id="other")
    assert first.outgoing.key == "g"
    assert first.outgoing.id == again.outgoing.id
    assert first.answer["SequenceNumber"] == "0" * 19 + "7"
    named = _prepared(FIFO, message_group_id="g", message_deduplication_id="!{any}")
    assert named.outgoing.id != first.outgoing.id
    message = _shown(_taken(named), is_fifo=True)
    assert message["Attributes"]["MessageDeduplicationId"] == "!{any}"
    assert message["Attributes"]["MessageGroupId"] == "g"


def test_where_the_scope_is_the_group_the_same_message_in_two_groups_is_two() -> None:
    one, other = (_prepared(BY_GROUP, message_group_id=group) for group in "ab")
    assert one.outgoing.id != other.outgoing.id
    assert (BY_GROUP.topic.slots, BY_CONTENT.topic.slots) == (16, 1)


@pytest.mark.parametrize(
    ("queue", "fields", "code"),
    [
        (STANDARD, {"message_body": ""}, "MissingParameter"),
        (STANDARD, {"message_body": "x" * 1001}, "InvalidParameterValue"),
        (STANDARD, {"message_body": "\0"}, "InvalidMessageContents"),
        (STANDARD, {"message_attributes": {
            "x": AttributeValue(data_type="Binary", binary_value=b"x" * 1000)
        }}, "InvalidParameterValue"),
        (STANDARD, {"delay_seconds": 901}, "InvalidParameterValue"),
        (STANDARD, {"delay_seconds": -1}, "InvalidParameterValue"),
        (STANDARD, {"message_attributes": {"ö": _text("x")}}, "InvalidParameterValue"),
        (STANDARD, {"message_attributes": {"AWS.x": _text("x")}}, "InvalidParameterValue"),
        (STANDARD, {"message_attributes": {"sqs-x": _text("x")}}, "InvalidParameterValue"),
        (STANDARD, {"message_attributes": {"aws.x": _text("x")}}, "InvalidParameterValue"),
        (STANDARD, {"message_attributes": {"x": _text("")}}, "InvalidParameterValue"),
        (STANDARD, {"message_attributes": {"x": _text("\0")}}, "InvalidMessageContents"),
        (STANDARD, {"message_system_attributes": {"AWSTraceHeader": _text("\0")}},
         "InvalidMessageContents"),
        (STANDARD, {"message_attributes": {"x": _text("y", "Number")}}, "InvalidParameterValue"),
        (STANDARD, {"message_attributes": {"x": _text("y", "Text")}}, "InvalidParameterValue"),
        (STANDARD, {"message_attributes": {f"x{n}": _text("y") for n in range(11)}},
         "InvalidParameterValue"),
        (STANDARD, {"message_system_attributes": {"Other": _text("y")}}, "InvalidParameterValue"),
        (FIFO, {"message_deduplication_id": "d"}, "MissingParameter"),
        (FIFO, {"message_group_id": "g"}, "InvalidParameterValue"),
        (FIFO, {"message_group_id": "g h", "message_deduplication_id": "d"},
         "InvalidParameterValue"),
        (BY_CONTENT, {"message_group_id": "g", "delay_seconds": 5}, "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_a_message_that_sqs_would_refuse_is_refused(
    queue: Queue, fields: dict[str, object], code: str
) -> None:
    with pytest.raises(SqsRefusal) as refused:
        _prepared(queue, **fields)
    assert refused.value.code == code


def test_a_message_that_moves_to_another_queue_keeps_all_but_its_id() -> None:
    taken = _taken(_prepared(message_body="plain", message_attributes={"a": _text("1")}))
    moved = resent(taken.body, taken.headers, key=None, message_id="new", more={"sqs-id": "id"})
    body, is_raw = encode_body(moved.body, 1000)
    headers = encode_headers(moved.headers, None, is_raw, max_body=1000) or {}
    again = taken._replace(id="new", headers=headers, body=body)
    before = _shown(taken)
    assert _shown(again) == {**before, "MessageId": "id"}
    as_json = resent(b"[1]", None, key="k", message_id="new", more={})
    assert as_json.body == msgspec.Raw(b"[1]")
