"""The tables that qframe keeps in its users' databases, beside their own.

The rows of a `DatabaseChecker`, a `TransactionalChecker` and an `Outbox` change in the users' own
transactions, so these tables live where the users' rows live. They are
apart from those of a store in a database, which no user's code touches.

    metadata = qframe.tables.tables().metadata        # Alembic: target_metadata = [mine, metadata]

Times are milliseconds since 1970 by the database's clock.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
)

from qframe.drivers.dialects import options_of, varied
from qframe.errors import BadOption

DEFAULT_PREFIX: Final = "qframe_"
_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,30}_")


class Tables(msgspec.Struct, frozen=True, eq=False):
    """The tables under one prefix.

    Attributes:
        metadata: all of them, for `create_all` or for Alembic.
        effects: what was handled: a row for each effect of a namespace, topic and group that a
            checker knows. Its state is 1 while one is at work, whose `token` may end it until
            `lease_until`, and 2 once it is done; it is swept after `expires_at`.
        outbox: messages that wait for a relay.
        lines: a row for each line of the outbox, the lock of those who publish to it, with their
            count; and one with the outbox's identity.
    """

    metadata: MetaData
    effects: Table
    outbox: Table
    lines: Table


def tables(prefix: str = DEFAULT_PREFIX) -> Tables:
    """The tables under a prefix; the same objects each time.

    Args:
        prefix: what their names begin with: a lower-case letter, up to 30 lower-case letters,
            digits and underscores, and an underscore at the end.

    Raises:
        BadOption: if the prefix is another text.
    """
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise BadOption(
            "prefix", prefix, "a table's prefix must match [a-z][a-z0-9_]{0,30}_",
            f"use {DEFAULT_PREFIX!r}",
        )  # fmt: skip
    return _tables(prefix)


@lru_cache
def _tables(prefix: str) -> Tables:
    metadata = MetaData()
    effects = Table(
        f"{prefix}effects",
        metadata,
        Column("namespace", _name(64), primary_key=True),
        Column("topic", _name(64), primary_key=True),
        Column("consumer_group", _name(129), primary_key=True),
        Column("effect", _name(128), primary_key=True),
        Column("state", SmallInteger, nullable=False),
        Column("token", String(36)),
        Column("lease_until", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
        Index(f"{prefix}effects_expires_at", "expires_at"),
        # Its key is all that rows are looked up by.
        **options_of(lambda dialect: dialect.tables.clustered),
    )
    outbox = Table(
        f"{prefix}outbox",
        metadata,
        Column("number", varied(BigInteger(), lambda dialect: dialect.types.number),
               primary_key=True),
        Column("line", Integer, nullable=False),
        Column("topic", _name(64), nullable=False),
        Column("id", _name(200), nullable=False),
        Column("key", _text()),
        Column("headers", _text()),
        Column("body", varied(LargeBinary(), lambda dialect: dialect.types.blob),
               nullable=False),
        Column("options", _text()),
        Column("created_at", BigInteger, nullable=False),
        Column("sent_at", BigInteger),
        # A relay that was frozen takes marks back by number: none may name another row.
        **options_of(lambda dialect: dialect.tables.counted),
    )  # fmt: skip
    lines = Table(
        f"{prefix}lines",
        metadata,
        Column("line", Integer, primary_key=True, autoincrement=False),
        Column("last", BigInteger, nullable=False),
    )
    return Tables(metadata, effects, outbox, lines)


def _name(length: int) -> Any:
    """A text that is compared byte by byte on every database."""
    return varied(String(length), lambda dialect: dialect.types.users_exact(length))


def _text() -> Any:
    """A long text that may hold any character on every database."""
    return varied(Text(), lambda dialect: dialect.types.users_text)
