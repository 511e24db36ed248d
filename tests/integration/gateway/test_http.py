"""The gateway as programs in other languages see it: the real process, over HTTP."""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from gatewaying import GatewayProcess
from ports import HOST
from starlette.testclient import TestClient

from qframe import QFrame, Topic

ORDERS = "/v1/topics/orders"
LINES = "application/x-ndjson"
JOBS: dict[str, Any] = {"kind": "delay", "slots": 2}
OF_A_KIND: dict[str, dict[str, Any]] = {
    "stream": {"retain": "7d"},
    "ordered": {"gap_timeout": "5m"},
    "delay": {"subject": "body"},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    with GatewayProcess(folder, f"sqlite:///{folder}/q.db", "--grace", "0.2s") as gateway:
        body = {"kind": "ordered", "slots": 2}
        assert gateway.request("PUT", ORDERS, body).status == 200
        # The first group of a topic has what was published before; those of the tests have not.
        assert gateway.request("PUT", f"{ORDERS}/groups/first").status == 200
        yield gateway
        assert gateway.stop() == 0
        assert "secret body" not in gateway.log.read_text(encoding="utf-8")


@pytest.fixture
def group(gateway: GatewayProcess, request: pytest.FixtureRequest) -> str:
    """A group of the test's own, which has everything from here on."""
    name = request.node.name[:60]
    reply = gateway.request("PUT", f"{ORDERS}/groups/{name}")
    assert reply.json == {"name": "orders", "kind": "ordered", "slots": 2}
    return name


@pytest.mark.gate
def test_a_message_is_published_pulled_and_settled(gateway: GatewayProcess, group: str) -> None:
    sent = {"key": "ann", "body": {"text": "secret body"}, "headers": {"a": "b"}, "tags": ["t"]}
    published = gateway.post(f"{ORDERS}/messages", sent).json
    assert published["outcome"] == "stored"
    [one] = gateway.pull("orders", group, wait="20s")
    assert one["id"] == published["id"]
    for name, value in sent.items():
        assert one[name] == value
    assert one["attempt"] == 1
    stats = gateway.request("GET", f"{ORDERS}/groups/{group}/stats").json
    assert (stats["doing"], stats["open_here"]) == (1, 1)
    settled = gateway.settle("orders", group, ack=[one["receipt"]])
    assert settled.json == {"results": [{"receipt": one["receipt"], "outcome": "settled"}]}
    again = gateway.settle("orders", group, ack=[one["receipt"]])
    assert again.status == 409
    assert again.headers["content-type"] == "application/problem+json"
    assert again.json["type"] == "urn:qframe:problem:stale-receipt"
    assert gateway.request("GET", f"{ORDERS}/groups/{group}/stats").json["settled"] == 1


def test_an_idempotency_key_makes_a_repeated_request_a_duplicate(gateway: GatewayProcess) -> None:
    body = {"key": "idempotent", "body": 1}
    first, second = (
        gateway.post(f"{ORDERS}/messages", body, idempotency_key="order-7").json for _ in range(2)
    )
    assert first == {"id": "order-7", "outcome": "stored"}
    assert second == {"id": "order-7", "outcome": "duplicate"}
    many = {"messages": [body, body]}
    for outcome in ("stored", "duplicate"):
        reply = gateway.post(f"{ORDERS}/messages", many, idempotency_key='"batch-1"')
        ids = [f"batch-1:{place}" for place in range(2)]
        assert reply.json["results"] == [{"id": each, "outcome": outcome} for each in ids]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("headers", "body", "status", "why"),
    [
        ([("idempotency-key", "a"), ("idempotency-key", "b")], b"{}", 400, "several Idempotency-"),
        ([], b'{"body":"\\ud800"}', 400, "surrogate pair"),
        ([], b'{"body":"\\udc00"}', 400, "surrogate pair"),
        ([], b'{"body":"a', 400, "truncated"),
        ([], b'{"body":1,"at":253402300800}', 400, "within 1970 and 5138"),
        ([], b'{"body":1,"at":"9999-12-31T23:59:59-01:00"}', 400, "within 1970 and 5138"),
        ([], b'{"body":1,"at":"1969-12-31T23:59:59Z"}', 400, "within 1970 and 5138"),
        ([], b'{"body":1,"at":-5}', 400, "within 1970 and 5138"),
        ([("content-type", LINES), ("idempotency-key", "x")], b"{}", 400, "give each line an id"),
        ([("content-type", LINES), ("content-encoding", "gzip")], b"", 415, "content-encoding"),
    ],
)  # fmt: skip
def test_what_cannot_be_published_is_refused_with_its_own_reason(
    web: TestClient, headers: list[tuple[str, str]], body: bytes, status: int, why: str
) -> None:
    reply = web.post("/v1/topics/stream/messages", content=body, headers=headers)
    assert (reply.status_code, why in reply.json()["detail"]) == (status, True), reply.text


