"""Gathering by channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qframe.errors import NotSupported


class Group:
    """One channel's batch: its index and its items.

    Raises:
        NotSupported: in this version.
    """

    def __init__(self, index: int, items: list[Any]) -> None:
        raise NotSupported("Group", "handle messages one by one")


class MultipleQueueFlusher:
    """A `Flusher` per channel; `route(item)` says which, and one channel's batches keep order.

    Raises:
        NotSupported: in this version.
    """

    def __init__(
        self,
        name: str,
        channels: int,
        queue_size: int,
        batch_size: int,
        interval: float | str,
        threads: int,
        route: Callable[[Any], int],
        process: Callable[[Group], object],
    ) -> None:
        raise NotSupported("MultipleQueueFlusher", "handle messages one by one")
