"""Handing on what is there, in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from qframe.batching.batcher import Batcher, checked_function
from qframe.clock import Clock
from qframe.topic import checked_count

T = TypeVar("T")

QUEUE_SIZE: Final = 10_000


class BatchExecutor(Batcher[T]):
    """Takes what is there, at most `batch_size` items, and never waits for more.

    While all threads are busy, items gather; so batches are as large as the work is slow.

    Args:
        name: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`; threads are `qframe.batch.<name>`.
        batch_size: how many items a batch has at most.
        process: given a list of 1 to `batch_size` items, in the order in which they were put.
        threads: how many batches are processed at a time at most.
        queue_size: how many items may wait; by default 10,000, or ten batches if that is more.
        on_error: given the items of a batch whose `process` raised, and the error; without one, a
            line is logged.
        clock: for timeouts.

    Raises:
        BadOption: if one of these is not as described.
    """

    def __init__(
        self,
        name: str,
        batch_size: int,
        process: Callable[[list[T]], object],
        threads: int,
        *,
        queue_size: int | None = None,
        on_error: Callable[[list[T], BaseException], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        checked_function("process", process, "items")
        ten_batches = 10 * checked_count("batch_size", batch_size)
        super().__init__(
            name,
            run=lambda _, items: process(items),
            batch_size=batch_size,
            interval=0,
            queue_size=max(QUEUE_SIZE, ten_batches) if queue_size is None else queue_size,
            threads=threads,
            on_error=on_error,
            clock=clock,
        )
