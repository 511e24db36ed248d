"""Whatever comes, each batcher processes every item once, fails it once, or reports it once."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qframe import (
    Batcher,
    BatcherClosed,
    BatchExecutor,
    Flusher,
    Group,
    MultipleQueueFlusher,
    QueueFull,
)
from qframe.clock import SYSTEM_CLOCK

PROPERTY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
PAUSES_MS = st.integers(0, 3)


class Item(NamedTuple):
    """An item, who has put it, and when."""

    channel: int
    producer: int
    number: int
    put_s: float


class Case(NamedTuple):
    """A batcher's sizes, and what befalls it."""

    batch_size: int
    extra_room: int
    threads: int
    interval_ms: int
    channels: int
    producers: int
    items: int
    put_pauses: list[int]
    process_pauses: list[int]
    failures: set[int]
    adds: bool
    close_after: int
    close_timeout_ms: int | None


CASES = st.builds(
    Case,
    batch_size=st.integers(1, 7),
    extra_room=st.integers(0, 20),
    threads=st.integers(1, 4),
    interval_ms=st.integers(0, 8),
    channels=st.integers(1, 4),
    producers=st.integers(1, 4),
    items=st.integers(0, 60),
    put_pauses=st.lists(PAUSES_MS, max_size=6),
    process_pauses=st.lists(PAUSES_MS, max_size=6),
    failures=st.sets(st.integers(0, 20), max_size=6),
    adds=st.booleans(),
    close_after=st.integers(0, 60),
    close_timeout_ms=st.none() | st.integers(0, 10),
)


class Witness:
    """Sees all batches, and fails and delays those that the case names."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.guard = threading.Lock()
        self.batches: list[tuple[int, list[Item], bool]] = []
        self.failed: list[Item] = []
        self.running: dict[int, int] = defaultdict(int)
        self.most_running = 0
        self.overlapped = False

    def see(self, channel: int, items: list[Item]) -> None:
        with self.guard:
            number = len(self.batches)
            fails = number in self.case.failures
            self.batches.append((channel, items, fails))
            self.running[channel] += 1
            self.overlapped |= self.running[channel] > 1
            self.most_running = max(self.most_running, sum(self.running.values()))
        pause(self.case.process_pauses, number)
        with self.guard:
            self.running[channel] -= 1
        if fails:
            raise ValueError(number)

    def on_error(self, items: list[Item], error: BaseException) -> None:
        with self.guard:
            self.failed += items


def pause(pauses: list[int], number: int) -> None:
    """Lets the others run, for as long as the case says."""
    if pauses and (ms := pauses[number % len(pauses)]):
        threading.Event().wait(ms / 1000)


def drive(batcher: Batcher[Item], case: Case) -> tuple[list[Item], list[Item]]:
    """Puts all items from several threads while one closes; answers those taken, those left."""
    taken: list[Item] = []
    begun = threading.Semaphore(0)

    def produce(producer: int) -> None:
        for number in range(case.items):
            begun.release()
            item = Item(number % case.channels, producer, number, SYSTEM_CLOCK.monotonic_s())
            try:
                if case.adds and number % 2:
                    is_taken = batcher.add(item)
                else:
                    batcher.put(item, timeout=None if number % 3 else 0.002)
                    is_taken = True
            except QueueFull:
                continue
            except BatcherClosed:
                return
            if is_taken:
                taken.append(item)
            pause(case.put_pauses, number)

    threads = [threading.Thread(target=produce, args=(each,)) for each in range(case.producers)]
    for thread in threads:
        thread.start()
    for _ in range(min(case.close_after, case.items * case.producers)):
        begun.acquire(timeout=0.05)
    timeout_ms = case.close_timeout_ms
    left = batcher.close(timeout=None if timeout_ms is None else timeout_ms / 1000)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert batcher.close() == []
    assert (batcher.waiting, batcher.running) == (0, 0)
    return taken, left


def check(witness: Witness, taken: list[Item], left: list[Item]) -> None:
    """Every item once; sizes within limits; what failed was told; order by producer."""
    case = witness.case
    seen = [item for _, items, _ in witness.batches for item in items]
    assert sorted(seen + left) == sorted(taken)
    assert sorted(witness.failed) == sorted(
        item for _, items, fails in witness.batches if fails for item in items
    )
    assert all(1 <= len(items) <= case.batch_size for _, items, _ in witness.batches)
    assert witness.most_running <= case.threads
    if case.close_timeout_ms is None:
        assert left == []
    for _, items, _ in witness.batches:
        in_order(items)
    in_order(left)


def in_order(items: list[Item]) -> None:
    """What one producer has put into one channel is in the order in which it did."""
    last: dict[Any, int] = defaultdict(lambda: -1)
    for item in items:
        line = item.channel, item.producer
        assert item.number > last[line]
        last[line] = item.number


def executor(case: Case, witness: Witness) -> Batcher[Item]:
    return BatchExecutor(
        "p", case.batch_size, partial(witness.see, 0), case.threads,
        queue_size=case.batch_size + case.extra_room, on_error=witness.on_error,
    )  # fmt: skip


def flusher(case: Case, witness: Witness) -> Batcher[Item]:
    return Flusher(
        "p", case.batch_size, f"{case.interval_ms}ms", case.batch_size + case.extra_room,
        case.threads, partial(witness.see, 0), on_error=witness.on_error,
    )  # fmt: skip


def multiple(case: Case, witness: Witness) -> Batcher[Item]:
    def process(group: Group[Item]) -> None:
        assert {item.channel for item in group.items} == {group.index}
        witness.see(group.index, group.items)

    return MultipleQueueFlusher(
        "p", case.channels, case.batch_size + case.extra_room, case.batch_size,
        f"{case.interval_ms}ms", case.threads, lambda item: item.channel, process,
        on_error=witness.on_error,
    )  # fmt: skip


@pytest.mark.parametrize("made", [executor, flusher, multiple])
@PROPERTY
@given(case=CASES)
def test_a_batcher_processes_fails_or_reports_every_item_once_and_in_order(
    made: Callable[[Case, Witness], Batcher[Item]], case: Case
) -> None:
    witness = Witness(case)
    taken, left = drive(made(case, witness), case)
    check(witness, taken, left)
    is_serial = made is multiple
    assert not (is_serial and witness.overlapped)
    if is_serial or case.threads == 1:
        in_order([item for _, items, _ in witness.batches for item in items] + left)
