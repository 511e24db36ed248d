"""Locks, as the handler of a signal meets them."""

from __future__ import annotations

from threading import Condition


def is_held_here(condition: Condition) -> bool:
    """Whether the calling thread has a condition's lock, which must be an `RLock`.

    So it is where a signal's handler has interrupted whoever has it: the handler may enter, and
    must not wait for others who need the lock.
    """
    held: bool = condition._is_owned()  # type: ignore[attr-defined] # noqa: SLF001 - as `wait` asks
    return held
