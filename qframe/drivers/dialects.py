"""All databases, and the record of one by SQLAlchemy's name for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from sqlalchemy.engine import Dialect as EngineDialect
from sqlalchemy.types import TypeEngine

from qframe.drivers.dialect import Dialect
from qframe.drivers.sql_mariadb import MARIADB, MYSQL
from qframe.drivers.sql_postgres import POSTGRESQL
from qframe.drivers.sql_sqlite import SQLITE

DIALECTS: Final = (SQLITE, POSTGRESQL, MYSQL, MARIADB)
TITLES: Final = f"{', '.join(each.title for each in DIALECTS[:-1])} or {DIALECTS[-1].title}"
_BY_NAME: Final = {each.name: each for each in DIALECTS}

Value = TypeVar("Value")


def dialect_named(name: str) -> Dialect | None:
    """The record of a database; None if qframe does not know it."""
    return _BY_NAME.get(name)


def dialect_of(dialect: EngineDialect) -> Dialect:
    """The record for SQLAlchemy's dialect, whose server is known once it has connected.

    Raises:
        KeyError: if qframe does not know the database.
    """
    return MARIADB if getattr(dialect, "is_mariadb", False) else _BY_NAME[dialect.name]


def varied(
    common: TypeEngine[Value], of: Callable[[Dialect], TypeEngine[Value] | None]
) -> TypeEngine[Value]:
    """A column's type: a database's own where it has one."""
    for dialect in DIALECTS:
        if (own := of(dialect)) is not None:
            common = common.with_variant(own, dialect.name)
    return common


def options_of(of: Callable[[Dialect], Mapping[str, Any]]) -> dict[str, Any]:
    """The options of a table or an index, under the names that SQLAlchemy has for them."""
    return {
        f"{dialect.name}_{name}": value
        for dialect in DIALECTS
        for name, value in of(dialect).items()
    }
