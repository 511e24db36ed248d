"""Gathering by size or time, whichever comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qframe.errors import NotSupported


class Flusher:
    """Processes a batch when it has `batch_size` items or its first one is `interval` old.

    Raises:
        NotSupported: in this version.
    """

    def __init__(
        self,
        name: str,
        batch_size: int,
        interval: float | str,
        queue_size: int,
        threads: int,
        process: Callable[[list[Any]], object],
    ) -> None:
        raise NotSupported("Flusher", "handle messages one by one")
