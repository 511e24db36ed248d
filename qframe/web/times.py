"""Moments as people type them into a form."""

from __future__ import annotations

from datetime import UTC, datetime

from qframe.errors import BadOption


def moment_of(name: str, text: str) -> datetime:
    """A moment, in UTC where no other zone is given.

    Raises:
        BadOption: if the text is none.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            name, text, "it is no moment", "write it as 2026-05-17T08:30 (UTC)"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
