"""A publish whose answer was lost is never said to have stored nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Proxy, RedisServer

import qframe.drivers.redis
from qframe import Outcome, PublishUnknown, QFrame, StoreUnavailable, Topic

pytestmark = [pytest.mark.gate, pytest.mark.promise(1)]


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def app(
    proxy: Proxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[QFrame]:
    monkeypatch.setattr(qframe.drivers.redis, "PATIENCE_S", 0.3)
    with QFrame(store=proxy.url, namespace=request.node.name.replace("_", "-")[:64]) as app:
        yield app


TOPIC = Topic("t", kind="stream", slots=1)


def test_an_answer_lost_and_no_server_after_it_leave_a_publish_in_doubt(
    app: QFrame, proxy: Proxy
) -> None:
    app.publish(TOPIC, 1, id="first")
    proxy.refuse()
    proxy.drop_replies(1)
    with pytest.raises(PublishUnknown) as caught:
        app.publish(TOPIC, 2, id="second")
    assert caught.value.ids == ["second"]
    proxy.accept()
    assert app.publish(TOPIC, 2, id="second").outcome is Outcome.DUPLICATE


def test_a_publish_that_never_reached_a_server_has_stored_nothing(
    app: QFrame, proxy: Proxy
) -> None:
    app.publish(TOPIC, 1, id="first")
    proxy.refuse()
    app.store.reconnect()  # on a connection that breaks under the request, it would be in doubt
    with pytest.raises(StoreUnavailable):
        app.publish(TOPIC, 2, id="second")
    proxy.accept()
    assert app.publish(TOPIC, 2, id="second").outcome is Outcome.STORED
