"""The forms of the console in Chromium: who is offered which, and each pressed where it stands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from apps import running
from browsing import served
from consoling import ADDRESSES, BODY, SECRET, fill, waiting_outbox
from eventually import eventually
from playwright.sync_api import Browser, BrowserContext, Page, expect
from starlette.requests import HTTPConnection

from qframe import QFrame, Topic
from qframe.admin.rights import ROLES
from qframe.web import Visitor
from qframe.web.acts import ACTS

SLOW = Topic("slow", kind="ordered", slots=2)
ONLY_LATER = {"resume", "resume-schedule", "stop-job"}
"""Acts whose forms are on a page once something is paused, or while a job runs."""

OFFERED = """() => [...document.querySelectorAll("form[method=post], [formaction]")].map(
    (each) => (each.getAttribute("formaction") ?? each.getAttribute("action")).split("/do/")[1])"""


class Pressed(NamedTuple):
    """The button of an act on a page, the fields filled in, and what is said after and before."""

    act: str
    path: str
    button: str
    fields: dict[str, str]
    says: str
    once: str = ""


BILLING = "/topics/orders/billing"
KEY = f"{BILLING}/key?key=customer-77"
BUTTONS = [
    Pressed("pause", BILLING, "Pause", {"why": "the bank is closed"}, "is paused"),
    Pressed("resume", BILLING, "Resume", {}, "goes on"),
    Pressed("tune", BILLING, "Tune", {"threads": "3", "rate": "50/s"}, "is tuned"),
    Pressed("ask-stacks", "/workers", "Where is slow/archive", {}, "tell within 2 s"),
    Pressed("unblock", KEY, "Retry it now", {}, "is due now"),
    Pressed("skip", KEY, "Skip", {"why": "two accounts"}, "was skipped",
            "it waits for a retry after 2 attempts"),
    Pressed("retry-dead", "/messages/dead-0?topic=orders", "Retry", {}, "1 dead letter was"),
    Pressed("drop-dead", f"{BILLING}/dead", "Drop the chosen", {"id": "dead-1"}, "was dropped"),
    Pressed("drop-dead", f"{BILLING}/dead", "Drop for good", {"confirm": "billing"}, "Drop: done"),
    Pressed("move-timer", "/timers?topic=later", "Move", {"at": "2031-01-01T00:00"}, "another"),
    Pressed("cancel-timer", "/timers?topic=later&key=timer-1", "Cancel it", {}, "was cancelled"),
    Pressed("edit-timer", "/timers?topic=later&key=timer-2", "Change it", {"body": "[7]"},
            "was changed"),
    Pressed("move-timers", "/timers?topic=later", "Count them", {"shift": "1h"},
            "2 timers are found"),
    Pressed("cancel-timers", "/timers?topic=later", "Count them", {}, "2 timers are found"),
    Pressed("retry-outbox", "/outbox", "Try what is refused", {}, "try again within 1 s"),
    Pressed("drop-outbox", "/outbox", "Drop the chosen", {"id": "refused"}, "1 message of"),
    Pressed("pause-schedule", "/schedules", "Pause", {}, "report is paused"),
    Pressed("resume-schedule", "/schedules", "Resume", {}, "report goes on"),
    Pressed("run-schedule", "/schedules", "Run now", {}, "has published message"),
    Pressed("delete-schedule", "/schedules", "Delete it", {"confirm": "report"}, "is gone"),
    Pressed("seek", "/topics/events/stats?to=earliest", "Move the group", {"confirm": "stats"},
            "was moved in 4 slots"),
    Pressed("drop-group", "/topics/later/reminders", "Drop the group",
            {"confirm": "reminders", "force": "yes"}, "was dropped"),
    Pressed("delete-topic", "/topics/later", "Delete the topic", {"confirm": "later"},
            "was deleted"),
]  # fmt: skip
GO_ON = {"move-timers": {}, "cancel-timers": {"confirm": "later"}}
"""What is filled in to go on after a count."""


def role_of(connection: HTTPConnection) -> Visitor:
    return Visitor("ann", connection.headers["x-role"])


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The console of a shop whose worker runs, and has one message in hand."""
    gate = threading.Event()
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal", grace=5) as app:
        fill(app)

        @app.consumer(SLOW, group="archive")
        def hang(_body: Any) -> None:
            gate.wait(600)

        app.publish(SLOW, {"file": "one"}, key="disk", id="hangs")
        with (
            running(app, gate),
            served(app, auth=role_of, outboxes=[waiting_outbox()]) as url,
        ):
            eventually(lambda: _counts(app) == (4, 1), within=60)
            yield url


