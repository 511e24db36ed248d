"""Items on their way into batches: pure state, guarded by its owner's lock."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

from qframe.clock import Clock

T = TypeVar("T")


class Channel(Generic[T]):
    """One line of items, cut into batches: the last one is open while it is not full.

    An item comes in by one operation on one list, and a size is counted, not kept: a `put` that is
    interrupted by a signal has taken its item whole, or has not.

    Attributes:
        index: its number.
        batches: what waits, the oldest first; none is empty.
        is_due: whether the open batch may be taken, since its time has passed.
        is_busy: whether a batch is running and the next must wait for it.
        is_listed: whether it stands among those that a thread may take from.
    """

    __slots__ = ("_batch_size", "batches", "index", "is_busy", "is_due", "is_listed")

    def __init__(self, index: int, batch_size: int) -> None:
        self.index: int = index
        self.batches: deque[list[T]] = deque()
        self.is_due: bool = False
        self.is_busy: bool = False
        self.is_listed: bool = False
        self._batch_size = batch_size

    @property
    def size(self) -> int:
        """How many items wait."""
        batches = self.batches
        return (len(batches) - 1) * self._batch_size + len(batches[-1]) if batches else 0

    @property
    def may_leave(self) -> bool:
        """Whether its oldest batch is full or due, and none is running that it must wait for."""
        batches = self.batches
        if self.is_busy or not batches:
            return False
        return self.is_due or len(batches[0]) == self._batch_size


class Gathering(Generic[T]):
    """All channels of a batcher, and which of them a thread may take a batch from.

    Args:
        channels: how many there are.
        batch_size: how many items a batch has at most.
        interval_s: how old an open batch's first item becomes before the batch is due.
        serial: whether a channel's batches run one after the other.
        clock: for the interval.
    """

    def __init__(
        self, *, channels: int, batch_size: int, interval_s: float, serial: bool, clock: Clock
    ) -> None:
        self.channels: list[Channel[T]] = [Channel(index, batch_size) for index in range(channels)]
        self.running: int = 0
        self._batch_size = batch_size
        self._interval_s = interval_s
        self._serial = serial
        self._clock = clock
        self._ready: deque[Channel[T]] = deque()
        # The interval is the same for all, so what opens last is due last: no heap is needed.
        self._deadlines: OrderedDict[Channel[T], float] = OrderedDict()

    def add(self, channel: Channel[T], item: T) -> bool:
        """Appends an item; returns whether a thread should look."""
        batches = channel.batches
        if batches and len(batches[-1]) < self._batch_size:
            batch = batches[-1]
            batch.append(item)
            if len(batch) < self._batch_size:
                return False
            self._deadlines.pop(channel, None)
            channel.is_due = False
            return self._offer(channel)
        batches.append([item])
        if self._batch_size == 1:
            return self._offer(channel)
        self._deadlines[channel] = self._clock.monotonic_s() + self._interval_s
        self._deadlines.move_to_end(channel)
        return True

    def let_go(self, channel: Channel[T]) -> None:
        """Lets all of a channel leave: its time has passed, or an `add` to it was interrupted."""
        channel.is_due = bool(channel.batches)
        self._offer(channel)

    def take(self, *, everything: bool) -> tuple[Channel[T], list[T]] | None:
        """The next batch that is full or due, or is there at all where `everything` is asked for.

        The caller returns it by `done`.
        """
        self._list_due(everything)
        if not self._ready:
            return None
        channel = self._ready.popleft()
        channel.is_listed = False
        batch = channel.batches.popleft()
        if not channel.batches:
            channel.is_due = False
            self._deadlines.pop(channel, None)
        channel.is_busy = self._serial
        self.running += len(batch)
        self._offer(channel)
        return channel, batch

    def done(self, channel: Channel[T], count: int) -> None:
        """A batch of so many items has ended."""
        channel.is_busy = False
        self.running -= count
        self._offer(channel)

    @property
    def next_due_s(self) -> float | None:
        """When the next open batch is due; None where none waits for its time."""
        return next(iter(self._deadlines.values()), None)

    @property
    def has_more(self) -> bool:
        """Whether there is anything for another thread to take or to wait for."""
        return bool(self._ready or self._deadlines)

    @property
    def size(self) -> int:
        """How many items wait, in all channels; without the lock, nearly."""
        # The copy is one operation, so a batch that leaves meanwhile does no harm.
        return sum(len(batch) for channel in self.channels for batch in tuple(channel.batches))

    def clear(self) -> list[T]:
        """Takes out all that waits; returns it, channel by channel, in order."""
        left: list[T] = []
        for channel in self.channels:
            for batch in channel.batches:
                left += batch
        for channel in self.channels:
            channel.batches.clear()
            channel.is_due = channel.is_listed = False
        self._ready.clear()
        self._deadlines.clear()
        return left

    def _list_due(self, everything: bool) -> None:
        if everything:
            self._deadlines.clear()
            for channel in self.channels:
                self.let_go(channel)
        elif self._deadlines:
            now_s = self._clock.monotonic_s()
            while (due_s := self.next_due_s) is not None and due_s <= now_s:
                self.let_go(self._deadlines.popitem(last=False)[0])

    def _offer(self, channel: Channel[T]) -> bool:
        """Lists the channel if a thread may take from it now; returns whether it was listed."""
        if channel.is_listed or not channel.may_leave:
            return False
        channel.is_listed = True
        self._ready.append(channel)
        return True
