"""The differences between databases: URL, connections, errors, clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Final

from sqlalchemy.engine import Dialect
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import TimeoutError as NoneFree
from sqlalchemy.pool import Pool, PoolProxiedConnection

from qframe.drivers.file_changes import FileChanges
from qframe.drivers.tls import TlsOptions, meaning_of
from qframe.errors import AnswerLost, BadUrl, StoreUnavailable

Values = tuple[Any, ...]

PREFIX: Final = "qframe_"
"""The beginning of the names of a store's tables."""

# The `what` and `remedy` of a `StoreUnavailable`, where the server runs.
READ_ONLY: Final[Mapping[str, str]] = {
    "what": "refuses writes", "remedy": "name the primary in the URL, or let the server be written"
}  # fmt: skip
NO_LOGIN: Final = "check user, password and database; see docs/configuration.md"
NO_RIGHT: Final = "grant its user the right; docs/database-roles.md lists what each role needs"
CROWDED: Final[Mapping[str, str]] = {
    "what": "refuses connections",
    "remedy": "raise its max_connections, or run fewer processes that keep connections to it",
}
ALL_TAKEN: Final[Mapping[str, str]] = {
    "what": "has no connection left for this process",
    "remedy": "run fewer consumers in a process, and more processes",
}
HELD_UP: Final[Mapping[str, str]] = {
    "what": "is held up",
    "remedy": "end the transaction, of another program maybe, that holds what was asked for",
}
CUT_SHORT: Final[Mapping[str, str]] = {
    "what": "ends statements before they are done",
    "remedy": "raise its limit of time for qframe's statements, and let nobody cancel them",
}


class Backend(ABC):
    """One sort of database, and the way to it.

    Attributes:
        shown: the URL without what nobody may see.
        dialect: SQLAlchemy's, for the texts of statements.
        pool: the connections.
        failures: the classes of errors that its driver raises.
        has_clock: whether its server has one that all processes share.
        notifies: whether its server passes notifications on to a connection (`Listener`), as is
            known once there was one.
        takes_arrays: whether a parameter may be an array (`rows_of_arrays`).
        may_migrate: whether opening a store may create tables.
        tls: what its URL calls the files of TLS; None if it speaks none.
        outlives_fork: whether a child may forget an open connection without harm.
    """

    has_clock: ClassVar[bool] = True
    takes_arrays: ClassVar[bool] = False
    tls: ClassVar[TlsOptions | None] = None
    outlives_fork: ClassVar[bool] = True

    def __init__(
        self, shown: str, dialect: Dialect, pool: Pool, failures: tuple[type[Exception], ...]
    ) -> None:
        self.shown: str = shown
        self.dialect: Dialect = dialect
        self.pool: Pool = pool
        self.failures: tuple[type[Exception], ...] = (*failures, NoneFree)
        self.may_migrate: bool = True
        self.notifies: bool = False

    def writing(self) -> AbstractContextManager[Any]:
        """The lock that a writing transaction holds in this process."""
        return nullcontext()

    def locks_over_fork(self) -> Iterable[Any]:
        """Locks that are held while the process forks."""
        return ()

    def begin_anew(self) -> None:
        """Forgets, unclosed, the connections of a parent."""
        self.pool = self.pool.recreate()

    @abstractmethod
    def begin(self, cursor: Any, *, writes: bool) -> None:
        """Begins a transaction: one that writes, or one that reads a single state."""

    @abstractmethod
    def now_ms(self, cursor: Any) -> int:
        """The server's clock at this moment, in milliseconds since 1970."""

    @abstractmethod
    def has_table(self, cursor: Any, name: str) -> bool:
        """Whether there is a table of that name."""

    @abstractmethod
    def has_index(self, cursor: Any, table: str, name: str) -> bool:
        """Whether a table has an index of that name."""

    def limit_silence(self, cursor: Any, longest_s: float | None) -> None:
        """How long the server may be silent from now on before the connection counts as lost."""

    def lock_schema(self, cursor: Any) -> None:
        """Waits until nobody else changes the tables."""

    def unlock_schema(self, cursor: Any) -> None:
        """Lets others change the tables, where the end of the transaction does not."""

    def run_many(self, cursor: Any, text: str, parameters: Sequence[tuple[Any, ...]]) -> int:
        """Runs a change for each tuple; returns how many rows were touched."""
        cursor.executemany(text, parameters)
        return int(cursor.rowcount)

    def rows_of_arrays(self, cursor: Any, text: str, parameters: Values) -> list[Values]:  # noqa: ARG002
        """Returns the rows of a query whose parameters are arrays."""
        raise AssertionError(f"{self.shown} takes no arrays")

    def notify(self, cursor: Any, notifications: Sequence[str]) -> None:
        """Sends notifications to all listeners, once the transaction is committed."""

    def listener(self) -> Listener:
        """Opens a connection that receives the notifications of all processes.

        Raises:
            StoreUnavailable: if the server cannot be reached.
        """
        raise AssertionError(f"{self.shown} has no notifications")

    def watch(self) -> FileWatch | None:
        """A watch that tells of commits to a file; None where there is a server.

        Raises:
            StoreUnavailable: if the file cannot be opened.
        """
        return None

    def limit_of(self, body: bytes) -> str | None:  # noqa: ARG002
        """Why the server takes no body as large as this one; None if it may."""
        return None

    @abstractmethod
    def is_conflict(self, error: Exception) -> bool:
        """Whether a transaction was undone because of another one, and may be run again."""

    @abstractmethod
    def is_gone(self, error: Exception) -> bool:
        """Whether the connection is lost, so that an answer may be lost with it."""

    def birth(self) -> str:
        """The database itself, told from another that may take its place under its name."""
        return ""

    @abstractmethod
    def refusal(self, error: Exception) -> Exception | None:
        """The meaning of an error that is no conflict and no lost connection, if it is known."""

    def undo(self, connection: PoolProxiedConnection) -> bool:
        """Rolls back after a failure; returns whether it is sure that nothing was changed."""
        try:
            connection.rollback()
        except self.failures:
            connection.invalidate()
            return False
        except BaseException:
            connection.invalidate()
            raise
        return True

    def give_up(self, connection: PoolProxiedConnection) -> None:
        """Closes a connection whose work was ended anywhere, maybe by a signal's handler.

        An answer that nobody has read may still be to come.
        """
        connection.invalidate()

    def translated(self, error: Exception, *, unknown: bool) -> Exception:
        """The meaning of a driver's error here."""
        if unknown:
            return AnswerLost(self.shown, text_of(error))
        if isinstance(error, NoneFree):
            return StoreUnavailable(self.shown, text_of(error), **ALL_TAKEN)
        text = text_of(error)
        meaning = {} if self.tls is None else meaning_of(text, self.tls)
        return self.refusal(error) or StoreUnavailable(self.shown, text, **meaning)


