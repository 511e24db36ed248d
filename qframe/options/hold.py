"""A hold: the record of who paused a group, or one of its keys, why, and since when.

A store keeps it as one of the group's tunings: under `hold` for the group, and under `hold.` and a
hash of the key for a key, whose text may be too long for a name.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from qframe.codec import legible
from qframe.errors import BadOption

HOLD: Final = "hold"
MAX_WHY_CHARS: Final = 500
MAX_KEYS: Final = 1000


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pause of a group, or of one of its keys.

    Attributes:
        key: the key; None where the whole group is paused.
        by: who paused it; None where the pause was written by hand or by an older version.
        why: the reason given, if any.
        since_ms: since when, in milliseconds since 1970, by the store's clock.
    """

    key: str | None = None
    by: str | None = None
    why: str | None = None
    since_ms: int | None = None


def name_of(key: str | None) -> str:
    """The name under which the hold of a group (None), or of a key, is kept."""
    if key is None:
        return HOLD
    return f"{HOLD}.{sha256(key.encode()).hexdigest()[:40]}"


def text_of(hold: Hold) -> str:
    """A hold as a store keeps it."""
    return msgspec.json.encode(hold).decode()


def hold_of(name: str, text: str) -> Hold:
    """Reads what a store keeps under a name that begins with `hold`.

    Raises:
        BadOption: if it is no hold, or that of another key.
    """
    try:
        hold = msgspec.json.decode(text, type=Hold)
    except (ValueError, RecursionError):
        hold = None
    if hold is None or name_of(hold.key) != name:
        raise BadOption(
            name, text, "it is no record of a pause", "use qframe groups pause and resume"
        )
    return hold


def checked_why(why: str | None) -> str | None:
    """The reason as a store keeps it.

    Raises:
        BadOption: if it is no text, or longer than 500 characters.
    """
    if why is None:
        return None
    if not isinstance(why, str) or len(why) > MAX_WHY_CHARS:
        raise BadOption(
            "why", why, f"it must be a text of at most {MAX_WHY_CHARS} characters",
            "say it in short",
        )  # fmt: skip
    return legible(why) or None
