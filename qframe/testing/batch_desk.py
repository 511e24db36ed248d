"""What waits for a handler of batches, where one thread does everything."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from qframe.clock import Clock
from qframe.message import Delivery, Message
from qframe.runtime.executors.batch_pool import BatchPool, BatchWork
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.order.batches import Batches
from qframe.testing.crashes import Life

MAX_PAUSES: Final = 16


class BatchDesk(BatchPool):
    """Gathers what a line is offered, and calls its handler when it is told to.

    A batch waits for no time: it is handed out when it is full, or nothing more is due now. Pauses
    are as at a `Desk`.

    Args:
        name: as of a pool.
        clock: as of a pool.
        work: the line.
        batches: the line's.
        time_limit: the line's; nothing is timed here.
        life: the worker's, which hears of what comes.
    """

    def __init__(
        self,
        *,
        name: str,
        clock: Clock,
        work: BatchWork,
        batches: Batches,
        time_limit: TimeLimit,
        life: Life,
    ) -> None:
        super().__init__(
            name=name, threads=1, batches=batches, time_limit=time_limit, clock=clock, work=work,
            on_failure=_raise,
        )  # fmt: skip
        self._life = life
        self._patience: Counter[Delivery] = Counter()

    def start(self) -> None:
        """Has no threads."""

    def stop(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - has no threads
        """Has no threads."""
        return True

    def resize(self, size: int | None) -> None:
        """Has no threads."""

    def dispatch(self, messages: list[Message]) -> None:
        """Gathers messages, from any thread."""
        super().dispatch(messages)
        self._life.stir()

    def pause(self, message: Message, seconds: float) -> None:  # noqa: ARG002 - costs no time
        """Gathers a message again, or lays it aside."""
        self._patience[message.delivery] += 1
        is_patient = self._patience[message.delivery] <= MAX_PAUSES
        super().pause(message, 0 if is_patient else math.inf)
        self.batches.resume()
        self._life.stir()

    def resume(self) -> None:
        """Time has passed: what lies aside is tried again."""
        self._patience.clear()
        self.batches.resume(math.inf)

    def work_off_one(self) -> bool:
        """Handles the next full batch; false if there is none."""
        return self._work_off(full_only=True)

    def hand_out(self) -> bool:
        """Handles what was gathered; false if there is nothing."""
        return self._work_off(full_only=False)

    def _work_off(self, *, full_only: bool) -> bool:
        [hand] = self.hands
        if not self.batches.take_now(hand, full_only=full_only):
            return False
        self._work.handle_batch(hand)
        return True


def _raise(part: str, error: BaseException) -> None:
    del part
    raise error
