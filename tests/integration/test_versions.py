"""Versions on real databases, with writers that are at it at the same time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import MariaDbServer, PostgresServer
from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    select,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from qframe import Applied, NeedRetry, apply_if_newer, apply_next

WRITERS, KEYS, VERSIONS = 6, 4, 20
ATTEMPTS = 100
MOMENT = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")

metadata = MetaData()
orders = Table(
    "orders", metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("state", String(40), nullable=False),
    Column("total", Integer, nullable=False, default=0),
    Column("version", Integer),
    Column("updated_at", MOMENT),
    Column("mark", String(20), unique=True),
)  # fmt: skip


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20), unique=True)
    balance: Mapped[int]
    version: Mapped[int]


DATABASES = ["sqlite", "postgresql", "mariadb"]


@pytest.fixture(params=DATABASES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine with the tables, on a database of its own, as users make it."""
    made = create_engine(url_of(request, tmp_path))
    if made.dialect.name == "sqlite":
        wait_for_other_writers(made)
    metadata.create_all(made)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'orders.db'}"
    server: PostgresServer | MariaDbServer = request.getfixturevalue(
        "postgres" if request.param == "postgresql" else "mariadb"
    )
    return server.new_database()


def wait_for_other_writers(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA busy_timeout=30000")


Change = Callable[[Connection, int, int], Applied]


def retried(engine: Engine, change: Change, key: int, version: int) -> Applied | None:
    """A handler's transaction, again as long as the database takes it back; None: NeedRetry."""
    for attempt in range(ATTEMPTS):
        try:
            with engine.begin() as connection:
                return change(connection, key, version)
        except OperationalError:  # chosen in a deadlock: a message would come again
            if attempt == ATTEMPTS - 1:
                raise
        except NeedRetry:
            return None
    raise AssertionError("it has neither answered nor failed")


def newer(connection: Connection, key: int, version: int) -> Applied:
    values = {"state": f"v{version}"}
    return apply_if_newer(connection, orders, {"id": key}, version=version, values=values)


def following(connection: Connection, key: int, version: int) -> Applied:
    return apply_next(
        connection, orders, {"id": key}, version=version, insert={"total": version},
        values={"state": f"v{version}", "total": orders.c.total + version},
    )  # fmt: skip


def at_once(engine: Engine, change: Change) -> list[Applied | None]:
    """Every event twice, shuffled over writers that run together; what became of each."""
    events = [(key, version) for key in range(KEYS) for version in range(1, VERSIONS + 1)] * 2
    random.Random(7).shuffle(events)

    def write(part: int) -> list[Applied | None]:
        answers: list[Applied | None] = []
        waiting = events[part::WRITERS]
        while waiting:
            key, version = waiting.pop(0)
            answer = retried(engine, change, key, version)
            answers.append(answer)
            if answer is None:
                waiting.append((key, version))
        return answers

    with ThreadPoolExecutor(WRITERS) as writers:
        return [answer for part in writers.map(write, range(WRITERS)) for answer in part]


def rows(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        columns = [orders.c.id, orders.c.version, orders.c.state, orders.c.total]
        return [tuple(found) for found in connection.execute(select(*columns).order_by("id"))]


@pytest.mark.gate
@pytest.mark.parametrize("change", [newer, following])
def test_writers_at_the_same_time_leave_each_row_at_its_newest_event_and_apply_each_once(
    engine: Engine, change: Change
) -> None:
    answers = at_once(engine, change)
    is_next = change is following
    total = sum(range(1, VERSIONS + 1)) if is_next else 0
    assert rows(engine) == [(key, VERSIONS, f"v{VERSIONS}", total) for key in range(KEYS)]
    assert answers.count(Applied.INSERTED) == KEYS
    assert set(answers) <= {None, Applied.INSERTED, Applied.APPLIED, Applied.OLD}
    if is_next:
        assert answers.count(Applied.APPLIED) == KEYS * (VERSIONS - 1)
        assert answers.count(Applied.OLD) == KEYS * VERSIONS


def test_new_rows_side_by_side_do_not_stand_in_each_others_way(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":  # one writer at a time: there is no side by side
        with engine.begin() as alone:
            assert [newer(alone, key, 1) for key in (1, 2)] == [Applied.INSERTED] * 2
        return
    with engine.connect() as one, engine.connect() as other:
        for each, key in ((one, 101), (other, 102), (one, 103), (other, 104)):
            assert newer(each, key, 1) is Applied.INSERTED
        one.commit()
        other.commit()
    assert [row[0] for row in rows(engine)] == [101, 102, 103, 104]


def test_a_change_that_is_rolled_back_leaves_its_version_to_others(engine: Engine) -> None:
    with engine.connect() as connection:
        assert newer(connection, 1, 5) is Applied.INSERTED
        connection.rollback()
        assert newer(connection, 1, 4) is Applied.INSERTED
        connection.commit()
        assert newer(connection, 1, 5) is Applied.APPLIED
        connection.rollback()
    assert rows(engine) == [(1, 4, "v4", 0)]


@pytest.mark.gate
def test_a_row_that_is_gone_since_the_transactions_first_look_is_made_again(
    engine: Engine,
) -> None:
    with engine.begin() as connection:
        newer(connection, 1, 5)
    with engine.connect() as reader:
        if engine.dialect.name == "mariadb":  # elsewhere a look does not stay
            reader.execute(select(orders)).all()
        with engine.begin() as other:
            other.execute(delete(orders))
        assert newer(reader, 1, 6) is Applied.INSERTED
        reader.commit()
    assert rows(engine) == [(1, 6, "v6", 0)]


@pytest.mark.gate
def test_a_row_that_came_after_the_transactions_first_look_is_changed(engine: Engine) -> None:
    with engine.connect() as reader:
        if engine.dialect.name == "mariadb":
            reader.execute(select(orders)).all()
        with engine.begin() as other:
            newer(other, 1, 5)
        assert newer(reader, 1, 5) is Applied.OLD
        assert newer(reader, 1, 6) is Applied.APPLIED
        reader.commit()
    assert rows(engine) == [(1, 6, "v6", 0)]


@pytest.mark.gate
def test_a_conflict_with_another_row_is_the_callers_error(engine: Engine) -> None:
    def marked(connection: Connection, key: int) -> Applied:
        values = {"state": "x", "mark": "m"}
        return apply_if_newer(connection, orders, {"id": key}, version=1, values=values)

    with engine.begin() as connection:
        marked(connection, 1)
    with engine.connect() as connection, pytest.raises(IntegrityError):
        marked(connection, 2)
    assert len(rows(engine)) == 1


def test_moments_are_kept_to_the_microsecond_and_compared_in_any_time_zone(
    engine: Engine,
) -> None:
    base = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
    here = timezone(timedelta(hours=9))

    def at(connection: Connection, microsecond: int, zone: timezone | Any) -> Applied:
        return apply_if_newer(
            connection, orders, {"id": 1}, version_column="updated_at",
            version=base.replace(microsecond=microsecond).astimezone(zone),
            values={"state": str(microsecond)},
        )  # fmt: skip

    with engine.begin() as connection:
        assert at(connection, 500_001, UTC) is Applied.INSERTED
        assert at(connection, 500_000, here) is Applied.OLD
        assert at(connection, 500_001, here) is Applied.OLD
        assert at(connection, 500_002, here) is Applied.APPLIED
        assert at(connection, 500_003, UTC) is Applied.APPLIED
    assert rows(engine)[0][2] == "500003"


def test_a_model_by_its_unique_name_in_a_session(engine: Engine) -> None:
    def credit(session: Session, version: int, amount: int) -> Applied:
        return apply_next(
            session, Account, {"name": "ann"}, version=version,
            values={"balance": Account.balance + amount}, insert={"balance": amount},
        )  # fmt: skip

    with Session(engine) as session:
        assert credit(session, 1, 5) is Applied.INSERTED
        account = session.scalars(select(Account)).one()
        assert credit(session, 2, 7) is Applied.APPLIED
        assert (account.balance, account.version) == (12, 2)
        assert credit(session, 2, 7) is Applied.OLD
        with pytest.raises(NeedRetry):
            credit(session, 4, 1)
        session.commit()


LITTLE = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
events = st.lists(st.integers(1, 5), max_size=10).map(lambda extra: [*range(1, 6), *extra])


@LITTLE
@given(order=events.flatmap(st.permutations))
def test_any_order_and_repetition_of_events_ends_in_the_last_state(
    engine: Engine, order: list[int]
) -> None:
    with engine.begin() as connection:
        connection.execute(delete(orders))
    waiting = list(order)
    for version in order:
        retried(engine, newer, 1, version)
    while waiting:
        version = waiting.pop(0)
        if retried(engine, following, 2, version) is None:
            waiting.append(version)
    assert rows(engine) == [(1, 5, "v5", 0), (2, 5, "v5", 15)]
