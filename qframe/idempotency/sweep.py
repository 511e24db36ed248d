"""Removes what checkers need not remember any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qframe.errors import CheckerUnavailable
from qframe.idempotency.base import Checker
from qframe.service import Service

EVERY_S: Final = 60.0
STEP: Final = 500
PAUSE_S: Final = 0.05


class EffectSweeper(Service):
    """Sweeps a checker at its start and every minute, 500 rows at a time with a pause after each.

    Several may do so at once: none waits for the other.

    Args:
        name: the thread's.
        checker: whose effects.
        on_trouble: called where the checker cannot sweep; the next round may.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        name: str,
        checker: Checker,
        *,
        on_trouble: Callable[[CheckerUnavailable], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(name, on_failure)
        self._checker = checker
        self._on_trouble = on_trouble

    def run(self) -> None:
        """Sweeps until it is stopped."""
        while not self.stopping:
            self._sweep()
            self._stopping.wait(EVERY_S)

    def _sweep(self) -> None:
        try:
            while self._checker.sweep(STEP) >= STEP and not self.stopping:
                self._stopping.wait(PAUSE_S)
        except CheckerUnavailable as error:
            self._on_trouble(error)
