"""A BatchExecutor hands on what is there, and waits for no more."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from batches import Seen, threads_of
from eventually import eventually

from qframe import BadOption, BatcherClosed, BatchExecutor, QueueFull
from qframe.clock import VirtualClock


def test_an_item_that_is_alone_leaves_at_once_though_time_stands_still() -> None:
    seen = Seen()
    with BatchExecutor("b", 100, seen.process, 1, clock=VirtualClock()) as executor:
        executor.put("only")
        assert eventually(lambda: seen.batches) == [["only"]]


def test_what_gathers_while_its_thread_is_busy_leaves_in_batches_of_at_most_batch_size() -> None:
    seen = Seen(shut=True)
    with BatchExecutor("b", 4, seen.process, 1) as executor:
        executor.put(0)
        eventually(lambda: seen.entered)
        for number in range(1, 11):
            executor.put(number)
        assert (executor.running, executor.waiting) == (1, 10)
        seen.open()
    assert seen.batches == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_as_many_batches_run_at_a_time_as_there_are_threads() -> None:
    seen = Seen(shut=True)
    with BatchExecutor("threes", 1, seen.process, 3) as executor:
        assert len(threads_of("threes")) == 3
        for number in range(10):
            executor.put(number)
        eventually(lambda: seen.entered == 3)
        assert executor.running == 3
        seen.open()
    assert sorted(seen.items) == list(range(10))
    assert threads_of("threes") == []


def test_add_answers_false_when_it_is_full_and_true_again_when_there_is_room() -> None:
    seen = Seen(shut=True)
    with BatchExecutor("b", 2, seen.process, 1, queue_size=3) as executor:
        executor.put("first")
        eventually(lambda: seen.entered)
        assert [executor.add(number) for number in range(5)] == [True, True, True, False, False]
        seen.open()
        eventually(lambda: executor.add("last"))
    assert seen.items == ["first", 0, 1, 2, "last"]


def test_put_waits_for_room_when_it_is_full() -> None:
    seen = Seen(shut=True)
    done: list[int] = []
    with BatchExecutor("b", 1, seen.process, 1, queue_size=2) as executor:

        def fill() -> None:
            for number in range(6):
                executor.put(number)
                done.append(number)

        thread = threading.Thread(target=fill)
        thread.start()
        eventually(lambda: len(done) == 3)  # one runs, two wait
        assert executor.waiting == 2
        assert done == [0, 1, 2]
        seen.open()
        thread.join(60)
    assert seen.items == list(range(6))


def test_put_with_a_timeout_says_that_there_was_no_room_and_takes_nothing() -> None:
    seen = Seen(shut=True)
    with BatchExecutor("ledger", 1, seen.process, 1, queue_size=1) as executor:
        executor.put(0)
        eventually(lambda: seen.entered)
        executor.put(1)
        with pytest.raises(QueueFull, match=r"'ledger' is full with 1 items .* again later"):
            executor.put(2, timeout="10ms")
        with pytest.raises(QueueFull):
            executor.put(2, timeout=0)
        seen.open()
    assert seen.items == [0, 1]


def test_many_producers_wait_for_room_and_no_item_is_lost_or_doubled() -> None:
    seen = Seen()
    with BatchExecutor("b", 3, seen.process, 2, queue_size=3) as executor:

        def produce(producer: int) -> None:
            for number in range(500):
                executor.put((producer, number))

        threads = [threading.Thread(target=produce, args=(each,)) for each in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(seen.items) == [(each, number) for each in range(8) for number in range(500)]
    assert max(map(len, seen.batches)) <= 3


def test_process_that_raises_fails_its_batch_and_the_next_one_runs_in_the_same_thread() -> None:
    seen = Seen()
    threads: list[threading.Thread] = []

    def process(items: list[Any]) -> None:
        threads.append(threading.current_thread())
        if items == ["bad"]:
            raise ValueError("no such account")
        seen.process(items)

    with BatchExecutor("b", 5, process, 1, on_error=seen.on_error) as executor:
        for item in ("good", "bad", "better"):
            executor.put(item)
            eventually(lambda: not executor.waiting and not executor.running)
    assert seen.items == ["good", "better"]
    [(items, error)] = seen.failed
    assert items == ["bad"]
    assert str(error) == "no such account"
    assert len(set(threads)) == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_process_that_wants_to_end_its_thread_fails_its_batch_and_does_not(
    error: type[BaseException],
) -> None:
    seen = Seen()

    def process(items: list[Any]) -> None:
        if items == ["bad"]:
            raise error
        seen.process(items)

    with BatchExecutor("b", 1, process, 1, on_error=seen.on_error) as executor:
        executor.put("bad")
        executor.put("good")
    assert seen.items == ["good"]
    assert [(items, type(each)) for items, each in seen.failed] == [(["bad"], error)]


def test_a_batch_that_fails_is_logged_where_nobody_asks_to_be_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def process(items: list[Any]) -> None:
        raise ValueError("no such account")

    with BatchExecutor("ledger", 5, process, 1) as executor:
        executor.put("secret")
    assert "batcher ledger: a batch of 1 items failed" in caplog.text
    assert "ValueError: no such account" in caplog.text
    assert "secret" not in caplog.text


def test_on_error_that_raises_is_logged_and_ends_no_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = Seen()

    def process(items: list[Any]) -> None:
        if items == ["bad"]:
            raise ValueError("no such account")
        seen.process(items)

    def on_error(items: list[Any], error: BaseException) -> None:
        raise KeyError("nor such a callback")

    with BatchExecutor("ledger", 1, process, 1, on_error=on_error) as executor:
        executor.put("bad")
        executor.put("good")
    assert seen.items == ["good"]
    assert "no such account" in caplog.text
    assert "nor such a callback" in caplog.text


def test_process_may_change_its_list_and_on_error_still_gets_all_items() -> None:
    seen = Seen()

    def process(items: list[Any]) -> None:
        items.clear()
        raise ValueError

    with BatchExecutor("b", 1, process, 1, on_error=seen.on_error) as executor:
        executor.put("kept")
    assert [items for items, _ in seen.failed] == [["kept"]]


def test_process_may_put_and_is_told_at_once_when_there_is_no_room() -> None:
    told: list[Any] = []

    def process(items: list[Any]) -> None:
        if items != ["first"]:
            return
        executor.put("second")
        try:
            executor.put("third")
        except QueueFull as error:
            told.append(error)

    executor = BatchExecutor("b", 1, process, 1, queue_size=1)
    executor.put("first")
    [error] = eventually(lambda: told)
    assert "must not wait" in str(error)
    assert executor.close() == []


def test_a_closed_one_takes_nothing() -> None:
    seen = Seen()
    executor = BatchExecutor("ledger", 1, seen.process, 1)
    assert not executor.closed
    assert executor.close() == []
    assert executor.closed
    with pytest.raises(BatcherClosed, match=r"'ledger' is closed; .* create another one"):
        executor.put(1)
    with pytest.raises(BatcherClosed):
        executor.add(1)
    assert seen.items == []


async def asynchronous(items: list[Any]) -> None: ...


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "a b"}, "batcher name 'a b'"),
        ({"name": ""}, "batcher name ''"),
        ({"batch_size": 0}, "batch_size 0: it must be a whole number from 1"),
        ({"batch_size": True}, "batch_size True"),
        ({"batch_size": 2.5}, "batch_size 2.5"),
        ({"threads": 0}, "threads 0"),
        ({"queue_size": 4}, "queue_size 4: a batch of 5 items could never be full; use 5 or more"),
        ({"queue_size": "many"}, "queue_size 'many'"),
        ({"process": None}, "process None: it cannot be called"),
        ({"process": asynchronous}, "async function"),
        ({"on_error": 5}, "on_error 5"),
        ({"on_error": len}, r"it cannot be called as on_error\(items, error\)"),
        ({"process": lambda: None}, r"it cannot be called as process\(items\)"),
    ],
)
def test_wrong_options_are_refused_and_no_thread_is_left(
    changed: dict[str, Any], words: str
) -> None:
    options = {"name": "wrong", "batch_size": 5, "process": print, "threads": 1} | changed
    with pytest.raises(BadOption, match=words):
        BatchExecutor(**options)
    assert threads_of("wrong") == []


def test_a_wrong_timeout_is_refused() -> None:
    with BatchExecutor("b", 1, print, 1) as executor:
        with pytest.raises(BadOption, match="timeout 'soon'"):
            executor.put(1, timeout="soon")
        with pytest.raises(BadOption, match="timeout -1"):
            executor.close(-1)
        assert not executor.closed


def test_what_waits_may_be_asked_at_any_time() -> None:
    seen = Seen()
    with BatchExecutor("b", 2, seen.process, 2, queue_size=5) as executor:

        def produce() -> None:
            for number in range(5_000):
                executor.put(number)

        thread = threading.Thread(target=produce)
        thread.start()
        while thread.is_alive():
            assert 0 <= executor.waiting <= 6  # it looks while items come and go
            assert 0 <= executor.running <= 4
        thread.join()
    assert sorted(seen.items) == list(range(5_000))


def test_it_shows_what_it_holds() -> None:
    seen = Seen(shut=True)
    with BatchExecutor("b", 1, seen.process, 1) as executor:
        executor.put(1)
        eventually(lambda: seen.entered)
        executor.put(2)
        assert repr(executor) == "<BatchExecutor b open waiting=1 running=1>"
        seen.open()


async def _later() -> None: ...


@pytest.mark.parametrize(
    ("process", "text"),
    [
        (lambda _: _later(), "nobody awaits it"),
        (lambda items: (item for item in items), "it is a generator"),
        (lambda _: ValueError("refused"), "refused"),
    ],
)
def test_process_whose_result_is_an_error_or_has_still_to_run_fails_its_batch(
    process: Any, text: str
) -> None:
    failed: list[tuple[list[int], str]] = []
    with BatchExecutor(
        "b",
        10,
        process,
        threads=1,
        on_error=lambda items, error: failed.append((items, str(error))),
    ) as batcher:
        batcher.put(7)
    [(items, error)] = failed
    assert items == [7]
    assert text in error
