"""Changes to rows that bear a version: what each order of events leads to, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import (
    Column,
    Connection,
    Date,
    DateTime,
    Double,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    func,
    select,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)
from sqlalchemy.pool import StaticPool

from qframe import Applied, BadOption, BadTable, NeedRetry, apply_if_newer, apply_next
from qframe.versions.rows import checked_version

metadata = MetaData()
orders = Table(
    "orders", metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("state", String(20), nullable=False),
    Column("total", Integer, nullable=False, default=0),
    Column("version", Integer),
    Column("updated_at", DateTime(timezone=True)),
    Column("seen_at", DateTime),
    Column("day", Date),
    Column("mark", String(20), unique=True),
)  # fmt: skip
places = Table(
    "places", metadata,
    Column("number", Integer, primary_key=True),
    Column("shop", String(20)), Column("shelf", String(20)), Column("half", Integer),
    Column("version", Integer, nullable=False), Column("goods", String(20)),
    UniqueConstraint("shop", "shelf"),
    Index("places_half", "half", unique=True, sqlite_where=text("half > 0")),
    Index("places_lower", func.lower(text("goods")), "shop", unique=True),
)  # fmt: skip


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    number: Mapped[int] = mapped_column("id", primary_key=True)
    owner: Mapped[str] = mapped_column("owner_name")
    balance: Mapped[int]
    counter: Mapped[int] = mapped_column("row_version", default=0)


class Savings(Account):
    __tablename__ = "savings"
    number: Mapped[int] = mapped_column("id", ForeignKey("accounts.id"), primary_key=True)
    interest: Mapped[int]


class Event(Base):
    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    version: Mapped[int]
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "event"}  # noqa: RUF012


@contextmanager
def opened() -> Iterator[Connection]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine)
    Base.metadata.create_all(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def connection() -> Iterator[Connection]:
    with opened() as connection:
        yield connection


@pytest.fixture(scope="module")
def emptied() -> Iterator[Callable[[], Connection]]:
    """Empties one table again and again, which is quicker than to make it."""
    with opened() as connection:

        def empty() -> Connection:
            connection.execute(orders.delete())
            return connection

        yield empty


def newer(connection: Connection, version: Any, **changes: Any) -> Applied:
    options = {"values": {"state": f"v{version}"}, "key": {"id": 7}} | changes
    return apply_if_newer(connection, orders, version=version, **options)


def following(connection: Connection, version: Any, **changes: Any) -> Applied:
    options = {
        "values": {"state": f"v{version}", "total": orders.c.total + version},
        "key": {"id": 7}, "insert": {"total": version},
    } | changes  # fmt: skip
    return apply_next(connection, orders, version=version, **options)


def row(connection: Connection) -> tuple[Any, ...]:
    return tuple(connection.execute(select(orders.c.version, orders.c.state, orders.c.total)).one())


def shown(given: object) -> str:
    """Without the places of objects in memory, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(given))


def test_an_event_without_a_row_is_absent_where_rows_are_not_inserted(
    connection: Connection,
) -> None:
    assert newer(connection, 1, insert=False) is Applied.ABSENT
    assert connection.execute(select(func.count()).select_from(orders)).scalar_one() == 0


@pytest.mark.parametrize("apply", [newer, following])
def test_a_row_without_a_version_has_had_no_event(
    connection: Connection, apply: Callable[..., Applied]
) -> None:
    connection.execute(orders.insert().values(id=7, state="made"))
    assert apply(connection, 1) is Applied.APPLIED
    assert row(connection)[:2] == (1, "v1")


def test_a_row_without_a_version_waits_for_its_first_event(connection: Connection) -> None:
    connection.execute(orders.insert().values(id=7, state="made"))
    with pytest.raises(NeedRetry):
        following(connection, 2)


