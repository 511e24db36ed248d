"""Marks of finished effects in the transactions of their handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from qframe.drivers.dialects import dialect_of
from qframe.errors import (
    BadOption,
    CheckerUnavailable,
    CommitRefused,
    EffectConflict,
    EffectUnknown,
)
from qframe.idempotency.awaited import (
    async_connection,
    async_session,
    is_async_engine,
    plain_session,
)
from qframe.idempotency.base import Claim, Scope, State, Terms, check_memory
from qframe.idempotency.database import retention_ms
from qframe.idempotency.effects_table import (
    EffectsTable,
    asking,
    in_one_line,
    passing,
    refusal,
)
from qframe.idempotency.guard import GuardedConnection
from qframe.idempotency.keys import Key, KeyOption, key_of
from qframe.idempotency.mark import Mark
from qframe.tables import DEFAULT_PREFIX

if TYPE_CHECKING:
    from sqlalchemy.engine.base import RootTransaction
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import Session

SessionFactory = Callable[..., Any]

TURN_S: Final = 1.0


class MarkTransaction:
    """The transaction of one effect: the mark is in it already, the handler's changes will be.

    It belongs to no thread; whoever ends it, ends it once.

    Attributes:
        connection: for a handler that asks for a `Connection`.
        awaited: for one that asks for an `AsyncConnection`; None where the engine is a plain one.
    """

    def __init__(
        self,
        connection: GuardedConnection,
        root: RootTransaction,
        awaited: Any,
        factory: SessionFactory,
        shown: str,
        on_end: Callable[[], None],
    ) -> None:
        self.connection: GuardedConnection = connection
        self.awaited = awaited
        self._root = root
        self._factory = factory
        self._session: Any = None
        self._shown = shown
        self._on_end = on_end
        self._ending = threading.Lock()
        self._ended = False

    @property
    def session(self) -> Any:
        """For a handler that asks for a `Session`, or an `AsyncSession`: one for each message."""
        if self._session is None:
            bind = self.connection if self.awaited is None else self.awaited
            self._session = self._factory(bind=bind, join_transaction_mode="control_fully")
        return self._session

    @property
    def _plain_session(self) -> Session:
        session: Session = getattr(self._session, "sync_session", self._session)
        return session

    def commit(self) -> None:
        """Commits the mark and the handler's changes together.

        Raises:
            CommitRefused: if the handler has ended it; nothing of it was committed.
            EffectUnknown: if it is unknown whether it was committed.
            EffectConflict: if another transaction was in the way.
        """
        with self._ending:
            if self._ended:
                raise CommitRefused("lost")
            committed = False
            try:
                self._commit()
                committed = True
            finally:
                self._close(committed=committed)

    def roll_back(self) -> None:
        """Makes it all undone; nothing if it has ended."""
        with self._ending:
            if not self._ended:
                self._close()

    def _commit(self) -> None:
        connection = self.connection
        if connection.how is None and self._root is not connection.get_transaction():
            connection.how = "rolled back"
        if connection.how is not None:
            raise CommitRefused(connection.how)
        if self._session is not None:
            self._plain_session.flush()
        try:
            if not dialect_of(connection.dialect).is_open(connection):
                raise CommitRefused("broken")
            connection.may_end = True
            if self._session is not None:
                self._plain_session.commit()
            # A session that was never used has not joined the transaction.
            if (root := connection.get_transaction()) is not None:
                root.commit()
        except DBAPIError as error:
            if (passes := passing(self._shown, error)) is None:
                raise
            if isinstance(passes, EffectConflict):
                raise passes from error
            raise EffectUnknown(self._shown, in_one_line(error)) from error

    def _close(self, *, committed: bool = False) -> None:
        self._ended = True
        self.connection.may_end = True
        try:
            if not committed:
                _undo(self.connection)
            if self._session is not None:
                with suppress(SQLAlchemyError):
                    self._plain_session.close()
            self.connection.close()
        finally:
            self._on_end()


class TransactionalChecker:
    """Remembers what was done in the handler's own transaction: effect exactly once.

    The handler asks for a `Session` or a `Connection` by annotation. The mark is the first row of
    its transaction; mark and changes are committed together when the message is acknowledged, or
    rolled back together when the handler fails, its message is cancelled or its worker dies.

    Args:
        engine: an engine of SQLAlchemy for SQLite, PostgreSQL, MySQL or MariaDB, with a connection
            for each message in hand; for async handlers an `AsyncEngine`.
        retention: how long, at least, what is done is remembered: seconds, or a text such as "7d".
        key: by what an effect is recognised: a field of the body, several, or a function of the
            message; by default the message's id.
        session: makes a session, given `bind=` and `join_transaction_mode=`: a `sessionmaker`.
        prefix: what the name of its table, `qframe_effects`, begins with.
        create_tables: whether to make the table where it is missing.

    Raises:
        BadOption: if one of these is not as described.

    Attributes:
        runs: on SQLite, which has one writer at a time, the lock of those threads that work off a
            run of messages; None elsewhere.
    """

    is_transactional: Final = True

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        *,
        retention: float | str = "7d",
        key: KeyOption = None,
        session: SessionFactory | None = None,
        prefix: str = DEFAULT_PREFIX,
        create_tables: bool = True,
    ) -> None:
        given: Any = engine
        self.is_async: bool = is_async_engine(given)
        self._async_engine = given if self.is_async else None
        plain = given.sync_engine if self.is_async else given
        self._effects = EffectsTable(plain, prefix=prefix, create=create_tables)
        if session is None:
            session = async_session if self.is_async else plain_session
        # A scoped_session would give the same one to the next message of its thread.
        if not callable(session) or hasattr(session, "registry"):
            raise BadOption("session", session, "it does not create sessions", "use a sessionmaker")
        self.key: Key = key_of(key)
        self._factory = session
        self._retention_ms = retention_ms(retention)
        self._mark = Mark(self._effects, self._retention_ms)
        self.shown: str = f"TransactionalChecker({self._effects.shown})"
        is_single = self._effects.dialect.has_one_writer
        self._turn = threading.Lock() if is_single else None  # whoever ends it, releases it
        self.runs = threading.Lock() if is_single and not self.is_async else None

    def check(self, terms: Terms) -> None:
        """Raises `BadOption` where it would forget too soon."""
        check_memory("retention", self._retention_ms, terms)

    def open(self) -> None:
        """Makes the table where it is missing, and proves what its transactions must be.

        A handler's commit is refused, and what is rolled back is gone.

        Raises:
            BadOption: if the engine or the table has no transactions, or a handler could end one.
        """
        self._effects.open(self.shown)
        table = self._effects.table
        scope = Scope("", "", "")
        claim = Claim(f"probe:{uuid4().hex}")
        self.claim_many(scope, [claim], 0)
        if claim.state is not State.CLAIMED:
            return  # SQLite's one writer is at work, and nobody waits for it
        is_guarded = _refuses_commits(claim.transaction.connection)
        self.release_many(scope, [claim])
        if not is_guarded:
            raise BadOption(
                "engine", self._effects.shown, "handlers could commit their transaction half-way",
                "use a version of SQLAlchemy listed in docs/platforms.md",
            )  # fmt: skip
        with asking(self.shown), self._effects.engine.begin() as connection:
            probe = table.c.effect == claim.key
            if connection.execute(select(table.c.effect).where(probe)).first() is not None:
                connection.execute(table.delete().where(probe))
                raise BadOption(
                    "engine", self._effects.shown, "its rollback undoes nothing",
                    "leave out isolation_level='AUTOCOMMIT', and use tables with transactions",
                )  # fmt: skip

    def claim_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> None:
        """Begins a transaction for each claim, with its mark; sets the state of each.

        A transaction ends with its connection, so it has no lease.
        """
        del lease_ms
        begun = []
        try:
            for claim in claims:
                self._begin(scope, [claim])
                begun.append(claim)
        except BaseException:
            self.release_many(scope, begun)
            raise

    def claim_together(self, scope: Scope, claims: list[Claim]) -> None:
        """Begins one transaction for all claims that can be had; sets the state of each.

        Finishing or releasing one of them ends the transaction for all.
        """
        self._begin(scope, claims)

    def finish_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Commits the transactions; an error is that of the first one that could not be."""
        del scope
        for transaction in dict.fromkeys([claim.transaction for claim in claims]):
            for claim in claims:
                if claim.transaction is transaction:
                    claim.transaction = claim.state = None
            if transaction is None:
                raise CommitRefused("lost")
            transaction.commit()
        return [True] * len(claims)

    def release_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Rolls the transactions back."""
        del scope
        changed = [claim.transaction is not None for claim in claims]
        for claim in claims:
            transaction, claim.transaction = claim.transaction, None
            claim.state = None
            if transaction is not None:
                transaction.roll_back()
        return changed

    def renew_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> list[bool]:
        """Does nothing: a transaction lasts as long as its connection."""
        del scope, lease_ms
        return [claim.transaction is not None for claim in claims]

    def passing(self, error: BaseException) -> CheckerUnavailable | None:
        """Translates a handler's error if it is the database's request to try again."""
        return passing(self.shown, error)

    def sweep(self, limit: int) -> int:
        """Removes up to so many rows that have expired; returns how many."""
        with asking(self.shown), self._effects.engine.begin() as connection:
            return self._effects.sweep(connection, limit)

    def close(self) -> None:
        """Does nothing: the engine is its user's."""

    async def dispose(self) -> None:
        """Closes an async engine's pooled connections, which no other event loop can use."""
        if self._async_engine is not None:
            await self._async_engine.dispose()

    def _begin(self, scope: Scope, claims: list[Claim]) -> None:
        """Begins a transaction and writes its marks, without waiting for who has written one."""
        for claim in claims:
            claim.state, claim.wait_ms = State.RUNNING, 0
        # In an event loop nobody may wait for who would need that very loop to end.
        patience_s = 0.0 if self.is_async else TURN_S
        if self._turn is not None and not self._turn.acquire(timeout=patience_s):
            return
        if len(claims) > 1:  # in one order, so that there are no deadlocks
            claims = sorted(claims, key=lambda each: each.key)
        connection: GuardedConnection | None = None
        transaction: MarkTransaction | None = None
        try:
            connection = GuardedConnection(self._effects.engine)
            root = connection.begin()
            self._mark.write(connection, scope, claims)
            if any(claim.is_mine for claim in claims):
                connection.how = None
                awaited = (
                    async_connection(self._async_engine, connection) if self.is_async else None
                )
                mine = next(claim for claim in claims if claim.is_mine)
                connection.before_commit = partial(self._mark.look, connection, scope, mine)
                transaction = MarkTransaction(
                    connection, root, awaited, self._factory, self.shown, self._give_turn
                )
                for claim in claims:
                    claim.transaction = transaction if claim.is_mine else None
        except (DBAPIError, PoolTimeout) as error:
            raise refusal(self.shown, error) from error
        finally:
            if transaction is None:
                for claim in claims:
                    claim.state = None if claim.is_mine else claim.state
                try:
                    if connection is not None:
                        connection.may_end = True
                        _undo(connection)
                        connection.close()
                finally:
                    self._give_turn()

    def _give_turn(self) -> None:
        if self._turn is not None:
            self._turn.release()


def _refuses_commits(connection: Connection) -> bool:
    """Whether a commit by anybody but the effect's own end is refused."""
    try:
        connection.commit()
    except CommitRefused:
        return True
    return False


def _undo(connection: Connection) -> None:
    """Rolls back what a connection has done, whatever SQLAlchemy thinks of its transaction.

    Where a commit was refused or has failed, closing the connection would put it back into its pool
    with the transaction open.
    """
    try:
        if not connection.invalidated:
            connection.connection.rollback()
    except Exception:  # whatever the driver says: who cannot be rolled back is cut off
        connection.invalidate()
