"""The app, its topics, the outbox and the bodies: all that web service and workers share."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, Field

from examples.shop.tables import engine
from qframe import Outbox, QFrame, Topic

app = QFrame()  # QFRAME_STORE and qframe.toml name the store
outbox = app.relay(Outbox(engine()))

# A customer's events stay in order, through retries too. The key is the customer.
ORDERS = Topic("orders", kind="ordered", slots=16)
# Express parcels leave first: one slot, since slots know nothing of each other's priorities.
PARCELS = Topic("parcels", kind="priority", slots=1)
# A reminder comes days later. The key is the order, so publishing it again would replace it.
REMINDERS = Topic("reminders", kind="delay", slots=4)

REMIND_AFTER = os.environ.get("SHOP_REMIND_AFTER", "3d")


class OrderEvent(BaseModel):
    """Something that has happened to an order."""

    order: str
    customer: str
    event: Literal["placed", "cancelled"]
    cents: int = Field(ge=0)
    express: bool = False


class OrderReference(BaseModel):
    """A parcel to send, or a reminder to write: the order says the rest."""

    order: str
