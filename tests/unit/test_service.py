"""A service: a thread that starts once, stops once, and has last words."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from eventually import eventually

from qframe.service import Service


class Part(Service):
    """A part that waits until it is asked to stop."""

    def __init__(self, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        super().__init__("qframe.part.topic.group", on_failure or fail)
        self.threads: list[threading.Thread] = []
        self.awake = threading.Event()

    def run(self) -> None:
        self.threads.append(threading.current_thread())
        while not self.stopping:
            self.awake.wait()
            self.awake.clear()

    def wake(self) -> None:
        self.awake.set()


class Failing(Part):
    """A part that ends by an error."""

    def __init__(self, error: BaseException, on_failure: Callable[..., None]) -> None:
        super().__init__(on_failure)
        self.error = error

    def run(self) -> None:
        raise self.error


class Relaying(Part):
    """A part whose first thread leaves the work to another."""

    def run(self) -> None:
        if not self.threads:
            self.threads.append(threading.current_thread())
            self.step_aside(self.relieve)
        super().run()


class Stubborn(Part):
    """A part that goes on until it is let go, whatever it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def run(self) -> None:
        self.let_go.wait()


def fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error


def test_a_part_runs_once_in_a_daemon_thread_of_its_name_until_it_is_stopped() -> None:
    part = Part()
    for _ in range(3):
        part.start()
    [thread] = eventually(lambda: part.threads)
    assert (thread.name, thread.daemon) == ("qframe.part.topic.group", True)
    assert part.alive
    assert not part.stopping
    assert [part.stop(60) for _ in range(3)] == [True] * 3
    assert part.stopping
    part.start()
    assert not part.alive
    assert len(part.threads) == 1


def test_a_part_that_was_stopped_before_it_started_never_runs() -> None:
    part = Part()
    assert part.stop()
    part.start()
    assert not part.alive
    assert part.threads == []


def test_a_part_that_does_not_end_is_alive_and_told_to_stop_without_a_wait() -> None:
    part = Stubborn()
    assert not part.alive
    part.start()
    part.ask_to_stop()
    assert part.stopping
    assert not part.stop(0.01)
    assert part.alive
    part.let_go.set()
    assert part.stop(60)
    assert not part.alive


def test_a_part_may_stop_itself() -> None:
    answers: list[bool] = []

    class Self(Part):
        def run(self) -> None:
            answers.append(self.stop())

    part = Self()
    part.start()
    assert eventually(lambda: answers) == [True]
    assert part.stop(60)


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3), KeyboardInterrupt()])
def test_what_ends_a_part_is_told_with_its_name_from_its_own_thread(error: BaseException) -> None:
    told: list[tuple[str, BaseException, str]] = []
    part = Failing(
        error, lambda name, error: told.append((name, error, threading.current_thread().name))
    )
    part.start()
    assert part.stop(60)
    assert told == [("qframe.part.topic.group", error, "qframe.part.topic.group")]


def test_a_part_that_was_stopped_in_peace_has_no_last_words() -> None:
    told: list[str] = []
    part = Part(lambda name, error: told.append(name))
    part.start()
    assert part.stop(60)
    assert told == []


def test_many_threads_that_start_it_at_once_start_it_once() -> None:
    part = Part()
    gate = threading.Barrier(8)

    def start() -> None:
        gate.wait()
        part.start()

    starters = [threading.Thread(target=start) for _ in range(8)]
    for each in starters:
        each.start()
    for each in starters:
        each.join()
    eventually(lambda: part.threads)
    assert part.stop(60)
    assert len(part.threads) == 1


def test_a_part_goes_on_in_the_thread_that_relieves_another_until_that_ends() -> None:
    part = Relaying()
    part.start()
    eventually(lambda: len(part.threads) == 2)
    first, second = part.threads
    first.join(60)
    assert not first.is_alive()
    assert part.alive
    assert part.stop(60)
    assert not part.alive
    second.join(60)
    assert (first.name, second.name) == (part.name, part.name)


def test_a_thread_that_is_relieved_before_its_start_has_returned_is_not_the_parts_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part, start = Relaying(), threading.Thread.start

    def start_late(thread: threading.Thread) -> None:
        start(thread)
        if threading.current_thread() is threading.main_thread():
            thread.join(0.2)  # the first ends here if it can be relieved already

    monkeypatch.setattr(threading.Thread, "start", start_late)
    part.start()
    eventually(lambda: len(part.threads) == 2)
    part.threads[0].join(60)
    assert part.alive
    assert part.stop(60)
