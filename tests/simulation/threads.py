"""What stands for threads, locks, events and queues, so that qframe's own loops run as tasks.

`simulated` puts these in place of `threading`, `SimpleQueue` and the sources of chance in the
modules of qframe, and takes them out again. No line of the runtime is another one for it.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from qframe.stores.doubling import Doubling
from simulation.scheduler import Scheduler, Task

CHANCE = Random(0)
"""What modules of qframe draw from: jitter, tokens, receipts."""
_NOW: list[Scheduler] = []


def begin(scheduler: Scheduler, seed: object) -> None:
    """Makes a scheduler the one whose tasks wait here."""
    _NOW[:] = [scheduler]
    CHANCE.seed(f"{seed}/chance")


class SimulatedLock:
    """A lock; to take it is a place at which another task may go on."""

    __slots__ = ("_held", "_waiting")

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Task] | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = _NOW[0]
        if scheduler.current is not None:
            scheduler.left -= 1
            if scheduler.left <= 0:
                scheduler.preempt()
        while self._held:
            if not blocking:
                return False
            if self._waiting is None:
                self._waiting = deque()
            assert scheduler.current is not None, "a lock is held, and nobody's turn"
            self._waiting.append(scheduler.current)
            if not scheduler.block(None if timeout < 0 else timeout) and timeout >= 0:
                self._waiting.remove(scheduler.current)
                return False
        self._held = True
        return True

    def __enter__(self) -> bool:
        scheduler = _NOW[0]
        if self._held or scheduler.left <= 1 or scheduler.current is None:
            return self.acquire()
        scheduler.left -= 1
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if self._waiting:
            _NOW[0].wake(self._waiting.popleft())

    def __exit__(self, *_: object) -> None:
        self._held = False
        if self._waiting:
            _NOW[0].wake(self._waiting.popleft())

    def locked(self) -> bool:
        return self._held


class SimulatedRLock:
    """A lock that its holder may take again."""

    __slots__ = ("_depth", "_holder", "_lock")

    def __init__(self) -> None:
        self._lock = SimulatedLock()
        self._holder: Task | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        current = _NOW[0].current
        if self._depth and self._holder is current:
            self._depth += 1
            return True
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._holder, self._depth = current, 1
        return taken

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedCondition:
    """A condition over a lock."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = lock or SimulatedRLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: deque[Task] = deque()

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = _NOW[0]
        assert scheduler.current is not None
        task = scheduler.current
        self._waiting.append(task)
        self._lock.release()
        try:
            woken = scheduler.block(timeout)
        finally:
            if task in self._waiting:
                self._waiting.remove(task)
            self._lock.acquire()
        return woken

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        while not predicate():
            if not self.wait(timeout) and timeout is not None:
                return predicate()
        return True

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            _NOW[0].wake(self._waiting.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class SimulatedEvent:
    """An event."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            _NOW[0].wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            scheduler = _NOW[0]
            assert scheduler.current is not None
            self._waiting.append(scheduler.current)
            if not scheduler.block(timeout) and scheduler.current in self._waiting:
                self._waiting.remove(scheduler.current)
        return self._set


class SimulatedQueue:
    """A queue without bounds; to put is no place to wait, as the collector may do it."""

    __slots__ = ("_items", "_waiting")

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[Task] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            _NOW[0].wake(self._waiting.popleft())

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        scheduler = _NOW[0]
        while not self._items:
            if not block:
                raise Empty
            task = scheduler.current
            assert task is not None
            self._waiting.append(task)
            if not scheduler.block(timeout):
                if task in self._waiting:
                    self._waiting.remove(task)
                if not self._items:
                    raise Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class SimulatedThread:
    """A task of the process whose task starts it."""

    def __init__(
        self, group: None = None, target: Callable[..., object] | None = None,
        name: str | None = None, args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None, *, daemon: bool | None = None,
    ) -> None:  # fmt: skip
        self.name = name or "thread"
        self.daemon = daemon
        self._call = lambda: target(*args, **(kwargs or {})) if target is not None else None
        self.task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self.task is None else id(self.task)

    def start(self) -> None:
        scheduler = _NOW[0]
        assert scheduler.current is not None
        self.task = scheduler.spawn(scheduler.current.process, self._call, self.name)
        self.task.thread = self

    def is_alive(self) -> bool:
        return self.task is not None and not self.task.ended

    def join(self, timeout: float | None = None) -> None:
        scheduler = _NOW[0]
        task, current = self.task, scheduler.current
        if task is None or task.ended:
            return
        assert current is not None
        task.joiners.append(current)
        while not task.ended:
            if not scheduler.block(timeout) and timeout is not None:
                task.joiners.remove(current)
                return


_MAIN = SimulatedThread(name="main")


def _current_thread() -> Any:
    task = _NOW[0].current
    return None if task is None else task.thread


_THREADING = SimpleNamespace(
    Thread=SimulatedThread, Lock=SimulatedLock, RLock=SimulatedRLock,
    Condition=SimulatedCondition, Event=SimulatedEvent, TIMEOUT_MAX=threading.TIMEOUT_MAX,
    current_thread=_current_thread, main_thread=lambda: _MAIN,
    get_ident=lambda: id(_NOW[0].current), Semaphore=threading.Semaphore,
)  # fmt: skip
_SECRETS = SimpleNamespace(
    randbits=CHANCE.getrandbits, randbelow=CHANCE.randrange,
    token_hex=lambda size=8: CHANCE.randbytes(size).hex(),
)  # fmt: skip


class _Os:
    def urandom(self, size: int) -> bytes:
        return CHANCE.getrandbits(size * 8).to_bytes(size, "little")

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def _in_place_of(value: object) -> object | None:
    if value is threading:
        return _THREADING
    if value is SimpleQueue:
        return SimulatedQueue
    if value is threading.Event:
        return SimulatedEvent
    if value is uuid4:
        return lambda: UUID(int=CHANCE.getrandbits(128), version=4)
    if value is sys.modules.get("random"):
        return CHANCE
    if value is sys.modules.get("secrets"):
        return _SECRETS
    return None


PLACES = (
    "qframe.runtime", "qframe.coordination", "qframe.service", "qframe.idempotency",
    "qframe.retry", "qframe.roster", "qframe.codec", "qframe.outbox", "qframe.producing",
    "qframe.stores.splitting", "qframe.stores.store_mark", "qframe.schedules",
)  # fmt: skip


SELDOM = (
    ("qframe.runtime.flow.admission", "RAMPING_UP_SLEEP_S", 0.2),
    ("qframe.runtime.executors.thread_executor", "TICK_S", 0.1),
    ("qframe.runtime.process.shutdown", "_LOOK_EVERY_S", 0.05),
    ("qframe.outbox.relay", "SOONEST_S", 0.1),
    ("qframe.outbox.relay", "SELDOM_S", 0.5),
)
"""Pauses of loops that look often while something is in hand: longer, a run has fewer turns.

A tick is no longer than a token of a shared rate is good: a message that waits for one would find
none for ever.
"""
QUICK = ("qframe.runtime.executors.thread_executor", "KEPT_S", 10.0)
"""Handlers take up to 0.4 s here; else none would be called in the thread that pulls."""
GROWTH_LEASE_MS = 5_000
SOON = (
    "qframe.runtime.process.sweeper", "Doubling", partial(Doubling, lease_ms=GROWTH_LEASE_MS),
)  # fmt: skip
"""The lease of who sees to a growth: shorter, a run need not wait half a minute for the next."""
UNTOLD = ("qframe.runtime.handler.retry_policy", "_traced", lambda error, write: "as planned")
"""Tracebacks of planned errors: to write them takes longer than to handle their messages."""


@contextmanager
def simulated() -> Iterator[None]:
    """Has the modules of qframe use what stands here, while the block lasts."""
    before: list[tuple[Any, str, object]] = []
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(PLACES) or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            instead = _in_place_of(value)
            if attribute == "os" and name == "qframe.codec":
                instead = _Os()
            if instead is not None:
                before.append((module, attribute, value))
                setattr(module, attribute, instead)
    for name, attribute, instead in [*SELDOM, QUICK, SOON, UNTOLD]:
        before.append((sys.modules[name], attribute, getattr(sys.modules[name], attribute)))
        setattr(sys.modules[name], attribute, instead)
    gc.collect()
    gc.freeze()
    gc.disable()  # `failure_of` collects behind each run
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
        for module, attribute, value in before:
            setattr(module, attribute, value)
