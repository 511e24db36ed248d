"""Who is let into the console, from where, under which address, and what else is refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from consoling import HERE, LOCAL, text_of
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from qframe import QFrame, Topic
from qframe.errors import BadOption
from qframe.web import Visitor, console
from qframe.web.console import AT_ONCE

TOKEN = "a-token-that-is-long"
FAR = ("203.0.113.9", 4000)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.declare(Topic("orders", slots=1))
        app.store.subscribe(Topic("orders", slots=1), "billing")
        yield app


def client(
    app: QFrame, host: tuple[str, int] = LOCAL, url: str = HERE, **options: Any
) -> TestClient:
    return TestClient(console(app, **options), url, client=host, follow_redirects=False)


def is_paused(app: QFrame) -> bool:
    return app.admin.tuned("orders", "billing").paused


def test_without_more_it_is_open_to_this_machine_and_read_only(app: QFrame) -> None:
    web = client(app)
    assert "local · reader" in text_of(web.get("/").text)
    reply = web.post(
        "/do/pause", data={"topic": "orders", "group": "billing"},
        headers={"sec-fetch-site": "same-origin"},
    )  # fmt: skip
    assert reply.status_code == 403
    assert not is_paused(app)


@pytest.mark.parametrize(
    ("host", "url", "headers"),
    [
        (FAR, HERE, {}),
        (LOCAL, "http://evil.example", {}),
        (LOCAL, HERE, {"x-forwarded-for": "203.0.113.9"}),
        (LOCAL, HERE, {"forwarded": "for=203.0.113.9"}),
        (LOCAL, HERE, {"x-forwarded-host": "ops.example"}),
        (LOCAL, HERE, {"x-real-ip": "203.0.113.9"}),
    ],
)
def test_another_machine_another_name_and_a_forgotten_proxy_are_turned_away(
    app: QFrame, host: tuple[str, int], url: str, headers: dict[str, str]
) -> None:
    web = client(app, host, url, role="owner")
    for address in ("/", "/messages", "/nothing", "/body?id=x"):
        reply = web.get(address, headers=headers)
        assert reply.status_code == 401
        assert "orders" not in reply.text
    assert web.post("/do/pause", headers=headers).status_code == 401


@pytest.mark.gate
def test_a_token_lets_in_by_a_form_and_by_a_header(app: QFrame) -> None:
    web = client(app, FAR, "http://ops.example", token=TOKEN, role="operator")
    assert web.get("/workers").headers["location"] == "/login?to=%2Fworkers"
    page = {"origin": "http://ops.example"}
    wrong = web.post("/login", data={"token": "x" * 20}, headers=page)
    assert (wrong.status_code, "not the token" in wrong.text) == (403, True)
    reply = web.post("/login", data={"token": TOKEN, "name": "ada", "to": "/workers"}, headers=page)
    assert (reply.status_code, reply.headers["location"]) == (303, "/workers")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "token (ada) · operator" in text_of(web.get("/workers").text)
    web.cookies.clear()
    assert web.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert web.get("/", headers={"authorization": "Bearer other"}).status_code == 303
    web.cookies.set("qframe-console", "YWRh.0000")
    assert web.get("/").status_code == 303


def test_who_is_signed_in_no_more_is_told_so_and_comes_back_to_the_page(app: QFrame) -> None:
    web = client(app, token=TOKEN, role="owner")
    page = {"sec-fetch-site": "same-origin"}
    reply = web.get("/workers", headers={"hx-request": "true"})
    assert (reply.status_code, reply.headers.get("location")) == (401, None)  # no page to show

    form = {"topic": "orders", "group": "billing"}
    before = {**page, "referer": f"{HERE}/topics/orders/billing?x=1&y=2"}
    reply = web.post("/do/pause", data=form, headers=before)
    assert reply.status_code == 401
    assert "Nothing was changed" in text_of(reply.text)
    assert 'name="to" value="/topics/orders/billing?x=1&amp;y=2"' in reply.text
    elsewhere = {**page, "referer": "http://evil.example/topics"}
    assert 'name="to" value=""' in web.post("/do/pause", data=form, headers=elsewhere).text
    assert not is_paused(app)

    given = {"token": "x" * 20, "name": "<ada>", "to": "/workers"}
    wrong = web.post("/login", data=given, headers=page)
    assert 'name="to" value="/workers"' in wrong.text
    assert 'name="name" value="&lt;ada&gt;"' in wrong.text


def test_a_slash_behind_a_path_leads_nowhere(app: QFrame) -> None:
    assert client(app).get("/topics/orders/").status_code == 404


def test_after_the_token_no_other_site_is_led_to(app: QFrame) -> None:
    web = client(app, token=TOKEN)
    for to in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
        reply = web.post("/login", data={"token": TOKEN, "to": to}, headers={"origin": HERE})
        assert reply.headers["location"] == "/"


def test_the_name_in_a_proxys_header_is_believed_of_proxies_alone(app: QFrame) -> None:
    options = {"user_header": "X-Forwarded-User", "proxies": ["10.0.0.0/8"], "role": "viewer",
               "allowed_hosts": ["ops.example"]}  # fmt: skip
    named = {"x-forwarded-user": "ada@example"}
    for host, status in ((LOCAL, 200), (("10.1.2.3", 5), 200), (FAR, 401)):
        reply = client(app, host, "http://ops.example", **options).get("/", headers=named)
        assert reply.status_code == status
    assert client(app, LOCAL, **options).get("/").status_code == 401
    assert "ada@example · viewer" in text_of(client(app, **options).get("/", headers=named).text)


@pytest.mark.gate
@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("http://evil.example", 421),  # as a page of its own sees 127.0.0.1, once it has the name
        ("http://127.0.0.1.evil.example", 421),
        ("http://127.0.0.1:8370", 303),
        ("http://[::1]", 303),
        ("http://localhost:8370", 303),
        ("http://10.1.2.3", 303),
        ("https://OPS.example", 303),
    ],
)
def test_a_page_of_another_site_that_calls_this_machine_by_its_own_name_changes_nothing(
    app: QFrame, url: str, status: int
) -> None:
    web = client(
        app, url=url, user_header="x-user", role="owner", allowed_hosts=["Ops.Example"]
    )  # fmt: skip
    form = {"topic": "orders", "group": "billing"}
    written = {"x-user": "ceo", "sec-fetch-site": "same-origin"}
    reply = web.post("/do/pause", data=form, headers=written)
    assert reply.status_code == status
    assert is_paused(app) == (status == 303)
    if status == 421:
        assert "--allowed-host" in reply.text
        assert web.get("/", headers=written).status_code == 421


def test_with_allowed_hosts_no_other_name_leads_to_the_sign_in(app: QFrame) -> None:
    for url, status in (("http://ops.example", 303), ("http://evil.example", 421)):
        web = client(app, FAR, url, token=TOKEN, allowed_hosts=["ops.example"])
        assert web.get("/").status_code == status
        page = {"origin": url}
        status = 303 if status == 303 else 403
        assert web.post("/login", data={"token": TOKEN}, headers=page).status_code == status


def test_of_two_headers_that_name_a_user_neither_is_believed(app: QFrame) -> None:
    web = client(app, user_header="x-user", role="operator")
    form, page = {"topic": "orders", "group": "billing"}, ("sec-fetch-site", "same-origin")
    for named in ([("x-user", "ada"), ("x-user", "ceo")], [("x-user", "ceo"), ("X-User", "ada")]):
        assert web.get("/", headers=named).status_code == 401
        assert web.post("/do/pause", data=form, headers=[*named, page]).status_code == 401
    assert not is_paused(app)
    assert web.get("/", headers=[("x-user", "ada")]).status_code == 200


def test_a_name_that_was_typed_is_a_claim_in_the_audit(app: QFrame) -> None:
    web = client(app, FAR, "http://ops.example", token=TOKEN, role="operator")
    page = {"origin": "http://ops.example"}
    web.post("/login", data={"token": TOKEN, "name": "ceo"}, headers=page)
    form = {"topic": "orders", "group": "billing"}
    assert web.post("/do/pause", data=form, headers=page).status_code == 303
    (action,) = app.admin.audit()
    assert (action.by, action.source) == (
        "token (ceo)", "console 203.0.113.9, known by a token"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("url", "origin", "is_secure"),
    [
        ("http://ops.example", "http://ops.example", False),
        ("https://ops.example", "https://ops.example", True),
        ("http://ops.example", "https://ops.example", True),  # a proxy has taken off TLS
    ],
)
def test_a_browser_that_speaks_tls_sends_the_cookie_by_tls_alone(
    app: QFrame, url: str, origin: str, is_secure: bool
) -> None:
    web = client(app, FAR, url, token=TOKEN)
    reply = web.post("/login", data={"token": TOKEN}, headers={"origin": origin})
    assert reply.status_code == 303
    assert ("Secure" in reply.headers["set-cookie"]) is is_secure


def test_who_signs_out_has_to_sign_in_again(app: QFrame) -> None:
    web = client(app, token=TOKEN)
    page = {"origin": HERE}
    web.post("/login", data={"token": TOKEN}, headers=page)
    assert 'action="/logout"' in web.get("/").text
    assert web.post("/logout", headers={"origin": "http://evil.example"}).status_code == 403
    assert web.get("/").status_code == 200
    reply = web.post("/logout", headers=page)
    assert (reply.status_code, reply.headers["location"]) == (303, "/login")
    assert web.get("/").status_code == 303
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert "/logout" not in web.get("/", headers=bearer).text


@pytest.mark.gate
def test_a_visitor_whose_pages_all_wait_leaves_places_for_the_next(app: QFrame) -> None:
    opened, begun = threading.Event(), threading.Semaphore(0)

    def hidden(name: str) -> bool:
        begun.release()
        return not opened.wait(60)

    def auth(connection: HTTPConnection) -> Visitor:
        return Visitor(connection.headers["x-test-user"], "operator")

    app.publish("orders", {"n": 1}, id="one")
    web = client(app, auth=auth, redact=hidden)
    greedy = {"x-test-user": "greedy"}

    def look() -> int:
        return web.get("/body?id=one", headers=greedy).status_code

    with ThreadPoolExecutor(AT_ONCE) as threads:
        looks = [threads.submit(look) for _ in range(AT_ONCE // 2)]
        assert all(begun.acquire(timeout=60) for _ in looks)
        refused = web.get("/", headers=greedy)
        assert refused.status_code == 429
        assert "wait for these" in refused.text
        ada = {"x-test-user": "ada", "origin": HERE}
        assert web.get("/", headers=ada).status_code == 200
        form = {"topic": "orders", "group": "billing"}
        assert web.post("/do/pause", data=form, headers=ada).status_code == 303
        opened.set()
        assert {each.result() for each in looks} == {200}
    assert web.get("/", headers=greedy).status_code == 200


def test_a_function_of_the_program_may_say_who_it_is(app: QFrame) -> None:
    def auth(connection: HTTPConnection) -> Visitor | None:
        name = connection.headers.get("x-test-user")
        return Visitor(name, "owner") if name else None

    web = client(app, FAR, "http://ops.example", auth=auth)
    assert web.get("/").status_code == 401
    assert "bob · owner" in text_of(web.get("/", headers={"x-test-user": "bob"}).text)


@pytest.mark.gate
@pytest.mark.parametrize(
    ("headers", "is_done"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": HERE}, False),
        ({"origin": HERE}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "https://ops.example", "x-forwarded-host": "ops.example"}, True),
        ({}, False),
    ],
)
def test_only_forms_of_its_own_pages_change_something(
    app: QFrame, headers: dict[str, str], is_done: bool
) -> None:
    web = client(app, role="operator", user_header="x-user")
    form = {"topic": "orders", "group": "billing", "back": "/topics/orders/billing?x=1"}
    reply = web.post("/do/pause", data=form, headers={"x-user": "ada", **headers})
    assert reply.status_code == (303 if is_done else 403)
    assert is_paused(app) == is_done
    if is_done:
        assert reply.headers["location"].startswith("/topics/orders/billing?x=1&note=")


def test_after_a_form_no_other_site_is_led_to(app: QFrame) -> None:
    web = client(app, role="operator")
    for back in ("//evil.example", "https://evil.example", "/\\evil.example", "/a//b", ""):
        form = {"topic": "orders", "group": "billing", "back": back}
        reply = web.post("/do/pause", data=form, headers={"origin": HERE})
        assert reply.headers["location"].startswith("/?note=")


@pytest.mark.parametrize("form", [{"topic": "x" * 300_000}, {"id": ["x"] * 2001}])
def test_a_form_of_more_than_256_kib_or_2000_fields_is_refused(
    app: QFrame, form: dict[str, Any]
) -> None:
    web = client(app, role="operator")
    reply = web.post("/do/pause", data=form, headers={"origin": HERE})
    assert reply.status_code == 413


def every_link(html: str) -> set[str]:
    return set(re.findall(r'(?:href|src|action|hx-get)="([^"]*)"', html))


@pytest.mark.parametrize("prefix", ["/qframe", "/a/b"])
def test_under_a_prefix_every_link_stays_there_whether_a_proxy_takes_it_off_or_not(
    app: QFrame, prefix: str
) -> None:
    web = client(app, prefix=prefix, role="owner")
    paths = ("/topics/orders", *(f"{prefix}{path}" for path in ("/topics/orders/billing", "/", "")))
    pages = [web.get(path) for path in paths]
    for page in pages:
        assert page.status_code == 200
        links = every_link(page.text) - {"#page"}
        assert links
        assert not {link for link in links if not link.startswith(f"{prefix}/")}
    assert web.get(f"{prefix}/static/console.css").status_code == 200
    reply = client(app, prefix=prefix, role="operator").post(
        f"{prefix}/do/pause", headers={"origin": HERE},
        data={"topic": "orders", "group": "billing", "back": f"{prefix}/topics/orders"},
    )  # fmt: skip
    assert reply.headers["location"].startswith(f"{prefix}/topics/orders?note=")


def test_a_store_that_is_away_is_a_page_that_says_so(tmp_path: Path) -> None:
    with QFrame("redis://127.0.0.1:1") as app:
        web = client(app)
        for path in ("/topics/orders/billing", "/messages?q=x", "/workers"):
            reply = web.get(path)
            assert reply.status_code == 503
            assert "The store is away" in reply.text
            assert "cannot be reached" in reply.text
        first = web.get("/").text
        assert "cannot be reached" in first
        assert "The store is away, and nothing of it was seen yet" in text_of(first)
        assert web.get("/settings").status_code == 200
        assert web.get("/static/console.js").status_code == 200


@pytest.mark.parametrize(
    "options",
    [{"role": "root"}, {"token": "short"}, {"prefix": "qframe"}, {"prefix": "/q/"},
     {"user_header": "x", "proxies": ["nowhere"]}],
)  # fmt: skip
def test_options_that_are_wrong_are_refused_with_a_remedy(
    app: QFrame, options: dict[str, Any]
) -> None:
    with pytest.raises(BadOption):
        console(app, **options)