def test_other_rows_are_left_alone(connection: Connection) -> None:
    newer(connection, 1, key={"id": 8}, values={"state": "other"})
    newer(connection, 1)
    newer(connection, 5)
    found = connection.execute(select(orders.c.id, orders.c.state))
    assert dict(map(tuple, found)) == {7: "v5", 8: "other"}


@pytest.mark.parametrize("there", [[], [1], [1, 2]])
def test_an_event_behind_a_gap_asks_for_a_delayed_retry(
    connection: Connection, there: list[int]
) -> None:
    for version in there:
        following(connection, version)
    with pytest.raises(NeedRetry, match="version 5 came before version 4") as caught:
        following(connection, 5, delay="10s")
    assert caught.value.delay_ms == 10_000
    assert connection.execute(select(func.count()).select_from(orders)).scalar_one() == bool(there)


def test_a_row_that_others_make_is_waited_for(connection: Connection) -> None:
    with pytest.raises(NeedRetry) as caught:
        following(connection, 1, insert=False)
    assert caught.value.delay_ms == 2000
    connection.execute(orders.insert().values(id=7, state="made", version=0))
    assert following(connection, 1, insert=False) is Applied.APPLIED


def test_events_may_be_counted_from_any_number(connection: Connection) -> None:
    assert following(connection, 0, first=0) is Applied.INSERTED
    assert following(connection, 1, first=0) is Applied.APPLIED
    with pytest.raises(BadOption, match="the first is 0"):
        following(connection, -1, first=0)


events = st.lists(st.integers(1, 6), max_size=30).map(lambda extra: [*range(1, 7), *extra])


@given(order=events.flatmap(st.permutations))
def test_any_order_and_repetition_of_newer_events_ends_in_the_last_state(
    emptied: Callable[[], Connection], order: list[int]
) -> None:
    connection, seen = emptied(), 0
    for version in order:
        expected = Applied.OLD if version <= seen else Applied.APPLIED
        assert newer(connection, version) is (expected if seen else Applied.INSERTED)
        seen = max(seen, version)
    assert row(connection) == (6, "v6", 0)


@given(order=events.flatmap(st.permutations))
def test_any_order_and_repetition_of_next_events_applies_each_once(
    emptied: Callable[[], Connection], order: list[int]
) -> None:
    connection, waiting = emptied(), list(order)
    while waiting:
        version = waiting.pop(0)
        try:
            following(connection, version)
        except NeedRetry:
            waiting.append(version)
    assert row(connection) == (6, "v6", 21)


@given(
    order=st.permutations(range(5)), zones=st.lists(st.integers(-12, 12), min_size=5, max_size=5)
)
def test_timestamps_are_compared_as_moments_whatever_their_time_zones(
    emptied: Callable[[], Connection], order: list[int], zones: list[int]
) -> None:
    start = datetime(2026, 3, 29, 1, 59, 58, tzinfo=UTC)
    connection = emptied()
    for number in order:
        zone = timezone(timedelta(hours=zones[number]))
        moment = (start + timedelta(seconds=number)).astimezone(zone)
        newer(connection, moment, version_column="updated_at", values={"state": f"at {number}"})
    assert row(connection)[1] == "at 4"


def test_values_may_be_expressions_that_see_the_row_as_it_was(connection: Connection) -> None:
    newer(connection, 4, values={"state": "new", "total": 10})
    changes = {"total": orders.c.total * 2 + orders.c.version, "state": func.upper("late")}
    newer(connection, 6, values=changes, insert=False)
    assert row(connection) == (6, "LATE", 24)


def test_a_query_is_a_value_for_a_new_row_too(connection: Connection) -> None:
    newer(connection, 1, key={"id": 1}, values={"state": "one", "total": 5})
    most = select(func.max(orders.c.total)).scalar_subquery()
    assert newer(connection, 1, values={"state": "x", "total": most}) is Applied.INSERTED


