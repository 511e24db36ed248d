"""By time: the latest event wins, and those before it need never come.

For events that tell the whole state, and clocks that can be trusted to tell one payment's events
apart: here they come from one service.
"""

from __future__ import annotations

from sqlalchemy import Column, DateTime, Engine, String, Table

from examples.ordering.database import metadata
from examples.ordering.events import PAYMENTS, PaymentEvent
from qframe import QFrame, apply_if_newer

payments = Table(
    "payments_by_time",
    metadata,
    Column("id", String, primary_key=True),
    Column("state", String, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)


def register(app: QFrame, engine: Engine) -> None:
    """Adds the consumer to an app."""

    @app.consumer(PAYMENTS, group="by-time")
    def keep_the_latest(event: PaymentEvent) -> None:
        with engine.begin() as connection:
            apply_if_newer(
                connection,
                payments,
                {"id": event.payment},
                version=event.updated_at,
                version_column="updated_at",
                values={"state": event.state},
            )
