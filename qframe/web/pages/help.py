"""Help: the keys of the keyboard, the words of a search, and where the manual is."""

from __future__ import annotations

from typing import Any, Final

from qframe.web.desk import Visit

KEYS: Final = (
    ("/", "search"), ("?", "this page"), ("g o", "go to the overview"),
    ("g m", "go to messages"), ("g t", "go to timers"), ("g c", "go to schedules"),
    ("g w", "go to workers"),
    ("g x", "go to the outbox"), ("g a", "go to the audit"), ("g s", "go to settings"),
    ("j", "next row"), ("k", "row before"), ("Enter", "open the row"),
    ("r", "look again now"), ("p", "stop looking again, or go on"),
    ("t", "light, dark, as the system"),
)  # fmt: skip
WORDS: Final = (
    ("topic:orders", "in this topic"), ("group:billing", "as this group has it"),
    ("state:dead", "waiting, todo, doing, dead, settled or held"),
    ("key:customer-77", "of this key"), ("id:01j…", "of this id"), ("tag:vip", "with this tag"),
    ("header.trace:abc", "with this header; header.trace: for any value"),
    ("error:timeout", "whose last error has this text"),
    ("body.user.id:77", "whose body has this value at this path"),
    ('key:"two words"', "a value with blanks"),
)  # fmt: skip


def facts(visit: Visit) -> dict[str, Any]:  # noqa: ARG001 - as every page
    """The same for everybody."""
    return {"title": "Help", "keys": KEYS, "words": WORDS}
