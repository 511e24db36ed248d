"""The business tables, and where they are: `PAYMENTS_DATABASE`, by default a file here."""

from __future__ import annotations

import os
import sqlite3
from functools import cache

from sqlalchemy import BigInteger, Engine, ForeignKey, Integer, String, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DATABASE = "PAYMENTS_DATABASE"
ACCOUNTS = 200
OPENING_CENTS = 50_000

Number = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """The shop's tables."""


class Account(Base):
    """An account and its balance. No constraint keeps a balance right: the code has to."""

    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cents: Mapped[int] = mapped_column(BigInteger)


class Order(Base):
    """An order: `placed`, then `paid` or `refused`."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    payer: Mapped[int] = mapped_column(ForeignKey(Account.id))
    payee: Mapped[int] = mapped_column(ForeignKey(Account.id))
    cents: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(8), default="placed")


class Entry(Base):
    """One side of a transfer. Nothing in the table keeps one from being entered twice."""

    __tablename__ = "entries"
    number: Mapped[int] = mapped_column(Number, primary_key=True)
    order: Mapped[str] = mapped_column(String(36), index=True)
    account: Mapped[int] = mapped_column(index=True)
    cents: Mapped[int] = mapped_column(BigInteger)


class Receipt(Base):
    """A letter that was sent. Here, too, nothing but the checker keeps it from going out twice."""

    __tablename__ = "receipts"
    number: Mapped[int] = mapped_column(Number, primary_key=True)
    order: Mapped[str] = mapped_column(String(36), index=True)
    text: Mapped[str] = mapped_column(String(80))


@cache
def engine() -> Engine:
    """The database of the shop; a process has one engine, made when it is first needed."""
    url = os.environ.get(DATABASE, "sqlite:///payments.db")
    made = create_engine(url, pool_size=16, pool_pre_ping=True)
    if made.dialect.name == "sqlite":
        event.listen(made, "connect", _prepare_sqlite)
    return made


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    """Readers do not wait for the writer, and writers for half a minute."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA busy_timeout=30000")
