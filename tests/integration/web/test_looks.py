"""The console in Chromium where it has nothing to show, cannot show it, or shows long names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

import pytest
from apps import running
from browsing import chromium, faults_at_each_width, served
from consoling import waiting_outbox
from eventually import eventually
from playwright.sync_api import Browser, Page, expect

from qframe import QFrame, Reject, Topic

LONG = "a_name_that_is_as_long_as_a_name_may_be".ljust(64, "x")
TOPIC = Topic(LONG, kind="ordered", slots=2)
TIMERS = Topic(LONG[:-1], kind="delay", slots=2)
ID = f"{LONG}{LONG[:63]}"
NOTHING = {
    "/": "This store has no topics yet",
    "/messages": "Type an id or a key",
    "/timers": "No topic is there",
    "/schedules": "No schedule is there",
    "/schedules?prefix=none": "None of the 0 schedules",
    "/workers": "No worker is alive",
    "/outbox": "This console was given no outbox",
    "/audit": "Nothing is paused",
    "/messages/never-seen": "never-seen",
    "/messages?q=state:none": "That cannot be done",
    "/nothing": "no such page",
    "/topics/none/g/dead": "There is none of this name",
}
AWAY = {
    "/": "The store is away, and nothing of it was seen yet",
    "/timers": "The store is away",
    "/messages/m1": "The store is away",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(params=["light", "dark"])
def look(request: pytest.FixtureRequest) -> Literal["light", "dark"]:
    return "dark" if request.param == "dark" else "light"


@pytest.fixture
def page(browser: Browser, look: Literal["light", "dark"]) -> Iterator[Page]:
    context = browser.new_context(reduced_motion="reduce", color_scheme=look)
    yield context.new_page()
    context.close()


def faults_of_pages(page: Page, url: str, pages: dict[str, str], name: str) -> Any:
    """What is wrong with pages, once each shows what it ought to."""
    faults: dict[str, list[str]] = {}
    for number, (path, text) in enumerate(pages.items()):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(url + path)
        expect(page.locator("body")).to_contain_text(text)
        faults |= faults_at_each_width(page, f"{name}-{number}")
    return {path: each for path, each in faults.items() if each}


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("looks")
    with QFrame(f"sqlite:///{folder / 'q.db'}?synchronous=normal", grace=5) as app:

        @app.consumer(TOPIC, group=LONG, max_attempts=1)
        def fail(_body: Any) -> None:
            raise Reject(f"https://{ID}.example/{ID}")

        app.events.listen(lambda name, facts: None)
        app.declare(TIMERS)
        app.store.subscribe(TIMERS, LONG)
        app.publish(TIMERS, ID, key=ID, delay="1h", id=ID)
        for number in range(3):
            app.publish(TOPIC, {ID: ID}, key=f"{ID}{number}", id=f"{ID}{number}", tags=[LONG])
        app.schedules.put(LONG[:60], "0 9 * * 1-5", topic=TIMERS, body=ID, note=ID)
        with running(app):
            eventually(lambda: len(app.admin.dead(LONG, LONG)) == 3, within=60)
            app.admin.pause(LONG, LONG, why=ID)
            outboxes = [waiting_outbox()]
            with served(app, role="owner", environment=LONG, outboxes=outboxes) as url:
                yield url


def test_long_names_ids_keys_and_errors_are_broken_and_widen_no_page(
    long_names: str, page: Page, look: str
) -> None:
    group = f"/topics/{LONG}/{LONG}"
    pages = {
        "/": LONG, f"/topics/{LONG}": LONG, group: LONG, f"{group}/dead": "3 dead letters",
        f"{group}/key?{urlencode({'key': f'{ID}0'})}": LONG, f"/messages?q=topic:{LONG}": LONG,
        f"/messages/{quote(f'{ID}0')}?topic={LONG}": "it is dead",
        f"/timers?topic={TIMERS.name}": LONG, "/schedules": LONG[:40], "/workers": LONG,
        f"/schedules?prefix={LONG[:9]}&schedule={LONG[:60]}": LONG[:40], "/audit": LONG,
    }  # fmt: skip
    assert faults_of_pages(page, long_names, pages, f"long-{look}") == {}


def test_over_a_store_that_has_nothing_each_page_says_what_to_do_under_a_red_badge(
    page: Page, look: str, tmp_path: Path
) -> None:
    with (
        QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app,
        served(app, environment="production") as url,
    ):
        assert faults_of_pages(page, url, NOTHING, f"nothing-{look}") == {}
        badge = page.locator("header .badge")
        expect(badge).to_have_text("production")
        red, green, blue = badge.evaluate(
            "each => getComputedStyle(each).backgroundColor.match(/[0-9]+/g).map(Number)"
        )
        assert red > 1.5 * max(green, blue)


def test_where_the_store_is_away_and_at_the_door_it_can_be_read_too(
    page: Page, look: str, tmp_path: Path
) -> None:
    with QFrame("redis://127.0.0.1:1") as app:
        with served(app) as url:
            assert faults_of_pages(page, url, AWAY, f"away-{look}") == {}
        with served(app, token="a-token-that-is-long") as url:
            door = {"/workers": "Open the console"}
            assert faults_of_pages(page, url, door, f"door-{look}") == {}
            page.get_by_label("Token").fill("another-that-is-long")
            page.get_by_role("button").click()
            expect(page.get_by_role("alert")).to_have_text("That is not the token.")
