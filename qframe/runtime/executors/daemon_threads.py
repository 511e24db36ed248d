"""Threads for what blocks, which no process waits for at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Call(NamedTuple):
    """What is to be done, and who waits for it."""

    future: Future[Any]
    function: Callable[[], Any]


class Daemons(ThreadPoolExecutor):
    """An executor whose threads end with the process, whatever they are at.

    A process waits for those of the standard library when it ends: a worker that has stopped would
    stay for as long as a call that its handler has left in `asyncio.to_thread`. It is one of them
    by type alone, since an event loop takes no other.

    Args:
        size: how many threads there are at most.
        name: the threads' names begin with it.
    """

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size, name)
        self._size = size
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._free = threading.Semaphore(0)
        self._daemons: list[threading.Thread] = []
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Has something called in a thread.

        Raises:
            RuntimeError: if it was shut down.
        """
        future: Future[T] = Future()
        with self._guard:
            if self._ended:
                raise RuntimeError(f"{self._name} is shut down")
            self._calls.put(_Call(future, partial(fn, *args, **kwargs)))
            if not self._free.acquire(blocking=False) and len(self._daemons) < self._size:
                number = len(self._daemons)
                thread = threading.Thread(
                    target=self._serve, name=f"{self._name}.{number}", daemon=True
                )
                self._daemons.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls; its threads end when they have done what they have."""
        with self._guard:
            self._ended = True
        if cancel_futures:
            with suppress(Empty):
                while True:
                    if (call := self._calls.get_nowait()) is not None:
                        call.future.cancel()
        self._calls.put(None)
        for thread in self._daemons if wait else ():
            thread.join()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.future.set_running_or_notify_cancel():
                try:
                    answer = call.function()
                except BaseException as error:  # whoever waits has last words
                    call.future.set_exception(error)
                else:
                    call.future.set_result(answer)
                    del answer
            del call  # what it holds is not to be kept until the next one comes
            self._free.release()
        self._calls.put(None)  # for the others
