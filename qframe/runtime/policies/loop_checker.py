"""A checker of an async engine, as threads can call it: what it asks its database is awaited."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError as FutureCancelled
from typing import Any

from qframe.idempotency.awaited import awaited
from qframe.idempotency.base import Checker, Claim, Scope
from qframe.runtime.executors.event_loop import EventLoop


def is_in_loop(checker: Checker) -> bool:
    """Whether a checker's transactions are in the worker's event loop."""
    return bool(getattr(checker, "is_async", False))


class AsyncCheckerAdapter:
    """A checker of an async engine, as it can be called from threads.

    In the event loop its methods are called by whoever awaits them (`awaited`); from any other
    thread they are done in the loop, and the caller waits.

    Args:
        checker: the checker.
        event_loop: the worker's, started.
    """

    def __init__(self, checker: Any, event_loop: EventLoop) -> None:
        self._checker = checker
        self._event_loop = event_loop

    def open(self) -> None:
        """Makes its table where it is missing."""
        self._ask(self._checker.open)

    def sweep(self, limit: int) -> int:
        """Removes what has expired; nothing, where the loop has ended."""
        try:
            return int(self._ask(self._checker.sweep, limit))
        except (RuntimeError, FutureCancelled):
            return 0

    def claim_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> None:
        """Asks for effects; sets the state of each claim."""
        self._ask(self._checker.claim_many, scope, claims, lease_ms)

    def claim_together(self, scope: Scope, claims: list[Claim]) -> None:
        """Begins one transaction for all claims that can be had; sets the state of each."""
        self._ask(self._checker.claim_together, scope, claims)

    def finish_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Commits the transactions."""
        kept: list[bool] = self._ask(self._checker.finish_many, scope, claims)
        return kept

    def release_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Rolls the transactions back."""
        released: list[bool] = self._ask(self._checker.release_many, scope, claims)
        return released

    def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._event_loop.is_here:
            return function(*args)
        return self._event_loop.wait_for(awaited(function, *args))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._checker, name)
