"""The console in Chromium over a Redis that is slow, away, or has much and odd things in it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from browsing import served
from playwright.sync_api import Browser, Page, expect
from servers import Proxy, RedisServer

from qframe import Outgoing, QFrame, Topic

ORDERS = Topic("orders", kind="ordered", slots=4)
MANY = 20_000
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>\x00\u202etxt.exe"
EVIL_KEY = "k/../<b onclick=alert(3)>&\"'\u202e?#%"
PATIENCE_MS = 30_000
AS_IT_WAS = "The store is away, and this is how it was"
PAGES = {
    "/": "orders / billing",
    "/topics/orders": "billing",
    "/topics/orders/billing": "of orders, ordered, 4 slots",
    "/topics/orders/billing/dead": "0 dead letters",
    "/topics/orders/billing/key?key=k77": "k77",
    "/messages?q=key:k77": "k77",
    "/messages?q=topic:orders": "Looked at",
    "/messages/m77": "k77",
    "/timers?topic=orders": "Timers",
    "/schedules": "No schedule is there",
    "/workers": "No worker is alive",
    "/outbox": "Outbox",
    "/audit": "Nothing within 90 days",
    "/settings": "Settings",
}


@pytest.fixture(scope="module")
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def app(proxy: Proxy) -> Iterator[QFrame]:
    """A backlog that nobody works on, behind a proxy."""
    with QFrame(
        f"{proxy.url}?socket_timeout=2", namespace="console-trouble", max_body=2_000_000
    ) as app:
        app.declare(ORDERS)
        app.store.subscribe(ORDERS, "billing")
        numbers = range(MANY)
        app.publish_many(ORDERS, [Outgoing(n, key=f"k{n}", id=f"m{n}") for n in numbers])
        app.publish(ORDERS, {"a": EVIL, "long": "x" * 1_000_000}, key=EVIL_KEY, id="evil")
        yield app


@pytest.fixture(scope="module")
def url(app: QFrame) -> Iterator[str]:
    with served(app, role="owner") as url:
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(30_000)
    yield page
    page.close()


def test_over_a_slow_store_with_a_long_backlog_every_page_answers_and_an_open_one_stays(
    url: str, page: Page, proxy: Proxy
) -> None:
    proxy.delay(0.02)
    for path, text in PAGES.items():
        page.goto(url + path)
        expect(page.locator("body")).to_contain_text(text)
        assert page.locator("tbody tr").count() <= 500, path
        assert len(page.content()) < 400_000, path
    proxy.delay(0)
    page.goto(url)
    expect(page.locator("main")).to_contain_text("20\u202f001")
    expect(page.locator("#live")).to_have_text("live")
    proxy.stall()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text(AS_IT_WAS, timeout=PATIENCE_MS)
    expect(page.locator("main")).to_contain_text("orders / billing")
    proxy.resume()
    expect(alert).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.locator("#stale")).to_be_hidden()


def test_while_the_store_is_away_each_page_says_so_and_goes_on_by_itself(
    url: str, page: Page, proxy: Proxy
) -> None:
    page.goto(url)
    expect(page.locator("main")).to_contain_text("orders / billing")
    proxy.stop()
    expect(page.get_by_role("alert")).to_contain_text(AS_IT_WAS, timeout=PATIENCE_MS)
    expect(page.locator("main")).to_contain_text("orders / billing")
    page.goto(f"{url}/messages/m77")
    expect(page.locator("h1")).to_have_text("The store is away")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    page.goto(f"{url}/settings")
    expect(page.locator("h1")).to_have_text("Settings")
    page.goto(f"{url}/messages/m77")
    proxy.accept()
    expect(page.locator("h1")).to_have_text("m77", timeout=PATIENCE_MS)


def test_what_a_hostile_message_of_a_megabyte_says_is_text_and_nothing_else(
    url: str, page: Page
) -> None:
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{url}/messages/evil")
    expect(page.locator("pre").first).to_contain_text("<img src=x onerror=alert(1)>")
    assert len(page.content()) < 200_000
    page.goto(f"{url}/topics/orders/billing/key?{urlencode({'key': EVIL_KEY})}")
    expect(page.locator("main")).to_contain_text("<b onclick=alert(3)>")
    page.get_by_role("link", name="evil").first.click()
    expect(page.locator("h1")).to_have_text("evil")
    assert page.locator("main img, main script, main b[onclick]").count() == 0
    assert said == []
