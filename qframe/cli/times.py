"""Times as they are typed."""

from __future__ import annotations

from datetime import datetime

from qframe.errors import BadOption


def duration_of(text: str | None) -> float | str | None:
    """A duration: a bare number is seconds; texts with a unit are read where they arrive."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def moment_of(text: str, what: str) -> datetime | float:
    """A moment: ISO 8601, or seconds since 1970.

    Raises:
        BadOption: if it is neither; one without a zone is refused where it arrives.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            what, text, "it is not a time", "use one such as 2026-01-31T10:00:00Z"
        ) from None
