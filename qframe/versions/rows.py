"""A row of a user's table, named by its key: what can be checked before it is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Date,
    DateTime,
    Dialect,
    Double,
    Float,
    Integer,
    Numeric,
    String,
    Table,
    UniqueConstraint,
    and_,
    inspect,
)
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import SelectBase

from qframe.drivers.dialects import dialect_of
from qframe.errors import BadOption, BadTable

if TYPE_CHECKING:
    from sqlalchemy.orm import Mapper

MICRO_DIGITS: Final = 6
DOUBLE: Final = 53


class VersionedRow:
    """A row, in the names that its table or model gives to columns.

    Attributes:
        table: its table.
        mapper: the mapper of the ORM model, or None where a table was given.
        key: the value of each column that names the row.

    Raises:
        BadTable: if there is no one table, or a column is not in it.
        BadOption: if the key does not name one row.
    """

    def __init__(self, table: object, key: Mapping[str, Any]) -> None:
        self.table: Table
        self.mapper: Mapper[Any] | None
        self.table, self.mapper, self._columns = _opened(table)
        self.key: dict[str, Any] = dict(key) if isinstance(key, Mapping) else {}
        columns = {self.column(name) for name in self.key}
        if columns not in _unique_sets(self.table):
            raise BadOption(
                "key", key, f"it is not the primary key or a unique key of {self.table.name}",
                "give a value for exactly the columns of one such key",
            )  # fmt: skip
        for name, value in self.key.items():
            if value is None or _is_expression(value):
                raise BadOption(
                    "key", key, f"{name} is {'NULL' if value is None else 'an expression'}",
                    "give a value, so that the key names one row",
                )  # fmt: skip

    def column(self, name: str) -> Column[Any]:
        """The column of a name.

        Raises:
            BadTable: if there is none.
        """
        column = self._columns.get(name) if isinstance(name, str) else None
        if column is None:
            known = ", ".join(self._columns)
            raise BadTable(
                "column", name, f"{self.table.name} has no such column", f"name one of {known}"
            )
        return column

    def where(self) -> ColumnElement[bool]:
        """The condition that finds it."""
        return and_(*[self.column(name) == value for name, value in self.key.items()])

    def changes(
        self, values: object, version_column: Column[Any], what: str = "values"
    ) -> dict[Column[Any], Any]:
        """Values by column.

        Raises:
            BadTable: if a column is unknown.
            BadOption: if they change the key or the version.
        """
        if not isinstance(values, Mapping):
            raise BadOption(
                what,
                values,
                "expected a mapping of column names to values",
                'use {"column": value, …}',
            )
        changes = {self.column(name): value for name, value in values.items()}
        taken = {self.column(name) for name in self.key} | {version_column}
        for column in changes.keys() & taken:
            raise BadOption(
                what,
                column.name,
                "key and version are separate arguments",
                f"leave it out of {what}",
            )
        return changes

    def refuse_own_columns(self, values: Mapping[Column[Any], Any]) -> None:
        """Checks that values can be those of a new row, which has no others to be told from.

        Raises:
            BadOption: if one is an expression of the table's own columns.
        """
        for column, value in values.items():
            if _refers(value, self.table):
                raise BadOption(
                    "insert", column.name, "its value is computed from the row, which is missing",
                    f'give the first one, insert={{"{column.name}": …}}, or insert=False',
                )  # fmt: skip


def checked_version(column: Column[Any], version: Any, dialect: Dialect) -> Any:
    """The version as the column keeps it; what it would not keep exactly is refused.

    Raises:
        BadOption: if it is none, or not of the column's type.
    """
    if version is None or isinstance(version, bool) or _is_expression(version):
        raise BadOption(
            "version", version, "it is not an orderable value", "give the event's version, not NULL"
        )
    if isinstance(version, float) and not math.isfinite(version):
        raise BadOption("version", version, "it cannot be ordered", "give a finite number")
    kept = column.type.dialect_impl(dialect)
    for kind, fits in (
        (Integer, int), (DateTime, datetime), (Date, date), (String, str),
    ):  # fmt: skip
        is_wrong_date = kind is Date and isinstance(version, datetime)
        if isinstance(kept, kind) and (not isinstance(version, fits) or is_wrong_date):
            raise BadOption(
                "version", version, f"column {column.name} holds {fits.__name__}s",
                f"give a {fits.__name__}",
            )  # fmt: skip
    if isinstance(kept, DateTime):
        return _moment(column, version, kept, dialect)
    _refuse_rounding(column, version, kept, dialect)
    return version


def _refuse_rounding(column: Column[Any], version: Any, kept: object, dialect: Dialect) -> None:
    """Checks that a number is kept as it is, or it would be found older or newer than itself."""
    if not isinstance(version, int | float | Decimal):
        return
    is_short = dialect_of(dialect).needs_precision
    if isinstance(kept, Float):
        # FLOAT may have 24 bits: seconds since 1970 would be kept to two minutes.
        is_exact = isinstance(kept, Double) or not is_short or kept.precision == DOUBLE
    elif isinstance(kept, Numeric):
        scale = 0 if kept.scale is None and is_short else kept.scale
        is_exact = scale is None or round(version, scale) == version
    else:
        return
    if not is_exact:
        raise BadOption(
            "version", version, f"column {column.name} would round it",
            "use a whole number, or a column that stores it exactly",
        )  # fmt: skip


def _moment(column: Column[Any], version: datetime, kept: DateTime, dialect: Dialect) -> datetime:
    """A datetime as the column keeps it: in UTC, since many databases keep no time zones."""
    is_aware = version.tzinfo is not None
    if is_aware != bool(getattr(column.type, "timezone", kept.timezone)):
        raise BadOption(
            "version", version,
            f"it has {'a' if is_aware else 'no'} time zone, unlike column {column.name}",
            "use aware datetimes and DateTime(timezone=True), or naive ones and DateTime()",
        )  # fmt: skip
    digits = getattr(kept, "fsp", None) or getattr(kept, "precision", None)
    if digits is None:
        digits = 0 if dialect_of(dialect).needs_precision else MICRO_DIGITS
    if version.microsecond % 10 ** (MICRO_DIGITS - digits):
        raise BadOption(
            "version", version, f"column {column.name} keeps {digits} digits of a second",
            "make it DATETIME(fsp=6), or round the version, so that versions stay distinct",
        )  # fmt: skip
    return version.astimezone(UTC) if is_aware else version


def _opened(table: object) -> tuple[Table, Mapper[Any] | None, dict[str, Column[Any]]]:
    """The one table of what the user has given, with its columns by the user's names."""
    if isinstance(table, Table):
        return table, None, dict(table.columns.items())
    mapper: Any = inspect(table, raiseerr=False) if isinstance(table, type) else None
    if not getattr(mapper, "is_mapper", False):
        raise BadTable("table", table, "it is not a table", "give a Table, or an ORM model's class")
    own = mapper.local_table
    if not isinstance(own, Table) or len(mapper.tables) > 1 or mapper.polymorphic_on is not None:
        raise BadTable(
            "table", table, "the model maps several tables, or shares one",
            "give the Table, with all needed columns among the values",
        )  # fmt: skip
    named = mapper.columns.items()
    return own, mapper, {name: column for name, column in named if isinstance(column, Column)}


def _unique_sets(table: Table) -> list[set[Column[Any]]]:
    """The sets of columns of which no two rows have the same values."""
    sets = [set(table.primary_key.columns)]
    sets += [set(each.columns) for each in table.constraints if isinstance(each, UniqueConstraint)]
    for index in table.indexes:
        # One of expressions has fewer columns than it has terms.
        if index.unique and not _is_partial(index) and len(index.columns) == len(index.expressions):
            sets.append(set(index.columns))
    return [found for found in sets if found]


def _is_partial(index: Any) -> bool:
    return any(options.get("where") is not None for options in index.dialect_options.values())


def _is_expression(value: object) -> bool:
    return isinstance(value, ClauseElement) or hasattr(value, "__clause_element__")


def _refers(value: object, table: Table) -> bool:
    """Whether an expression uses a table's columns, but for those of a query inside it."""
    element = value.__clause_element__() if hasattr(value, "__clause_element__") else value
    if not isinstance(element, ClauseElement) or isinstance(element, SelectBase):
        return False
    owner = getattr(element, "table", None)
    if getattr(owner, "fullname", None) == table.fullname:
        return True
    return any(_refers(child, table) for child in element.get_children())
