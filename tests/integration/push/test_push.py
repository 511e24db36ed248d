"""Messages that are sent to a real web server, and what becomes of them by its answers."""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cli_program import Program
from eventually import eventually
from receiving import NEW, OLD, OTHER, QUICK, Answer, Receiver
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from qframe import Batch, Outgoing, QFrame, Topic
from qframe.errors import StoreUnavailable
from qframe.push import push
from qframe.telemetry.facts import facts_shown

pytestmark = [pytest.mark.gate, pytest.mark.promise(3)]

ORDERS = Topic("orders", kind="ordered", slots=2)
FEED = Topic("feed", slots=2)
PARTS = ("specversion", "id", "source", "type", "partitionkey")
CAME = {
    "ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.paid",
    "ce-subject": "Euro \u20ac", "content-type": "application/vnd.x+json",
}  # fmt: skip


def lines_of(app: QFrame, event: str) -> list[dict[str, Any]]:
    """What the log says of an event; it grows while an app runs."""
    told: list[dict[str, Any]] = []
    app.events.listen(
        lambda name, facts: told.append(facts_shown(facts)) if name == event else None
    )
    return told


def test_each_message_comes_signed_by_every_secret_with_its_bytes_as_published(
    app: QFrame, receiver: Receiver
) -> None:
    push(app, FEED, "partner", receiver.url, secrets=[OLD, NEW], private=True)
    large = 2**60 + 1
    app.publish(FEED, {"n": large, "text": "ü"}, key="kä%y", id="a.first")
    app.publish(FEED, b"\x00\xff", id="raw")
    app.run(burst=True)
    found = {headers["qframe-id"]: (headers, body) for headers, body in receiver.got}
    assert sorted(found) == ["a.first", "raw"]
    assert all(re.fullmatch("msg_[0-9a-f]{40}", each["webhook-id"]) for each, _ in receiver.got)
    headers, body = found["a.first"]
    assert json.loads(body) == {"n": large, "text": "ü"}
    assert headers["content-type"] == "application/json"
    assert (headers["qframe-topic"], headers["qframe-attempt"]) == ("feed", "1")
    assert headers["qframe-key"] == "k%C3%A4%25y"
    for secret in (OLD, NEW):
        assert Webhook(secret).verify(body, headers) == {"n": large, "text": "ü"}
    for wrong, altered in ((OTHER, body), (OLD, body + b" ")):
        with pytest.raises(WebhookVerificationError):
            Webhook(wrong).verify(altered, headers)
    assert found["raw"][0]["content-type"] == "application/octet-stream"
    assert found["raw"][1] == b"\x00\xff"
    assert "qframe-key" not in found["raw"][0]
    assert app.admin.lag(FEED, "partner") == 0


@pytest.mark.parametrize("mode", [None, "binary", "structured", "batched"])
def test_messages_of_two_topics_or_namespaces_are_told_apart_at_one_url_those_of_two_groups_not(
    app: QFrame, receiver: Receiver, mode: Any
) -> None:
    """A receiver is told to ignore what it has had; ids are unique within a topic alone."""
    other = QFrame(app.settings.store, namespace=f"{app.settings.namespace[:60]}-b")
    refunds = Topic("refunds", slots=1)
    with other:
        for each, topic, group in (
            (app, FEED, "partner"), (app, FEED, "archive"), (app, refunds, "partner"),
            (other, FEED, "partner"),
        ):  # fmt: skip
            push(each, topic, group, receiver.url, secrets=[OLD, NEW], private=True, events=mode)
            each.publish(topic, {"of": topic.name}, id="42")
        app.run(burst=True)
        other.run(burst=True)
    ids = [headers["webhook-id"] for headers, _ in verified(receiver)]
    assert (len(ids), len(set(ids))) == (4, 3)


def test_any_key_comes_and_can_be_read_from_its_header(app: QFrame, receiver: Receiver) -> None:
    """A header has no blanks at its ends, and none but ASCII."""
    keys = [" a", "a ", "  ", "\ta", "a b", "a\n", "a%20", "\u2028", "\x7f", " k\u00e4\r\n "]
    push(app, FEED, "partner", receiver.url, secrets=OLD, private=True, max_attempts=1)
    app.publish_many(FEED, [Outgoing(n, key=key) for n, key in enumerate(keys)])
    app.run(drain=True)
    found = {json.loads(body): headers["qframe-key"] for headers, body in receiver.got}
    assert [unquote(found[n]) for n in sorted(found)] == keys
    assert found[4] == "a b"


