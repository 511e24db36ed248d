"""The base of every background part: a thread that starts once, stops once, and has last words."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import Context
from typing import Final, Protocol, runtime_checkable

from qframe.clock import Clock, StepTimer

LAST_WORDS_S: Final = 5.0
"""How long a part that was asked to stop may take."""


def new_thread(name: str, function: Callable[..., object], *arguments: object) -> threading.Thread:
    """A daemon thread, not started yet, that has no context variables of the one that starts it.

    Where threads inherit them, it would stay in the span of who began it.
    """
    run = Context().run
    return threading.Thread(target=run, args=(function, *arguments), name=name, daemon=True)


class Relieved(Exception):
    """Raised in a thread of a service whose work another thread goes on with."""


@runtime_checkable
class ServiceLoop(Protocol):
    """A loop in a thread of its own that does one short step after the other."""

    @property
    def name(self) -> str:
        """Its thread's name."""

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""

    def busy_s(self) -> float:
        """How long the present step has taken; 0 while it waits for work."""


class Service(ABC):
    """A part with a thread of its own; start and stop are idempotent, stop is safe before start.

    The thread has no context variables of the one that starts it.

    A part may `step_aside`, to do in its thread something else that may take long. If somebody
    calls `relieve` meanwhile, another thread goes on:

        run ──► step_aside(do) ──do returns────────────────────────► run goes on
                     └─relieve─► run begins in a second thread, which is the part's from now on;
                                 when do returns, the first thread ends by `Relieved`

    Args:
        name: the thread's name, `qframe.<part>.<topic>.<group>`.
        on_failure: called with the part's name and the error that ended it, from its thread.
    """

    def __init__(self, name: str, on_failure: Callable[[str, BaseException], None]) -> None:
        self.name = name
        self._on_failure = on_failure
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._has_run = threading.Event()
        self._aside: object | None = None  # of the thread that may be relieved: its token

    @abstractmethod
    def run(self) -> None:
        """The part's work; returns soon after `wake` was called with `stopping` true."""

    def wake(self) -> None:
        """Ends a wait inside `run`, so that it sees `stopping`; a part that waits overrides it."""

    @property
    def stopping(self) -> bool:
        """Whether the part was asked to stop."""
        return self._stopping.is_set()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def start(self) -> None:
        """Starts the thread, unless it was started or stopped before.

        The guard is held until the thread is known: it may be relieved as soon as it runs.
        """
        with self._guard:
            if self._thread is None and not self._stopping.is_set():
                self._begin_thread()

    def step_aside(self, do: Callable[[], None]) -> None:
        """Does something else in the part's thread; meanwhile another may go on with `run`.

        Raises:
            Relieved: if another has: this thread is to end, without a further step of `run`.
        """
        self._aside = mine = object()  # the thread that goes on may be aside in its turn by then
        try:
            do()
        finally:
            with self._guard:
                is_relieved = self._aside is not mine
                if not is_relieved:
                    self._aside = None
        if is_relieved:
            raise Relieved

    def relieve(self) -> None:
        """Has another thread begin with `run`, if the present one has stepped aside."""
        with self._guard:
            aside, self._aside = self._aside, None
            if aside is not None:
                try:
                    self._begin_thread()
                except RuntimeError:  # no thread is to be had: the present one goes on later
                    self._aside = aside

    def stop(self, timeout_s: float | None = None) -> bool:
        """Asks the part to stop and waits for it; returns whether its thread has ended."""
        self.ask_to_stop()
        thread = self._thread
        if thread is None or thread is threading.current_thread() or not thread.is_alive():
            return True  # a thread of the parent's is not alive in the child of a fork
        if not self._has_run.wait(timeout_s):
            return False
        (self._thread or thread).join()  # another one, if the first was relieved
        return True

    def ask_to_stop(self) -> None:
        """Asks the part to stop, and does not wait."""
        self._stopping.set()
        self.wake()

    def lose_thread(self) -> None:
        """Has no thread in the child of a fork, and may be started there; if stopped, it stays so.

        The lock is another, since a thread of the parent may have held the old one.
        """
        stopped = self._stopping.is_set()
        self._thread, self._guard, self._stopping = None, threading.Lock(), threading.Event()
        self._has_run = threading.Event()
        if stopped:
            self._stopping.set()

    def _begin_thread(self) -> None:
        thread = new_thread(self.name, self._main)
        thread.start()
        self._thread = thread

    def _main(self) -> None:
        is_relieved = False
        try:
            self.run()
        except Relieved:
            is_relieved = True
        except BaseException as error:  # last words: nobody else hears it
            self._on_failure(self.name, error)
        finally:
            if not is_relieved:
                self._has_run.set()


class SteppedService(Service):
    """A service that does one short step after the other: a `ServiceLoop`.

    Args:
        name, on_failure: as of `Service`.
        clock: measures its steps.
    """

    def __init__(
        self, name: str, on_failure: Callable[[str, BaseException], None], clock: Clock
    ) -> None:
        super().__init__(name, on_failure)
        self._clock = clock
        self._steps = StepTimer(clock)

    def busy_s(self) -> float:
        """How long the present step has taken; 0 while it waits for work."""
        return self._steps.busy_s()
