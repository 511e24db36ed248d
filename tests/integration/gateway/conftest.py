"""A gateway without a process: `web` sends requests to it; its topics are `events` and `stream`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from qframe import QFrame, Topic
from qframe.clock import SYSTEM_CLOCK
from qframe.web.gateway import Gateway
from qframe.web.gateway.callers import Callers
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.routes import GatewayRoutes

ORDERED = Topic("events", kind="ordered", slots=2)


@pytest.fixture
def events_app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.declare(ORDERED)
        app.store.subscribe(ORDERED, "group")
        app.declare(Topic("stream", slots=1))
        app.store.subscribe(Topic("stream", slots=1), "group")
        yield app


@pytest.fixture
def web(events_app: QFrame) -> Iterator[TestClient]:
    gateway = Gateway(events_app)
    callers = Callers(None, clock=SYSTEM_CLOCK, events=events_app.events)
    routes = GatewayRoutes(gateway, callers, Forwarder(gateway.receipts))
    with TestClient(routes.starlette(), "http://127.0.0.1", client=("127.0.0.1", 1)) as web:
        yield web
