"""Checks the tables when nothing is left to do."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from examples.payments.ledger import ACCOUNTS, OPENING_CENTS, Account, Entry, Order, Receipt, engine


@dataclass
class Claim:
    """Something that must be true, what was found, and whether it is so."""

    what: str
    found: str
    holds: bool


def claims(orders: int) -> list[Claim]:
    """All claims, each with the numbers that were found."""
    with Session(engine()) as session:
        return [*_of_money(session), *_of_orders(session, orders)]


def _of_money(session: Session) -> list[Claim]:
    total = session.scalar(select(func.sum(Account.cents))) or 0
    opened = ACCOUNTS * OPENING_CENTS
    moved = (
        select(Entry.account, func.sum(Entry.cents).label("cents"))
        .group_by(Entry.account)
        .subquery()
    )
    wrong = select(Account.id).outerjoin(moved, moved.c.account == Account.id)
    wrong = wrong.where(Account.cents != OPENING_CENTS + func.coalesce(moved.c.cents, 0))
    unexplained = len(session.scalars(wrong).all())
    in_debt = session.scalar(select(func.count()).where(Account.cents < 0)) or 0
    return [
        Claim("no money was made or lost", f"{total:,} of {opened:,} cents", total == opened),
        Claim("its entries explain every balance", f"{unexplained} others", unexplained == 0),
        Claim("nobody has spent what he did not have", f"{in_debt} in debt", in_debt == 0),
    ]


def _of_orders(session: Session, orders: int) -> list[Claim]:
    states = dict(session.execute(select(Order.state, func.count()).group_by(Order.state)).all())
    ended = states.get("paid", 0) + states.get("refused", 0)
    entries = _times(session, Entry)
    letters = _times(session, Receipt)
    twice_booked = sum(count != 2 for count in entries)
    twice_sent = sum(count != 1 for count in letters)
    return [
        Claim(
            "every order was paid or refused",
            f"{states.get('paid', 0):,} paid, {states.get('refused', 0):,} refused",
            ended == orders,
        ),
        Claim(
            "every paid order was booked once",
            f"{len(entries):,} booked, {twice_booked} otherwise",
            len(entries) == states.get("paid", 0) and twice_booked == 0,
        ),
        Claim(
            "every customer got one letter",
            f"{len(letters):,} letters, {twice_sent} doubled",
            len(letters) == orders and twice_sent == 0,
        ),
    ]


def _times(session: Session, table: type[Entry] | type[Receipt]) -> list[int]:
    """For each order that is in a table, how many rows there are of it."""
    return list(session.scalars(select(func.count()).select_from(table).group_by(table.order)))
