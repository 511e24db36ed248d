"""What tests of batchers watch them with."""

from __future__ import annotations

import threading
from typing import Any


class Seen:
    """A `process` that notes each batch, and an `on_error` that notes what failed.

    While it is shut, batches wait inside `process` until `open` is called; `entered` counts them.
    """

    def __init__(self, *, shut: bool = False) -> None:
        self.batches: list[list[Any]] = []
        self.failed: list[tuple[list[Any], BaseException]] = []
        self.entered = 0
        self._gate = threading.Event()
        self._guard = threading.Lock()
        if not shut:
            self._gate.set()

    def process(self, items: list[Any]) -> None:
        with self._guard:
            self.entered += 1
        assert self._gate.wait(60)
        with self._guard:
            self.batches.append(items)

    def on_error(self, items: list[Any], error: BaseException) -> None:
        with self._guard:
            self.failed.append((items, error))

    def open(self) -> None:
        self._gate.set()

    @property
    def items(self) -> list[Any]:
        with self._guard:
            return [item for batch in self.batches for item in batch]


def threads_of(name: str) -> list[threading.Thread]:
    """The threads of the batcher of a name that are alive."""
    return [each for each in threading.enumerate() if each.name == f"qframe.batch.{name}"]
