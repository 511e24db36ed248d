"""How a batcher ends: closed, interrupted, forked, forgotten, or with its process."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress
from typing import Any

import pytest
from batches import Seen, threads_of
from eventually import eventually
from programs import python

from qframe import Batcher, BatcherClosed, BatchExecutor, Flusher


def said(program: str) -> list[str]:
    """The lines of a program in a process of its own, whose main thread and end are the test's."""
    ran = python("-W", "error", "-c", HEAD + program)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


HEAD = """
import linecache, os, signal, sys, threading, time, warnings
from pathlib import Path
from qframe import Batcher, BatcherClosed, BatcherForked, BatchExecutor, Flusher
warnings.filterwarnings("ignore", message=".*multi-threaded.*", category=DeprecationWarning)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" leaves it ignored
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def interrupt_main_while_it_waits_in(function):
    main, number = threading.get_ident(), threading.get_native_id()
    def is_blocked():
        # Python's own wait bears an interrupt only where it is asleep in this line of it.
        names, frame = set(), sys._current_frames()[main]
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        while frame is not None:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        status = Path(f"/proc/self/task/{number}/stat").read_text()
        return "acquire(True, timeout)" in line and function in names and ") S " in status
    def strike():
        while not is_blocked():
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)
    threading.Thread(target=strike).start()
"""


def test_closing_processes_what_waits_at_once_and_ends_the_threads() -> None:
    seen = Seen()
    flusher = Flusher("ends", 10, "1h", 100, 2, seen.process)
    for number in range(25):
        flusher.put(number)
    assert flusher.close() == []
    assert sorted(seen.items) == list(range(25))
    assert threads_of("ends") == []


def test_closing_in_time_reports_what_no_thread_has_begun_with_and_lets_the_rest_end() -> None:
    seen = Seen(shut=True)
    executor = BatchExecutor("b", 2, seen.process, 1)
    executor.put("runs")
    eventually(lambda: seen.entered)
    for number in range(5):
        executor.put(number)
    assert executor.close("10ms") == [0, 1, 2, 3, 4]
    assert (executor.waiting, executor.running) == (0, 1)
    assert executor.close(0) == []  # each is reported once
    seen.open()
    assert executor.close() == []
    assert seen.items == ["runs"]


