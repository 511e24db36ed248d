"""Events of payments, shuffled and doubled."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from qframe import Topic

# A stream, and no keys: nothing here keeps one payment's events in order.
PAYMENTS = Topic("payments", slots=4)

AMOUNT = 2500
BALANCE_BY = {"captured": AMOUNT, "refunded": -AMOUNT}
PLOTS = (
    ("created", "authorized", "captured"),
    ("created", "authorized", "captured", "refunded"),
    ("created", "failed"),
    ("created", "failed", "captured"),  # the producer's mistake: no failed payment is captured
)


@dataclass
class PaymentEvent:
    """The final state of a payment.

    `version` counts a payment's events from 1; `cents` is what this event adds to its balance.
    """

    payment: str
    version: int
    updated_at: datetime
    state: str
    cents: int


def stories(payments: int) -> list[list[PaymentEvent]]:
    """The events of each payment, as they happened."""
    midnight = datetime(2026, 7, 1, tzinfo=UTC)
    return [
        [
            PaymentEvent(
                payment=f"payment-{number:03}",
                version=version,
                updated_at=midnight + timedelta(minutes=number, milliseconds=250 * version),
                state=state,
                cents=BALANCE_BY.get(state, 0),
            )
            for version, state in enumerate(PLOTS[number % len(PLOTS)], start=1)
        ]
        for number in range(payments)
    ]


def shuffled_and_doubled(told: list[list[PaymentEvent]], seed: int) -> list[PaymentEvent]:
    """Every event twice, in no order at all."""
    events = [event for story in told for event in story] * 2
    random.Random(seed).shuffle(events)
    return events
