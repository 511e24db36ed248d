"""Pydantic models are bodies: published as they are, and given to handlers that ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pydantic.dataclasses
import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, field_validator
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from qframe import BadBody, BadHandler, BadOption, Outbox, Outgoing, QFrame, Topic
from qframe.testing import Harness

ORDERS = Topic("orders", slots=2)
REMINDERS = Topic("reminders", kind="delay", slots=2)


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    article: str
    price: Decimal


class Order(BaseModel):
    model_config = ConfigDict(strict=True)

    number: int = Field(alias="orderNumber")
    at: datetime
    lines: list[Line] = []
    colour: Colour = Colour.RED


class Renamed(BaseModel):
    number: int = Field(
        validation_alias=AliasChoices("number", "orderNumber", AliasPath("deep", 0))
    )
    total: int = Field(0, validation_alias="sum", serialization_alias="total")


@dataclass
class Parcel:
    weight: float
    order: Order


class Sieve:
    """No pydantic, but its methods."""

    def __init__(self, mesh: int) -> None:
        self.mesh = mesh

    def model_dump(self, **_: Any) -> dict[str, int]:
        return {"mesh": self.mesh}

    @classmethod
    def model_validate(cls, value: Any) -> Sieve:
        return cls(value["mesh"])


class Grumpy(BaseModel):
    secret: str
    other: dict[str, int] = {}

    @field_validator("secret")
    @classmethod
    def refuse(cls, value: str) -> str:
        raise ValueError(f"I do not like {value}")


ORDER = Order(
    orderNumber=7, at=datetime(2026, 1, 2, tzinfo=UTC),
    lines=[Line(article="tea", price=Decimal("1.10"))],
)  # fmt: skip
PARCEL = Parcel(1.5, ORDER)


@pytest.fixture
def app() -> Iterator[QFrame]:
    with QFrame(store="sqlite:////nowhere/at/all.db") as app:
        yield app


@pytest.fixture
def harness(app: QFrame) -> Iterator[Harness]:
    with Harness(app) as harness:
        yield harness


@pytest.mark.parametrize(
    ("annotation", "body"),
    [
        (Order, ORDER),
        (list[Order], [ORDER, ORDER]),
        (dict[str, Order], {"a": ORDER}),
        (Order | None, ORDER),
        (Order | None, None),
        (Parcel, PARCEL),
        (list[Parcel], [PARCEL]),
    ],
)
def test_a_model_that_is_published_is_what_a_handler_gets(
    app: QFrame, harness: Harness, annotation: Any, body: Any
) -> None:
    seen: list[Any] = []

    def handle(order: Any) -> None:
        seen.append(order)

    handle.__annotations__["order"] = annotation
    app.consumer(ORDERS, group="g")(handle)
    app.publish(ORDERS, body)
    app.publish_many(ORDERS, [body] * 9)
    app.publish_many(ORDERS, [Outgoing(body, key="a")] * 9)
    with app.buffered() as buffered:
        buffered.publish(ORDERS, body).result()
    harness.run_until_idle()
    assert seen == [body] * 20


def test_a_class_with_the_methods_of_a_model_is_one(app: QFrame, harness: Harness) -> None:
    seen: list[Any] = []

    @app.consumer(ORDERS, group="g")
    def handle(sieves: list[Sieve]) -> None:
        seen.extend(each.mesh for each in sieves)

    @app.consumer(ORDERS, group="raw")
    def raw(body: list[Any]) -> None:
        seen.append(body)

    app.publish(ORDERS, [Sieve(3)])
    harness.run_until_idle()
    assert seen == [3, [{"mesh": 3}]]


def test_a_model_goes_through_an_outbox_and_into_a_timer(app: QFrame, harness: Harness) -> None:
    seen: list[Order] = []

    @app.consumer(REMINDERS, group="g")
    def handle(order: Order) -> None:
        seen.append(order)

    engine = create_engine("sqlite://", poolclass=StaticPool)
    outbox = app.relay(Outbox(engine))
    with Session(engine) as session, session.begin():
        outbox.publish(session, REMINDERS, ORDER, key="a")
    app.timers.schedule(REMINDERS, {"no": "order"}, key="b", delay="1h")
    app.timers.change(REMINDERS, "b", ORDER)
    harness.advance(hours=2)
    assert seen == [ORDER, ORDER]
    engine.dispose()


WRONG: list[tuple[Any, Any, list[str]]] = [
    (
        Order,
        {"orderNumber": "hidden", "at": "2026-01-02", "lines": [{"article": "hidden"}]},
        ["int type - at `$.orderNumber`", "missing - at `$.lines[0].price`"],
    ),
    (list[Order], [{"orderNumber": "hidden"}], ["int type - at `$.orderNumber`", "at `$[0]`"]),
    (
        Grumpy,
        {"secret": "hidden", "other": {"hidden": "x"}},
        ["value error - at `$.secret`", "int parsing - at `$.other[...]`"],
    ),
    (Renamed, {}, ["missing - at `$.number`"]),
    (Renamed, {"orderNumber": "hidden"}, ["int parsing - at `$.orderNumber`"]),
    (Renamed, {"deep": ["hidden"]}, ["int parsing - at `$.deep[0]`"]),
    (Renamed, {"number": 1, "sum": "hidden"}, ["int parsing - at `$.sum`"]),
]


@pytest.mark.parametrize(("annotation", "body", "places"), WRONG)
def test_what_a_model_refuses_is_dead_at_once_and_the_reason_names_the_field_without_data(
    app: QFrame, harness: Harness, annotation: Any, body: Any, places: list[str]
) -> None:
    def handle(body: Any) -> None: ...

    handle.__annotations__["body"] = annotation
    app.consumer(ORDERS, group="g")(handle)
    app.publish(ORDERS, body)
    harness.run_until_idle()
    [dead] = app.admin.dead("orders", "g")
    text = str(dead.error)
    assert all(place in text for place in places), text
    assert "hidden" not in text
    assert dead.attempts == 1


def test_a_model_without_a_value_in_json_and_one_for_many_are_refused(
    app: QFrame, harness: Harness
) -> None:
    class Measure(BaseModel):
        value: float

    with pytest.raises(BadBody, match=r"JSON cannot hold nan, found at body\['value'\]"):
        app.publish(ORDERS, Measure(value=float("nan")))
    with pytest.raises(BadBody, match="Encoding objects of type QFrame is unsupported"):
        app.publish(ORDERS, [app])
    with pytest.raises(BadOption, match="it is a single body, and publish_many takes several"):
        app.publish_many(ORDERS, ORDER)


@pydantic.dataclasses.dataclass
class Paid:
    cents: int = pydantic.Field(gt=0)


@pytest.mark.promise(8)
def test_a_class_that_nothing_is_decoded_to_or_checked_for_is_refused_wherever_it_stands(
    app: QFrame,
) -> None:
    def handle(body: Any) -> None: ...

    for wrong, text in (
        (QFrame, "nothing in JSON is decoded to QFrame"),
        (Paid, "would not check the dataclass .*make it a BaseModel"),
    ):
        handle.__annotations__["body"] = list[wrong]  # type: ignore[valid-type]
        with pytest.raises(BadHandler, match=text):
            app.consumer(ORDERS, group="g")(handle)