def _counts(app: QFrame) -> tuple[int, int]:
    groups = [group for topic in app.admin.topics() for group in topic.groups]
    return sum(each.dead for each in groups), sum(each.doing for each in groups)


def as_role(browser: Browser, role: str) -> BrowserContext:
    context = browser.new_context(extra_http_headers={"x-role": role})
    context.set_default_timeout(60_000)
    return context


def press(page: Page, act: str, button: str, fields: dict[str, str]) -> None:
    """Opens what hides a form, fills it in, and sends it."""
    for details in page.locator("details").all():
        if details.get_attribute("open") is None:
            details.locator("summary").click()
    sends = page.locator(f"form[action$='/do/{act}'] button, [formaction$='/do/{act}']")
    send = sends.filter(has_text=button).first
    form = send.locator("xpath=ancestor::form")
    for name, text in fields.items():
        field = form.locator(f"[name='{name}']:not([type=hidden])")
        if field.first.get_attribute("type") == "checkbox":
            form.locator(f"[name='{name}'][value='{text}']").check()
        else:
            field.first.fill(text)
    send.click()


def test_each_role_is_offered_the_forms_that_it_may_send_and_a_viewer_sees_no_body(
    url: str, browser: Browser
) -> None:
    offered: dict[str, set[str]] = {}
    for role in ROLES:
        context = as_role(browser, role)
        page = context.new_page()
        offered[role] = set()
        for address in [each for addresses in ADDRESSES.values() for each in addresses]:
            page.goto(url + address)
            offered[role] |= set(page.evaluate(OFFERED))
            assert SECRET not in page.content()
            if role == "viewer":
                assert BODY not in page.content(), address
        context.close()
    page = as_role(browser, "owner").new_page()
    page.goto(f"{url}/timers?topic=later")
    press(page, "cancel-timers", "Count them", {})
    page.wait_for_url("**/jobs/*")
    for role in ("viewer", "reader", "operator"):  # the job of somebody with more rights
        other = as_role(browser, role).new_page()
        other.goto(page.url)
        expect(other.locator("body")).to_contain_text("3 timers are found")
        assert other.evaluate(OFFERED) == []
    assert offered["viewer"] == offered["reader"] == set()
    assert offered["owner"] == set(ACTS) - ONLY_LATER
    assert offered["operator"] == {
        act for act in offered["owner"] if ACTS[act].right in ROLES["operator"]
    }


@pytest.mark.gate
def test_each_form_does_what_it_says_when_its_button_is_pressed(url: str, browser: Browser) -> None:
    context = as_role(browser, "owner")
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{page.url}: {message.text}"))
    for form in BUTTONS:
        page.goto(url + form.path)
        expect(page.locator("main")).to_contain_text(form.once)
        press(page, form.act, form.button, form.fields)
        expect(page.locator("body")).to_contain_text(form.says)
        if form.act in GO_ON:
            press(page, form.act, "", GO_ON[form.act])
            expect(page.locator("h1")).to_contain_text(": done")
            expect(page.locator("body")).to_contain_text("2 of 2 done")
    context.close()
    assert {form.act for form in BUTTONS} == set(ACTS) - {"stop-job"}
    assert said == []
