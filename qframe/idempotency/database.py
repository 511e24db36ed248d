"""What was done, kept in a database."""

from __future__ import annotations

from sqlalchemy import Engine

from qframe.errors import NotSupported


class DatabaseChecker:
    """Remembers in a database what was done, for `retention`.

    Raises:
        NotSupported: in this version.
    """

    def __init__(
        self, engine: Engine, *, retention: float | str = "7d", key: object = None
    ) -> None:
        raise NotSupported(
            "DatabaseChecker", "recognise message.id in the handler's own transaction"
        )
