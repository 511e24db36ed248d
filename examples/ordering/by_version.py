"""By version: each event once and in sequence, since each adds to a balance.

For events that are numbered without gaps and tell a difference. One that has come before its
predecessor comes back.
"""

from __future__ import annotations

from sqlalchemy import Column, Engine, Integer, String, Table

from examples.ordering.database import metadata
from examples.ordering.events import PAYMENTS, PaymentEvent
from qframe import QFrame, apply_next

payments = Table(
    "payments_by_version",
    metadata,
    Column("id", String, primary_key=True),
    Column("state", String, nullable=False),
    Column("cents", Integer, nullable=False),
    Column("version", Integer, nullable=False),
)


def register(app: QFrame, engine: Engine) -> None:
    """Adds the consumer to an app."""

    @app.consumer(PAYMENTS, group="by-version", max_attempts=60)
    def add_up(event: PaymentEvent) -> None:
        with engine.begin() as connection:
            apply_next(
                connection,
                payments,
                {"id": event.payment},
                version=event.version,
                values={"state": event.state, "cents": payments.c.cents + event.cents},
                insert={"cents": event.cents},
                delay=0.5,
            )
