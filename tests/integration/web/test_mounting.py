"""The console inside other frameworks' apps: each shows a page with its style, and does an act."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a2wsgi import ASGIMiddleware
from consoling import HERE, LOCAL, text_of
from django_project import set_up
from fastapi import FastAPI
from flask import Flask
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from qframe import QFrame, Topic
from qframe.web import console

ORIGIN = {"origin": HERE}
FORM = {"topic": "orders", "group": "billing", "back": "/qframe/topics/orders"}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        topic = Topic("orders", slots=1)
        app.declare(topic)
        app.store.subscribe(topic, "billing")
        yield app


def in_starlette(app: QFrame) -> Any:
    return Starlette(routes=[Mount("/qframe", console(app, role="owner"))])


def in_fastapi(app: QFrame) -> Any:
    outer = FastAPI()
    outer.mount("/qframe", console(app, role="owner"))
    return outer


def in_litestar(app: QFrame) -> Any:
    pages = console(app, role="owner", prefix="/qframe")

    @asgi("/qframe", is_mount=True, copy_scope=True)
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await pages(scope, receive, send)

    return Litestar([mounted])


def in_django(app: QFrame) -> Any:
    from django.core.asgi import get_asgi_application

    set_up()
    others = get_asgi_application()
    pages = console(app, role="owner", prefix="/qframe")

    async def application(scope: Any, receive: Any, send: Any) -> None:
        inside = scope["type"] == "http" and scope["path"].startswith("/qframe/")
        await (pages if inside else others)(scope, receive, send)

    return application


@pytest.mark.gate
@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi, in_litestar, in_django])
def test_mounted_in_an_asgi_app_pages_styles_and_forms_work(app: QFrame, mounted: Any) -> None:
    web = TestClient(mounted(app), HERE, client=LOCAL, headers=ORIGIN)
    paths = ("/qframe/",) if mounted is in_django else ("/qframe", "/qframe/")
    assert all("orders" in text_of(web.get(path).text) for path in paths)
    page = web.get("/qframe/topics/orders/billing")
    assert page.status_code == 200
    [style] = re.findall(r'<link rel="stylesheet" href="([^"]+)">', page.text)
    assert web.get(style).headers["content-type"].startswith("text/css")
    reply = web.post("/qframe/do/pause", data=FORM)
    assert reply.url.path == "/qframe/topics/orders"
    assert "orders/billing is paused" in text_of(reply.text)
    assert app.admin.tuned("orders", "billing").paused


def test_in_flask_through_a_wsgi_bridge_pages_styles_and_forms_work(app: QFrame) -> None:
    outer = Flask("outer")
    bridge = ASGIMiddleware(console(app, role="owner"))
    web = Client(DispatcherMiddleware(outer.wsgi_app, {"/qframe": bridge}))
    here = {"REMOTE_ADDR": "127.0.0.1", "REMOTE_PORT": "1", "HTTP_HOST": "127.0.0.1"}
    page = web.get("/qframe/topics/orders/billing", environ_overrides=here)
    assert page.status_code == 200
    [style] = re.findall(r'<link rel="stylesheet" href="([^"]+)">', page.text)
    assert web.get(style, environ_overrides=here).mimetype == "text/css"
    reply = web.post("/qframe/do/pause", data=FORM, headers=ORIGIN, environ_overrides=here)
    assert reply.status_code == 303
    assert reply.headers["location"].startswith("/qframe/topics/orders?note=")
    assert app.admin.tuned("orders", "billing").paused
    bridge.loop.call_soon_threadsafe(bridge.loop.stop)
