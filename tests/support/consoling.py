"""A console in a test: a shop with messages in every state, and clients for its pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from apps import running, settled
from eventually import eventually
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool
from starlette.testclient import TestClient

from qframe import NeedRetry, Outbox, QFrame, Reject, Topic
from qframe.web import console

HERE: Final = "http://127.0.0.1"
LOCAL: Final = ("127.0.0.1", 1)
ORDERS: Final = Topic("orders", kind="ordered", slots=4, history="1d")
EVENTS: Final = Topic("events", slots=4)
LATER: Final = Topic("later", kind="delay", slots=2)
SECRET: Final = "hunter-2-hunter"
BODY: Final = "the-body-of-it"

_BUSINESS: Final = create_engine(
    "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
)
_NUMBERS: Final = count(1)

ADDRESSES: Final = {
    "/": ["/", "/?named=ord"],
    "/topics/{topic}": ["/topics/orders", "/topics/events", "/topics/later"],
    "/topics/{topic}/{group}": [
        "/topics/orders/billing", "/topics/events/stats?to=earliest",
        "/topics/events/stats?to=time&time=2026-01-01T00:00",
    ],
    "/topics/{topic}/{group}/dead": [
        "/topics/orders/billing/dead", "/topics/events/stats/dead?all=yes",
    ],
    "/topics/{topic}/{group}/key": ["/topics/orders/billing/key?key=customer-77"],
    "/messages": [
        "/messages", "/messages?q=topic:orders", "/messages?q=customer-77",
        "/messages?q=topic:orders+group:billing+state:waiting",
    ],
    "/messages/{id:path}": [
        "/messages/dead-1", "/messages/blocked?topic=orders", "/messages/no",
        "/messages/good-1?topic=orders",
    ],
    "/timers": ["/timers", "/timers?topic=later", "/timers?topic=later&key=timer-1",
                "/timers?topic=later&until=2100-01-01T00:00&state=waiting", "/timers?topic=events"],
    "/schedules": ["/schedules", "/schedules?schedule=report", "/schedules?prefix=re"],
    "/workers": ["/workers"],
    "/outbox": ["/outbox"],
    "/audit": ["/audit", "/audit?verify=orders"],
    "/settings": ["/settings"],
    "/help": ["/help"],
}  # fmt: skip
"""Addresses of each page of the console, by its route; a job has none before it is started."""


def fill(app: QFrame) -> None:
    """Registers handlers, and publishes what they settle, retry later, and let die."""

    @app.consumer(ORDERS, group="billing", threads=2)
    def bill(order: dict[str, Any]) -> None:
        if order.get("fails") == "now":
            raise Reject(f"card {BODY} declined")
        if order.get("fails") == "later":
            raise NeedRetry("the bank sleeps", delay="2h")

    @app.consumer(EVENTS, group="stats")
    def counted(event: Any) -> None:
        if event == "bad":
            raise Reject("bad event")

    app.events.listen(lambda name, facts: None)  # its log is not for the test's output
    app.declare(LATER)
    app.store.subscribe(LATER, "reminders")
    for number in range(6):
        app.publish(ORDERS, {"text": BODY}, key=f"good-{number}", id=f"good-{number}")
    for number in range(3):
        body = {"fails": "now", "text": BODY}
        app.publish(ORDERS, body, key=f"bad-{number}", id=f"dead-{number}")
    body = {"fails": "later", "text": BODY, "n": 2**60 + 3, "password": SECRET}
    app.publish(ORDERS, body, key="customer-77", id="blocked", headers={"trace": BODY})
    app.publish(ORDERS, {"text": BODY}, key="customer-77", id="behind")
    app.publish_many(EVENTS, ["ok"] * 20)
    app.publish(EVENTS, "bad", id="bad-event")
    app.schedules.put("report", "0 9 * * 1-5", topic=EVENTS, body=BODY, note="for ada")
    for number in range(3):
        name = f"timer-{number}"
        app.publish(LATER, BODY, key=name, delay=f"{number + 1}h", id=name)


@contextmanager
def shop(url: str, **options: Any) -> Iterator[QFrame]:
    """An app whose worker has handled all that `fill` publishes, and has stopped."""
    with QFrame(url, grace=5, **options) as app:
        fill(app)
        with running(app):
            eventually(lambda: _is_handled(app), within=60)
        yield app


def _is_handled(app: QFrame) -> bool:
    slots = app.store.stats(ORDERS, "billing")
    dead, retrying = sum(slot.dead for slot in slots), sum(slot.retrying for slot in slots)
    done = settled(app, ORDERS, "billing"), settled(app, EVENTS, "stats")
    return (dead, retrying, done) == (3, 1, (6, 20))


def waiting_outbox(body: str = BODY) -> Outbox:
    """An outbox that nobody relays: two messages that their topic refuses, and another."""
    outbox = Outbox(_BUSINESS, prefix=f"shop{next(_NUMBERS)}_")
    with Session(_BUSINESS) as session, session.begin():
        for id_, topic, key in (("refused", "nobody", "ann"), ("refused-too", "nobody", "ann"),
                                ("fine", ORDERS, "bob")):  # fmt: skip
            outbox.publish(session, topic, {"text": body}, key=key, id=id_)
    return outbox


def browser(app: QFrame, role: str = "owner", **options: Any) -> TestClient:
    """A client on this machine that sends forms as the console's own pages do."""
    web = console(app, role=role, **{"outboxes": [waiting_outbox()], **options})
    return TestClient(web, HERE, client=LOCAL, headers={"sec-fetch-site": "same-origin"})


def text_of(html: str) -> str:
    """A page's text, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def forms_of(html: str) -> list[tuple[str, dict[str, str]]]:
    """The forms of a page that change something: where each goes, and its hidden fields."""
    forms = re.finditer(r'<form method="post" action="([^"]+)">(.*?)</form>', html, re.DOTALL)
    hidden = re.compile(r'type="hidden" name="([^"]+)" value="([^"]*)"')
    return [(found[1], dict(hidden.findall(found[2]))) for found in forms]
