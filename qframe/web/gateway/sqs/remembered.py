"""What a gateway remembers for its clients, so many things for each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Values by key. Of a client that has too many, its own oldest is forgotten.

    Args:
        most: how many values are kept for each client.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Key, Value] = {}
        self._keys: dict[str, OrderedDict[Key, None]] = {}

    def get(self, key: Key) -> Value | None:
        """The value of a key, whoever has it kept; None if there is none."""
        return self._values.get(key)

    def keep(self, client: str, key: Key, value: Value) -> None:
        """Keeps a value for a client, as the newest of its own.

        Args:
            client: the name of the client that it counts for.
            key: names it.
            value: what is kept; it replaces one that the client has kept under the key.
        """
        keys = self._keys.setdefault(client, OrderedDict())
        keys[key] = None
        keys.move_to_end(key)
        self._values[key] = value
        if len(keys) > self._most:
            oldest, _ = keys.popitem(last=False)
            self._values.pop(oldest, None)