def test_two_that_close_at_once_share_what_is_left_between_them() -> None:
    seen = Seen(shut=True)
    executor = BatchExecutor("b", 1, seen.process, 1)
    for number in range(100):
        executor.put(number)
    eventually(lambda: seen.entered)
    left: list[int] = []
    threads = [
        threading.Thread(target=lambda: left.extend(executor.close("5ms"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(left) == list(range(1, 100))
    seen.open()
    assert executor.close() == []


def test_a_put_that_waits_for_room_is_refused_when_it_is_closed_and_took_nothing() -> None:
    seen = Seen(shut=True)
    executor = BatchExecutor("b", 1, seen.process, 1, queue_size=1)
    executor.put(0)
    eventually(lambda: seen.entered)
    executor.put(1)
    refused: list[BaseException] = []

    def wait() -> None:
        try:
            executor.put(2)
        except BatcherClosed as error:
            refused.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert executor.close("50ms") == [1]
    thread.join(60)
    assert len(refused) == 1
    seen.open()
    executor.close()
    assert seen.items == [0]


def test_process_may_close_its_own_batcher_and_the_rest_is_processed() -> None:
    seen = Seen()
    answers: list[list[Any]] = []

    def process(items: list[Any]) -> None:
        answers.append(executor.close())
        seen.process(items)

    executor: Batcher[int]
    executor = Flusher("own", 3, "1h", 10, 1, process)
    for number in range(2):
        executor.put(number)
    executor.put(2)
    eventually(lambda: not threads_of("own"))
    assert seen.items == [0, 1, 2]
    assert answers == [[]]


def test_leaving_its_context_by_an_error_processes_what_was_put() -> None:
    seen = Seen()
    with suppress(LookupError), Flusher("f", 10, "1h", 100, 1, seen.process) as flusher:
        flusher.put("before")
        raise LookupError
    assert seen.items == ["before"]


def test_one_that_was_forgotten_still_processes_and_one_that_was_closed_is_collected() -> None:
    seen = Seen(shut=True)
    executor = BatchExecutor("forgotten", 1, seen.process, 1)
    executor.put(1)
    executor.put(2)
    held = weakref.ref(executor)
    del executor
    gc.collect()
    seen.open()
    eventually(lambda: seen.items == [1, 2])
    forgotten = held()
    assert forgotten is not None
    forgotten.close()
    del forgotten
    gc.collect()
    assert held() is None


def test_the_end_of_the_process_closes_one_that_nobody_has_closed() -> None:
    lines = said("""
flusher = Flusher("f", 100, "1h", 100, 1, lambda items: say("processed", items))
flusher.put(1)
flusher.put(2)
say("end of main")
""")
    assert lines == ["end of main", "processed [1, 2]"]


def test_the_end_of_the_process_waits_so_long_and_then_fails_what_is_left() -> None:
    lines = said("""
from qframe.batching import batcher
batcher.EXIT_S = 0.05  # in place of 30 s
executor = BatchExecutor(
    "stuck", 1, lambda items: threading.Event().wait(), 1,
    on_error=lambda items, error: say(items, type(error).__name__),
)
for number in range(3):
    executor.put(number)
while not executor.running:
    pass
""")
    assert sorted(lines) == ["[1, 2] NotProcessed"]


def test_an_interrupt_of_a_put_that_waits_has_taken_nothing_and_the_batcher_goes_on() -> None:
    lines = said("""
gate = threading.Event()
def process(items):
    gate.wait()
    say("processed", items)
executor = BatchExecutor("b", 1, process, 1, queue_size=1)
executor.put(0)
while not executor.running:
    pass
executor.put(1)
interrupt_main_while_it_waits_in("put")
try:
    executor.put(2)
except KeyboardInterrupt:
    say("interrupted with", executor.waiting, "waiting")
gate.set()
executor.put(3)
say("left", executor.close())
""")
    assert lines == [
        "interrupted with 1 waiting", "processed [0]", "processed [1]", "processed [3]", "left []",
    ]  # fmt: skip


def test_an_interrupt_anywhere_in_a_put_takes_its_item_whole_or_not_and_hangs_nothing() -> None:
    lines = said("""
class Struck(BaseException): ...
def strike(*_):
    if armed:
        raise Struck
    signal.setitimer(signal.ITIMER_REAL, 0.0001)
signal.signal(signal.SIGALRM, strike)
armed = False
processed = []
flusher = Flusher("f", 3, "1ms", 1_000_000, 2, processed.extend)
sure, unsure = [], []
while len(unsure) < 1_000:
    signal.setitimer(signal.ITIMER_REAL, 0.0002)
    number = 0
    while True:
        item = len(unsure), number
        try:
            armed = True
            flusher.put(item)
            armed = False
        except Struck:
            armed = False
            unsure.append(item)
            break
        sure.append(item)
        number += 1
left = flusher.close()
assert not left, left
assert len(set(processed)) == len(processed)
assert set(sure) <= set(processed) <= {*sure, *unsure}
say("ok", len(set(processed) & set(unsure)) > 0)
""")
    assert lines == ["ok True"]


def test_a_signals_handler_may_close_it_wherever_the_signal_strikes() -> None:
    lines = said("""
def strike(*_):
    inside.append(flusher._lock._is_owned())
    flusher.close()
signal.signal(signal.SIGALRM, strike)
inside, processed, sure = [], [], []
while len(inside) < 300 or not any(inside):
    flusher = Flusher("f", 3, "1h", 1_000_000, 1, processed.extend)
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
    try:
        while True:
            item = len(inside), len(sure)
            flusher.put(item)
            sure.append(item)
    except BatcherClosed:
        pass
    flusher.close()
assert processed == sure, (len(processed), len(sure))
say("ok")
""")
    assert lines == ["ok"]


def test_an_interrupt_of_close_leaves_it_closed_and_close_may_be_called_again() -> None:
    lines = said("""
gate = threading.Event()
def process(items):
    gate.wait()
    say("processed", items)
executor = BatchExecutor("b", 1, process, 1)
executor.put(0)
executor.put(1)
interrupt_main_while_it_waits_in("close")
try:
    executor.close()
except KeyboardInterrupt:
    say("interrupted", executor.closed)
try:
    executor.put(2)
except BatcherClosed:
    say("refused")
gate.set()
say("left", executor.close())
""")
    assert lines == [
        "interrupted True", "refused", "processed [0]", "processed [1]", "left []",
    ]  # fmt: skip


def test_whoever_is_interrupted_as_there_is_room_leaves_it_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, items = threading.Semaphore(0), list[int]()

    def process(batch: list[int]) -> None:
        assert gate.acquire(timeout=60)
        items.extend(batch)

    executor = BatchExecutor("b", 1, process, 1, queue_size=1)
    executor.put(0)
    eventually(lambda: executor.running)
    executor.put(1)
    room, struck = executor._rooms[0], threading.Event()
    wait = room.wait

    def strike(timeout: float | None = None) -> bool:
        has_room = wait(timeout)
        if not struck.is_set():
            struck.set()
            raise KeyboardInterrupt
        return has_room

    monkeypatch.setattr(room, "wait", strike)

    def put(item: int) -> None:
        with suppress(KeyboardInterrupt, BatcherClosed):
            executor.put(item)

    threads = [threading.Thread(target=put, args=(number,)) for number in (2, 3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(room._waiters) == 2)  # type: ignore[attr-defined]
    gate.release()
    try:
        eventually(lambda: not any(thread.is_alive() for thread in threads), within=20)
    finally:
        gate.release(2)
        assert executor.close() == []
    assert len(items) == 3


def test_a_forks_child_is_told_to_make_its_own_and_the_parent_processes_all_once() -> None:
    lines = said("""
with Flusher("f", 100, "1h", 100, 1, lambda items: say("processed", os.getpid(), items)) as flusher:
    flusher.put(1)
    held, free = threading.Event(), threading.Event()
    def hold():
        with flusher._lock:
            held.set()
            free.wait()
    threading.Thread(target=hold).start()
    held.wait()
    child = os.fork()
    if not child:
        for take in (flusher.put, flusher.add):
            try:
                take(2)
            except BatcherForked as error:
                say(error)
        say("left in the child", flusher.close())
        with Flusher("own", 1, "1h", 1, 1, lambda items: say("child", items)) as own:
            own.put(3)
        sys.exit(7)
    free.set()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
say("status", status, "parent", os.getpid())
""")
    pid = lines[-1].rsplit(" ", 1)[1]
    remedy = (
        "batcher 'f' was created before a fork, and its threads stayed in the parent; "
        "create one in the child"
    )
    assert lines == [
        remedy, remedy, "left in the child []", "child [3]", f"processed {pid} [1]",
        f"status 7 parent {pid}",
    ]  # fmt: skip


@pytest.mark.parametrize("verb", ["put", "add"])
def test_what_came_in_as_a_signal_struck_is_processed(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    seen = Seen()
    with Flusher("struck", 10, "1h", 100, 1, seen.process) as flusher:
        take_in = flusher._gathering.add

        def strike(*given: Any) -> bool:
            take_in(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as signal:
            signal.setattr(flusher._gathering, "add", strike)
            with pytest.raises(KeyboardInterrupt):
                getattr(flusher, verb)(1)
        eventually(lambda: not flusher.waiting)


def test_one_that_has_not_ended_in_time_is_waited_for_at_the_end_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten: list[object] = []
    monkeypatch.setattr("atexit.unregister", forgotten.append)
    begun, go_on = threading.Event(), threading.Event()

    def process(_items: list[int]) -> None:
        begun.set()
        go_on.wait(20)

    executor = BatchExecutor("slow", 1, process, 1)
    executor.put(1)
    begun.wait(20)
    executor.close(0)
    assert forgotten == []
    go_on.set()
    executor.close()
    assert len(forgotten) == 1
