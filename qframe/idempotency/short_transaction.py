"""A transaction's BEGIN and its mark, and at its end a last look and COMMIT, sent together."""

from __future__ import annotations

import re
from contextlib import suppress
from threading import current_thread, main_thread
from typing import Any, Final

from sqlalchemy import Dialect
from sqlalchemy.exc import OperationalError

from qframe.errors import CommitRefused
from qframe.idempotency.guard import GuardedConnection

_OK: Final = 0  # these are libpq's
_IDLE: Final = 0
_COMMAND_OK: Final = 1
_TUPLES_OK: Final = 2
_SQLSTATE: Final = ord("C")
_UNPREPARED: Final = b"26000"
_NO_NUMBER: Final = b"22P02"
_REFUSALS: Final = 3
_HARMLESS: Final = re.compile(r"[ -&(-\[\]-~]*")  # printable, and neither ' nor \
_TYPES: Final = "text, text, text, text, text, bigint, bigint"
_ENDED: Final = "qframe: the handler has ended the transaction of its effect"


class StatementState:
    """The state of the prepared statement in one connection.

    Attributes:
        is_prepared: whether the session should have it.
        refusals: how often in a row the server has refused it.
    """

    __slots__ = ("is_prepared", "refusals")

    def __init__(self) -> None:
        self.is_prepared: bool = False
        self.refusals: int = 0


class ShortTransaction:
    """Begins a transaction with its first row, and commits it, in a round trip each, by psycopg.

    Left to itself psycopg sends BEGIN, waits, sends the statement, and waits again; and before
    COMMIT somebody has to look whether this is that transaction still, since a handler may have
    said ROLLBACK in plain SQL. With the handler's statement that is five times, and a transaction
    without a mark has three. So the statement is prepared once in each connection, and BEGIN and it
    are sent as one text; it replies with the number of its transaction, and COMMIT goes with a
    statement that fails, and COMMIT with it, in any other one.

    Where that cannot be done (another driver, an isolation level, a transaction that a listener
    has begun, a pooler that allows no prepared statements, a text with a quote), or the server
    refuses it, nothing is begun, and the caller goes the long way, which says what is wrong. So
    does the main thread: libpq's wait for an answer would keep signals from it. A transaction that
    was begun the long way is committed so, and one that has listeners for its commit.

    Args:
        name: of the prepared statement.
        statement: takes the row's five texts, how long it is kept and the number of its lock;
            returns txid_current() if it has written the row.
        dialect: the engine's.
    """

    def __init__(self, name: str, statement: str, dialect: Dialect) -> None:
        self._name = name
        self._prepare = f"PREPARE {name} ({_TYPES}) AS {statement}; "
        self._has_way = dialect.driver == "psycopg" and not dialect.is_async

    def begin(self, connection: GuardedConnection, given: dict[str, Any]) -> int | None:
        """How many rows were written; None where nothing was begun."""
        if not self._has_way:
            return None
        fairy = connection.connection
        driver: Any = fairy.dbapi_connection
        if (known := fairy.info.get(self._name)) is None:
            known = fairy.info[self._name] = StatementState()
        texts = [given[name] for name in ("namespace", "topic", "group", "effect", "token")]
        if (
            known.refusals >= _REFUSALS
            or current_thread() is main_thread()
            or driver.pgconn.transaction_status != _IDLE
            or not _begins_plainly(driver)
            or not all(map(_HARMLESS.fullmatch, texts))
        ):
            return None
        row = "', '".join(texts)
        execute = f"EXECUTE {self._name} ('{row}', {given['retention']:d}, {given['number']:d})"
        errors = connection.dialect.loaded_dbapi.Error
        try:
            return self._sent(connection, known, execute)
        except errors as error:
            known.refusals += 1
            with suppress(errors):
                driver.rollback()
            # Where it may have begun, and written, the long way would find the row and say "done".
            if driver.pgconn.status == _OK and driver.pgconn.transaction_status != _IDLE:
                raise OperationalError(execute, None, error) from error
            return None

    def commit(self, connection: GuardedConnection) -> bool:
        """Commits what was begun here; False where that is left to the caller.

        Raises:
            CommitRefused: if it is another transaction now; that is open still.
            Exception: the driver's, if the server refuses to commit, or is gone.
        """
        if (
            connection.txid is None
            or current_thread() is main_thread()
            or connection.dispatch.commit  # what these do belongs to the transaction
        ):
            return False
        is_same = f"CASE txid_current() WHEN {connection.txid:d} THEN '1' ELSE '{_ENDED}' END"
        driver: Any = connection.connection.dbapi_connection
        result = driver.pgconn.exec_(f"SELECT ({is_same})::integer; COMMIT".encode())
        if result.status == _COMMAND_OK:
            return True
        if result.error_field(_SQLSTATE) == _NO_NUMBER:
            raise CommitRefused("rolled back")
        raise connection.dialect.loaded_dbapi.errors.error_from_result(result)

    def _sent(
        self, connection: GuardedConnection, known: StatementState, execute: str
    ) -> int | None:
        driver: Any = connection.connection.dbapi_connection
        prepare = "" if known.is_prepared else self._prepare
        result = driver.pgconn.exec_(f"BEGIN; {prepare}{execute}".encode())
        if result.status == _TUPLES_OK:
            known.is_prepared, known.refusals = True, 0
            if result.ntuples:
                connection.txid = int(result.get_value(0, 0))
            return int(result.ntuples)
        driver.rollback()
        # psycopg makes the server forget all statements after a rollback.
        if known.is_prepared and result.error_field(_SQLSTATE) == _UNPREPARED:
            known.is_prepared = False
            return self._sent(connection, known, execute)
        known.refusals += 1
        return None


def _begins_plainly(driver: Any) -> bool:
    """Whether psycopg would say BEGIN and no more, and may prepare statements."""
    return (
        not driver.autocommit
        and driver.isolation_level is None
        and driver.read_only is None
        and driver.deferrable is None
        and driver.prepare_threshold is not None
    )
