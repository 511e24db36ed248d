"""Handing on what is there, in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qframe.errors import NotSupported


class BatchExecutor:
    """Takes what is there, at most `batch_size` items, and never waits for more.

    Raises:
        NotSupported: in this version.
    """

    def __init__(
        self, name: str, batch_size: int, process: Callable[[list[Any]], object], threads: int
    ) -> None:
        raise NotSupported("BatchExecutor", "handle messages one by one")


class Batch:
    """The short form of batching for a consumer: `batch=Batch(size, within)`.

    Raises:
        NotSupported: in this version.
    """

    def __init__(self, size: int, within: float | str) -> None:
        raise NotSupported("Batch", "handle messages one by one")
