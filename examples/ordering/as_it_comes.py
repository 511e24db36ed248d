"""No way at all: the last to arrive wins. It is here to show what goes wrong."""

from __future__ import annotations

from sqlalchemy import Column, Engine, String, Table
from sqlalchemy.dialects.sqlite import insert

from examples.ordering.database import metadata
from examples.ordering.events import PAYMENTS, PaymentEvent
from qframe import QFrame

payments = Table(
    "payments_as_they_come",
    metadata,
    Column("id", String, primary_key=True),
    Column("state", String),
)


def register(app: QFrame, engine: Engine) -> None:
    """Adds the consumer to an app."""

    @app.consumer(PAYMENTS, group="as-it-comes")
    def overwrite(event: PaymentEvent) -> None:
        row = insert(payments).values(id=event.payment, state=event.state)
        with engine.begin() as connection:
            connection.execute(
                row.on_conflict_do_update(index_elements=["id"], set_={"state": event.state})
            )
