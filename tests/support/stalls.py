"""How long this machine lets a thread wait for its turn, measured while a test runs."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

_NAP_S: Final = 0.02


class Stalls:
    """Measures by how much a thread that sleeps shortly, again and again, wakes too late.

    Attributes:
        longest_ns: the longest such wait so far, in nanoseconds.
    """

    def __init__(self) -> None:
        self.longest_ns = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="stalls", daemon=True)

    def __enter__(self) -> Stalls:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._over.set()
        self._thread.join()

    def _measure(self) -> None:
        before_ns = time.monotonic_ns()
        while not self._over.wait(_NAP_S):
            now_ns = time.monotonic_ns()
            late_ns = now_ns - before_ns - round(_NAP_S * 1e9)
            self.longest_ns = max(self.longest_ns, late_ns)
            before_ns = now_ns
