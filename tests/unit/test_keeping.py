"""A lone message of a quick handler is handled in the thread that has pulled it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from eventually import eventually
from pool_work import Handlers, messages, running
from pull_line import Line

from qframe.current import being_handled
from qframe.runtime.executors.thread_executor import TICK_S, ThreadExecutor
from qframe.service import Relieved


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@contextmanager
def pool_of(
    handlers: Handlers, threads: int = 1, relieve: Callable[[], None] | None = lambda: None
) -> Iterator[ThreadExecutor]:  # fmt: skip
    """A pool whose handler has been quick so far."""
    with running(handlers, threads, relieve) as pool:
        handlers.gate.set()
        for number in range(-20, 0):
            pool.dispatch(messages(handlers, range(number, number + 1)))
            eventually(lambda: not pool.busy)
        handlers.handled.clear()
        handlers.most = 0
        yield pool


def handle(pool: ThreadExecutor) -> None:
    """Handles what was kept, in this thread."""
    kept = pool.kept()
    assert kept is not None
    kept()


@contextmanager
def pulling(pool: ThreadExecutor) -> Iterator[None]:
    """Another thread handles what was kept."""
    thread = threading.Thread(target=lambda: handle(pool))
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()


def test_a_lone_message_is_handled_at_once_by_who_has_kept_it(handlers: Handlers) -> None:
    seen: list[object] = []
    handlers.between = lambda: seen.append((threading.current_thread(), list(being_handled())))
    with pool_of(handlers) as pool:
        seen.clear()
        assert pool.keep(messages(handlers, range(1)))
        assert (pool.busy, pool.kept() is not None) == (True, True)
        handle(pool)
        assert handlers.handled == Counter([0])
        assert seen == [(threading.current_thread(), [])]
        assert (pool.busy, pool.kept() is not None) == (False, False)


def test_what_is_not_alone_or_not_quick_goes_to_other_threads(handlers: Handlers) -> None:
    with pool_of(handlers, 2) as pool:
        assert not pool.keep(messages(handlers, range(2)))
        handlers.gate.clear()
        pool.dispatch(messages(handlers, range(2, 3)))
        assert not pool.keep(messages(handlers, range(3, 4)))
        eventually(lambda: pool.longest_s > 10 * TICK_S)
        handlers.gate.set()
        eventually(lambda: not pool.busy)
        assert not pool.keep(messages(handlers, range(3, 4)))  # it takes long now


def test_where_a_handler_waits_for_a_server_nothing_is_kept(handlers: Handlers) -> None:
    with pool_of(handlers, relieve=None) as pool:
        assert not pool.keep(messages(handlers, range(1)))


def test_no_more_are_handled_at_once_than_there_are_threads(handlers: Handlers) -> None:
    with pool_of(handlers) as pool:
        handlers.gate.clear()
        assert pool.keep(messages(handlers, range(1)))
        with pulling(pool):
            eventually(lambda: handlers.at_once == 1)
            pool.dispatch(messages(handlers, range(1, 2)))
            threading.Event().wait(5 * TICK_S)
            assert handlers.at_once == 1
            handlers.gate.set()
        eventually(lambda: handlers.handled == Counter([0, 1]))
    assert handlers.most == 1


def test_another_goes_on_with_pulling_where_the_handler_does_not_return(
    handlers: Handlers,
) -> None:
    relieved = threading.Event()
    with pool_of(handlers, relieve=relieved.set) as pool:
        handlers.gate.clear()
        kept = messages(handlers, range(1))
        assert pool.keep(kept)
        assert not relieved.is_set()
        with pulling(pool):
            assert relieved.wait(60)
            assert pool.in_hand() == kept
            assert [one.id for one in pool.stacks()] == ["id-0"]
            assert not pool.stop(0.01)
            handlers.gate.set()


def test_what_was_kept_and_is_not_begun_can_be_given_back(handlers: Handlers) -> None:
    with pool_of(handlers) as pool:
        kept = messages(handlers, range(1))
        assert pool.keep(kept)
        assert pool.withdraw(lambda _: True) == kept
        handle(pool)
        assert handlers.handled == Counter()
        assert not pool.busy


def test_what_follows_it_goes_to_other_threads(handlers: Handlers) -> None:
    with pool_of(handlers) as pool:
        handlers.through_again = messages(handlers, range(1, 3))
        assert pool.keep(messages(handlers, range(1)))
        handle(pool)
        assert handlers.most == 1
        eventually(lambda: handlers.handled == Counter([0, 1, 2]))


def test_who_was_relieved_pulls_no_more_and_another_does() -> None:
    line = Line("delay")
    threads: list[threading.Thread] = []

    def stands_still() -> None:
        line.loop.relieve()
        assert line.loop.stop(60)
        threads.append(threading.current_thread())

    def keeps() -> None:
        line.keeping = stands_still
        line.publish(0, 1)

    before = len(line.asked)
    with pytest.raises(Relieved):
        line.run(keeps, lambda: threads.append(threading.current_thread()))
    eventually(lambda: len(threads) == 2)
    assert threading.current_thread() in set(threads)
    assert len(set(threads)) == 2
    assert len(line.asked) > before + 1


def test_it_goes_on_itself_where_the_handler_returns() -> None:
    line = Line("delay")
    handled: list[threading.Thread] = []

    def keeps() -> None:
        line.keeping = lambda: handled.append(threading.current_thread())
        line.publish(0, 1)

    line.run(keeps, lambda: line.loop.relieve())
    assert handled == [threading.current_thread()]
