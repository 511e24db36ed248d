"""Placing orders: the row and the message that will pay it are stored in one transaction."""

from __future__ import annotations

import random
from dataclasses import dataclass

from sqlalchemy.orm import Session

from examples.payments.ledger import ACCOUNTS, OPENING_CENTS, Account, Base, Order, engine
from qframe import Outbox, Topic

TRANSFERS = Topic("transfers", kind="ordered", slots=16)
RECEIPTS = Topic("receipts", kind="stream", slots=16)

outbox = Outbox(engine())


@dataclass
class Transfer:
    """The body of a message: who pays whom how much, and for which order."""

    order: str
    payer: int
    payee: int
    cents: int


def open_accounts() -> None:
    """Makes the tables, and accounts with some money in each."""
    Base.metadata.create_all(engine())
    with Session(engine()) as session:
        session.add_all([Account(id=n, cents=OPENING_CENTS) for n in range(ACCOUNTS)])
        session.commit()


def place(session: Session, transfer: Transfer, *, twice: bool = False) -> None:
    """Places an order. A nervous customer presses the button twice: two messages, one payment.

    The caller commits. Until then there is neither an order nor a message, and afterwards both.
    """
    session.add(
        Order(id=transfer.order, payer=transfer.payer, payee=transfer.payee, cents=transfer.cents)
    )
    for _ in range(2 if twice else 1):
        outbox.publish(session, TRANSFERS, transfer, key=f"account-{transfer.payer}")


def shopping(orders: int, seed: int) -> list[Transfer]:
    """Makes the orders, some of them by people who cannot pay."""
    chance = random.Random(seed)
    return [
        Transfer(f"order-{number}", *chance.sample(range(ACCOUNTS), 2), chance.randint(1, 5_000))
        for number in range(orders)
    ]