class FileWatch(ABC):
    """Asks whether another connection has committed to a file."""

    @abstractmethod
    def version(self) -> tuple[int, int]:
        """A number that changes when another connection has committed; nothing once released."""

    @abstractmethod
    def changes(self) -> FileChanges | None:
        """Notices writes to the file; None where the system does not tell."""

    @abstractmethod
    def release(self) -> None:
        """Closes its connection."""


class Listener(ABC):
    """A connection that receives notifications."""

    @abstractmethod
    def receive(self, timeout_s: float) -> list[str]:
        """Returns the notifications that have come; waits for the first at most so long.

        Raises:
            StoreUnavailable: if it is broken; notifications may have been missed.
        """

    @abstractmethod
    def wake(self) -> None:
        """Ends a `receive` now; from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection."""


def text_of(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def shown_of(url: URL) -> str:
    """A URL without its password, and without options, in which another may stand."""
    return url.set(query={}).render_as_string(hide_password=True)


def driver(name: str, extra: str, shown: str) -> ModuleType:
    """A database driver, which not everybody has installed.

    Raises:
        BadUrl: if it is not there.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise BadUrl(
            "store", shown, f"its driver {name} is not installed", f"pip install 'qframe[{extra}]'"
        ) from error


def yes_or_no(shown: str, name: str, value: str, default: bool) -> bool:
    """An option of a URL that is yes or no.

    Raises:
        BadUrl: if it is neither.
    """
    meanings = {"": default, "yes": True, "no": False}
    if value.lower() not in meanings:
        raise BadUrl("store", shown, f"{name}={value} is not an option", f"use ?{name}=no")
    return meanings[value.lower()]
