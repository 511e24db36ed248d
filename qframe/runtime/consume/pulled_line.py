"""A line without handlers: its messages go to a loop of the user's own."""

from __future__ import annotations

from collections.abc import Callable

from qframe.message import Delivery, Message
from qframe.runtime.consume.line import Line
from qframe.runtime.executors.tray import Tray


class PulledLine(Line):
    """Hands messages to whoever asks, each as one taken over with `auto_ack = False`.

    A rate that was set for its group counts what is handed out; while that is paused nothing is.

    So its lane is busy until it is settled, its lease is kept as long as somebody holds it, and one
    that is let go unsettled is handed back at once.
    """

    pool: Tray

    def _make_pool(self, on_failure: Callable[[str, BaseException], None]) -> Tray:
        del on_failure  # nothing runs there that could fail
        return Tray(self._clock)

    def take(self, timeout_s: float | None) -> Message | None:
        """The next message; None if none has come in time, or the line has ended.

        Args:
            timeout_s: how long to wait, in seconds; None for as long as it takes.
        """
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        while (taking := self.pool.take(until_s, self._begins_in_s)) is not None:
            message = taking.message
            try:
                if self._may_begin(message):
                    self._returned(message)
                    if not message.settled:
                        return message
            finally:
                self.pool.landed(taking)
        return None

    def _begins_in_s(self, delivery: Delivery) -> float:
        gate = self.flow.gate
        return 0.0 if gate is None else gate(delivery)

    def abandon(self) -> None:
        """Gives back, uncounted, what its user holds; whoever lets it go then forgets nothing."""
        super().abandon()
        self._custody.clear()
