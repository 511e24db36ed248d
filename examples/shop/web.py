"""The HTTP API: `uvicorn examples.shop.web:api`.

A request changes rows and publishes through the outbox in one transaction, so it needs neither the
message store nor a worker: both may be away, and orders are taken all the same.

Each endpoint commits before it returns. A dependency that commits after its `yield` would do so
when the response has been sent already: a customer would be told of an order that is not there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path
from pydantic import BaseModel, Field
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from examples.shop.messages import ORDERS, OrderEvent, app, outbox
from examples.shop.tables import Customer, Order, create_tables, engine

OrderId = Annotated[str, Path(pattern=r"^[\w.-]{1,40}$")]


class NewOrder(BaseModel):
    """An order, as the customer sends it."""

    customer: str = Field(min_length=1, max_length=40)
    cents: int = Field(ge=1)
    express: bool = False


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Creates the tables at the start, and closes the app's connections at the end."""
    create_tables()
    yield
    app.close()


api = FastAPI(title="shop", lifespan=lifespan)


@api.put("/orders/{order_id}", status_code=202)
def place(order_id: OrderId, new: NewOrder) -> dict[str, str]:
    """Places an order under the customer's own id, so a request may be repeated."""
    try:
        with Session(engine()) as session:
            if session.get(Order, order_id) is None:
                if session.get(Customer, new.customer) is None:
                    session.add(Customer(name=new.customer))
                session.add(Order(id=order_id, **new.model_dump()))
                event = OrderEvent(order=order_id, event="placed", **new.model_dump())
                outbox.publish(session, ORDERS, event, key=new.customer)
                session.commit()
    except IntegrityError:
        raise HTTPException(409, "another request stores the same; repeat this one") from None
    return {"order": order_id}


@api.delete("/orders/{order_id}", status_code=202)
def cancel(order_id: OrderId) -> dict[str, str]:
    """Cancels an order; a worker refunds what was charged."""
    with Session(engine()) as session:
        order = session.get(Order, order_id, with_for_update=True)
        if order is None:
            raise HTTPException(404, f"there is no order {order_id!r}")
        if order.state != "cancelled":
            order.state = "cancelled"
            event = OrderEvent(
                order=order.id, customer=order.customer, event="cancelled", cents=order.cents
            )
            outbox.publish(session, ORDERS, event, key=order.customer)
            session.commit()
    return {"order": order_id}


@api.get("/orders/{order_id}")
def show(order_id: OrderId) -> dict[str, Any]:
    """An order as it is now."""
    with Session(engine()) as session:
        order = session.get(Order, order_id)
        if order is None:
            raise HTTPException(404, f"there is no order {order_id!r}")
        return {"order": order.id, "customer": order.customer, "state": order.state}


@api.get("/healthz")
def health() -> dict[str, int]:
    """Whether the database answers, and how many messages wait in the outbox."""
    return {"outbox": outbox.pending()}
