"""The console in Chromium, over a store with a worker that runs: looks, keyboard, tasks, access."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from apps import running
from browsing import faults_at_each_width, served, take_picture
from consoling import EVENTS, LATER, ORDERS, fill, waiting_outbox
from eventually import eventually
from playwright.sync_api import Browser, Page, expect

from qframe import QFrame, Topic

PAGES = {
    "overview": ("/", "no worker is alive, and"),
    "topic": ("/topics/orders", "billing"),
    "group": ("/topics/orders/billing", "Slots"),
    "seek": ("/topics/events/stats?to=earliest", "would be handed out from there"),
    "dead": ("/topics/orders/billing/dead", "Reject: card the-body-of-it declined"),
    "key": ("/topics/orders/billing/key?key=customer-77", "What blocks it"),
    "messages": ("/messages?q=topic:orders", "Looked at"),
    "message": ("/messages/blocked?topic=orders", "NeedRetry: the bank sleeps"),
    "dead-letter": ("/messages/dead-0?topic=orders", "it is dead after 1 attempt"),
    "timers": ("/timers?topic=later", "timer-2"),
    "schedules": ("/schedules", "No worker leads"),
    "workers": ("/workers", "slow / archive"),
    "outbox": ("/outbox", "nobody has declared it"),
    "audit": ("/audit", "What was done"),
    "settings": ("/settings", "session_timeout"),
    "help": ("/help", "go to the audit"),
    "not-there": ("/topics/none", "nobody has declared it"),
}
"""The path of each page, and what it says, with script and without."""
SLOW = Topic("slow", kind="ordered", slots=2)


def counts(app: QFrame, state: str) -> int:
    """How many messages stand so, in all groups."""
    return sum(getattr(group, state) for topic in app.admin.topics() for group in topic.groups)


class Desk:
    """A running shop, its console, and a page of it whose clicks are counted."""

    def __init__(self, app: QFrame, url: str, page: Page) -> None:
        self.app = app
        self.url = url
        self.page = page
        self.clicks = 0

    def click(self, name: str, role: Any = "link", *, exact: bool = False) -> None:
        self.clicks += 1
        self.page.get_by_role(role, name=name, exact=exact).first.click()

    def open(self, summary: str) -> None:
        self.clicks += 1
        self.page.locator("summary", has_text=summary).first.click()

    def search(self, text: str) -> None:
        self.clicks += 1
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url("**/messages?q=*")

    def says(self, text: str) -> None:
        expect(self.page.locator("body")).to_contain_text(text)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[QFrame, str]]:
    gate = threading.Event()
    folder = tmp_path_factory.mktemp("browser")
    with QFrame(f"sqlite:///{folder / 'q.db'}?synchronous=normal", grace=5) as app:
        fill(app)

        @app.consumer(SLOW, group="archive")
        def hang(_body: Any) -> None:
            gate.wait(600)

        with running(app):
            eventually(lambda: counts(app, "dead") == 4, within=60)
        app.publish(SLOW, {"file": "one"}, key="disk", id="hangs")
        for number in range(2):  # what dies after the deploy
            app.publish(ORDERS, {"fails": "now"}, key=f"new-{number}", id=f"new-{number}")
        with (
            running(app, gate),
            served(app, role="owner", environment="staging", outboxes=[waiting_outbox()]) as url,
        ):
            eventually(lambda: counts(app, "dead") == 6 and counts(app, "doing") == 1, within=60)
            yield app, url


@pytest.fixture
def desk(shop: tuple[QFrame, str], browser: Browser) -> Iterator[Desk]:
    app, url = shop
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(20_000)
    page.goto(url)
    yield Desk(app, url, page)
    page.close()


@pytest.mark.parametrize("look", ["light", "dark"])
def test_every_page_can_be_read_by_everybody_in_light_and_dark_at_a_desk_and_on_a_phone(
    shop: tuple[QFrame, str], browser: Browser, look: Literal["light", "dark"]
) -> None:
    _, url = shop
    context = browser.new_context(reduced_motion="reduce", color_scheme=look)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{page.url}: {message.text}"))
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    faults = {}
    for name, (path, _) in PAGES.items():
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(url + path)
        expect(page.locator("header .badge")).to_have_text("staging")
        faults |= faults_at_each_width(page, f"{name}-{look}")
    context.close()
    assert {name: each for name, each in faults.items() if each} == {}
    assert [each for each in said if "/topics/none" not in each] == []
    assert {each for each in asked if not each.startswith(url)} == set()


def test_a_large_screen_is_used_and_paper_has_what_is_asked_for_alone(
    shop: tuple[QFrame, str], browser: Browser
) -> None:
    _, url = shop
    page = browser.new_page(viewport={"width": 3840, "height": 2160})
    page.goto(url)
    take_picture(page, "overview-4k")
    assert page.evaluate("document.querySelector('main').clientWidth") > 2000
    page.set_viewport_size({"width": 800, "height": 1100})  # about A4
    page.emulate_media(media="print", color_scheme="dark")
    for name in ("dead", "message", "group"):
        page.goto(url + PAGES[name][0])
        take_picture(page, f"{name}-print", full_page=True)
        expect(page.locator("main")).to_contain_text("dead-0" if name == "dead" else "billing")
        expect(page.locator("nav")).to_be_hidden()
        expect(page.get_by_role("button")).to_have_count(0)
        paper, ink = (
            page.evaluate(f"getComputedStyle({element}).{name}.match(/[0-9]+/g).map(Number)")
            for element, name in (
                ("document.documentElement", "backgroundColor"),
                ("document.querySelector('h1')", "color"),
            )
        )
        assert (paper, max(ink) < 90) == ([255, 255, 255], True)
    page.close()


def test_with_every_script_blocked_each_page_still_answers_and_acts(
    shop: tuple[QFrame, str], browser: Browser
) -> None:
    app, url = shop
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for path, text in PAGES.values():
        page.goto(url + path)
        assert page.locator("h1").first.inner_text()
        expect(page.locator("main")).to_contain_text(text)
    page.goto(f"{url}/topics/events/stats")
    page.locator("summary", has_text="Pause this group").click()
    page.get_by_label("why").fill("by hand")
    page.get_by_role("button", name="Pause").click()
    assert "is paused" in page.locator("body").inner_text()
    page.get_by_role("button", name="Resume").click()
    context.close()
    assert not app.admin.tuned("events", "stats").paused


def test_a_page_looks_again_and_focus_selection_scroll_and_open_details_stay(desk: Desk) -> None:
    page = desk.page
    page.goto(f"{desk.url}/topics/events/stats")
    page.locator("summary", has_text="Tune").click()
    page.get_by_label("rate").fill("7/s")
    handled = page.locator(".figures li", has_text="settled").locator("b")
    before = handled.inner_text()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    page.evaluate("scrollTo(0, 120)")
    scrolled = page.evaluate("scrollY")
    assert scrolled > 0
    desk.app.publish_many(EVENTS, ["ok"] * 5)
    expect(handled).not_to_have_text(before, timeout=20_000)
    assert page.evaluate("document.activeElement.name") == "rate"
    assert page.get_by_label("rate").input_value() == "7/s"
    assert page.locator("#tuning").get_attribute("open") is not None
    assert page.evaluate("getSelection().toString()").startswith("stats")
    assert page.evaluate("scrollY") == scrolled


def test_all_rows_are_chosen_at_once_and_stay_so_when_the_page_looks_again(desk: Desk) -> None:
    page = desk.page
    page.goto(f"{desk.url}/topics/orders/billing/dead")
    page.get_by_label("choose all that are shown").check()
    shown = page.locator("tbody input[type=checkbox]").count()
    assert shown >= 3
    with page.expect_response("**/dead"):
        page.keyboard.press("r")
    page.wait_for_function("() => !document.querySelector('.htmx-request')")
    assert page.locator("tbody input:checked").count() == shown


def test_what_was_chosen_and_typed_stays_when_a_row_before_it_goes(desk: Desk) -> None:
    page, app = desk.page, desk.app
    names = [f"own-{number}" for number in range(3)]
    for name in names:
        app.publish(ORDERS, {"fails": "now"}, key=name, id=name)
        app.publish(LATER, 1, key=name, id=name, delay="10m")
    eventually(lambda: len(app.admin.dead("orders", "billing")) == 8, within=60)
    page.goto(f"{desk.url}/topics/orders/billing/dead")
    page.get_by_label("choose own-2").check()
    app.admin.dead_drop("orders", "billing", ["own-0"])  # as another operator does
    expect(page.get_by_label("choose own-0")).to_have_count(0)
    assert page.locator("tbody input:checked").get_attribute("value") == "own-2"

    page.goto(f"{desk.url}/timers?topic=later")
    row = page.locator("tr", has_text="own-2")
    row.locator("summary").click()
    row.get_by_label("due at").fill("2031-01-01T00:00")
    app.admin.cancel_timer("later", "own-0")
    expect(page.locator("tr", has_text="own-0")).to_have_count(0)
    assert row.locator("details").get_attribute("open") is not None
    assert row.get_by_label("due at").input_value() == "2031-01-01T00:00"
    app.admin.dead_drop("orders", "billing", names[1:])
    for name in names[1:]:
        app.admin.cancel_timer("later", name)


def test_a_page_says_when_it_is_old_and_pauses_when_it_is_told_to(desk: Desk) -> None:
    page = desk.page
    page.clock.install()
    page.goto(desk.url)
    expect(page.locator("#live")).to_have_text("live")
    asked: list[str] = []
    page.route("**/*", lambda route: (asked.append(route.request.url), route.abort()))
    for _ in range(8):
        page.clock.run_for(2_000)
        page.wait_for_function("() => true")
    expect(page.locator("#stale")).to_contain_text("does not reply")
    count = len(asked)
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.clock.run_for(10_000)
    assert len(asked) <= count + 1  # one may have been on its way
    page.evaluate("delete document.hidden")
    page.keyboard.press("p")
    expect(page.locator("#live")).to_contain_text("paused")
    count = len(asked)
    page.clock.run_for(10_000)
    assert len(asked) == count
    assert count > 2


def test_an_open_page_stays_and_says_so_when_its_visitor_is_signed_in_no_more(
    shop: tuple[QFrame, str], browser: Browser
) -> None:
    app, _ = shop
    context = browser.new_context()
    page = context.new_page()
    with served(app, role="owner", token="a-token-that-is-long") as url:
        page.goto(f"{url}/topics/events/stats")
        page.get_by_label("Token").fill("another-token-than-it-is")
        page.keyboard.press("Enter")
        expect(page.locator("body")).to_contain_text("That is not the token")
        page.get_by_label("Token").fill("a-token-that-is-long")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/topics/events/stats")
        context.clear_cookies()
        expect(page.locator("#stale")).to_contain_text("You are not signed in any more")
        expect(page.locator("h1")).to_contain_text("stats")
    context.close()


def test_the_keyboard_leads_everywhere(desk: Desk) -> None:
    page = desk.page
    places = {
        "gm": "messages", "gt": "timers", "gc": "schedules", "gw": "workers", "gx": "outbox",
        "ga": "audit", "gs": "settings", "?": "help", "go": "",
    }  # fmt: skip
    for keys, path in places.items():
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_url(f"{desk.url}/{path}")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    focused = page.evaluate("document.activeElement.href")
    assert "/topics/" in focused
    page.keyboard.press("Enter")
    page.wait_for_url(focused)
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.keyboard.press("t")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.evaluate("localStorage.clear()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_ten_tasks_of_an_operator_take_four_clicks_at_most(desk: Desk) -> None:
    admin, page = desk.app.admin, desk.page
    clicks: dict[str, int] = {}

    def done(task: str) -> None:
        clicks[task] = desk.clicks
        desk.clicks = 0
        page.goto(desk.url)

    desk.search("customer-77")
    desk.click("behind")
    desk.says("behind")
    desk.says("blocked")
    done("find the message of customer 77, and say why it waits")

    desk.click("Workers")
    desk.says("hangs")
    desk.says("slow / archive")
    desk.click("Where is slow/archive in its code?", "button")
    expect(page.locator("pre")).to_contain_text("test_browser.py")
    expect(page.locator("pre")).to_contain_text(" in hang")
    done("see which worker hangs, with which message, since when, and where")

    desk.search("customer-77")
    desk.click("customer-77")
    desk.open("Hold this key")
    page.get_by_label("why").first.fill("two accounts")
    desk.click("Hold", "button")
    desk.says("is paused")
    assert admin.holds("orders", "billing")["billing"][0].why == "two accounts"
    done("hold a key")

    desk.click("Audit")
    desk.says("two accounts")
    done("see what is paused, by whom and why")

    desk.search("customer-77")
    desk.click("customer-77")
    desk.click("Let it go on", "button")
    desk.says("goes on")
    done("let the key go on")

    desk.search("customer-77")
    desk.click("customer-77")
    desk.click("Retry it now", "button")
    desk.says("is due now")
    done("retry at once what blocks a key")

    desk.click("billing", exact=True)
    desk.open("Pause this group")
    desk.click("Pause", "button")
    desk.says("is paused")
    assert admin.tuned("orders", "billing").paused
    page.get_by_role("button", name="Resume").click()
    done("pause a group")

    desk.click("stats", exact=True)
    desk.open("Move this group")
    desk.click("Show what that would do", "button")
    page.get_by_label("Type").first.fill("stats")
    desk.click("Move the group", "button")
    desk.says("was moved in 4 slots")
    done("replay a stream, after a look at what that would do")

    desk.click("Timers")
    desk.open("change")
    desk.click("Cancel it", "button")
    desk.says("was cancelled")
    done("cancel a timer")

    page.locator("tr", has_text="billing").get_by_role("link", name="5").click()
    desk.clicks += 1
    desk.says("5 dead letters")
    desk.click("the oldest worker started")
    desk.click("Retry 2", "button", exact=True)
    desk.says("Retry: done")
    assert {each.id for each in admin.dead("orders", "billing")} >= {"dead-0", "dead-1", "dead-2"}
    done("retry all that died of one cause since the deploy")

    assert len(clicks) == 10
    assert max(clicks.values()) <= 4, clicks
