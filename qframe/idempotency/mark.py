"""Writing a mark without waiting for another transaction that has written it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Connection, CursorResult, Dialect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from qframe.drivers.dialect import MarkLock
from qframe.drivers.dialects import dialect_of
from qframe.errors import CommitRefused
from qframe.idempotency.base import Claim, Scope, State
from qframe.idempotency.effects_table import DONE, EffectsTable, is_conflict
from qframe.idempotency.guard import GuardedConnection
from qframe.idempotency.short_transaction import ShortTransaction


class Prepared:
    """A statement that is compiled once: to have SQLAlchemy do it costs as much as running it.

    Args:
        statement: with its parameters as `:name`.
        dialect: the engine's.
    """

    def __init__(self, statement: str, dialect: Dialect) -> None:
        compiled: Any = text(statement).compile(dialect=dialect)
        self._text = str(compiled)
        self._names: list[str] | None = compiled.positiontup if compiled.positional else None

    def run(self, connection: Connection, given: dict[str, Any]) -> CursorResult[Any]:
        """Runs it."""
        if self._names is None:
            return connection.exec_driver_sql(self._text, given)
        return connection.exec_driver_sql(self._text, self._ordered(given))

    def run_joined(self, connection: Connection, given: list[dict[str, Any]]) -> int:
        """Runs it once, with a row of values for each of these; how many rows it touched."""
        before, values, row = self._text.rpartition(" VALUES ")
        rows = [row] * len(given)
        all_given: Any = tuple(value for each in given for value in self._ordered(each))
        if self._names is None:  # "%(name)s": each row has names of its own
            rows = [row.replace(")s", f"_{number})s") for number in range(len(given))]
            all_given = {
                f"{name}_{number}": value
                for number, each in enumerate(given)
                for name, value in each.items()
            }
        return connection.exec_driver_sql(f"{before}{values}{', '.join(rows)}", all_given).rowcount

    def run_by_driver(self, driver: Any, given: list[dict[str, Any]]) -> int:
        """Runs it on the driver's own connection, past SQLAlchemy; how many rows it touched."""
        if len(given) == 1:
            return int(_executed(driver, self._text, self._ordered(given[0])).rowcount)
        cursor = driver.cursor()
        cursor.executemany(self._text, [self._ordered(each) for each in given])
        touched = int(cursor.rowcount)
        cursor.close()
        return touched

    def row_by_driver(self, driver: Any, given: dict[str, Any]) -> Any:
        """The first row that a query finds, by the driver's own connection."""
        return _executed(driver, self._text, self._ordered(given)).fetchone()

    def _ordered(self, given: dict[str, Any]) -> tuple[Any, ...]:
        return tuple([given[name] for name in self._names or ()])


def _executed(driver: Any, text: str, given: tuple[Any, ...] = ()) -> Any:
    """The cursor of a statement: a connection of the DB-API has no `execute`."""
    cursor = driver.cursor()
    cursor.execute(text, given)
    return cursor


_COLUMNS: Final = (
    "(namespace, topic, consumer_group, effect, state, token, lease_until, expires_at)"
)

BUSY_MS: Final = 250
_PATIENCE: Final = "qframe.busy_timeout"  # a connection's own, found when it was used first
STEP: Final = 500


