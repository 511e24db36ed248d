"""A connection whose transaction ends when its effect does, and not when its handler says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from sqlalchemy import Connection, Engine

from qframe.drivers.dialects import dialect_of
from qframe.errors import CommitRefused

if TYPE_CHECKING:
    from sqlalchemy.engine.base import RootTransaction


class GuardedConnection(Connection):
    """Refuses that a handler ends the transaction of its effect: it would be half of one.

    It overrides the methods through which SQLAlchemy begins and ends every transaction, by
    whichever name the user calls it, and hears of errors. Listeners for its events would see the
    same, and cost more than the rest of the checker: with one of them every step of every statement
    looks for others. The methods are SQLAlchemy's own affair, so a checker proves at its start that
    a commit is refused.

    Attributes:
        may_end: whether the transaction may end now.
        how: how its handler has tried to end it; None where it has not.
        txid: PostgreSQL's number of the transaction, where it has told it.
        before_commit: called before COMMIT is sent; it may refuse that by `CommitRefused`, and may
            have committed when it returns.
    """

    def __init__(self, engine: Engine) -> None:
        self.may_end = False
        self.how: str | None = None
        self.txid: int | None = None
        self.before_commit: Callable[[], object] = lambda: None
        super().__init__(engine)

    def _begin_impl(self, transaction: RootTransaction) -> None:
        if not self.may_end and self.how is not None:
            raise CommitRefused(self.how)
        super()._begin_impl(transaction)

    def _commit_impl(self) -> None:
        if not self.may_end:
            self.how = "committed"
            raise CommitRefused(self.how)
        try:
            self.before_commit()
        except self.dialect.loaded_dbapi.Error as error:
            self._handle_dbapi_exception(error, None, None, None, None)
        super()._commit_impl()  # the driver has nothing to do where that is done

    def _rollback_impl(self) -> None:
        if not self.may_end and self.how is None:
            self.how = "rolled back"
        super()._rollback_impl()

    def _handle_dbapi_exception(self, e: BaseException, *arguments: Any, **more: Any) -> NoReturn:
        # A handler that swallows a deadlock would go on in another transaction, without the mark.
        undone = dialect_of(self.dialect).codes.undone
        if not self.may_end and e.args and e.args[0] in undone:
            self.how = "lost"
        super()._handle_dbapi_exception(e, *arguments, **more)
