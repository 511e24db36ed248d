"""The console in Chromium where names, ids, keys and errors are long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import quote, urlencode

import pytest
from apps import running
from browsing import faults_at_each_width, served
from consoling import waiting_outbox
from eventually import eventually
from playwright.sync_api import Browser, expect

from qframe import QFrame, Reject, Topic

LONG = "a_name_that_is_as_long_as_a_name_may_be".ljust(64, "x")
TOPIC = Topic(LONG, kind="ordered", slots=2)
TIMERS = Topic(LONG[:-1], kind="delay", slots=2)
ID = f"{LONG}{LONG[:63]}"


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


@pytest.mark.parametrize("look", ["light", "dark"])
def test_long_names_ids_keys_and_errors_are_broken_and_widen_no_page(
    long_names: str, browser: Browser, look: Literal["light", "dark"]
) -> None:
    group = f"/topics/{LONG}/{LONG}"
    pages = {
        "/": LONG, f"/topics/{LONG}": LONG, group: LONG, f"{group}/dead": "3 dead letters",
        f"{group}/key?{urlencode({'key': f'{ID}0'})}": LONG, f"/messages?q=topic:{LONG}": LONG,
        f"/messages/{quote(f'{ID}0')}?topic={LONG}": "it is dead",
        f"/timers?topic={TIMERS.name}": LONG, "/schedules": LONG[:40], "/workers": LONG,
        f"/schedules?prefix={LONG[:9]}&schedule={LONG[:60]}": LONG[:40], "/audit": LONG,
    }  # fmt: skip
    context = browser.new_context(reduced_motion="reduce", color_scheme=look)
    page = context.new_page()
    faults: dict[str, list[str]] = {}
    for number, (path, text) in enumerate(pages.items()):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(long_names + path)
        expect(page.locator("body")).to_contain_text(text)
        faults |= faults_at_each_width(page, f"long-{look}-{number}")
    context.close()
    assert {path: each for path, each in faults.items() if each} == {}
