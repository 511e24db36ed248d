"""Gathering by channel."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from qframe.batching.batcher import Batcher, checked_function
from qframe.batching.gathering import Channel
from qframe.clock import Clock
from qframe.durations import with_unit
from qframe.errors import BadRoute

T = TypeVar("T")


class Group(msgspec.Struct, Generic[T], frozen=True):
    """One channel's batch.

    Attributes:
        index: the channel's number, from 0.
        items: its items, in the order in which they were put.
    """

    index: int
    items: list[T]


class MultipleQueueFlusher(Batcher[T]):
    """A `Flusher` per channel; `route(item)` says which, and one channel's batches keep order.

    A channel has at most one batch in `process` at a time. Different channels share the threads;
    one that is full holds up those only that put into it.

    Args:
        name: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`; threads are `qframe.batch.<name>`.
        channels: how many channels there are.
        queue_size: how many items may wait in each channel; from `batch_size`.
        batch_size: how many items a batch has at most.
        interval: how long an item waits for others at most: a text such as "50ms", or by keyword a
            number of seconds.
        threads: how many batches are processed at a time at most, of all channels.
        route: returns an item's channel, from 0 to `channels - 1`; called in the thread that puts.
        process: given a `Group(index, items)`.
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
        channels: int,
        queue_size: int,
        batch_size: int,
        interval: float | str,
        threads: int,
        route: Callable[[T], int],
        process: Callable[[Group[T]], object],
        *,
        on_error: Callable[[list[T], BaseException], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._route = checked_function("route", route, "item")
        checked_function("process", process, "group")
        super().__init__(
            name,
            run=lambda index, items: process(Group(index, items)),
            channels=channels,
            batch_size=batch_size,
            interval=interval,
            queue_size=queue_size,
            threads=threads,
            serial=True,
            on_error=on_error,
            clock=clock,
        )

    def _channel_of(self, item: T) -> Channel[T]:
        """The item's channel.

        Raises:
            BadRoute: if `route` names none; nothing was taken.
        """
        channels = self._gathering.channels
        choice = self._route(item)
        try:
            index = operator.index(choice)
        except TypeError:
            raise BadRoute(self.name, choice, len(channels)) from None
        if not 0 <= index < len(channels):
            raise BadRoute(self.name, choice, len(channels))
        return channels[index]
