"""A MultipleQueueFlusher gathers per channel, and keeps each channel's order."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from eventually import eventually

from qframe import BadRoute, Group, MultipleQueueFlusher, QueueFull
from qframe.clock import VirtualClock


class Gate:
    """A `process` in which the batches of chosen channels wait."""

    def __init__(self, *shut: int) -> None:
        self.groups: list[tuple[int, list[Any]]] = []
        self.entered: list[int] = []
        self._gates = {index: threading.Event() for index in shut}

    def process(self, group: Group[Any]) -> None:
        self.entered.append(group.index)
        if group.index in self._gates:
            assert self._gates[group.index].wait(60)
        self.groups.append((group.index, group.items))

    def open(self, index: int) -> None:
        self._gates[index].set()


def by_first(item: Any) -> int:
    return item[0]


def test_each_channel_has_its_own_batches_by_size_and_by_time() -> None:
    gate, clock = Gate(), VirtualClock()
    with MultipleQueueFlusher(
        "m", 3, 100, 2, "20ms", 1, by_first, gate.process, clock=clock
    ) as flusher:
        flusher.put((0, "a"))
        clock.advance(10)
        flusher.put((1, "b"))
        flusher.put((2, "c"))
        flusher.put((2, "d"))
        eventually(lambda: gate.groups == [(2, [(2, "c"), (2, "d")])])
        clock.advance(10)
        eventually(lambda: gate.groups[1:] == [(0, [(0, "a")])])
        clock.advance(10)
        eventually(lambda: gate.groups[2:] == [(1, [(1, "b")])])


def test_a_channel_has_one_batch_running_and_the_others_go_on_beside_it() -> None:
    gate = Gate(0)
    with MultipleQueueFlusher("m", 2, 100, 1, "1h", 4, by_first, gate.process) as flusher:
        for number in range(5):
            flusher.put((0, number))
        for number in range(5):
            flusher.put((1, number))
        eventually(lambda: len(gate.groups) == 5)
        assert gate.groups == [(1, [(1, number)]) for number in range(5)]
        assert gate.entered.count(0) == 1
        gate.open(0)
    assert gate.groups[5:] == [(0, [(0, number)]) for number in range(5)]


def test_a_channel_that_is_full_holds_up_those_only_that_put_into_it() -> None:
    gate = Gate(0)
    with MultipleQueueFlusher("m", 2, 2, 1, "1h", 2, by_first, gate.process) as flusher:
        flusher.put((0, 0))
        eventually(lambda: gate.entered == [0])
        assert [flusher.add((0, number)) for number in (1, 2, 3)] == [True, True, False]
        with pytest.raises(QueueFull):
            flusher.put((0, 3), timeout="5ms")
        for number in range(20):
            flusher.put((1, number))
        gate.open(0)


def test_room_in_one_channel_wakes_those_who_wait_for_that_one() -> None:
    gate = Gate(0, 1)
    done: list[int] = []
    with MultipleQueueFlusher("m", 2, 1, 1, "1h", 2, by_first, gate.process) as flusher:
        for index in (0, 1):
            flusher.put((index, "runs"))
            eventually(lambda index=index: index in gate.entered)
            flusher.put((index, "waits"))

        def wait_for(index: int) -> None:
            flusher.put((index, "blocked"))
            done.append(index)

        threads = [threading.Thread(target=wait_for, args=(each,)) for each in (0, 0, 0, 1)]
        for thread in threads:
            thread.start()
        gate.open(1)
        eventually(lambda: done == [1])
        gate.open(0)
        for thread in threads:
            thread.join(60)
    assert sorted(done) == [0, 0, 0, 1]


@pytest.mark.parametrize("answer", [-1, 3, 10**30, None, "1", 1.0])
def test_a_route_that_names_no_channel_is_a_clear_error_and_the_item_is_not_taken(
    answer: Any,
) -> None:
    gate = Gate()
    with MultipleQueueFlusher(
        "ledger", 3, 10, 5, "1h", 1, lambda item: answer, gate.process
    ) as flusher:
        for take in (flusher.put, flusher.add):
            with pytest.raises(BadRoute) as refused:
                take("item")
        assert flusher.waiting == 0
    words = str(refused.value)
    assert "route of batcher 'ledger'" in words
    assert repr(answer) in words
    assert "its channels are 0 to 2" in words
    assert gate.groups == []


def test_a_route_may_answer_a_truth_value_and_raises_to_whoever_puts() -> None:
    gate = Gate()
    with MultipleQueueFlusher(
        "m", 2, 10, 5, "1h", 1, lambda number: number > 5, gate.process
    ) as flusher:
        flusher.put(3)
        with pytest.raises(TypeError):
            flusher.put(None)
        flusher.put(9)
    assert sorted(gate.groups) == [(0, [3]), (1, [9])]


def test_closing_in_time_reports_what_waits_channel_by_channel() -> None:
    gate = Gate(0)
    flusher = MultipleQueueFlusher("m", 2, 10, 2, "1h", 1, by_first, gate.process)
    flusher.put((0, 0))
    flusher.put((0, 1))
    eventually(lambda: gate.entered == [0])
    for item in [(1, 2), (0, 3), (0, 4), (0, 5), (1, 6)]:
        flusher.put(item)
    assert flusher.close(0) == [(0, 3), (0, 4), (0, 5), (1, 2), (1, 6)]
    gate.open(0)
    assert flusher.close() == []
    assert gate.groups == [(0, [(0, 0), (0, 1)])]
