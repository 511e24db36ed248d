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


def publish(web: TestClient, kind: str | None, body: Any, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {f"ce-{name}": value for name, value in headers.items()}
    if kind is not None:
        named["content-type"] = kind
    return web.post("/v1/topics/stream/messages", content=content, headers=named)


def test_binary_mode_has_attributes_in_headers_and_data_in_the_body(web: TestClient) -> None:
    data = {"message": "Hello World!"}
    assert publish(web, "application/json", data, **EVENT, comexampleextension="a b").is_success
    one = pulled(web)
    assert one["body"] == data
    assert one["headers"] == {
        **{f"ce-{name}": value for name, value in EVENT.items()},
        "ce-comexampleextension": "a b", "content-type": "application/json",
    }  # fmt: skip


def test_the_context_of_an_events_trace_is_the_messages(web: TestClient) -> None:
    trace = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=a",
    }  # fmt: skip
    assert publish(web, "application/json", 1, **EVENT, **trace).is_success
    found = pulled(web)["headers"]
    assert {name: found.get(name) for name in trace} == trace
    assert "ce-traceparent" not in found


def test_binary_mode_keeps_data_that_is_no_json_as_bytes(web: TestClient) -> None:
    assert publish(web, "text/xml; charset=utf-8", b'<much wow="xml"/>', **EVENT).is_success
    assert pulled(web)["body_base64"] == b64encode(b'<much wow="xml"/>').decode()


def test_binary_mode_decodes_percent_signs(web: TestClient) -> None:
    coded = {**EVENT, "subject": "Euro%20%E2%82%AC%20%F0%9F%98%80"}
    assert publish(web, None, b"", **coded).is_success
    assert pulled(web)["headers"]["ce-subject"] == "Euro € 😀"


@pytest.mark.parametrize(
    ("event", "body"),
    [
        ({"data": {"a": 1}}, {"a": 1}),
        ({"data": {"a": 1}, "datacontenttype": "application/vnd.x+json"}, {"a": 1}),
        ({"data": "text"}, "text"),
        ({"data": 1.5}, 1.5),
        ({}, None),
        ({"data": None, "subject": None}, None),
    ],
)
def test_structured_mode_has_the_event_in_json(
    web: TestClient, event: dict[str, Any], body: object
) -> None:
    kind = "application/cloudevents+json; charset=utf-8"
    assert publish(web, kind, {**EVENT, **event, "flag": True, "n": 7}).is_success
    one = pulled(web)
    assert one["body"] == body
    assert (one["headers"]["ce-flag"], one["headers"]["ce-n"]) == ("true", "7")
    assert "ce-subject" not in one["headers"]


@pytest.mark.parametrize(
    "event",
    [
        {"data": "<x/>", "datacontenttype": "text/xml"},
        {"data_base64": b64encode(b"<x/>").decode(), "datacontenttype": "text/xml"},
        {"data_base64": b64encode(b"<x/>").decode()},
    ],
)
def test_structured_mode_has_bytes_where_the_data_is_no_json(
    web: TestClient, event: dict[str, Any]
) -> None:
    assert publish(web, "application/cloudevents+json", {**EVENT, **event}).is_success
    assert pulled(web)["body_base64"] == b64encode(b"<x/>").decode()


def test_structured_mode_has_json_where_base64_is_said_to_be_some(web: TestClient) -> None:
    event = {"data_base64": b64encode(b"[1]").decode(), "datacontenttype": "application/json"}
    assert publish(web, "application/cloudevents+json", {**EVENT, **event}).is_success
    assert pulled(web)["body"] == [1]


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
        reply = web.post(
            "/v1/topics/events/messages", content=json.dumps(event),
            headers={"content-type": "application/cloudevents+json"},
        )  # fmt: skip
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
    reply = publish(web, "application/cloudevents+json", event)
    assert (reply.status_code, why in reply.json()["detail"]) == (400, True), reply.text
