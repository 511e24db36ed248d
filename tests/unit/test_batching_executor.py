"""A BatchExecutor hands on what is there, and waits for no more."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from batches import Seen, threads_of
from eventually import eventually

from qframe import (
    BadOption,
    BatcherClosed,
    BatchExecutor,
    Flusher,
    MultipleQueueFlusher,
    QueueFull,
)
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
        assert repr(executor) == "<BatchExecutor b open waiting=10 running=1>"
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


def test_a_batch_that_leaves_makes_room_for_as_many_as_it_had() -> None:
    step = threading.Semaphore(0)

    def process(items: list[Any]) -> None:
        assert step.acquire(timeout=60)

    with BatchExecutor("b", 3, process, 1, queue_size=3) as it:
        it.put(0)
        eventually(lambda: it.running)
        threads = [threading.Thread(target=it.put, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(it._rooms[0]._waiters) == 3)  # type: ignore[attr-defined]
        step.release()
        eventually(lambda: (it.running, it.waiting) == (3, 3))
        step.release(6)
        for thread in threads:
            thread.join(60)


def test_put_with_a_timeout_waits_for_room_that_long_and_then_takes_nothing() -> None:
    seen, clock, refused = Seen(shut=True), VirtualClock(), list[str]()
    with BatchExecutor("ledger", 1, seen.process, 1, queue_size=1, clock=clock) as executor:
        executor.put(0)
        eventually(lambda: seen.entered)
        executor.put(1)
        with pytest.raises(QueueFull):
            executor.put(2, timeout=0)

        def put() -> None:
            with pytest.raises(QueueFull) as full:
                executor.put(2, timeout="20ms")
            refused.append(str(full.value))

        thread = threading.Thread(target=put)
        thread.start()
        eventually(lambda: executor._rooms[0]._waiters)  # type: ignore[attr-defined]
        clock.advance(19)
        assert refused == []
        clock.advance(1)
        [words] = eventually(lambda: refused)
        thread.join(60)
        seen.open()
    assert re.search("'ledger' is full with 1 items .* again later", words)
    assert seen.items == [0, 1]


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


async def later(items: list[Any]) -> None: ...


def raising(error: BaseException) -> Any:
    def process(items: list[Any]) -> None:
        items.clear()
        raise error

    return process


@pytest.mark.parametrize(
    ("process", "text"),
    [
        *((raising(error("ended")), "ended") for error in
          (ValueError, SystemExit, KeyboardInterrupt, GeneratorExit)),
        (lambda items: later(items), "nobody awaits it"),
        (lambda items: (item for item in items), "it is a generator"),
        (lambda _: ValueError("refused"), "refused"),
    ],
)  # fmt: skip
def test_a_batch_that_fails_is_told_whole_and_the_next_one_runs_in_the_same_thread(
    process: Any, text: str
) -> None:
    seen, threads = Seen(), set[threading.Thread]()

    def either(items: list[Any]) -> Any:
        threads.add(threading.current_thread())
        return process(items) if items == ["bad"] else seen.process(items)

    with BatchExecutor("b", 1, either, 1, on_error=seen.on_error) as executor:
        for item in ("good", "bad", "better"):
            executor.put(item)
    assert seen.items == ["good", "better"]
    [(items, error)] = seen.failed
    assert items == ["bad"]
    assert text in str(error)
    assert len(threads) == 1


def no_callback(items: list[Any], error: BaseException) -> None:
    raise KeyError("no such callback")


@pytest.mark.parametrize(
    ("on_error", "words"), [(None, "a batch of 1 items failed"), (no_callback, "no such callback")]
)
def test_a_failed_batch_is_logged_where_no_callback_takes_it_but_not_its_items(
    caplog: pytest.LogCaptureFixture, on_error: Any, words: str
) -> None:
    with BatchExecutor("ledger", 1, raising(ValueError("why")), 1, on_error=on_error) as executor:
        executor.put("secret")
    assert "batcher ledger: " in caplog.text
    assert words in caplog.text
    assert "ValueError: why" in caplog.text
    assert "secret" not in caplog.text


EXECUTOR = {"name": "wrong", "batch_size": 5, "process": print, "threads": 1}
FLUSHER = EXECUTOR | {"interval": 1, "queue_size": 10}
MULTIPLE = FLUSHER | {"channels": 2, "route": hash}


@pytest.mark.parametrize(
    ("made", "options", "changed", "words"),
    [
        (BatchExecutor, EXECUTOR, {"name": "a b"}, "batcher name 'a b'"),
        (BatchExecutor, EXECUTOR, {"name": ""}, "batcher name ''"),
        (BatchExecutor, EXECUTOR, {"batch_size": 0}, "batch_size 0: .* a whole number from 1"),
        (BatchExecutor, EXECUTOR, {"batch_size": True}, "batch_size True"),
        (BatchExecutor, EXECUTOR, {"batch_size": 2.5}, "batch_size 2.5"),
        (BatchExecutor, EXECUTOR, {"threads": 0}, "threads 0"),
        (BatchExecutor, EXECUTOR, {"queue_size": 4}, "queue_size 4: .* never be full; use 5 or"),
        (BatchExecutor, EXECUTOR, {"queue_size": "many"}, "queue_size 'many'"),
        (BatchExecutor, EXECUTOR, {"process": None}, "process None: it cannot be called"),
        (BatchExecutor, EXECUTOR, {"process": later}, "async function"),
        (BatchExecutor, EXECUTOR, {"on_error": 5}, "on_error 5"),
        (BatchExecutor, EXECUTOR, {"on_error": len}, r"cannot be called as on_error\(items, error"),
        (BatchExecutor, EXECUTOR, {"process": lambda: None}, r"be called as process\(items\)"),
        *((Flusher, FLUSHER, {"interval": wrong}, "interval") for wrong in ("soon", -1, None)),
        (MultipleQueueFlusher, MULTIPLE, {"channels": 0}, "channels"),
        (MultipleQueueFlusher, MULTIPLE, {"route": 5}, "route"),
        (MultipleQueueFlusher, MULTIPLE, {"process": None}, "process"),
    ],
)
def test_wrong_options_are_refused_and_no_thread_is_left(
    made: Any, options: dict[str, Any], changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadOption, match=words):
        made(**options | changed)
    assert threads_of("wrong") == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda it: it.put(1, timeout="soon"), "timeout 'soon'"),
        (lambda it: it.close(-1), "timeout -1"),
    ],
)
def test_a_wrong_timeout_is_refused(call: Any, words: str) -> None:
    with BatchExecutor("b", 1, print, 1) as executor:
        with pytest.raises(BadOption, match=words):
            call(executor)
        assert not executor.closed
