"""The protocol of executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from qframe.message import Delivery
from qframe.options.report import HandlerStack
from qframe.runtime.handler.attempt import Attempt


class Ended(NamedTuple):
    """The work left after a handler's call.

    Attributes:
        done: deliveries to be acknowledged, whose lanes are to be freed.
        again: parts of a batch that are tried again at once.
    """

    done: list[Delivery]
    again: list[list[Attempt]]


class Executor(Protocol):
    """Calls handlers: in threads, in an event loop, in a loop of the user's, or in a test's thread.

    It has attempts from `dispatch` or `pause` until their handlers have ended, and then hands them
    to the engine. Every method may be called from any thread. It inherits a method that has a
    `return` here if it has nothing to do there.
    """

    @property
    def busy(self) -> bool:
        """Whether a handler has an attempt in hand, or one waits for its turn or a pause."""

    def in_hand(self) -> list[Attempt]:
        """Attempts that handlers have in hand, or will have for sure."""

    def stacks(self) -> list[HandlerStack]:
        """Where handlers are in their code now, as far as that can be seen."""

    def start(self) -> None:
        """Makes ready."""
        return

    def stop(self, timeout_s: float | None = None) -> bool:
        """Calls no more handlers; returns whether all have ended in time."""

    def close(self) -> None:
        """Frees what it shares with the worker's other consumers, which have left as well."""
        return

    def dispatch(self, attempts: list[Attempt]) -> None:
        """Has the handlers of attempts called, as soon as may be."""

    def pause(self, attempt: Attempt, seconds: float) -> None:
        """Has the handler of an attempt called after a pause."""

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Attempt]:
        """Takes back the attempts wanted that no handler has in hand, paused ones too, in order."""

    def resize(self, size: int | None) -> None:  # noqa: ARG002 - for those that do something
        """Has so many handlers called at once from now on, or as at first; none is disturbed.

        Raises:
            BadOption: if there may not be so many.
        """
        return

    def flush(self) -> None:
        """Has handlers called with what was gathered: nothing more comes until some has ended."""
        return

    def cancel_lost(self) -> None:
        """Cancels calls, as far as they can be, of which nothing is this worker's any more."""
        return

    def cancel_all(self, timeout_s: float) -> None:  # noqa: ARG002 - for those that do something
        """Cancels calls, as far as they can be, and waits until they have ended."""
        return


@runtime_checkable
class KeepingExecutor(Protocol):
    """An executor that may handle a message in the thread that has pulled it.

    All is called by that thread.
    """

    def keep(self, attempts: list[Attempt]) -> bool:
        """Returns whether it keeps attempts; else they are to be dispatched."""

    def kept(self) -> Callable[[], None] | None:
        """Calls the handlers of what was kept; None if that is nothing."""
