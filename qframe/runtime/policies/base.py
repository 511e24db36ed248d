"""The protocol of policies, which are called before and after a handler."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from qframe.message import Delivery
from qframe.runtime.handler.attempt import Attempt


class Sorting:
    """A policy's decision about the attempts of a unit.

    Attributes:
        go: their handler is to be called.
        ended: their effect has happened now; they are acknowledged, and the breaker told.
        done: their effect had happened before; they are acknowledged.
        waiting: each is asked about again after so many seconds.
        failed: each has an error of its own.
        gone: they are not this worker's any more.
    """

    __slots__ = ("done", "ended", "failed", "go", "gone", "waiting")

    def __init__(
        self, *, go: list[Attempt] | None = None, ended: list[Attempt] | None = None
    ) -> None:
        self.go: list[Attempt] = [] if go is None else go
        self.ended: list[Attempt] = [] if ended is None else ended
        self.done: list[Attempt] = []
        self.waiting: list[tuple[Attempt, float]] = []
        self.failed: list[tuple[Attempt, BaseException]] = []
        self.gone: list[Attempt] = []


class EffectPolicy(Protocol):
    """Asks somebody before a handler is called, and tells somebody when it has ended.

    A unit is what one call of the handler gets: an attempt, or a batch. A policy never calls the
    engine: it says what is to become of each attempt. It inherits a method that has a `return` here
    if it has nothing to do there.

    Attributes:
        blocks: whether it asks a server, so that no event loop may wait for it.
        in_loop: whether it is asked by coroutines, in the worker's event loop.
        is_joint: whether the effects of a unit happen together or not at all.
        turns: for which threads take turns by runs, if they do.
        settles_first: whether it settles attempts, in `begin`: what is settled stays in flight
            until its handler has ended.
        settled: the deliveries that were settled so, or are about to be, until then.
        filters: whether it sees to what is unwanted by its tags.
    """

    blocks: bool
    in_loop: bool
    is_joint: bool
    turns: threading.Lock | None = None
    settles_first: bool = False
    settled: set[Delivery] | frozenset[Delivery] = frozenset()
    filters: bool = False

    def start(self) -> None:
        """Makes ready."""
        return

    def stop(self) -> None:
        """Ends what it has in the background."""
        return

    @property
    def asked(self) -> Sequence[Delivery]:
        """The deliveries that it has settled, or may have."""
        return ()

    def prepare(self, run: list[Attempt]) -> Sorting:
        """Asks in one call about attempts that will each be a unit."""

    def begin(self, unit: list[Attempt]) -> Sorting:
        """Asks whether the handler is to be called with attempts."""

    def end(self, unit: list[Attempt]) -> Sorting:
        """Tells that the handler has returned.

        Raises:
            Exception: what ended them all, as if the handler had raised it.
        """

    def retries(self, unit: list[Attempt], error: BaseException) -> Sorting | None:  # noqa: ARG002 - as below
        """When to call the handler again, if its error was the checker's; None if it was not."""
        return None

    def release(self, unit: list[Attempt]) -> None:  # noqa: ARG002 - for those that do something
        """Undoes what `begin` has done, as far as the handler may still be called."""
        return

    def refuse(self, unit: list[Attempt]) -> None:  # noqa: ARG002 - for those that do something
        """Undoes it since the attempts are not this worker's any more."""
        return

    def let_go(self, unit: list[Attempt]) -> None:  # noqa: ARG002 - for those that do something
        """Undoes it soon, in the background."""
        return

    def end_lost(self, attempt: Attempt) -> None:  # noqa: ARG002 - for those that do something
        """Tells that the handler of an attempt has returned that is another worker's now."""
        return

    def forget(self, effect: Any) -> None:  # noqa: ARG002 - for those that do something
        """Undoes the claim of an attempt that its user has let go."""
        return

    def asks_for_a_token(self, attempt: Attempt) -> bool:  # noqa: ARG002 - for those that do something
        """Whether an attempt needs a token to begin, where there is a rate."""
        return True

    def has_handled(self, deliveries: Collection[Delivery]) -> None:  # noqa: ARG002 - as above
        """Hears that the handlers of what it has settled first have ended."""
        return

    def wait_s(self, attempt: Attempt) -> float:  # noqa: ARG002 - for those that do something
        """How long to wait before the effect of an attempt is tried to be finished again."""
        return 0.0
