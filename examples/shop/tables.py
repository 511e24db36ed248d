"""The business tables, and where they are: `SHOP_DATABASE`, by default a file here."""

from __future__ import annotations

import os
import sqlite3
from functools import cache

from sqlalchemy import BigInteger, Engine, Integer, String, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Number = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """The shop's tables."""


class Customer(Base):
    """A customer, and what the customer owes (below 0) or has paid in advance."""

    __tablename__ = "customers"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    cents: Mapped[int] = mapped_column(BigInteger, default=0)


class Order(Base):
    """An order: `placed`, then `billed`; or `cancelled`."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    customer: Mapped[str] = mapped_column(String(40), index=True)
    cents: Mapped[int] = mapped_column(BigInteger)
    express: Mapped[bool] = mapped_column(default=False)
    state: Mapped[str] = mapped_column(String(10), default="placed")


class Entry(Base):
    """A charge or a refund. No constraint forbids a second one: only the checker does."""

    __tablename__ = "entries"
    number: Mapped[int] = mapped_column(Number, primary_key=True)
    order: Mapped[str] = mapped_column(String(40), index=True)
    customer: Mapped[str] = mapped_column(String(40), index=True)
    cents: Mapped[int] = mapped_column(BigInteger)


class AuditLine(Base):
    """One event, as the auditors see it."""

    __tablename__ = "audit_lines"
    number: Mapped[int] = mapped_column(Number, primary_key=True)
    order: Mapped[str] = mapped_column(String(40), index=True)
    event: Mapped[str] = mapped_column(String(10))


class Parcel(Base):
    """A parcel that has left."""

    __tablename__ = "parcels"
    number: Mapped[int] = mapped_column(Number, primary_key=True)
    order: Mapped[str] = mapped_column(String(40), index=True)


class Letter(Base):
    """A reminder that was sent."""

    __tablename__ = "letters"
    number: Mapped[int] = mapped_column(Number, primary_key=True)
    order: Mapped[str] = mapped_column(String(40), index=True)


@cache
def engine() -> Engine:
    """The shop's database; a process has one engine, made when it is first needed."""
    url = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
    made = create_engine(url, pool_size=20, pool_pre_ping=True)
    if made.dialect.name == "sqlite":
        event.listen(made, "connect", _prepare_sqlite)
    return made


def create_tables() -> None:
    """Creates the tables that are missing."""
    Base.metadata.create_all(engine())


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    """Lets readers pass the writer, and has a second writer wait for half a minute."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA busy_timeout=30000")