def test_a_key_whose_receiver_fails_keeps_its_order_and_holds_no_other(
    app: QFrame, receiver: Receiver
) -> None:
    seen: dict[str, list[int]] = defaultdict(list)
    tries: dict[str, int] = defaultdict(int)

    def answer(headers: dict[str, str], body: bytes) -> Answer:
        name = headers["webhook-id"]
        tries[name] += 1
        if headers["qframe-key"] == "k1" and tries[name] < 3:
            return 500, {}
        seen[headers["qframe-key"]].append(json.loads(body))
        return 200, {}

    receiver.answer = answer
    push(app, ORDERS, "partner", receiver.url, secrets=OLD, private=True, backoff=QUICK)
    app.publish_many(ORDERS, [Outgoing(n, key=f"k{n % 3}") for n in range(12)])
    app.run(drain=True)
    assert seen == {f"k{k}": list(range(k, 12, 3)) for k in range(3)}
    assert sorted(tries.values()) == 8 * [1] + 4 * [3]
    ids = [headers["webhook-id"] for headers, _ in receiver.got]
    assert len(set(ids)) == 12  # the same at each attempt


def test_a_receiver_says_when_it_may_be_asked_again(
    app: QFrame, receiver: Receiver, running: Callable[[], None]
) -> None:
    receiver.answer = lambda headers, body: (503, {"retry-after": "3000"})
    push(app, FEED, "partner", receiver.url, secrets=OLD, private=True, backoff=QUICK)
    published = app.publish(FEED, 1, key="k")
    told = lines_of(app, "delivery.retried")
    running()

    def waits_s() -> list[float]:
        found = app.admin.peek(FEED, "partner", states=["waiting"])
        assert [one.id for one in found] in ([], [published.id])
        return [((one.due_ms or 0) - app.store.now_ms()) / 1000 for one in found]

    eventually(lambda: [2000 < each <= 3000 for each in waits_s()] == [True])
    assert len(receiver.got) == 1
    words = f"{receiver.shown} answered 503: it wants to be asked again in 3000 s"
    assert [one["error"] for one in told] == [words]
    [waiting] = app.admin.peek(FEED, "partner", states=["waiting"])
    assert words in str(waiting.error)


@pytest.mark.parametrize("mode", [None, "batched"])
def test_a_receiver_that_is_gone_pauses_its_group_and_no_message_pays_an_attempt(
    app: QFrame, receiver: Receiver, mode: Any
) -> None:
    """Each message is on its last attempt, and many are in hand until the pause is noticed."""
    receiver.answer = lambda headers, body: (410, {})
    once: Any = {"max_attempts": 1, "events": mode}
    push(app, ORDERS, "partner", receiver.url, secrets=OLD, private=True, **once)
    app.publish_many(ORDERS, [Outgoing(n, key=f"k{n % 3}") for n in range(12)])
    told = lines_of(app, "receiver.gone")
    app.run(burst=True)
    words = f"{receiver.shown} answered 410: it wants no more messages"
    assert {(one["topic"], one["group"], one["error"]) for one in told} == {
        ("orders", "partner", words)
    }
    [held] = app.admin.holds(ORDERS)["partner"]
    assert held.key is None
    assert "answered 410" in str(held.why)
    assert "hidden" not in str(held.why)
    assert list(app.admin.dead(ORDERS, "partner")) == []
    assert app.admin.lag(ORDERS, "partner") == 12
    receiver.answer = lambda headers, body: (200, {})
    receiver.got.clear()
    app.admin.resume(ORDERS, "partner")
    app.run(drain=True)
    assert app.admin.lag(ORDERS, "partner") == 0
    if mode is None:
        assert {headers["qframe-attempt"] for headers, _ in receiver.got} == {"1"}
        seen: dict[str, list[int]] = defaultdict(list)
        for headers, body in receiver.got:
            seen[headers["qframe-key"]].append(json.loads(body))
        assert seen == {f"k{k}": list(range(k, 12, 3)) for k in range(3)}


