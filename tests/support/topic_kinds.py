"""Options of topics that have a meaning in one kind alone."""

from __future__ import annotations

from typing import Any, Final

ONE_KIND: Final = {"retain": "stream", "gap_timeout": "ordered"}


def of_kind(kind: str, **options: Any) -> dict[str, Any]:
    """Those of the options that a topic of this kind may have."""
    return {name: value for name, value in options.items() if ONE_KIND[name] == kind}