def test_bytes_come_back_as_bytes(gateway: GatewayProcess, group: str) -> None:
    coded = b64encode(b"\xff\x00secret").decode()
    assert gateway.post(f"{ORDERS}/messages", {"key": "b", "body_base64": coded}).status == 200
    [one] = gateway.pull("orders", group, wait="20s")
    assert (one["body_base64"], "body" in one) == (coded, False)
    gateway.settle("orders", group, ack=[one["receipt"]])


@pytest.mark.gate
def test_a_stream_of_lines_has_an_outcome_for_each(gateway: GatewayProcess) -> None:
    lines = [json.dumps({"key": "line", "body": place}) for place in range(1200)]
    lines[7] = "{"
    lines[8] = '{"body": 1}'
    body = "\n".join(lines).encode()
    reply = gateway.post(f"{ORDERS}/messages", body, content_type=LINES)
    outcomes = [json.loads(line) for line in reply.body.splitlines()]
    assert [each["outcome"] for each in outcomes[6:10]] == [
        "stored", "refused", "refused", "stored",
    ]  # fmt: skip
    assert outcomes[7]["type"].endswith(":bad-json")
    assert outcomes[8]["detail"].startswith("key None: topic 'orders' is ordered by key")
    assert sum(each["outcome"] == "stored" for each in outcomes) == 1198


@pytest.mark.gate
def test_a_client_that_has_hung_up_is_handed_nothing(gateway: GatewayProcess, group: str) -> None:
    body = b'{"wait": "1m", "lease": "10m"}'
    head = f"POST {ORDERS}/groups/{group}/pull HTTP/1.1\r\nHost: {HOST}\r\n".encode()
    with socket.create_connection((HOST, gateway.port)) as gone:
        gone.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    gateway.post(f"{ORDERS}/messages", {"key": "gone", "body": 1})
    [one] = gateway.pull("orders", group, wait="20s")
    assert (one["key"], one["attempt"]) == ("gone", 1)
    gateway.settle("orders", group, ack=[one["receipt"]])


@pytest.mark.parametrize("at", [0, "2020-01-01T00:00:00Z", "2020-01-01T01:00:00+01:00"])
def test_a_retry_is_due_at_a_time_that_is_written_as_in_publishing(
    gateway: GatewayProcess, group: str, at: float | str
) -> None:
    gateway.post(f"{ORDERS}/messages", {"key": "at", "body": 1, "at": at})
    [one] = gateway.pull("orders", group, wait="20s")
    reply = gateway.settle("orders", group, retry=[{"receipt": one["receipt"], "at": at}])
    assert reply.json["results"][0]["outcome"] == "settled"
    [again] = gateway.pull("orders", group, wait="20s")
    assert again["attempt"] == 2
    gateway.settle("orders", group, ack=[again["receipt"]])


@pytest.mark.gate
def test_timers_are_set_moved_and_cancelled(gateway: GatewayProcess) -> None:
    gateway.request("PUT", "/v1/topics/later", {"kind": "delay", "slots": 1})
    gateway.request("PUT", "/v1/topics/later/groups/billing")
    path = "/v1/timers/later/trip%2F7"
    assert gateway.request("PUT", path, {"body": 1, "delay": "1h"}).json["outcome"] == "stored"
    assert gateway.request("PATCH", path, {"body": 2, "delay": "0s"}).json == {"outcome": "done"}
    [one] = gateway.pull("later", "billing", wait="20s")
    assert (one["key"], one["body"]) == ("trip/7", 2)
    assert gateway.request("DELETE", path).json == {"outcome": "doing"}
    gateway.settle("later", "billing", ack=[one["receipt"]])
    assert gateway.request("DELETE", path).json == {"outcome": "absent"}