def test_a_unique_constraint_names_a_row_as_well_as_the_primary_key(
    connection: Connection,
) -> None:
    key = {"shelf": "top", "shop": "rome"}
    for version in (1, 2):
        apply_next(connection, places, key, version=version, values={"goods": f"n{version}"})
    found = connection.execute(select(places.c.goods, places.c.shop)).all()
    assert found == [("n2", "rome")]
    made = newer(connection, 1, key={"mark": "m"}, values={"state": "s"}, insert={"id": 3})
    assert made is Applied.INSERTED


def test_a_conflict_with_another_row_is_the_callers_error(connection: Connection) -> None:
    newer(connection, 1, key={"id": 1}, values={"state": "one", "mark": "taken"})
    with pytest.raises(IntegrityError):
        newer(connection, 1, values={"state": "two", "mark": "taken"})


def test_a_model_is_named_by_its_attributes_and_its_object_shows_the_change(
    connection: Connection,
) -> None:
    with Session(connection) as session:
        account = Account(number=1, owner="ann", balance=5)
        session.add(account)
        applied = apply_next(
            session, Account, {"number": 1}, version=1,
            values={"balance": Account.balance + 2}, version_column="counter", insert=False,
        )  # fmt: skip
        assert applied is Applied.APPLIED
        assert (account.balance, account.counter, account.owner) == (7, 1, "ann")
        assert account not in session.dirty


def test_what_is_pending_in_the_session_is_kept(connection: Connection) -> None:
    with Session(connection) as session:
        session.add(account := Account(number=1, owner="ann", balance=5))
        session.flush()
        account.owner = "ben"
        apply_if_newer(
            session, Account, {"number": 1}, version=3, values={"balance": 9},
            version_column="counter", insert=False,
        )  # fmt: skip
        session.commit()
        assert (account.owner, account.balance, account.counter) == ("ben", 9, 3)


def test_the_change_is_part_of_the_sessions_transaction(connection: Connection) -> None:
    make = scoped_session(sessionmaker(connection.engine))
    values = {"owner": "ann", "balance": 1}
    options: Any = {"version": 1, "values": values, "version_column": "counter"}
    assert apply_if_newer(make, Account, {"number": 1}, **options) is Applied.INSERTED
    make.rollback()
    assert apply_if_newer(make, Account, {"number": 1}, **options) is Applied.INSERTED
    make.commit()
    assert apply_if_newer(make, Account, {"number": 1}, **options) is Applied.OLD
    make.remove()


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": None}, {"version": True}, {"version": "3"}, {"version": 1.5},
        {"version": float("nan")}, {"version": func.now()},
        {"version": datetime(2026, 1, 1, tzinfo=UTC)},
        {"version": datetime(2026, 1, 1), "version_column": "updated_at"},  # noqa: DTZ001
        {"version": datetime(2026, 1, 1, tzinfo=UTC), "version_column": "seen_at"},
        {"version": datetime(2026, 1, 1, tzinfo=UTC), "version_column": "day"},
        {"version": date(2026, 1, 1), "version_column": "seen_at"},
        {"version": 3, "version_column": "state"},
        {"version_column": "id"}, {"key": {}}, {"key": None}, {"key": {"state": "x"}},
        {"key": {"id": 7, "mark": "x"}}, {"key": {"id": None}}, {"key": {"id": func.random()}},
        {"values": {"id": 8}}, {"values": {"version": 8}}, {"values": ["state"]},
        {"insert": {"version": 1}}, {"insert": None}, {"insert": "yes"},
        {"values": {"state": "x", "total": orders.c.total + 1}},
        {"values": {"state": "x", "total": func.abs(orders.c.total)}},
    ],
    ids=shown,
)  # fmt: skip
def test_what_the_table_cannot_take_is_refused_before_anything_is_written(
    connection: Connection, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadOption):
        newer(connection, **({"version": 1} | wrong))
    assert not connection.execute(select(orders.c.id)).all()


class AsyncSession:
    def run_sync(self) -> None: ...


def of_places(connection: Any, key: Any) -> Applied:
    return apply_if_newer(connection, places, key, version=1, values={})


