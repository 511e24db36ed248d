"""The wish that a worker stop, and the failure that is its reason."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue

from qframe.errors import QFrameError, WorkerFailed
from qframe.events import Events


class StopRequest:
    """Asks a worker to stop, for its user, for a signal, or for a part of it that has failed.

    Any thread may make it, before the worker is there as well, and a signal handler.

    Args:
        events: told of a part that has failed.

    Attributes:
        is_made: whether somebody has made it.
        failure: the first failure of a part, if there was one.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        # A signal handler may interrupt whoever waits: no Event is safe there, a SimpleQueue is.
        self._words: SimpleQueue[None] = SimpleQueue()
        self.is_made: bool = False
        self.failure: QFrameError | None = None

    def make(self) -> None:
        """Asks for it."""
        self.is_made = True
        self._words.put(None)

    def fail(self, part: str, error: BaseException) -> None:
        """Asks for it since a part has failed."""
        if self.failure is None:
            if isinstance(error, WorkerFailed):
                self.failure = error
            else:
                self.failure = WorkerFailed(part, error)
                self.failure.__cause__ = error
            if self._events:
                self._events.emit("part.failed", part=part, error=error)
        self.make()

    def wait(self, timeout_s: float) -> bool:
        """Waits for it; returns whether it is made."""
        if not self.is_made:
            with suppress(Empty):
                self._words.get(timeout=timeout_s)
        return self.is_made
