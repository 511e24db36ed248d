"""By state machine: an event that comes too early comes back; an illegal one is dead.

For events that bear no number. What is legal must be known here, and is judged here: that is more
work, and more is found.
"""

from __future__ import annotations

from sqlalchemy import Column, Engine, String, Table, select, update
from sqlalchemy.dialects.sqlite import insert

from examples.ordering.database import metadata
from examples.ordering.events import PAYMENTS, PaymentEvent
from qframe import NeedRetry, QFrame, Reject

NOTHING = "nothing yet"
NEXT = {
    NOTHING: {"created"},
    "created": {"authorized", "failed"},
    "authorized": {"captured"},
    "captured": {"refunded"},
    "refunded": set(),
    "failed": set(),
}

payments = Table(
    "payments_by_state",
    metadata,
    Column("id", String, primary_key=True),
    Column("state", String, nullable=False),
)


def later(state: str) -> set[str]:
    """All states that can still come after one."""
    return NEXT[state].union(*map(later, NEXT[state]))


def register(app: QFrame, engine: Engine) -> None:
    """Adds the consumer to an app."""

    @app.consumer(PAYMENTS, group="by-state", max_attempts=60)
    def follow(event: PaymentEvent) -> None:
        this = payments.c.id == event.payment
        with engine.begin() as connection:
            begin = insert(payments).values(id=event.payment, state=NOTHING)
            connection.execute(begin.on_conflict_do_nothing())
            # The row stays locked until the end, or two events would judge by the same state.
            look = select(payments.c.state).where(this).with_for_update()
            state = connection.execute(look).scalar_one()
            if event.state in NEXT[state]:
                connection.execute(update(payments).where(this).values(state=event.state))
            elif event.state in later(state):
                raise NeedRetry(f"{event.state} has come, and it is {state}", delay=0.5)
            elif state != event.state and state not in later(event.state):
                raise Reject(f"a {state} payment cannot be {event.state}")
            # Else it is a repetition: what it tells is so already, or was.
