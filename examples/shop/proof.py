"""Claims that hold when nothing is left to do, checked in the tables alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from examples.shop.tables import AuditLine, Customer, Entry, Letter, Order, Parcel, engine


@dataclass
class Claim:
    """A sentence that must be true, the numbers that were found, and whether it holds."""

    text: str
    found: str
    holds: bool


def claims(orders: int, cancelled: set[str]) -> list[Claim]:
    """All claims, for so many orders of which some were cancelled."""
    with Session(engine()) as session:
        states = dict(session.execute(select(Order.id, Order.state)).all())
        kept = {order for order, state in states.items() if state == "billed"}
        wanted_audit = Counter((order, "placed") for order in states)
        wanted_audit.update((order, "cancelled") for order in cancelled)
        audit = Counter(session.execute(select(AuditLine.order, AuditLine.event)).all())
        parcels = Counter(session.scalars(select(Parcel.order)))
        letters = Counter(session.scalars(select(Letter.order)))
        return [
            Claim(
                "every order was billed, or cancelled",
                f"{len(kept):,} billed, {len(states) - len(kept):,} cancelled",
                len(states) == orders and kept == states.keys() - cancelled,
            ),
            *_claims_of_money(session, kept),
            Claim(
                "the audit has every event once",
                f"{audit.total():,} of {wanted_audit.total():,}",
                audit == wanted_audit,
            ),
            _once("one parcel left for each billed order", parcels, kept, cancelled),
            _once("one reminder was written for each", letters, kept, cancelled),
        ]


def _claims_of_money(session: Session, kept: set[str]) -> list[Claim]:
    owed = -(session.scalar(select(func.sum(Customer.cents))) or 0)
    sold = session.scalar(select(func.sum(Order.cents)).where(Order.state == "billed")) or 0
    by_order: dict[str, list[int]] = {}
    for order, cents in session.execute(select(Entry.order, Entry.cents)):
        by_order.setdefault(order, []).append(cents)
    once = sum(len(by_order.get(order, ())) == 1 for order in kept)
    even = all(sum(cents) == 0 for order, cents in by_order.items() if order not in kept)
    return [
        Claim("customers owe what was sold", f"{owed:,} of {sold:,} cents", owed == sold),
        Claim(
            "each billed order was charged once", f"{once:,} of {len(kept):,}", once == len(kept)
        ),
        Claim("cancelled orders were refunded", "to the cent" if even else "not all", even),
    ]


def _once(text: str, found: Counter[str], kept: set[str], cancelled: set[str]) -> Claim:
    """Each billed order exactly once; a cancelled one at most once, if it was too late."""
    once = sum(1 for order in kept if found[order] == 1)
    others = found.keys() - kept
    holds = once == len(kept) and others <= cancelled and all(found[each] == 1 for each in others)
    return Claim(text, f"{once:,} of {len(kept):,}", holds)
