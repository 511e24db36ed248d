"""Messages that are their users' to settle: who settles one, and which are forgotten."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from qframe.errors import AlreadySettled
from qframe.message import Delivery, Message


class Custody:
    """Who may settle a message that was taken over, and what has outlived its handler unsettled.

    Args:
        on_leak: called with a delivery whose message was let go unsettled. It is the garbage
            collector that calls, whatever lock is held.

    Attributes:
        guard: to be held by whoever makes messages settled that handlers may settle as well.
    """

    def __init__(self, on_leak: Callable[[Delivery], None]) -> None:
        self._on_leak = on_leak
        self.guard = threading.Lock()
        self._kept: dict[Delivery, tuple[weakref.ref[Message], Any]] = {}

    def __len__(self) -> int:
        """How many messages their handlers have returned without settling."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Message]:
        """Those messages."""
        for reference, _ in list(self._kept.values()):
            if (message := reference()) is not None:
                yield message

    def settle(self, message: Message) -> bool:
        """Makes a message settled, for one caller; answers whether its handler has returned.

        Raises:
            AlreadySettled: if it is settled.
        """
        with self.guard:
            if message.settled:
                raise AlreadySettled(message.id)
            message.settled = True
            return self._kept.pop(message.delivery, None) is not None

    def keep(self, message: Message) -> bool:
        """Keeps a message whose handler has returned, unless it is settled; answers whether."""
        delivery, tell = message.delivery, self._on_leak
        with self.guard:
            if message.settled:
                return False
            self._kept[delivery] = weakref.ref(message, lambda _: tell(delivery)), message.effect
            return True

    def effect_of(self, delivery: Delivery) -> Any:
        """The claim of a message that is kept."""
        _, effect = self._kept.get(delivery, (None, None))
        return effect

    def let_go(self, delivery: Delivery) -> bool:
        """Keeps a message no longer; answers whether it was kept."""
        with self.guard:
            return self._kept.pop(delivery, None) is not None

    def clear(self) -> None:
        """Keeps nothing any more."""
        with self.guard:
            self._kept.clear()
