"""Gathers messages into batches, and keeps the order of their keys."""

from __future__ import annotations

import heapq
import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from operator import attrgetter
from typing import NamedTuple, Protocol

from qframe.clock import Clock
from qframe.message import Delivery
from qframe.runtime.handler.attempt import Attempt


class BatchReceiver(Protocol):
    """A thread that takes batches."""

    def take(self, attempts: list[Attempt]) -> None:
        """Has a batch in hand from now on."""


class PendingBatch:
    """A batch that waits: for more messages, or for a thread."""

    __slots__ = ("due_s", "messages")

    def __init__(self, due_s: float) -> None:
        self.messages: list[Attempt] = []
        self.due_s: float = due_s


class LaneEntry(NamedTuple):
    """A message's number, by which its lane is ordered, and the batch that it was put into last."""

    number: int
    batch: PendingBatch


class Lane:
    """A key's messages that are let through, and those that wait behind them.

    Attributes:
        through: what is in a batch, paused, or in its user's hands.
        batch: the batch into which the last one went: whoever comes may join it while it is open.
        again: the number of the one that was paused and is to be handed out again first.
        turn: the batch that this one is in; None while it is paused.
        behind: what waits, by its number.
    """

    __slots__ = ("again", "batch", "behind", "through", "turn")

    def __init__(self) -> None:
        self.through: dict[Delivery, LaneEntry] = {}
        self.batch: PendingBatch | None = None
        self.again: int | None = None
        self.turn: PendingBatch | None = None
        self.behind: deque[tuple[int, Attempt]] = deque()

    def is_first(self, entry: LaneEntry) -> bool:
        """Whether a message that was let through has none before it in the lane."""
        if self.again is not None and self.again < entry.number:
            return False
        if self.behind and self.behind[0][0] < entry.number:
            return False
        return all(entry.number <= other.number for other in self.through.values())

    def holds(self, entry: LaneEntry) -> bool:
        """Whether a message in a batch has to wait: one before it is to be handed out again."""
        if self.behind and self.behind[0][0] < entry.number:
            return True
        return self.again is not None and self.again < entry.number and entry.batch is not self.turn


