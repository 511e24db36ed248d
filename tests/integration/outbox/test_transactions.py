"""The transactions of drivers and of Django in which an outbox publishes, and what is none."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from checking import database_url
from django.db import transaction
from django_project import database
from sqlalchemy import URL, Engine, create_engine, event, make_url, text
from sqlalchemy.orm import Session

from qframe import BadOption, Outbox, Topic

orders = Topic("orders", kind="ordered", slots=4)
ALONE: dict[str, dict[str, Any]] = {
    "sqlite": {"isolation_level": None}, "postgresql": {"autocommit": True},
    "mysql": {"autocommit": True},
}  # fmt: skip


@pytest.fixture
def outbox(engine: Engine) -> Outbox:
    """An outbox with its tables."""
    outbox = Outbox(engine)
    outbox.create()
    return outbox


@pytest.fixture
def alone(engine: Engine) -> Iterator[Engine]:
    """An engine for the same database whose driver was told to commit each statement."""
    alone = create_engine(engine.url, connect_args=ALONE[engine.dialect.name])
    yield alone
    alone.dispose()


def connected(url: URL, **options: Any) -> Any:
    """A driver's own connection."""
    match url.get_backend_name():
        case "sqlite":
            return sqlite3.connect(str(url.database), **options)
        case "postgresql":
            return psycopg.connect(
                host=url.host, port=url.port, user=url.username, dbname=url.database, **options
            )
        case _:
            return pymysql.connect(
                host=url.host, port=url.port or 0, user=url.username, database=url.database,
                **options,
            )  # fmt: skip


def test_a_driver_that_commits_each_statement_is_refused_but_within_a_transaction(
    outbox: Outbox, engine: Engine, alone: Engine
) -> None:
    driver = connected(engine.url, **ALONE[engine.dialect.name])
    with Session(alone) as session, alone.connect() as connection:
        for each in (session, connection, driver):
            with pytest.raises(BadOption, match="it commits each statement at once"):
                outbox.publish(each, orders, "never", key="k")
    for end in ("ROLLBACK", "COMMIT"):
        driver.cursor().execute("BEGIN")
        outbox.publish(driver, orders, end, key="k")
        driver.cursor().execute(end)
    driver.close()
    assert outbox.pending() == 1
    event.listen(alone, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with alone.connect() as connection:
        outbox.publish(connection, orders, "never", key="k")
        connection.rollback()
        outbox.publish(connection, orders, 2, key="k")
        connection.exec_driver_sql("COMMIT")
    assert outbox.pending() == 2


def test_a_drivers_connection_to_another_database_is_refused(
    outbox: Outbox, engine: Engine, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kind = {"postgresql": "postgres", "mysql": "mariadb"}.get(engine.dialect.name, "sqlite")
    other = make_url(database_url(request, kind, tmp_path))
    elsewhere = create_engine(other)
    Outbox(elsewhere).create()  # where the message would wait for a relay for ever
    elsewhere.dispose()
    (tmp_path / "rows.db").touch()
    for wrong in (connected(other), sqlite3.connect(tmp_path / "rows.db")):
        with pytest.raises(BadOption, match="the outbox is in"):
            outbox.publish(wrong, orders, 1, key="k")
        wrong.close()
    driver = connected(engine.url)
    outbox.publish(driver, orders, 1, key="k")
    driver.commit()
    driver.close()
    assert outbox.pending() == 1


def test_a_database_in_a_uri_or_in_memory_has_no_name_to_compare(tmp_path: Path) -> None:
    for url in (f"sqlite:///file:{tmp_path}/shop.db?uri=true", "sqlite://"):
        engine = create_engine(url)
        outbox = Outbox(engine)
        driver = engine.raw_connection()
        outbox.publish(driver, orders, 1, key="k")
        driver.commit()
        assert outbox.pending() == 1
        driver.close()
        engine.dispose()


def test_a_drivers_async_connection_is_refused_since_nobody_would_await_it(postgres: Any) -> None:
    engine = create_engine(postgres.new_database())
    outbox = Outbox(engine)
    outbox.create()

    async def publish() -> None:
        url = engine.url
        async with await psycopg.AsyncConnection.connect(
            host=url.host, port=url.port, user=url.username, dbname=url.database
        ) as connection:
            outbox.publish(connection, orders, 1, key="k")

    with pytest.raises(BadOption, match="async connection; give an AsyncSession"):
        asyncio.run(publish())
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_django_commits_is_published_and_what_it_rolls_back_is_not(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    engine = create_engine(database_url(request, kind, tmp_path))
    other = make_url(database_url(request, kind, tmp_path))
    outbox = Outbox(engine)
    outbox.create()
    with database("shop", engine.url) as connection, database("other", other) as wrong:
        with pytest.raises(BadOption, match="it commits each statement at once"):
            outbox.publish(connection, orders, "never", key="k")
        with transaction.atomic(using="shop"):
            outbox.publish(connection, orders, 1, key="k")
            assert (outbox.pending(connection), outbox.pending()) == (1, 0)
            with transaction.atomic(using="shop"):
                outbox.publish(connection, orders, "never", key="k")
                transaction.set_rollback(True, using="shop")
        with transaction.atomic(using="shop"):
            outbox.publish(connection, orders, "never", key="k")
            transaction.set_rollback(True, using="shop")
        with transaction.atomic(using="other"), pytest.raises(BadOption, match="outbox is in"):
            outbox.publish(wrong, orders, 1, key="k")
    with engine.connect() as reading:
        assert reading.scalars(text("SELECT body FROM qframe_outbox")).all() == [b"1"]
    engine.dispose()
