"""What was done, kept in the transaction that does it."""

from __future__ import annotations

from sqlalchemy import Engine

from qframe.errors import NotSupported


class TransactionalChecker:
    """Remembers what was done in the handler's own transaction: effect exactly once.

    Raises:
        NotSupported: in this version.
    """

    def __init__(
        self, engine: Engine, *, retention: float | str = "7d", key: object = None
    ) -> None:
        raise NotSupported(
            "TransactionalChecker", "recognise message.id in the handler's own transaction"
        )