class Batches:
    """The batches of a consumer: one that is open, and those that are full and wait for a thread.

    A message joins the open batch, unless one of its lane is in another batch: then it waits behind
    that one, and joins the open batch when all those before it are through. So two handlers never
    have messages of one lane, and in a batch they stand in order. A message without a key has no
    lane among keys.

    Args:
        size: how many messages a batch has at most.
        within_s: how long the first one waits for others.
        by_subject: whether lanes are subjects (all kinds but streams), or keys.
        by_slot: whether lanes are slots instead, since the consumer is serial.
        clock: for the waiting.

    Attributes:
        lane_of: a delivery's lane; None if it has none.
    """

    def __init__(
        self, *, size: int, within_s: float, by_subject: bool, by_slot: bool, clock: Clock
    ) -> None:
        self._size = size
        self._within_s = within_s
        by = "slot" if by_slot else "subject" if by_subject else "key"
        self.lane_of: Callable[[Delivery], str | int | None] = attrgetter(by)
        self._clock = clock
        self._changed = threading.Condition()
        self._numbers = count()
        self._open: PendingBatch | None = None
        self._full: deque[PendingBatch] = deque()
        self._lanes: dict[str | int, Lane] = {}
        self._pauses: list[tuple[float, int, Attempt]] = []
        self._paused: set[Delivery] = set()  # and not through yet: they alone make others wait
        self._waiting = 0

    def __len__(self) -> int:
        """How many messages wait here, paused ones and those behind others too."""
        return self._waiting

    def add(self, messages: Iterable[Attempt]) -> None:
        """Gathers messages, in order."""
        with self._changed:
            for message in messages:
                self._waiting += 1
                self._enter(next(self._numbers), message)

    def take(self, receiver: BatchReceiver, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Gives a thread the next batch, once it is full or due; False if it may take none."""
        with self._changed:
            while not unless():
                wait_s: float | None = None
                batch = self._full.popleft() if self._full else None
                if batch is None and self._open is not None:
                    wait_s = self._open.due_s - self._clock.monotonic_s()
                    if wait_s <= 0:
                        batch, self._open = self._open, None
                if batch is not None:
                    self._give(batch, receiver)
                    if self._full or self._open is not None:
                        self._changed.notify()  # somebody has to wait for that one now
                    return True
                self._changed.wait(wait_s)
            self._changed.notify()  # what this thread was woken for is another's
            return False

    def take_now(self, receiver: BatchReceiver, *, full_only: bool) -> bool:
        """Gives the next batch without waiting; returns whether there was one."""
        with self._changed:
            if not full_only and not self._full and self._open is not None:
                self._close()
            if not self._full:
                return False
            self._give(self._full.popleft(), receiver)
            return True

    def behind(self) -> list[Delivery]:
        """Deliveries that wait behind others of their lane."""
        with self._changed:
            lanes = [lane for lane in self._lanes.values() if lane.behind]
            return [message.delivery for lane in lanes for _, message in lane.behind]

    def close_open(self) -> None:
        """Has the open batch handed out as it is: nothing more will come to it."""
        with self._changed:
            if self._open is not None:
                self._close()

    def wake_all(self) -> None:
        """Wakes all threads that wait."""
        with self._changed:
            self._changed.notify_all()

    def free(self, deliveries: Iterable[Delivery]) -> None:
        """Hears of deliveries that are through: where they were a lane's last, the next may go."""
        with self._changed:
            for delivery in deliveries:
                self._release(delivery)

    # Messages that are handed out again.

    def pause(self, message: Attempt, until_s: float) -> None:
        """Keeps a message that was handed out until then, its lane with it.

        One that has others of its lane before it goes back behind those instead.
        """
        with self._changed:
            self._waiting += 1
            lane = self._lane(message)
            entry = None if lane is None else lane.through.get(message.delivery)
            if lane is not None and entry is not None:
                self._paused.add(message.delivery)
                if not lane.is_first(entry):
                    del lane.through[message.delivery]
                    insort(lane.behind, (entry.number, message))
                    if lane.through:
                        self._follow(lane)
                    else:  # those before it were taken back meanwhile
                        self._move_up(lane)
                    return
                lane.again = entry.number
                lane.batch = lane.turn = None
            heapq.heappush(self._pauses, (until_s, next(self._numbers), message))

    def held(self, messages: Iterable[Attempt]) -> list[Attempt]:
        """Messages of a batch in hand that must wait: one before them in their lane was paused."""
        if not self._paused:
            return []
        with self._changed:
            return [message for message in messages if self._is_held(message)]

    def resume(self, now_s: float | None = None) -> float | None:
        """Gathers again what has paused for long enough; returns when the next one will have.

        Args:
            now_s: on the monotonic clock, if somebody else says what time it is.
        """
        with self._changed:
            now_s = self._clock.monotonic_s() if now_s is None else now_s
            while self._pauses and self._pauses[0][0] <= now_s:
                self._resumed(heapq.heappop(self._pauses)[2])
            return self._pauses[0][0] if self._pauses else None

    def withdraw(
        self, wanted: Callable[[Delivery], bool], in_hand: Iterable[Delivery] = ()
    ) -> list[Attempt]:
        """Takes back the messages wanted that no thread has, in order, and frees their lanes.

        Messages before one that is in hand stay: else that one would not be held any more, and
        would be handled before them.
        """
        with self._changed:
            last = self._last(in_hand)

            def goes(message: Attempt) -> bool:
                return wanted(message.delivery) and not (last and self._precedes(message, last))

            taken: list[Attempt] = []
            for batch in [*self._full, *([self._open] if self._open is not None else [])]:
                batch.messages, gone = _partition(batch.messages, goes)
                taken += gone
            self._full = deque(each for each in self._full if each.messages)
            if self._open is not None and not self._open.messages:
                self._open = None
            if self._pauses:
                pauses = sorted(self._pauses)  # what is sorted is a heap
                _, gone = _partition([each[2] for each in pauses], goes)
                taken += gone
                left = set(gone)
                self._pauses = [each for each in pauses if each[2] not in left]
            let_through = len(taken)
            for name, lane in self._lanes.items():
                if lane.behind:
                    first = last.get(name, -1)
                    gone = [one for number, one in lane.behind if number > first and goes(one)]
                    taken += gone
                    left = set(gone)
                    lane.behind = deque(each for each in lane.behind if each[1] not in left)
            self._waiting -= len(taken)
            self._paused.difference_update([message.delivery for message in taken])
            for message in taken[:let_through]:
                self._release(message.delivery)
            return taken

    # Inside: the lock is held.

    def _give(self, batch: PendingBatch, receiver: BatchReceiver) -> None:
        messages, batch.messages = batch.messages, []  # lanes remember the batch
        receiver.take(messages)  # first, so that the messages are always counted somewhere
        self._waiting -= len(messages)

    def _lane(self, message: Attempt) -> Lane | None:
        name = self.lane_of(message.delivery)
        return None if name is None else self._lanes.get(name)

    def _last(self, in_hand: Iterable[Delivery]) -> dict[str | int, int]:
        """The number of the last message in hand of each lane that has one."""
        last: dict[str | int, int] = {}
        for delivery in in_hand:
            name = self.lane_of(delivery)
            lane = None if name is None else self._lanes.get(name)
            entry = None if lane is None else lane.through.get(delivery)
            if name is not None and entry is not None:
                last[name] = max(entry.number, last.get(name, -1))
        return last

    def _precedes(self, message: Attempt, last: Mapping[str | int, int]) -> bool:
        """Whether one that was let through stands before one of its lane that is in hand."""
        name, lane = self.lane_of(message.delivery), self._lane(message)
        entry = None if lane is None else lane.through.get(message.delivery)
        return name is not None and entry is not None and entry.number < last.get(name, -1)

    def _is_held(self, message: Attempt) -> bool:
        lane = self._lane(message)
        entry = None if lane is None else lane.through.get(message.delivery)
        return lane is not None and entry is not None and lane.holds(entry)

    def _enter(self, number: int, message: Attempt) -> None:
        """Lets a message into the open batch, or puts it behind those of its lane."""
        name = self.lane_of(message.delivery)
        if name is None:
            self._append(message)
            return
        lane = self._lanes.get(name)
        if lane is None:
            self._lanes[name] = lane = Lane()
        elif lane.behind or lane.batch is None or lane.batch is not self._open:
            insort(lane.behind, (number, message))
            return
        self._join(lane, number, message)

    def _join(self, lane: Lane, number: int, message: Attempt) -> None:
        lane.batch = self._append(message)
        lane.through[message.delivery] = LaneEntry(number, lane.batch)

    def _append(self, message: Attempt) -> PendingBatch:
        """Puts a message into the open batch, which may be full then; returns that batch."""
        batch = self._open
        if batch is None:
            batch = self._open = PendingBatch(self._clock.monotonic_s() + self._within_s)
            self._changed.notify()
        batch.messages.append(message)
        if len(batch.messages) >= self._size:
            self._close()
        return batch

    def _close(self) -> None:
        if self._open is not None:
            self._full.append(self._open)
            self._open = None
            self._changed.notify()

    def _release(self, delivery: Delivery) -> None:
        name = self.lane_of(delivery)
        lane = None if name is None else self._lanes.get(name)
        entry = None if lane is None else lane.through.pop(delivery, None)
        if self._paused:
            self._paused.discard(delivery)
        if lane is None or entry is None:
            return
        if lane.again == entry.number:
            lane.again = lane.turn = None
        if not lane.through:
            if lane.behind:
                self._move_up(lane)
            else:
                del self._lanes[name]  # type: ignore[arg-type] # whoever has a lane has its name

    def _move_up(self, lane: Lane) -> None:
        """Lets what waits behind into the open batch, as far as it has room."""
        lane.again = lane.turn = None
        while lane.behind:
            self._join(lane, *lane.behind.popleft())
            if lane.batch is not self._open:
                return

    def _resumed(self, message: Attempt) -> None:
        lane = self._lane(message)
        entry = None if lane is None else lane.through.get(message.delivery)
        if lane is None or entry is None:
            self._append(message)
            return
        self._join(lane, entry.number, message)
        lane.turn, lane.batch = lane.batch, None
        self._follow(lane)

    def _follow(self, lane: Lane) -> None:
        """Lets others go along with one that is handed out again.

        But not before those of the batch that it was in have come back.
        """
        if len(lane.through) == 1 and lane.turn is not None and lane.turn is self._open:
            lane.batch = lane.turn
            while lane.behind and lane.batch is self._open:
                self._join(lane, *lane.behind.popleft())


def _partition(
    messages: list[Attempt], goes: Callable[[Attempt], bool]
) -> tuple[list[Attempt], list[Attempt]]:
    """Splits messages into those that stay and those that go."""
    stay: list[Attempt] = []
    gone: list[Attempt] = []
    for message in messages:
        (gone if goes(message) else stay).append(message)
    return stay, gone