def test_a_timer_of_bytes_is_set_and_changed(gateway: GatewayProcess, group: str) -> None:
    path = f"/v1/timers/orders/{group}"
    for method, coded, delay in (("PUT", "/w==", "1h"), ("PATCH", "/v8=", "0s")):
        reply = gateway.request(method, path, {"body_base64": coded, "delay": delay})
        assert reply.status == 200, reply.body
    [one] = gateway.pull("orders", group, wait="20s")
    assert (one["key"], one["body_base64"]) == (group, "/v8=")
    gateway.settle("orders", group, ack=[one["receipt"]])


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", "{topic}/groups/g", {"start": "latest"}, "unknown field `start`; there are: none"),
        ("GET", "{topic}/groups/g/stats", {"slot": 1}, "unknown field `slot`; there are: none"),
        ("PATCH", "/v1/timers/events/k", {"id": "x", "delay": "1h"}, "unknown field `id`"),
        ("DELETE", "/v1/timers/events/k", {"id": "x"}, "unknown field `id`; there are: none"),
        ("PUT", "{topic}", {"slot": 1}, "`slot`; there are: kind, slots, retain, max_length"),
        (
            "POST", "{topic}/groups/g/settle", {"extend": [{"receipt": "q1.a", "x": 2}]},
            "`x` - at `$.extend[0]`; there are: receipt, lease",
        ),
        ("POST", "{topic}/groups/g/pull?max=5", {}, "parameter 'max': there is no such"),
        ("GET", "{topic}/groups/g/stats?slot", None, "there are: none"),
    ],
)  # fmt: skip
def test_what_nothing_reads_is_refused_with_what_there_is(
    web: TestClient, method: str, path: str, body: object, said: str
) -> None:
    """It was ignored beside a query, and where a request needs no body."""
    reply = web.request(method, path.format(topic="/v1/topics/events"), json=body)
    assert (reply.status_code, said in reply.json()["detail"]) == (400, True), reply.text


@pytest.mark.parametrize("key", ["%ff", "%fe", "a%e2%82"])
def test_a_key_in_a_path_whose_bytes_are_no_text_is_refused(
    gateway: GatewayProcess, key: str
) -> None:
    body = {"body": 1, "delay": "1h"}
    for method in ("PUT", "PATCH", "DELETE"):
        sent = None if method == "DELETE" else body
        reply = gateway.request(method, f"/v1/timers/orders/{key}", sent)
        assert (reply.status, reply.json["type"]) == (400, "urn:qframe:problem:bad-path")


