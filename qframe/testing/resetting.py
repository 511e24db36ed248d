"""The tables that qframe keeps in a user's database, emptied for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qframe.errors import BadOption

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

EFFECTS: Final = frozenset(
    ("namespace", "topic", "consumer_group", "effect", "state", "token", "lease_until",
     "expires_at")
)  # fmt: skip
OUTBOX: Final = frozenset(
    ("number", "line", "topic", "id", "key", "headers", "body", "options", "created_at", "sent_at")
)


def empty(engine: Engine) -> None:
    """Empties the tables of checkers and outboxes that there are, whatever their prefix.

    A table is one of these by the end of its name and by its columns.

    Raises:
        BadOption: if it is no engine of SQLAlchemy's, or an async one.
    """
    if not hasattr(engine, "dialect") or engine.dialect.is_async:
        raise BadOption(
            "reset", engine, "it is no plain Engine of SQLAlchemy", "use create_engine(url)"
        )
    with engine.begin() as connection:
        for name in engine.dialect.get_table_names(connection):
            prefix, _, kind = name.rpartition("_")
            if kind == "effects" and _columns(connection, name) == EFFECTS:
                _delete(connection, name)
            elif kind == "outbox" and _columns(connection, name) == OUTBOX:
                _delete(connection, name)
                _delete(connection, f"{prefix}_lines")


def _columns(connection: Connection, table: str) -> set[str]:
    columns = connection.dialect.get_columns(connection, table)
    return {str(column["name"]) for column in columns}


def _delete(connection: Connection, table: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote(table)
    connection.exec_driver_sql(f"DELETE FROM {quoted}")  # noqa: S608 - of a name that is there
