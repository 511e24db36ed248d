"""Marks of finished effects in a database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Executable,
    and_,
    bindparam,
    case,
    delete,
    func,
    select,
    update,
)

from qframe.errors import BadOption, CheckerUnavailable
from qframe.idempotency.base import Claim, Scope, State, Terms, check_memory
from qframe.idempotency.effects_table import DONE, PROCESSING, EffectsTable, asking
from qframe.idempotency.keys import Key, KeyOption, key_of
from qframe.tables import DEFAULT_PREFIX
from qframe.topic import duration_ms


class DatabaseChecker:
    """Remembers in a database what was done, for `retention`.

    It has short transactions of its own, before the handler and after it. A handler's own changes
    are not part of the mark: if the worker dies between them, they are done again. Where they are
    changes of this database, use a `TransactionalChecker`.

    Args:
        engine: an engine of SQLAlchemy for SQLite, PostgreSQL, MySQL or MariaDB.
        retention: how long, at least, what is done is remembered: seconds, or a text such as "7d".
        key: by what an effect is recognised: a field of the body, several, or a function of the
            message; by default the message's id.
        prefix: what the name of its table, `qframe_effects`, begins with.
        create_tables: whether to make the table where it is missing.

    Raises:
        BadOption: if one of these is not as described.
    """

    is_transactional: Final = False

    def __init__(
        self,
        engine: Engine,
        *,
        retention: float | str = "7d",
        key: KeyOption = None,
        prefix: str = DEFAULT_PREFIX,
        create_tables: bool = True,
    ) -> None:
        self._effects = EffectsTable(engine, prefix=prefix, create=create_tables)
        self.key: Key = key_of(key)
        self._retention_ms = retention_ms(retention)
        self.shown: str = f"DatabaseChecker({self._effects.shown})"
        # SQLite has one writer at a time, and who waits for it by trying sleeps for too long.
        is_single = self._effects.dialect.has_one_writer
        self._turn: Any = threading.Lock() if is_single else nullcontext()
        # Built once: to build a statement, and to find its text again, costs more than to run it.
        dialect = self._effects.engine.dialect
        self._claim = _RowStatement(self._upserting(), dialect)
        self._finish = _RowStatement(self._finishing(), dialect)

    def check(self, terms: Terms) -> None:
        """Raises `BadOption` where it would forget too soon."""
        check_memory("retention", self._retention_ms, terms)

    def open(self) -> None:
        """Makes the table where it is missing."""
        self._effects.open(self.shown)

    def claim_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> None:
        """Asks for effects; sets the state of each claim."""
        table, now = self._effects.table, self._effects.now_ms
        first: dict[str, Claim] = {}
        for claim in sorted(claims, key=lambda each: each.key):  # one order, so no deadlocks
            first.setdefault(claim.key, claim)
        rows = [
            {
                "namespace": scope.namespace, "topic": scope.topic, "consumer_group": scope.group,
                "effect": claim.key, "token": claim.token, "lease": lease_ms,
                "memory": lease_ms + self._retention_ms,
            }
            for claim in first.values()
        ]  # fmt: skip
        found: dict[str, Any] | None = None
        with self._transaction() as connection:
            written = self._claim.run(connection, rows)
            # Without ON CONFLICT a row that was taken over counts as two.
            if written != len(claims) or not self._effects.dialect.has_on_conflict:
                asked = select(
                    table.c.effect, table.c.state, table.c.token, table.c.lease_until - now
                ).where(self._among(scope, list(first.values())))
                found = {effect: rest for effect, *rest in connection.execute(asked)}
        for claim in claims:
            state, token, left_ms = found[claim.key] if found else (PROCESSING, claim.token, 0)
            if state == DONE:
                claim.state = State.DONE
            elif token == claim.token:
                claim.state = State.CLAIMED
            else:
                claim.state, claim.wait_ms = State.RUNNING, max(0, int(left_ms))

    def finish_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Marks claimed effects as done; false for those whose claim has passed to another one."""
        rows = [
            {
                "of_namespace": scope.namespace, "of_topic": scope.topic, "of_group": scope.group,
                "of_effect": claim.key, "of_token": claim.token,
            }
            for claim in sorted(claims, key=lambda each: each.key)
        ]  # fmt: skip
        with self._transaction() as connection:
            if self._finish.run(connection, rows) == len(claims):
                return [True] * len(claims)
            held = select(self._effects.table.c.token).where(self._held(scope, claims))
            found = set(connection.scalars(held))
        return [claim.token in found for claim in claims]

    def release_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Makes claimed effects absent again; false where the claim has passed."""
        table = self._effects.table
        held = and_(self._held(scope, claims), table.c.state == PROCESSING)
        with self._transaction() as connection:
            # Writes before it reads, since a reader may not become a writer on SQLite.
            connection.execute(update(table).where(held).values(lease_until=0))
            found = set(connection.scalars(select(table.c.token).where(held)))
            connection.execute(delete(table).where(held))
        return [claim.token in found for claim in claims]

    def renew_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> list[bool]:
        """Makes claims last longer; false where the claim has passed."""
        table, now = self._effects.table, self._effects.now_ms
        held = and_(self._held(scope, claims), table.c.state == PROCESSING)
        longer = (
            update(table)
            .where(held)
            .values(lease_until=now + lease_ms, expires_at=now + lease_ms + self._retention_ms)
        )
        with self._transaction() as connection:
            connection.execute(longer)
            found = set(connection.scalars(select(table.c.token).where(held)))
        return [claim.token in found for claim in claims]

    def passing(self, error: BaseException) -> CheckerUnavailable | None:
        """None: it gives nothing to handlers, so their errors are not its own."""
        del error
        return None

    def sweep(self, limit: int) -> int:
        """Removes up to so many rows that have expired; returns how many."""
        with self._transaction() as connection:
            return self._effects.sweep(connection, limit)

    def close(self) -> None:
        """Does nothing: the engine is its user's."""

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with asking(self.shown), self._turn, self._effects.engine.begin() as connection:
            yield connection

    def _among(self, scope: Scope, claims: list[Claim]) -> ColumnElement[bool]:
        table = self._effects.table
        return and_(
            table.c.namespace == scope.namespace,
            table.c.topic == scope.topic,
            table.c.consumer_group == scope.group,
            table.c.effect.in_([claim.key for claim in claims]),
        )

    def _held(self, scope: Scope, claims: list[Claim]) -> ColumnElement[bool]:
        """A token is in one row at most, so that it need not be paired with its key."""
        tokens = [claim.token for claim in claims]
        return and_(self._among(scope, claims), self._effects.table.c.token.in_(tokens))

    def _finishing(self) -> Executable:
        """Marks one effect as done, if its claim has not passed."""
        table, now = self._effects.table, self._effects.now_ms
        # Named: the name that SQLAlchemy 2.0.44 makes of `now` is another one in the text.
        memory = bindparam("memory", self._retention_ms, BigInteger())
        return (
            update(table)
            .where(
                table.c.namespace == bindparam("of_namespace"),
                table.c.topic == bindparam("of_topic"),
                table.c.consumer_group == bindparam("of_group"),
                table.c.effect == bindparam("of_effect"),
                table.c.token == bindparam("of_token"),
            )
            .values(state=DONE, lease_until=0, expires_at=now + memory)
        )

    def _upserting(self) -> Executable:
        """Inserts one that is absent, or takes over one that has passed; what is done stays."""
        table, now = self._effects.table, self._effects.now_ms
        given = ("namespace", "topic", "consumer_group", "effect", "token")
        row: dict[str, Any] = {name: bindparam(name, type_=table.c[name].type) for name in given}
        row |= {
            "state": PROCESSING,
            "lease_until": now + bindparam("lease", type_=BigInteger()),
            "expires_at": now + bindparam("memory", type_=BigInteger()),
        }
        mine = self._effects.dialect.insert(table).values(row)
        new = mine.excluded if self._effects.dialect.has_on_conflict else mine.inserted
        free = and_(
            table.c.state == PROCESSING,
            (table.c.lease_until <= now) | (table.c.token == new.token),
        )
        upsert: Executable
        if self._effects.dialect.has_on_conflict:
            upsert = mine.inline().on_conflict_do_update(
                index_elements=list(table.primary_key.columns),
                set_={
                    "token": new.token,
                    "lease_until": new.lease_until,
                    "expires_at": new.expires_at,
                },
                where=free,
            )
        else:
            # From left to right, each seeing what those before it have set.
            is_mine = and_(table.c.state == PROCESSING, table.c.token == new.token)
            upsert = mine.on_duplicate_key_update(
                [
                    ("token", func.if_(free, new.token, table.c.token)),
                    ("lease_until", case((is_mine, new.lease_until), else_=table.c.lease_until)),
                    ("expires_at", case((is_mine, new.expires_at), else_=table.c.expires_at)),
                ]
            )
        return upsert


class _RowStatement:
    """A change that is made for each of many rows; its text is made once.

    Args:
        statement: the change of one row.
        dialect: the engine's.
    """

    def __init__(self, statement: Any, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self._text = str(compiled)
        self._names: list[str] | None = compiled.positiontup if compiled.positional else None
        self._fixed: dict[str, Any] = dict(compiled.params)

    def run(self, connection: Connection, rows: list[dict[str, Any]]) -> int:
        """Makes it for each row; returns how many it touched."""
        filled = [self._fixed | row for row in rows]
        given: Any = filled
        if self._names is not None:
            given = [tuple([row[name] for name in self._names]) for row in filled]
        if len(given) == 1:
            [given] = given
        return connection.exec_driver_sql(self._text, given).rowcount


def retention_ms(retention: float | str) -> int:
    """A checker's retention in milliseconds.

    Raises:
        BadOption: if it is no time, or none at all.
    """
    found = duration_ms(retention, "retention")
    if not found:
        raise BadOption("retention", retention, "no mark would be kept", 'use "7d"')
    return found