class Mark:
    """The row that says that an effect is done, written into the transaction that does it.

    Args:
        effects: the table.
        retention_ms: how long the row is kept.
    """

    def __init__(self, effects: EffectsTable, retention_ms: int) -> None:
        self._table = table = effects.table.name  # of an allow-listed form
        self._retention_ms = retention_ms
        row = (
            f":namespace, :topic, :group, :effect, {DONE}, :token, 0, {effects.now_ms} + :retention"
        )
        insert = f"INSERT INTO {table} {_COLUMNS}"
        dialect = effects.engine.dialect
        self._plain = Prepared(f"{insert} VALUES ({row})", dialect)
        self._as_writer = Prepared(f"{insert} VALUES ({row}) ON CONFLICT DO NOTHING", dialect)
        self._at_once = Prepared(
            f"SET STATEMENT innodb_lock_wait_timeout=0 FOR {insert} VALUES ({row})", dialect
        )
        ignoring = insert.replace("INSERT", "INSERT IGNORE", 1)
        self._many_at_once = Prepared(
            f"SET STATEMENT innodb_lock_wait_timeout=0 FOR {ignoring} VALUES ({row})", dialect
        )
        self._first_locked = Prepared(
            f"{insert} SELECT {row} WHERE pg_try_advisory_xact_lock(:number)"
            " ON CONFLICT DO NOTHING", dialect,
        )  # fmt: skip
        each_row = row.replace(":effect", "each.effect").replace(":token", "each.token")
        arrays = "CAST(:effects AS text[]), CAST(:tokens AS text[]), CAST(:numbers AS bigint[])"
        self._all_locked = Prepared(
            f"{insert} SELECT {each_row} FROM unnest({arrays}) AS each (effect, token, number)"  # noqa: S608 - text of ours
            " WHERE pg_try_advisory_xact_lock(each.number) ON CONFLICT DO NOTHING", dialect,
        )  # fmt: skip
        # Its parameters are numbered in the order of the row: see ShortTransaction.
        numbered = f"$1, $2, $3, $4, {DONE}, $5, 0, {effects.now_ms} + $6"
        self._short = ShortTransaction(
            f"{table}_mark",
            f"{insert} SELECT {numbered} WHERE pg_try_advisory_xact_lock($7)"
            " ON CONFLICT DO NOTHING RETURNING txid_current()", dialect,
        )  # fmt: skip
        turn = "turn AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(:number) AS got)"
        rows = f"SELECT {row} FROM turn WHERE got"  # noqa: S608 - text of ours
        mark = f"{insert} {rows} ON CONFLICT DO NOTHING RETURNING 1"
        found = "SELECT turn.got, EXISTS (SELECT 1 FROM mark) FROM turn"
        self._locked = Prepared(f"WITH {turn}, mark AS ({mark}) {found}", dialect)
        self._rows = effects.table
        self._mine = Prepared(
            f"SELECT 1 FROM {table} WHERE namespace = :namespace AND topic = :topic"  # noqa: S608
            " AND consumer_group = :group AND effect = :effect AND token = :token", dialect,
        )  # fmt: skip
        self._write_one = {
            MarkLock.WRITER: self._write_as_writer,
            MarkLock.ADVISORY: self._write_locked,
            MarkLock.STATEMENT: self._write_at_once,
            MarkLock.SESSION: self._write_within_a_second,
        }
        self._write_many = {
            MarkLock.WRITER: self._write_all_as_writer,
            MarkLock.ADVISORY: self._write_all_locked,
            MarkLock.STATEMENT: self._write_all_at_once,
            MarkLock.SESSION: self._write_none,
        }

    def write(self, connection: GuardedConnection, scope: Scope, claims: list[Claim]) -> None:
        """Writes the marks, and sets what that found as the state of each claim."""
        lock = dialect_of(connection.dialect).mark_lock  # which server it is, the connection knows
        write = self._write_one[lock]
        if len(claims) == 1:
            [claim] = claims
            claim.state = write(connection, self._given(scope, claim))
            return
        given = [self._given(scope, claim) for claim in claims]
        written = self._write_many[lock](connection, given)
        if written is None:
            states = [write(connection, each) for each in given]
        elif written == len(claims):
            states = [State.CLAIMED] * len(claims)
        else:
            states = self._found(connection, scope, claims)
        for claim, state in zip(claims, states, strict=True):
            claim.state = state

    def look(self, connection: GuardedConnection, scope: Scope, claim: Claim) -> None:
        """Looks whether this is still the transaction with the claim's mark; may commit it, too.

        Raises:
            CommitRefused: if it is another one, since the handler has said ROLLBACK in plain SQL.
            Exception: the driver's.
        """
        if not self._short.commit(connection) and not self._is_there(connection, scope, claim):
            raise CommitRefused("rolled back")

    def _is_there(self, connection: Connection, scope: Scope, claim: Claim) -> bool:
        given = self._given(scope, claim)
        if dialect_of(connection.dialect).mark_lock is MarkLock.WRITER:
            driver: Any = connection.connection.dbapi_connection
            return self._mine.row_by_driver(driver, given) is not None
        return self._mine.run(connection, given).first() is not None

    def _given(self, scope: Scope, claim: Claim) -> dict[str, Any]:
        return {
            "namespace": scope.namespace, "topic": scope.topic, "group": scope.group,
            "effect": claim.key, "token": claim.token, "retention": self._retention_ms,
        }  # fmt: skip

    def _found(self, connection: Connection, scope: Scope, claims: list[Claim]) -> list[State]:
        """Reads the marks: rows of ours, committed rows, and no row where an effect is running."""
        columns = self._rows.c
        tokens: dict[str, str] = {}
        for start in range(0, len(claims), STEP):
            keys = [claim.key for claim in claims[start : start + STEP]]
            rows = connection.execute(
                select(columns.effect, columns.token).where(
                    columns.namespace == scope.namespace, columns.topic == scope.topic,
                    columns.consumer_group == scope.group, columns.effect.in_(keys),
                )
            )  # fmt: skip
            tokens.update((effect, token) for effect, token in rows)
        return [
            State.RUNNING if (token := tokens.get(claim.key)) is None
            else State.CLAIMED if token == claim.token
            else State.DONE
            for claim in claims
        ]  # fmt: skip

    def _write_as_writer(self, connection: Connection, given: dict[str, Any]) -> State:
        written = self._write_all_as_writer(connection, [given])
        if written is None:
            return State.RUNNING
        return State.CLAIMED if written == 1 else State.DONE

    def _write_all_as_writer(
        self, connection: Connection, given: list[dict[str, Any]]
    ) -> int | None:
        """There is one writer at a time: what is there is committed, and who is there runs."""
        fairy = connection.connection
        driver: Any = fairy.dbapi_connection
        if (patience_ms := fairy.info.get(_PATIENCE)) is None:
            [patience_ms] = _executed(driver, "PRAGMA busy_timeout").fetchone()
            fairy.info[_PATIENCE] = patience_ms
        _executed(driver, f"PRAGMA busy_timeout={min(patience_ms, BUSY_MS)}")
        try:
            return self._as_writer.run_by_driver(driver, given)
        except connection.dialect.loaded_dbapi.Error as error:
            problem = OperationalError("the mark", None, error)
            if is_conflict(problem):
                return None
            raise problem from error
        finally:
            _executed(driver, f"PRAGMA busy_timeout={patience_ms}")

    def _write_locked(self, connection: GuardedConnection, given: dict[str, Any]) -> State:
        """An advisory lock of the transaction tells who has written a mark and not committed it.

        It is let go after the commit, so who gets it sees the row. Most often there is neither lock
        nor row; the longer statement is asked only where one of them is there, and says which. The
        holder of the lock can take it again.
        """
        given["number"] = self._number(given)
        written = self._short.begin(connection, given)
        if written is None:
            written = self._first_locked.run(connection, given).rowcount
        if written == 1:
            return State.CLAIMED
        result: Any = self._locked.run(connection, given).one()
        got, is_new = result
        if not got:
            return State.RUNNING
        return State.CLAIMED if is_new else State.DONE

    def _write_all_locked(self, connection: Connection, given: list[dict[str, Any]]) -> int | None:
        """One insert for all: psycopg would send, and wait for, each of many by itself."""
        all_given = given[0] | {
            "effects": [each["effect"] for each in given],
            "tokens": [each["token"] for each in given],
            "numbers": [self._number(each) for each in given],
        }
        return self._all_locked.run(connection, all_given).rowcount

    def _number(self, given: dict[str, Any]) -> int:
        """The number of an effect's advisory lock."""
        names = (self._table, given["namespace"], given["topic"], given["group"], given["effect"])
        digest = sha256("\0".join(names).encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def _write_all_at_once(self, connection: Connection, given: list[dict[str, Any]]) -> int | None:
        """One insert for many; it leaves out what is there.

        Where another one's mark is not committed the whole insert is refused at once, and each is
        written for itself.
        """
        written = 0
        for start in range(0, len(given), STEP):
            step = given[start : start + STEP]
            try:
                written += self._many_at_once.run_joined(connection, step)
            except DBAPIError as error:
                if not _is_locked(connection, error):
                    raise
                states = [self._write_at_once(connection, each) for each in step]
                written += states.count(State.CLAIMED)
        return written

    def _write_at_once(self, connection: Connection, given: dict[str, Any]) -> State:
        """A mark that is not committed is reported at once."""
        return self._state_after(connection, lambda: self._at_once.run(connection, given))

    def _write_none(self, connection: Connection, given: list[dict[str, Any]]) -> int | None:  # noqa: ARG002
        """Each is written for itself."""
        return None

    def _write_within_a_second(self, connection: Connection, given: dict[str, Any]) -> State:
        """A mark that is not committed is reported after a second, the shortest that can be set."""

        def write() -> None:
            connection.exec_driver_sql(
                "SET @qframe_wait = @@SESSION.innodb_lock_wait_timeout, "
                "SESSION innodb_lock_wait_timeout = 1"
            )
            try:
                self._plain.run(connection, given)
            finally:
                connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = @qframe_wait")

        return self._state_after(connection, write)

    def _state_after(self, connection: Connection, write: Callable[[], object]) -> State:
        try:
            write()
        except IntegrityError:
            return State.DONE
        except DBAPIError as error:
            if _is_locked(connection, error):
                return State.RUNNING
            raise  # a deadlock has rolled the whole transaction back
        return State.CLAIMED


def _is_locked(connection: Connection, error: DBAPIError) -> bool:
    """Whether a row's lock was not to be had."""
    code = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return code in dialect_of(connection.dialect).codes.locked
