"""Who has asked something of an event loop is not left waiting when the loop ends."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from eventually import eventually

from qframe.clock import SYSTEM_CLOCK
from qframe.runtime.executors.event_loop import EventLoop


async def answer() -> int:
    return 1


def test_a_thread_gets_the_answer_of_what_it_has_awaited() -> None:
    event_loop = EventLoop(lambda _part, _error: None, SYSTEM_CLOCK)
    event_loop.start()
    assert event_loop.wait_for(answer()) == 1
    event_loop.stop()
    with pytest.raises(RuntimeError, match="closed"):
        event_loop.wait_for(answer())


def test_the_loop_is_the_one_of_asyncios_policy() -> None:
    class Loop(asyncio.SelectorEventLoop):
        pass

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return Loop()

    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Policy())
    event_loop = EventLoop(lambda _part, _error: None, SYSTEM_CLOCK)
    try:
        event_loop.start()
        assert isinstance(event_loop.wait_for(running()), Loop)
    finally:
        event_loop.stop()
        asyncio.set_event_loop_policy(before)


def test_what_was_asked_as_the_loop_ended_is_refused() -> None:
    event_loop = EventLoop(lambda _part, _error: None, SYSTEM_CLOCK)
    loop: Any = asyncio.new_event_loop()
    event_loop._loop = loop
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(event_loop.wait_for, answer())
        eventually(lambda: loop._ready)  # it waits to be called by a loop that never will
        loop.close()
        with pytest.raises(RuntimeError, match=r"qframe\.loop has ended"):
            asked.result()
