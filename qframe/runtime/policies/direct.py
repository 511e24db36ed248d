"""Effects as often as a handler is called: there is nobody to ask."""

from __future__ import annotations

import threading
from typing import Any

from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.policies.base import Sorting


class Direct:
    """At least once: the store is told when the handler has returned."""

    blocks = in_loop = is_joint = False
    turns: threading.Lock | None = None

    def start(self) -> None:
        """Has nothing to start."""

    def stop(self) -> None:
        """Has nothing to stop."""

    def prepare(self, run: list[Attempt]) -> Sorting:
        """Lets all go."""
        return Sorting(go=run)

    def begin(self, unit: list[Attempt]) -> Sorting:
        """Lets all go."""
        return Sorting(go=unit)

    def end(self, unit: list[Attempt]) -> Sorting:
        """Ends all."""
        return Sorting(ended=unit)

    def retries(self, unit: list[Attempt], error: BaseException) -> Sorting | None:  # noqa: ARG002 - of the protocol
        """Has no checker whose errors pass."""
        return None

    def release(self, unit: list[Attempt]) -> None:
        """Has claimed nothing."""

    def refuse(self, unit: list[Attempt]) -> None:
        """Has claimed nothing."""

    def let_go(self, unit: list[Attempt]) -> None:
        """Has claimed nothing."""

    def end_lost(self, attempt: Attempt) -> None:
        """Has claimed nothing."""

    def forget(self, effect: Any) -> None:
        """Has claimed nothing."""

    def wait_s(self, attempt: Attempt) -> float:  # noqa: ARG002 - of the protocol
        """Waits for nobody."""
        return 0.0