def of_table(connection: Any, table: Any) -> Applied:
    return apply_if_newer(connection, table, {"id": 1}, version=1, values={})


def of_dialect(connection: Any, name: str) -> Applied:
    connection.dialect.name = name
    return newer(connection, 1)


UNKNOWN = "name one of id, state, total"
UNKNOWN_COLUMNS: list[tuple[str, Any]] = [
    ("key", {"nothing": 1}), ("values", {"nothing": 1}), ("insert", {"nothing": 1}),
    ("version_column", "nothing"), ("version_column", orders.c.version),
]  # fmt: skip
NO_KEY = "not the primary key or a unique key of places"
REFUSED: list[tuple[Callable[[Any], Applied], type[Exception], str]] = [
    *[
        (partial(newer, version=1, **{name: wrong}), BadTable, UNKNOWN)
        for name, wrong in UNKNOWN_COLUMNS
    ],
    *[
        (partial(of_table, table=table), BadTable, ".")
        for table in (Savings, Event, "orders", orders.alias(), Account(), int, None)
    ],
    *[
        (partial(of_places, key=key), BadOption, NO_KEY)
        for key in ({"half": 1}, {"shop": "rome"}, {"shop": "rome", "goods": "x"})
    ],
    *[
        (partial(following, version=version, values={"state": "x"}), BadOption, ".")
        for version in (None, 0, 1.0, "1", True)
    ],
    (partial(following, version=1, delay="soon"), BadOption, "."),
    (lambda _: newer(AsyncSession(), 1), BadOption, r"await session\.run_sync"),  # type: ignore[arg-type]
    (lambda it: newer(it.engine, 1), BadOption, "give a Session or a Connection"),
    (partial(of_dialect, name="oracle"), BadOption, "use SQLite, PostgreSQL, MySQL or MariaDB"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_what_is_no_change_of_one_row_by_its_version_is_refused(
    connection: Connection, call: Callable[[Any], Applied], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(connection)
    assert not connection.execute(select(orders.c.id)).all()


@pytest.mark.parametrize(
    ("kind", "microsecond", "fits"),
    [
        (DateTime(), 0, True), (DateTime(), 500_000, False),
        (mysql.DATETIME(fsp=3), 7000, True), (mysql.DATETIME(fsp=3), 7001, False),
        (DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb"), 7001, True),
    ],
)  # fmt: skip
def test_a_moment_that_mysql_would_round_is_refused(
    kind: Any, microsecond: int, fits: bool
) -> None:
    moment = datetime(2026, 1, 1, 0, 0, 0, microsecond)  # noqa: DTZ001
    column: Column[Any] = Column("updated_at", kind)
    if fits:
        assert checked_version(column, moment, mysql.dialect()) == moment
    else:
        with pytest.raises(BadOption, match="digits of a second"):
            checked_version(column, moment, mysql.dialect())


@pytest.mark.parametrize(
    ("kind", "version", "on_mysql", "elsewhere"),
    [
        (Numeric(10, 3), Decimal("1.005"), True, True),
        (Numeric(10, 3), Decimal("1.0005"), False, False),
        (Numeric(), Decimal("1.5"), False, True), (Numeric(), 7, True, True),
        (Float(), 1.5, False, True), (Float(53), 1.5, True, True), (Double(), 1.5, True, True),
        (String(30), "01J0", True, True), (Integer(), 2**40, True, True),
    ],
)  # fmt: skip
def test_a_number_that_would_be_rounded_is_refused(
    kind: Any, version: Any, on_mysql: bool, elsewhere: bool
) -> None:
    column: Column[Any] = Column("version", kind)
    for dialect, fits in ((mysql, on_mysql), (postgresql, elsewhere), (sqlite, elsewhere)):
        if fits:
            assert checked_version(column, version, dialect.dialect()) == version
        else:
            with pytest.raises(BadOption, match="would round it"):
                checked_version(column, version, dialect.dialect())
