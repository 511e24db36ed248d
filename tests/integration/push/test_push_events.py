"""Messages that are sent as CloudEvents, and receivers that take their time."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from receiving import NEW, OLD, QUICK, Receiver
from standardwebhooks import Webhook

from qframe import Batch, Outgoing, QFrame, Topic
from qframe.push import push

pytestmark = pytest.mark.gate

FEED = Topic("feed", slots=2)
PARTS = ("specversion", "id", "source", "type", "partitionkey")
CAME = {
    "ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.paid",
    "ce-subject": "Euro \u20ac", "content-type": "application/vnd.x+json",
}  # fmt: skip


def events(app: QFrame, receiver: Receiver, mode: Any, **options: Any) -> None:
    if options.get("max_attempts") != 1:
        options["backoff"] = QUICK
    push(
        app, FEED, "p", receiver.url, secrets=[OLD, NEW], private=True, events=mode, **options
    )  # fmt: skip


def verified(receiver: Receiver) -> list[tuple[dict[str, str], Any]]:
    """The requests that came, each signed by both secrets."""
    for headers, body in receiver.got:
        for secret in (OLD, NEW):
            Webhook(secret).verify(body, headers)
    return [(headers, json.loads(body)) for headers, body in receiver.got]


def test_binary_mode_has_attributes_in_headers(app: QFrame, receiver: Receiver) -> None:
    events(app, receiver, "binary")
    app.publish(FEED, {"n": 1}, key="k\u00e4", id="mine")
    app.publish(FEED, {"n": 2}, id="other", headers=CAME)
    app.run(burst=True)
    found = {headers["webhook-id"]: (headers, body) for headers, body in verified(receiver)}
    headers, body = found["mine"]
    assert [headers[f"ce-{name}"] for name in PARTS] == [
        "1.0", "mine", "/topics/feed", "qframe.message", "k%C3%A4",
    ]  # fmt: skip
    assert (headers["content-type"], body) == ("application/json", {"n": 1})
    assert headers["ce-time"].endswith("+00:00")
    headers, body = found["other"]
    assert headers["ce-subject"] == "Euro%20%E2%82%AC"
    assert {name: headers[name] for name in CAME if name != "ce-subject"} == {
        name: each for name, each in CAME.items() if name != "ce-subject"
    }


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("mode", [None, "binary", "structured", "batched"])
def test_a_request_has_the_context_of_the_trace_of_its_message(
    app: QFrame, receiver: Receiver, mode: Any
) -> None:
    events(app, receiver, mode)
    trace = {"traceparent": PARENT, "tracestate": "vendor=a,other=b"}
    app.publish_many(FEED, [
        Outgoing({}, id="plain", headers=trace | {"baggage": "tenant=acme"}),
        Outgoing({}, id="event", headers=trace | CAME),
        Outgoing({}, id="wrong", headers={"traceparent": "a\r\nb", "tracestate": " "}),
    ])  # fmt: skip
    app.run(burst=True)
    requests = verified(receiver)
    assert not any("baggage" in headers for headers, _ in requests)
    if mode == "batched":
        found = {event["id"]: event for _, batch in requests for event in batch}
        assert [found[name].get("traceparent") for name in ("plain", "7", "wrong")] == [
            PARENT, PARENT, None,
        ]  # fmt: skip
        return
    found = {headers["webhook-id"]: headers for headers, _ in requests}
    bodies = {headers["webhook-id"]: body for headers, body in requests}
    for name in ("plain", "event"):
        assert {each: found[name][each] for each in trace} == trace
        if mode == "binary":
            assert found[name]["ce-traceparent"] == PARENT
        if mode == "structured":
            assert {each: bodies[name][each] for each in trace} == trace
    assert "traceparent" not in found["wrong"]


def test_structured_mode_has_the_event_in_the_body(app: QFrame, receiver: Receiver) -> None:
    events(app, receiver, "structured")
    app.publish(FEED, {"n": 2**60}, id="json", headers=CAME)
    app.publish(FEED, b"\xff", id="bytes", key="k")
    app.run(burst=True)
    found = {headers["webhook-id"]: (headers, body) for headers, body in verified(receiver)}
    assert {headers["content-type"] for headers, _ in found.values()} == {
        "application/cloudevents+json"
    }
    assert found["json"][1] == {
        "specversion": "1.0", "id": "7", "source": "/shop", "type": "order.paid",
        "subject": "Euro \u20ac", "datacontenttype": "application/vnd.x+json", "data": {"n": 2**60},
    }  # fmt: skip
    event = found["bytes"][1]
    assert (event["data_base64"], event["datacontenttype"]) == (
        b64encode(b"\xff").decode(), "application/octet-stream"
    )  # fmt: skip
    assert [event[name] for name in PARTS] == [
        "1.0", "bytes", "/topics/feed", "qframe.message", "k",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_headers_that_are_no_attributes_are_left_out(
    app: QFrame, receiver: Receiver, mode: str
) -> None:
    wrong = {
        "ce-bad name": "x", "ce-Upper": "x", "ce-": "x", "ce-lines": "a\r\nb", "ce-data": "x",
        "ce-datacontenttype": "text/plain", "ce-time": "yesterday", "ce-empty": "",
        "content-type": "text/\u00fc", "ce-nothing": "\uffff",
    }  # fmt: skip
    events(app, receiver, mode, max_attempts=1)
    app.publish(FEED, 1, key="k", id="event", headers={**CAME, **wrong})
    app.publish(FEED, 2, key="a\nb", id="none", headers={**CAME, "ce-id": "a\nb"})
    app.run(drain=True)
    assert not list(app.admin.dead(FEED, "p"))
    kept = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.paid"}
    found = []
    for headers, body in verified(receiver):
        if mode == "structured":
            found.append({name: each for name, each in body.items() if name != "data"})
        else:
            found.append({n[3:]: each for n, each in headers.items() if n.startswith("ce-")})
            found[-1]["datacontenttype"] = headers["content-type"]
    [event] = [each for each in found if each["id"] == "7"]
    subject = "Euro \u20ac" if mode == "structured" else "Euro%20%E2%82%AC"
    assert event == {**kept, "subject": subject, "datacontenttype": "application/json"}
    [other] = [each for each in found if each["id"] != "7"]
    assert set(other) == {"specversion", "id", "source", "type", "time", "datacontenttype"}


def test_batched_mode_has_many_events_and_one_that_is_refused_is_dead_alone(
    app: QFrame, receiver: Receiver
) -> None:
    receiver.answer = lambda headers, body: (400 if b'"data":5}' in body else 204, {})
    events(app, receiver, "batched", batch=Batch(4, "20ms"), max_attempts=1)
    app.publish_many(FEED, [Outgoing(number, key="k", id=f"m{number}") for number in range(8)])
    app.run(drain=True)
    found = verified(receiver)
    assert {headers["content-type"] for headers, _ in found} == {
        "application/cloudevents-batch+json"
    }
    taken = [event["data"] for _, body in found if all(each["data"] != 5 for each in body)
             for event in body]  # fmt: skip
    assert sorted(taken) == [0, 1, 2, 3, 4, 6, 7]
    assert [letter.id for letter in app.admin.dead(FEED, "p")] == ["m5"]
