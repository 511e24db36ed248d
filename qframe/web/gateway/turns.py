"""Turns: callers of a gateway that wait for the same are served one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.shares import Share
from qframe.web.gateway.deliveries import Client

_ONE_IN: Final = 16
_LATELY_S: Final = 1.0

T = TypeVar("T")


class Lines(Generic[T]):
    """What waits, in a line for each holder; the lines have their turns."""

    def __init__(self) -> None:
        self._lines: dict[Client | None, deque[T]] = {}

    def __iter__(self) -> Iterator[T]:
        for line in self._lines.values():
            yield from line

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, holder: Client | None, item: T) -> None:
        """Puts an item at the end of its holder's line."""
        self._lines.setdefault(holder, deque()).append(item)

    def remove(self, holder: Client | None, item: T) -> bool:
        """Takes an item out; False if it waits no more."""
        line = self._lines.get(holder)
        if line is None or item not in line:
            return False
        line.remove(item)
        if not line:
            del self._lines[holder]
        return True

    def has(self, holder: Client | None) -> bool:
        """Whether a holder has a line."""
        return holder in self._lines

    def holders(self) -> list[Client | None]:
        """The holders of what waits, in the order of their turns."""
        return list(self._lines)

    def next(self) -> T:
        """The first item of the line whose turn it is."""
        return next(iter(self._lines.values()))[0]

    def pop(self, holder: Client | None) -> T:
        """Takes out the first item of a line, whose turn is then the last."""
        line = self._lines.pop(holder)
        item = line.popleft()
        if line:
            self._lines[holder] = line
        return item


class Turns:
    """Lets one request of each caller begin in each round of the event loop.

    So one with many requests at once, each of which takes the loop a while, is no reason why those
    of another wait behind all of them.
    """

    def __init__(self) -> None:
        self._lines: Lines[asyncio.Future[None]] = Lines()
        self._begun: set[Client | None] = set()  # in this round

    async def wait(self, client: Client | None) -> None:
        """Waits for the turn of a request."""
        loop = asyncio.get_running_loop()
        if client not in self._begun:
            self._begin(client, loop)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._lines.add(client, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._lines.remove(client, turn)
            raise

    def _begin(self, client: Client | None, loop: asyncio.AbstractEventLoop) -> None:
        if not self._begun:
            loop.call_soon(self._end_round, loop)
        self._begun.add(client)

    def _end_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun.clear()
        for client in self._lines.holders():
            turn = self._lines.pop(client)
            if not turn.cancelled():
                turn.set_result(None)
            self._begin(client, loop)


class FairThreads:
    """Threads that callers share: the calls of one that has its share wait behind each other.

    While others have asked within a second, a caller has a few threads at most. Python runs one
    thread at a time, and so do some stores, so each call that is under way delays all others.
    Its methods are called in one event loop.

    Args:
        most: how many threads there are.
        name: how their names begin.
        clock: says what was within a second.
    """

    def __init__(self, most: int, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._threads = ThreadPoolExecutor(most, name)
        self._few = max(2, most // _ONE_IN)
        self._share = Share(most)
        self._lines: Lines[asyncio.Future[None]] = Lines()
        self._asked: dict[Client, float] = {}  # the last is the latest
        self._clock = clock

    async def call(self, client: Client | None, function: Callable[..., T], *args: Any) -> T:
        """Calls what may block, once the client has a thread for it.

        It has the context variables of the caller, so the span of a request is known there.
        """
        await self._wait(client)
        loop = asyncio.get_running_loop()

        def ended(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._end, client)

        try:
            called = self._threads.submit(copy_context().run, function, *args)
        except BaseException:
            self._end(client)
            raise
        called.add_done_callback(ended)
        return await asyncio.wrap_future(called)

    async def _wait(self, client: Client | None) -> None:
        if client is not None:  # what asks for itself, such as a probe, asks for little
            self._asked.pop(client, None)
            self._asked[client] = self._clock.monotonic_s()
        if self._take(client):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.add(client, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._lines.remove(client, turn) and not turn.cancelled():
                self._share.give_back(client)  # it was its turn already
            self._go_on()
            raise

    def _take(self, client: Client | None) -> bool:
        is_few = self._share.held(client) < self._few or not self._has_others(client)
        return is_few and self._share.take(client)

    def _has_others(self, client: Client | None) -> bool:
        since_s = self._clock.monotonic_s() - _LATELY_S
        for other, asked_s in list(self._asked.items()):
            if asked_s >= since_s:
                break
            del self._asked[other]
        return any(other is not client for other in self._asked)

    def _end(self, client: Client | None) -> None:
        self._share.give_back(client)
        self._go_on()

    def _go_on(self) -> None:
        """Gives free threads to those who wait."""
        for holder in self._lines.holders():
            while self._lines.has(holder) and self._take(holder):
                turn = self._lines.pop(holder)
                if turn.cancelled():  # what waited there goes on with the others
                    self._share.give_back(holder)
                else:
                    turn.set_result(None)

    def close(self) -> None:
        """Takes no more calls; those that run go on."""
        self._threads.shutdown(wait=False)
