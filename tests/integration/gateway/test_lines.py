"""A stream of lines to the gateway, whose store goes away meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from servers import Proxy, RedisServer
from starlette.testclient import TestClient

import qframe.drivers.redis
from qframe import QFrame, Topic

pytestmark = pytest.mark.gate

LINES = {"content-type": "application/x-ndjson"}
THREE = ['{"body": 1, "key": "ann"}', '{"body": 2}', '{"body": 3, "key": "ann"}']


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def events_app(
    proxy: Proxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[QFrame]:
    monkeypatch.setattr(qframe.drivers.redis, "PATIENCE_S", 0.3)
    with QFrame(proxy.url, namespace=request.node.name[:64]) as app:
        app.declare(Topic("orders", kind="ordered", slots=1))
        yield app


def sent(web: TestClient, *lines: str) -> list[dict[str, Any]]:
    content = "".join(f"{line}\n" for line in lines)
    reply = web.post("/v1/topics/orders/messages", content=content, headers=LINES)
    return [json.loads(line) for line in reply.text.splitlines()]


def test_lines_that_may_have_been_stored_are_unknown_each_with_the_id_that_makes_it_safe(
    web: TestClient, proxy: Proxy
) -> None:
    assert [one["outcome"] for one in sent(web, THREE[0])] == ["stored"]
    proxy.refuse()
    proxy.drop_replies(1)
    first, wrong, last = sent(web, *THREE)
    assert [one["outcome"] for one in (first, wrong, last)] == ["unknown", "refused", "unknown"]
    assert first["type"] == "urn:qframe:problem:publish-unknown"
    assert wrong["type"] == "urn:qframe:problem:bad-key"
    proxy.accept()
    again = [json.dumps({"body": 0, "key": "ann", "id": one["id"]}) for one in (first, last)]
    assert [one["outcome"] for one in sent(web, *again)] == ["duplicate", "duplicate"]


def test_each_line_that_a_store_did_not_take_is_refused_and_those_after_it_are_not_tried(
    events_app: QFrame, web: TestClient, proxy: Proxy
) -> None:
    assert [one["outcome"] for one in sent(web, THREE[0])] == ["stored"]
    proxy.refuse()
    events_app.store.reconnect()  # on one that breaks under the request, it would be in doubt
    found = sent(web, *[THREE[0]] * 501)
    assert [one["outcome"] for one in found] == ["refused"] * 500
    assert {one["type"] for one in found} == {"urn:qframe:problem:store-unavailable"}
    proxy.accept()
    assert [one["outcome"] for one in sent(web, THREE[0])] == ["stored"]
