"""Ctrl-C for commands that work in steps: it stops them between two."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Self

from click.exceptions import Exit

from qframe.cli.output import counted, say


@contextmanager
def stoppable() -> Iterator[Callable[[], None]]:
    """A context in which Ctrl-C raises KeyboardInterrupt between steps; a second one at once.

    Python's own may be raised in a finalizer, where it is lost, and the user has to press again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    pressed: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    def stop_if_asked() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stop_if_asked
    finally:
        signal.signal(signal.SIGINT, before)


class Steps:
    """Says how far a command has come, also when it is stopped.

    Args:
        noun: one of the things that it changes.
        done: words that say what was done to them.
        others: words that say how the others are when it was stopped.
    """

    def __init__(self, noun: str, done: str, others: str) -> None:
        self._noun = noun
        self._words = done
        self._others = others
        self._done = 0
        self._stack = ExitStack()
        self._stop_if_asked: Callable[[], None] = lambda: None

    def total(self, done: int) -> str:
        """So many, and what was done to them, in words."""
        return f"{counted(done, self._noun)} {self._words}"

    def tell(self, done: int) -> None:
        """Notes a step, and says so on a terminal; ends the command if Ctrl-C was pressed."""
        self._done = done
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{done} …")
            sys.stderr.flush()
        self._stop_if_asked()

    def __enter__(self) -> Self:
        self._stop_if_asked = self._stack.enter_context(stoppable())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
        if kind is None:
            return
        if issubclass(kind, KeyboardInterrupt):
            say(self.total(self._done))
            sys.stderr.write(f"stopped: {self._others}\n")
            raise Exit(130)
        if self._done:
            sys.stderr.write(f"{self.total(self._done)} before this:\n")