@pytest.mark.gate
def test_errors_are_problems_with_the_exceptions_sentences(gateway: GatewayProcess) -> None:
    reply = gateway.post("/v1/topics/nothing/messages", {"body": 1})
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
    assert reply.json["type"] == "urn:qframe:problem:unknown-topic"
    assert reply.json["detail"].startswith("topic 'nothing': nobody has declared it")
    lines = gateway.post("/v1/topics/nothing/messages", b'{"body": 1}', content_type=LINES)
    assert (lines.status, lines.json) == (404, reply.json)  # before the first line
    for path, body, status, slug in [
        (f"{ORDERS}/messages", {"body": 1}, 400, "bad-key"),
        (f"{ORDERS}/messages", {"bodi": 1}, 400, "bad-request"),
        (f"{ORDERS}/messages", {"messages": []}, 400, "bad-request"),
        (f"{ORDERS}/messages", {"messages": [{"body": 1}] * 501}, 400, "bad-request"),
        (f"{ORDERS}/messages", b"{", 400, "bad-json"),
        (f"{ORDERS}/messages", b'{"body":' + b"[" * 100_000, 400, "bad-json"),
        (f"{ORDERS}/messages", b'{"body":"' + b"x" * 300_000 + b'"}', 413, "bad-body"),
        (f"{ORDERS}/messages", b"x" * (9 << 20), 413, "too-large"),
        (f"{ORDERS}/groups/billing/pull", {"wait": "2h"}, 400, "bad-option"),
        (f"{ORDERS}/groups/billing/pull", {"max": 0}, 400, "bad-request"),
        (f"{ORDERS}/groups/billing/settle", {}, 400, "bad-option"),
        ("/v1/topics/a%20b/messages", {"body": 1}, 400, "bad-topic"),
        ("/v1/nothing", {}, 404, "no-such-path"),
        (f"{ORDERS}/messages/", {"key": "k", "body": 1}, 404, "no-such-path"),
        ("/livez", {}, 405, "wrong-method"),
    ]:
        reply = gateway.post(path, body)
        assert (reply.status, reply.json["type"]) == (status, f"urn:qframe:problem:{slug}"), path
    wrong = gateway.post(f"{ORDERS}/groups/billing/pull", {"wait": "20 seconds"})
    assert 'Expected seconds, or a text such as "500ms"' in wrong.json["detail"]
    wrong = gateway.post(f"{ORDERS}/messages", b"a=1", content_type="text/csv")
    assert wrong.status == 415
    wrong = gateway.request("OPTIONS", "/v1/timers/orders/k")
    assert set(wrong.headers["allow"].split(", ")) == {"PUT", "PATCH", "DELETE"}


def test_it_describes_itself_and_its_health(gateway: GatewayProcess) -> None:
    described = gateway.request("GET", "/v1/openapi.json").json
    assert described["openapi"] == "3.1.0"
    assert f"{ORDERS}/messages".replace("orders", "{topic}") in described["paths"]
    assert gateway.request("GET", "/readyz").json == {"status": "ok"}


def put(web: TestClient, kind: str = "delay", **asked: Any) -> None:
    reply = web.put("/v1/topics/jobs", json={**JOBS, "kind": kind, **asked})
    assert reply.status_code == 200, reply.text


def options(app: QFrame) -> tuple[Any, ...]:
    found = app.store.topic("jobs")
    assert found is not None
    return (
        found.retain_ms, found.max_length, found.dedupe_window_ms, found.gap_timeout_ms,
        found.subject, found.history_ms,
    )  # fmt: skip


@pytest.mark.gate
@pytest.mark.parametrize("kind", OF_A_KIND)
def test_a_client_that_declares_a_topic_changes_none_of_the_options_that_it_does_not_name(
    events_app: QFrame, web: TestClient, kind: str
) -> None:
    """Some of them it could not even name."""
    events_app.declare(Topic(
        "jobs", kind, 2, max_length=900, dedupe_window="1500ms", history="2d", **OF_A_KIND[kind]
    ))  # type: ignore[arg-type]  # fmt: skip
    declared = options(events_app)
    put(web, kind)
    assert options(events_app) == declared
    put(web, kind, dedupe_window=7, max_length=None)
    assert options(events_app) == (declared[0], None, 7000, *declared[3:])


@pytest.mark.gate
def test_a_client_sets_for_how_long_a_stream_keeps_messages_and_no_other_kind(
    events_app: QFrame, web: TestClient
) -> None:
    reply = web.put("/v1/topics/jobs", json={**JOBS, "retain": "1h"})
    assert (reply.status_code, reply.json()["type"]) == (400, "urn:qframe:problem:bad-topic")
    assert "only a stream keeps what is settled" in reply.json()["detail"]
    put(web, "stream", retain="1h")
    assert options(events_app)[0] == 3_600_000
    for wrong in ({"kind": "delay"}, {"kind": "stream", "slots": 1}):
        reply = web.put("/v1/topics/jobs", json={**JOBS, **wrong})
        assert (reply.status_code, reply.json()["type"][-14:]) == (400, "topic-mismatch")


@pytest.mark.gate
def test_a_topic_that_is_new_has_the_defaults_for_what_is_not_named(
    events_app: QFrame, web: TestClient
) -> None:
    put(web, max_length=5)
    assert events_app.store.topic("jobs") == Topic("jobs", **JOBS, max_length=5)
