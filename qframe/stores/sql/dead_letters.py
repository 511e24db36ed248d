"""Writing dead letters."""

from __future__ import annotations

from typing import Final

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.sql.schema import dead

_ADD: Final = Statement(
    dead.insert(),
    "cursor seq subject priority attempts error traceback died_at id key headers body published_at",
)


def add_dead_letter(
    transaction: Transaction,
    cursor: int,
    *,
    seq: int,
    subject: str | None,
    priority: int,
    attempts: int,
    error: str | None,
    traceback: str | None,
    died_at_ms: int,
    envelope: Row,
) -> None:
    """Puts a message among the dead of a group, until somebody decides."""
    transaction.run(
        _ADD,
        (
            cursor,
            seq,
            subject,
            priority,
            attempts,
            error,
            traceback,
            died_at_ms,
            *envelope,
        ),
    )
