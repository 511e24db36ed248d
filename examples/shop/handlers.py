"""The consumers: `qframe worker examples.shop.handlers` runs them, and relays the outbox.

The checker keeps its mark in the shop's own database. Changes through a handler's session
commit together with the mark, or not at all, so a message that is delivered twice has one effect.
"""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from examples.shop.messages import (
    ORDERS,
    PARCELS,
    REMIND_AFTER,
    REMINDERS,
    OrderEvent,
    OrderReference,
    app,
    outbox,
)
from examples.shop.tables import (
    AuditLine,
    Customer,
    Entry,
    Letter,
    Order,
    Parcel,
    create_tables,
    engine,
)
from qframe import Batch, Message, Reject, TransactionalChecker

create_tables()
app.checker("shop", TransactionalChecker(engine()))


@app.consumer(ORDERS, group="billing", idempotent_checker="shop", threads=4)
def bill(event: OrderEvent, session: Session) -> None:
    """Charges an order, or refunds what was charged; the customer's events come in order."""
    customer = session.get(Customer, event.customer, with_for_update=True)
    if customer is None:
        raise Reject(f"there is no customer for order {event.order}")
    charged = session.scalar(select(Entry.cents).where(Entry.order == event.order))
    if event.event == "placed":
        cents = -event.cents
        reference = OrderReference(order=event.order)
        outbox.publish(
            session, PARCELS, reference, key=event.order, priority=10 if event.express else 0
        )
        outbox.publish(session, REMINDERS, reference, key=event.order, delay=REMIND_AFTER)
    else:
        cents = 0 if charged is None else -charged
    customer.cents += cents
    session.add(Entry(order=event.order, customer=event.customer, cents=cents))
    order = session.get_one(Order, event.order)
    if order.state == "placed":
        order.state = "billed"


@app.consumer(ORDERS, group="audit", idempotent_checker="shop", batch=Batch(200, within="100ms"))
def audit(messages: list[Message], session: Session) -> None:
    """Writes events down for the auditors, up to 200 in one insert."""
    rows = [{"order": m.body["order"], "event": m.body["event"]} for m in messages]
    session.execute(insert(AuditLine), rows)


@app.consumer(PARCELS, group="shipping", idempotent_checker="shop", threads=2)
def ship(parcel: OrderReference, session: Session) -> None:
    """Sends a parcel, express ones first, unless the order was cancelled meanwhile."""
    if session.get_one(Order, parcel.order).state == "billed":
        session.add(Parcel(order=parcel.order))


@app.consumer(REMINDERS, group="reminders", idempotent_checker="shop", threads=2)
def remind(reminder: OrderReference, session: Session) -> None:
    """Reminds the customer to pay, days later, unless the order was cancelled."""
    if session.get_one(Order, reminder.order).state == "billed":
        session.add(Letter(order=reminder.order))
