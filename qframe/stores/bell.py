"""A store's bell."""

from __future__ import annotations

from typing import Protocol

from qframe.stores.types import LateReply


class Bell(Protocol):
    """Wakes an idle pull loop; a hint, so a wait always ends by itself too.

    It rings for all that a pull might find, but for the passing of time: what is published, and
    what a settlement or a `seek` has made the next, or due at some time, and a slot that another
    has taken.

    Where the store has pulls stand, it also brings their replies. A reply can be lost, as a ring
    can: then it was handed out, and is to be revoked.

    A waiting worker has looked first: a store rings for messages that come into a slot after a pull
    has emptied it (handed out less than its limit, and `QUIET` messages at most). It may ring more
    often.
    """

    address: str
    """Where replies to pulls that stand are sent; empty where no pull can stand.

    Another one for each connection: what stands since before one broke is answered to nobody, since
    the server may have failed over to one that takes it for standing still.
    """

    def late(self) -> list[LateReply]:
        """The replies that came since this was asked."""

    def has_lost(self) -> bool:
        """Whether replies may have been lost since this was asked, beside those that came."""

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; returns whether it may have."""

    def hints(self) -> frozenset[int] | None:
        """The slots for which it has rung since this was asked; None where it may be any."""

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none; from any thread."""

    def close(self) -> None:
        """Frees what it holds; ends a wait."""
