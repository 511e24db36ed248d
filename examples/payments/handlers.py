"""The handlers of transfers and receipts: each has its effect exactly once, whatever is killed."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from examples.payments.ledger import Account, Entry, Order, Receipt, engine
from examples.payments.orders import RECEIPTS, TRANSFERS, Transfer, outbox
from qframe import TransactionalChecker, consumer, default_app

default_app().relay(outbox)

# Two messages for one order are one payment: what was done is known by the order's id.
by_order = TransactionalChecker(engine(), key="order")


@consumer(TRANSFERS, group="booking", idempotent_checker=by_order, backoff=0.2, max_attempts=100)
def book(transfer: Transfer, session: Session) -> None:
    """Moves the money. The session is the checker's transaction: mark and money commit together."""
    both = select(Account).where(Account.id.in_((transfer.payer, transfer.payee)))
    accounts = {a.id: a for a in session.scalars(both.order_by(Account.id).with_for_update())}
    payer, payee = accounts[transfer.payer], accounts[transfer.payee]
    order = session.get_one(Order, transfer.order)
    order.state = "paid" if payer.cents >= transfer.cents else "refused"
    if order.state == "paid":
        payer.cents -= transfer.cents
        payee.cents += transfer.cents
        session.add_all([
            Entry(order=order.id, account=payer.id, cents=-transfer.cents),
            Entry(order=order.id, account=payee.id, cents=transfer.cents),
        ])  # fmt: skip
    outbox.publish(session, RECEIPTS, {"order": order.id, "state": order.state}, key=order.id)


@consumer(RECEIPTS, group="mailing", idempotent_checker=by_order, backoff=0.2, max_attempts=100)
def mail(receipt: dict[str, str], session: Session) -> None:
    """Writes the customer a letter."""
    text = f"{receipt['order']} was {receipt['state']}"
    session.add(Receipt(order=receipt["order"], text=text))
