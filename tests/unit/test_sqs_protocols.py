"""The two protocols of the SQS front: what is read from a request, and what is written."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import msgspec
import pytest

from qframe.web.gateway.sqs import json_protocol, query_protocol, requests
from qframe.web.gateway.sqs.refusals import SqsRefusal, invalid_value, no_queue

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def _by_query(text: str, operation: str, kind: type[requests.Request]) -> requests.Request:
    fields = query_protocol.fields_of("", text.encode())
    assert fields.pop("Action") == operation
    structure = query_protocol.structured(fields, operation)
    return json_protocol.converted(structure, kind, strict=False)


def test_a_message_is_the_same_in_both_protocols() -> None:
    by_json = json_protocol.request_of(
        b'{"QueueUrl": "q", "MessageBody": "a b", "DelaySeconds": 5, "MessageAttributes": '
        b'{"n": {"DataType": "Number", "StringValue": "7"}, '
        b'"raw": {"DataType": "Binary", "BinaryValue": "AAE="}}}',
        requests.SendMessage,
    )
    by_query = _by_query(
        "Action=SendMessage&QueueUrl=q&MessageBody=a+b&DelaySeconds=5"
        "&MessageAttribute.1.Name=n&MessageAttribute.1.Value.DataType=Number"
        "&MessageAttribute.1.Value.StringValue=7"
        "&MessageAttribute.2.Name=raw&MessageAttribute.2.Value.DataType=Binary"
        "&MessageAttribute.2.Value.BinaryValue=AAE%3D",
        "SendMessage", requests.SendMessage,
    )  # fmt: skip
    assert by_json == by_query
    assert isinstance(by_json, requests.SendMessage)
    assert by_json.message_attributes is not None
    assert by_json.message_attributes["raw"].binary_value == b"\0\1"


def test_entries_of_a_batch_keep_the_order_of_their_numbers() -> None:
    read = _by_query(
        "Action=DeleteMessageBatch&QueueUrl=q"
        "&DeleteMessageBatchRequestEntry.10.Id=j&DeleteMessageBatchRequestEntry.10.ReceiptHandle=r"
        "&DeleteMessageBatchRequestEntry.2.Id=b&DeleteMessageBatchRequestEntry.2.ReceiptHandle=s",
        "DeleteMessageBatch", requests.DeleteMessageBatch,
    )  # fmt: skip
    assert isinstance(read, requests.DeleteMessageBatch)
    assert [entry.id for entry in read.entries] == ["b", "j"]


def test_maps_and_lists_of_the_query_protocol() -> None:
    made = _by_query(
        "Action=CreateQueue&QueueName=q&Attribute.1.Name=DelaySeconds&Attribute.1.Value=3"
        "&Tag.1.Key=team&Tag.1.Value=a&Tag.2.Key=empty&Tag.2.Value=",
        "CreateQueue", requests.CreateQueue,
    )  # fmt: skip
    assert isinstance(made, requests.CreateQueue)
    assert (made.attributes, made.tags) == ({"DelaySeconds": "3"}, {"team": "a", "empty": ""})
    asked = _by_query(
        "Action=GetQueueAttributes&QueueUrl=q&AttributeName.2=b&AttributeName.1=a",
        "GetQueueAttributes", requests.GetQueueAttributes,
    )  # fmt: skip
    assert isinstance(asked, requests.GetQueueAttributes)
    assert asked.attribute_names == ["a", "b"]
    alone = _by_query(
        "Action=SetQueueAttributes&QueueUrl=q&Attribute.Name=DelaySeconds&Attribute.Value=4",
        "SetQueueAttributes", requests.SetQueueAttributes,
    )  # fmt: skip
    assert isinstance(alone, requests.SetQueueAttributes)
    assert alone.attributes == {"DelaySeconds": "4"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"MessageBody": "x"}', "MissingParameter"),
        (b'{"QueueUrl": "q", "MessageBody": 5}', "SerializationException"),
        (b'{"QueueUrl": "q", "MessageBody": "x", "DelaySeconds": "5"}', "SerializationException"),
        (b"[]", "SerializationException"),
        (b'{"QueueUrl": ', "SerializationException"),
        (b"\xff\xfe", "SerializationException"),
        (b"[" * 100_000, "SerializationException"),
    ],
)
def test_what_cannot_be_read_is_refused_and_not_a_failure(body: bytes, code: str) -> None:
    with pytest.raises(SqsRefusal) as refused:
        json_protocol.request_of(body, requests.SendMessage)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * 20) + "=1",
        "a=1&a.b=2",
        "MessageBody=%ff",
        "&".join(f"f{number}=1" for number in range(6000)),
    ],
)
def test_a_form_without_measure_is_refused(text: str) -> None:
    with pytest.raises(SqsRefusal) as refused:
        query_protocol.structured(query_protocol.fields_of("", text.encode()), "SendMessage")
    assert refused.value.code == "MalformedInput"


def test_a_field_of_the_body_counts_before_that_of_the_address() -> None:
    assert query_protocol.fields_of("Action=a&b=1", b"Action=b&c=") == {
        "Action": "b", "b": "1", "c": "",
    }  # fmt: skip


def test_an_answer_in_xml_has_the_elements_that_old_clients_know() -> None:
    message = {
        "MessageId": "1", "Body": "<&>\r\x01", "Attributes": {"SenderId": "s"},
        "MessageAttributes": {"raw": {"DataType": "Binary", "BinaryValue": b"\0\1"}},
    }  # fmt: skip
    written = query_protocol.answer_of("ReceiveMessage", {"Messages": [message]}, "id")
    found = ET.fromstring(written).find(f"{NAMESPACE}ReceiveMessageResult/{NAMESPACE}Message")
    assert found is not None
    assert found.findtext(f"{NAMESPACE}Body") == "<&>\r\ufffd"
    assert found.findtext(f"{NAMESPACE}Attribute/{NAMESPACE}Value") == "s"
    value = found.find(f"{NAMESPACE}MessageAttribute/{NAMESPACE}Value")
    assert value is not None
    assert value.findtext(f"{NAMESPACE}BinaryValue") == "AAE="
    batch = query_protocol.answer_of(
        "SendMessageBatch",
        {"Successful": [{"Id": "a"}], "Failed": [{"Id": "b", "SenderFault": True}]}, "id",
    ).decode()  # fmt: skip
    assert "<SendMessageBatchResultEntry><Id>a</Id></SendMessageBatchResultEntry>" in batch
    assert "<BatchResultErrorEntry><Id>b</Id><SenderFault>true</SenderFault>" in batch
    tags = query_protocol.answer_of("ListQueueTags", {"Tags": {"<": "&"}}, "id").decode()
    assert "<Tag><Key>&lt;</Key><Value>&amp;</Value></Tag>" in tags


def test_a_refusal_has_the_code_of_the_protocol_that_was_asked() -> None:
    body, headers = json_protocol.refusal_of(no_queue())
    assert msgspec.json.decode(body)["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"
    assert headers == {"x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender"}
    xml = ET.fromstring(query_protocol.refusal_of(invalid_value("a < b"), "id"))
    error = xml.find(f"{NAMESPACE}Error")
    assert error is not None
    assert error.findtext(f"{NAMESPACE}Code") == "InvalidParameterValue"
    assert error.findtext(f"{NAMESPACE}Message") == "a < b"
