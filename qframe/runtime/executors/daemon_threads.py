"""Threads for calls that block, which the process does not wait for at its end."""

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


class _Task(NamedTuple):
    """A call, and the future of its result."""

    future: Future[Any]
    function: Callable[[], Any]


class DaemonThreadExecutor(ThreadPoolExecutor):
    """An executor whose threads end with the process, whatever they do.

    A process joins the threads of a `ThreadPoolExecutor` at its end (`threading._register_atexit`):
    a worker that has stopped would wait for a call that its handler has left in
    `asyncio.to_thread`. This class inherits from it only because `set_default_executor` insists.

    Args:
        size: the most threads.
        name: the prefix of the threads' names.
    """

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size, name)
        self._size = size
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._free = threading.Semaphore(0)
        self._daemons: list[threading.Thread] = []
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Calls a function in a thread.

        Raises:
            RuntimeError: if the executor was shut down.
        """
        future: Future[T] = Future()
        with self._guard:
            if self._ended:
                raise RuntimeError(f"{self._name} is shut down")
            self._tasks.put(_Task(future, partial(fn, *args, **kwargs)))
            if not self._free.acquire(blocking=False) and len(self._daemons) < self._size:
                number = len(self._daemons)
                thread = threading.Thread(
                    target=self._serve, name=f"{self._name}.{number}", daemon=True
                )
                self._daemons.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuses more calls; the threads end once they have done the calls they have."""
        with self._guard:
            self._ended = True
        if cancel_futures:
            with suppress(Empty):
                while True:
                    if (call := self._tasks.get_nowait()) is not None:
                        call.future.cancel()
        self._tasks.put(None)
        for thread in self._daemons if wait else ():
            thread.join()

    def _serve(self) -> None:
        while (call := self._tasks.get()) is not None:
            if call.future.set_running_or_notify_cancel():
                try:
                    result = call.function()
                except BaseException as error:  # the waiting caller gets it
                    call.future.set_exception(error)
                else:
                    call.future.set_result(result)
                    del result
            del call  # its arguments are not kept until the next call comes
            self._free.release()
        self._tasks.put(None)  # for the other threads
