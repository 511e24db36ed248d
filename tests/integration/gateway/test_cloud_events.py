"""CloudEvents by the specification's HTTP binding, in all three modes, and back as messages."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from eventing import pulled
from starlette.testclient import TestClient

pytestmark = pytest.mark.gate

EVENT = {
    "specversion": "1.0", "type": "com.example.someevent", "id": "4321-4321-4321-a",
    "source": "/mycontext/subcontext", "time": "2018-04-05T03:56:24Z",
}  # fmt: skip


TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=a",
}  # fmt: skip
JSON = "application/cloudevents+json; charset=utf-8"
BYTES = b64encode(b"<x/>").decode()


def publish(
    web: TestClient, kind: str, body: Any, topic: str = "stream", **headers: str
) -> Any:  # fmt: skip
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"content-type": kind, **{f"ce-{name}": value for name, value in headers.items()}}
    return web.post(f"/v1/topics/{topic}/messages", content=content, headers=named)


def test_binary_mode_has_attributes_in_headers_and_data_in_the_body(web: TestClient) -> None:
    """The context of its trace is the message's."""
    coded = {"subject": "Euro%20%E2%82%AC%20%F0%9F%98%80", "comexampleextension": "a b"}
    kind = "text/xml; charset=utf-8"
    assert publish(web, kind, b"<x/>", **EVENT, **coded, **TRACE).is_success
    one = pulled(web)
    assert one["body_base64"] == BYTES
    assert one["headers"] == {
        **{f"ce-{name}": value for name, value in EVENT.items()}, **TRACE,
        "ce-comexampleextension": "a b", "ce-subject": "Euro € 😀", "content-type": kind,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("event", "field", "value"),
    [
        ({"data": {"a": 1}}, "body", {"a": 1}),
        ({"data": {"a": 1}, "datacontenttype": "application/vnd.x+json"}, "body", {"a": 1}),
        ({"data": "text"}, "body", "text"),
        ({"data": 1.5}, "body", 1.5),
        ({}, "body", None),
        ({"data": None, "subject": None}, "body", None),
        ({"data_base64": "WzFd", "datacontenttype": "application/json"}, "body", [1]),
        ({"data": "<x/>", "datacontenttype": "text/xml"}, "body_base64", BYTES),
        ({"data_base64": BYTES, "datacontenttype": "text/xml"}, "body_base64", BYTES),
        ({"data_base64": BYTES}, "body_base64", BYTES),
    ],
)
def test_structured_mode_has_the_event_in_json_and_bytes_where_its_data_is_none(
    web: TestClient, event: dict[str, Any], field: str, value: object
) -> None:
    assert publish(web, JSON, {**EVENT, **event, "flag": True, "n": 7}).is_success
    one = pulled(web)
    assert one[field] == value
    assert (one["headers"]["ce-flag"], one["headers"]["ce-n"]) == ("true", "7")
    assert "ce-subject" not in one["headers"]


def test_batched_mode_has_an_outcome_for_each_event(web: TestClient) -> None:
    kind = "application/cloudevents-batch+json"
    other = {**EVENT, "source": "/another"}
    results = publish(web, kind, [EVENT, other, EVENT]).json()["results"]
    assert [one["outcome"] for one in results] == ["stored", "stored", "duplicate"]
    assert results[0]["id"] != results[1]["id"]
    assert publish(web, kind, []).json() == {"results": []}


def test_partition_key_and_sequence_are_the_messages_own(web: TestClient) -> None:
    for number in ("2", "1"):
        event = {
            **EVENT, "id": number, "partitionkey": "ann", "data": number,
            "sequence": number, "sequencetype": "Integer",
        }  # fmt: skip
        reply = publish(web, JSON, event, "events")
        assert reply.is_success, reply.text
    one = pulled(web, "events")
    assert (one["key"], one["body"]) == ("ann", "1")


def test_a_sequence_is_a_mere_attribute_where_the_topic_has_no_use_for_it(web: TestClient) -> None:
    event = {**EVENT, "sequence": "5", "sequencetype": "Integer"}
    for kind, body in (
        ("application/cloudevents+json", event),
        ("application/cloudevents-batch+json", [{**event, "id": "other"}]),
    ):
        assert publish(web, kind, body).is_success
        headers = pulled(web)["headers"]
        assert (headers["ce-sequence"], headers["ce-sequencetype"]) == ("5", "Integer")


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({**EVENT, "id": ""}, "'id': it is missing"),
        ({name: each for name, each in EVENT.items() if name != "type"}, "'type': it is missing"),
        ({**EVENT, "specversion": "0.3"}, "only 1.0"),
        ({**EVENT, "Upper": "x"}, "other characters"),
        ({**EVENT, "nested": {}}, "no string, number"),
        ({**EVENT, "big": 2**40}, "no string, number"),
        ({**EVENT, "time": "yesterday"}, "RFC 3339"),
        ({**EVENT, "data": 1, "data_base64": "eA=="}, "data is given too"),
        ({**EVENT, "data_base64": "*"}, "not base64"),
        ({**EVENT, "sequence": "x", "sequencetype": "Integer"}, "no number"),
        ([], "no object"),
    ],
)
def test_what_is_no_event_is_refused(web: TestClient, event: Any, why: str) -> None:
    reply = publish(web, JSON, event)
    assert (reply.status_code, why in reply.json()["detail"]) == (400, True), reply.text
