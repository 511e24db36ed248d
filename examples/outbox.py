"""A shop whose orders and messages are committed together, or not at all.

    python -m examples.outbox                             # SQLite, no other server
    python -m examples.outbox postgresql+psycopg://…      # or MariaDB: the shop's database

It takes 100 orders, a fifth of which fail after they have published, and lets a worker bill what is
left: every order in the shop's table was billed once, and no other.
"""

from __future__ import annotations

import sys
import tempfile

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, insert, select
from sqlalchemy.orm import Session

from examples import command_line
from qframe import Message, Outbox, QFrame, Topic

ORDERS = 100

orders = Topic("orders", kind="ordered")
sold = Table("example_orders", MetaData(), Column("number", Integer, primary_key=True))


class SoldOut(Exception):
    """Raised while an order is taken."""


def take(session: Session, outbox: Outbox, number: int) -> None:
    """Takes an order: a row and a message, in one transaction."""
    session.execute(insert(sold).values(number=number))
    outbox.publish(session, orders, {"number": number}, key=f"customer-{number % 7}")
    if number % 5 == 0:
        raise SoldOut


def main(database: str | None) -> None:
    """Takes the orders, bills them, compares."""
    with tempfile.TemporaryDirectory() as folder, QFrame(store=f"sqlite:///{folder}/q.db") as app:
        engine = create_engine(database or f"sqlite:///{folder}/shop.db")
        sold.metadata.drop_all(engine)
        sold.metadata.create_all(engine)
        outbox = app.relay(Outbox(engine))
        billed: list[int] = []

        @app.consumer(orders, group="billing")
        def bill(message: Message) -> None:
            billed.append(message.body["number"])

        for number in range(ORDERS):
            try:
                with Session(engine) as session, session.begin():
                    take(session, outbox, number)
            except SoldOut:
                continue  # neither a row nor a message
        app.run(burst=True)
        with engine.connect() as connection:
            rows = list(connection.scalars(select(sold.c.number).order_by(sold.c.number)))
        print(f"{len(rows)} orders, {len(billed)} bills")
        print(f"every order billed once, and no other: {'yes' if sorted(billed) == rows else 'NO'}")
        engine.dispose()
        if sorted(billed) != rows:
            sys.exit(1)


if __name__ == "__main__":
    command_line.run(main, __doc__, url="the shop's database; a SQLite file of its own if left out")
