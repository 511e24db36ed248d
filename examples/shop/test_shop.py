"""Tests of the shop: the HTTP API and the handlers, in memory and under a clock of their own.

    python -m pytest examples/shop

A request commits to a SQLite file; the harness relays the outbox, runs the handlers on a store in
memory, moves the clock, and loses a worker where a test asks for it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from qframe import QFrame
from qframe.testing import Harness

# The modules of the shop read this when they are imported.
FOLDER = tempfile.TemporaryDirectory()
os.environ["SHOP_DATABASE"] = f"sqlite:///{FOLDER.name}/shop.db"

from examples.shop import handlers  # noqa: E402
from examples.shop.messages import ORDERS, PARCELS, OrderEvent, OrderReference  # noqa: E402
from examples.shop.tables import (  # noqa: E402
    Base,
    Customer,
    Entry,
    Letter,
    Order,
    Parcel,
    create_tables,
    engine,
)
from examples.shop.web import api  # noqa: E402


@pytest.fixture
def qframe_app() -> QFrame:
    """The app that `qframe_harness` runs; without this fixture it would be the default app."""
    return handlers.app


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Empty tables."""
    create_tables()
    yield
    Base.metadata.drop_all(engine())
    engine().dispose()


@pytest.fixture
def client(qframe_harness: Harness) -> TestClient:  # noqa: ARG001 - it takes the app over
    """A client of the API, in the test's own process."""
    return TestClient(api)


def balance(customer: str) -> int:
    with Session(engine()) as session:
        return session.get_one(Customer, customer).cents


def rows(table: type[Base]) -> int:
    with Session(engine()) as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_an_order_is_billed_once_however_often_it_is_sent(
    client: TestClient, qframe_harness: Harness
) -> None:
    for _ in range(2):
        answer = client.put("/orders/a-1", json={"customer": "ann", "cents": 500})
        assert answer.status_code == 202
    qframe_harness.run_until_idle()
    assert client.get("/orders/a-1").json()["state"] == "billed"
    assert balance("ann") == -500
    event = OrderEvent(order="a-1", customer="ann", event="placed", cents=500)
    qframe_harness.assert_handled(ORDERS, "billing", event.model_dump())


def test_a_cancelled_order_is_refunded_and_nobody_is_reminded(
    client: TestClient, qframe_harness: Harness
) -> None:
    client.put("/orders/a-2", json={"customer": "ben", "cents": 700})
    qframe_harness.run_until_idle()
    client.delete("/orders/a-2")
    qframe_harness.advance(days=4)
    qframe_harness.assert_all_done()
    assert balance("ben") == 0
    assert rows(Letter) == 0


def test_a_reminder_is_written_after_three_days(
    client: TestClient, qframe_harness: Harness
) -> None:
    client.put("/orders/a-3", json={"customer": "cem", "cents": 100})
    qframe_harness.advance(days=2)
    assert rows(Letter) == 0
    qframe_harness.advance(days=2)
    assert rows(Letter) == 1
    qframe_harness.assert_all_done()


@pytest.mark.parametrize("point", ["pull", "handler", "commit", "settle"])
def test_a_worker_that_is_lost_charges_nobody_twice(
    point: str, client: TestClient, qframe_harness: Harness
) -> None:
    client.put(f"/orders/{point}", json={"customer": "dan", "cents": 300})
    qframe_harness.crash_after(point, topic=ORDERS, group="billing")
    qframe_harness.drain()
    qframe_harness.assert_all_done()
    assert (balance("dan"), rows(Entry), rows(Parcel)) == (-300, 1, 1)


def test_express_parcels_leave_first(qframe_harness: Harness) -> None:
    with Session(engine()) as session:
        for order in ("slow", "fast"):
            session.add(Order(id=order, customer="eve", cents=1, state="billed"))
        session.commit()
    for order, priority in (("slow", 0), ("fast", 10)):
        parcel = OrderReference(order=order)
        qframe_harness.publish(PARCELS, parcel, key=order, priority=priority)
    qframe_harness.run_until_idle()
    qframe_harness.assert_handled(PARCELS, "shipping", {"order": "fast"}, {"order": "slow"})


def test_an_order_that_makes_no_sense_is_refused_before_anything_is_stored(
    client: TestClient, qframe_harness: Harness
) -> None:
    assert client.put("/orders/a-9", json={"customer": "fay", "cents": 0}).status_code == 422
    assert client.get("/orders/a-9").status_code == 404
    assert qframe_harness.published(ORDERS) == []
