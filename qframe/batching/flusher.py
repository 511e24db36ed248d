"""Gathering by size or time, whichever comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from qframe.batching.batcher import Batcher, checked_function
from qframe.clock import Clock
from qframe.durations import with_unit

T = TypeVar("T")


class Flusher(Batcher[T]):
    """Processes a batch when it has `batch_size` items or its first one is `interval` old.

    Args:
        name: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`; threads are `qframe.batch.<name>`.
        batch_size: how many items a batch has at most.
        interval: how long an item waits for others at most: a text such as "50ms", or by keyword a
            number of seconds.
        queue_size: how many items may wait; from `batch_size`.
        threads: how many batches are processed at a time at most.
        process: given a list of 1 to `batch_size` items, in the order in which they were put.
        on_error: given the items of a batch whose `process` raised, and the error; without one, a
            line is logged.
        clock: for the interval and for timeouts.

    Raises:
        BadOption: if one of these is not as described.
    """

    @with_unit("interval")
    def __init__(
        self,
        name: str,
        batch_size: int,
        interval: float | str,
        queue_size: int,
        threads: int,
        process: Callable[[list[T]], object],
        *,
        on_error: Callable[[list[T], BaseException], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        checked_function("process", process, "items")
        super().__init__(
            name,
            run=lambda _, items: process(items),
            batch_size=batch_size,
            interval=interval,
            queue_size=queue_size,
            threads=threads,
            on_error=on_error,
            clock=clock,
        )
