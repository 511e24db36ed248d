"""Messages that are sent when, and only when, a business transaction commits."""

from __future__ import annotations

from sqlalchemy import Engine

from qframe.errors import NotSupported


class Outbox:
    """Stores messages with business rows, to be sent after commit.

    Raises:
        NotSupported: in this version.
    """

    def __init__(self, engine: Engine) -> None:
        raise NotSupported("Outbox", "publish after the commit, with id= from the business row")
