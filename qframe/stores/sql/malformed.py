"""Rows that somebody else has changed such that they cannot be read: what becomes of them.

No handler could do anything with them, and each pull would find them again. So a pull ends them as
dead at once, and their neighbours go on to their handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from qframe.errors import StoreUnavailable
from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.stores.sql.heads import Unreadable
from qframe.stores.types import PullRequest, PullResult, Settlement

_BODIES: Final = (bytes, str)


def unreadable(deliveries: Sequence[Delivery]) -> bool:
    """Whether there is one among deliveries that cannot be read."""
    return bool([
        one for one in deliveries
        if type(one.headers) is Unreadable or not isinstance(one.body, _BODIES)
    ])  # fmt: skip


def end(
    pulled: PullResult, asks: Sequence[PullRequest], settle: Callable[[list[Settlement]], object]
) -> None:
    """Takes what cannot be read out of a pull, as dead.

    Behind a sound message of its subject it is given back with all that follows, and becomes the
    first when those before it are settled. Slots in which that cannot be done now are in doubt.
    """
    epochs = {ask.slot: ask.epoch for ask in asks}
    settlements: list[Settlement] = []
    sound: list[Delivery] = []
    stops: dict[int, int] = {}
    has_sound: set[Any] = set()
    cut: set[Any] = set()
    for one in pulled.deliveries:
        run = (one.slot, one.subject) if one.subject is not None else None
        if run is None:
            stops[one.slot] = one.seq + 1
        if run in cut:
            continue
        if not unreadable([one]):
            sound.append(one)
            has_sound.add(run)
            continue
        is_behind = run is not None and run in has_sound
        if is_behind:
            cut.add(run)
        settlements.append(
            Settlement(
                one.slot, one.subject, one.seq, one.receipt, one.attempt, epochs[one.slot],
                Verdict.RELEASE if is_behind else Verdict.DEAD,
                error=None if is_behind else _error(one),
            )
        )  # fmt: skip
    try:
        settle(settlements)
    except StoreUnavailable:
        in_doubt = {one.slot for one in settlements}
        pulled.in_doubt += sorted(in_doubt)
        pulled.deliveries = [one for one in pulled.deliveries if one.slot not in in_doubt]
        return
    pulled.malformed = sum(one.verdict is Verdict.DEAD for one in settlements)
    pulled.stops = stops
    pulled.deliveries = sound


def _error(one: Delivery) -> str:
    what = "headers" if isinstance(one.headers, Unreadable) else "body"
    return (
        f"MalformedMessage: the {what} of message {one.seq} of slot {one.slot} cannot be read; "
        "the row was changed outside qframe"
    )
