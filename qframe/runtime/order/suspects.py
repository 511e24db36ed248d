"""Messages that have to be tried alone, since a batch of theirs has failed."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakSet

from qframe.message import Message


class Suspects:
    """Remembers what a failed batch had, where its halves may not be tried at once.

    Under a rate or a breaker a half may have to wait. Gathered with others then, it would make
    them fail in its turn, and wait again: nobody would ever find out which message it is.
    """

    def __init__(self) -> None:
        self._failed: WeakSet[Message] = WeakSet()
        self._alone: WeakSet[Message] = WeakSet()

    def failed(self, messages: Iterable[Message]) -> None:
        """Hears of messages whose handler has failed with all of them."""
        self._failed.update(messages)

    def held_back(self, messages: Iterable[Message]) -> None:
        """Hears of messages that may not be tried now."""
        self._alone.update([message for message in messages if message in self._failed])

    def apart(self, part: list[Message]) -> list[list[Message]]:
        """Cuts what is in hand, in its order, so that each suspect is alone."""
        if not self._alone:
            return [part] if part else []
        parts: list[list[Message]] = []
        joins = False
        for message in part:
            is_suspect = message in self._alone
            if joins and not is_suspect:
                parts[-1].append(message)
            else:
                parts.append([message])
            joins = not is_suspect
        return parts