def test_a_group_that_could_not_be_paused_is_paused_when_its_receiver_says_so_again(
    app: QFrame, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answer = lambda headers, body: (410, {})
    pause, asked = app.admin.pause, []

    def first_away(*args: Any, **options: Any) -> None:
        asked.append(args)
        if len(asked) == 1:
            raise StoreUnavailable("it is away")
        pause(*args, **options)

    monkeypatch.setattr(app.admin, "pause", first_away)
    monkeypatch.setattr(import_module("qframe.push.push"), "_UNTIL_PAUSED_S", 0.05)
    push(app, FEED, "p", receiver.url, secrets=OLD, private=True, max_attempts=1)
    app.publish(FEED, 1, key="k")
    app.run(burst=True)
    assert "p" in app.admin.holds(FEED)
    assert list(app.admin.dead(FEED, "p")) == []


def test_as_many_requests_are_open_at_once_as_there_are_threads_by_tuning(
    app: QFrame, receiver: Receiver
) -> None:
    together = threading.Barrier(4)

    def answer(headers: dict[str, str], body: bytes) -> Answer:
        together.wait(20)
        return 200, {}

    receiver.answer = answer
    push(app, FEED, "p", receiver.url, secrets=OLD, private=True, max_attempts=1, threads=1)
    app.publish_many(FEED, [Outgoing(n, key=f"k{n}") for n in range(4)])
    app.admin.tune(FEED, "p", threads=4)
    app.run(drain=True)
    assert list(app.admin.dead(FEED, "p")) == []
    assert app.admin.lag(FEED, "p") == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((302, {"location": "/elsewhere"}), "answered 302"),
        ((404, {}), "answered 404"),
        (None, "cannot be reached"),
    ],
)
def test_what_is_not_taken_is_dead_in_the_end_and_says_why_without_the_urls_secrets(
    app: QFrame, receiver: Receiver, answer: Any, why: str
) -> None:
    url = receiver.url
    if answer is None:
        url = "http://127.0.0.1:1/hook?token=hidden"
    else:
        receiver.answer = lambda headers, body: answer
    push(app, FEED, "p", url, secrets=OLD, private=True, backoff=QUICK, max_attempts=2)
    app.publish(FEED, 1, key="k")
    app.run(drain=True)
    [letter] = app.admin.dead(FEED, "p")
    assert why in str(letter.error)
    assert "hidden" not in f"{letter.error}{letter.traceback}"
    assert [headers["qframe-attempt"] for headers, _ in receiver.got] == (
        [] if answer is None else ["1", "2"]
    )


def test_the_command_sends_what_there_is_and_the_errors_of_its_start_are_one_line(
    receiver: Receiver, tmp_path: Path
) -> None:
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(FEED)
        app.store.subscribe(FEED, "partner")
        app.publish_many(FEED, [Outgoing(n, key=f"k{n}") for n in range(5)])
    words = ("push", "feed", "partner", receiver.url)
    refused = program.run(*words, "--private", "--burst")
    assert refused.code == 1
    assert "whsec_" in refused.err
    assert len(refused.err.splitlines()) == 1
    refused = program.run(*words, "--burst", QFRAME_PUSH_SECRETS=OLD)
    assert refused.code == 1
    assert "use https, or allow private=True" in refused.err
    ran = program.run(*words, "--private", "--drain", QFRAME_PUSH_SECRETS=f"{OLD} {NEW}")
    assert (ran.code, sorted(json.loads(body) for _, body in receiver.got)) == (
        0, [0, 1, 2, 3, 4],
    )  # fmt: skip
    assert OLD not in ran.out + ran.err


def events(app: QFrame, receiver: Receiver, mode: Any, **options: Any) -> None:
    if options.get("max_attempts") != 1:
        options["backoff"] = QUICK
    push(app, FEED, "p", receiver.url, secrets=[OLD, NEW], private=True, events=mode, **options)


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
    found = {headers["qframe-id"]: (headers, body) for headers, body in verified(receiver)}
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
    found = {headers["qframe-id"]: headers for headers, _ in requests}
    bodies = {headers["qframe-id"]: body for headers, body in requests}
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
    found = {headers["qframe-id"]: (headers, body) for headers, body in verified(receiver)}
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
