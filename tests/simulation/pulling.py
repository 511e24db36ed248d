"""Loops of the user's own in a worker: they take messages of a pull, and settle them by `ack`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from qframe.errors import AlreadySettled
from qframe.message import Message
from qframe.retry import NeedRetry, Reject
from qframe.runtime.consume.consumer import Consumer
from qframe.runtime.executors.pull_buffer import PullBuffer
from simulation.ledger import Call, Ledger

if TYPE_CHECKING:
    from simulation.worker import SimulatedWorker

LATER_S: Final = 0.3
ERRORS: Final[dict[str, Callable[[], BaseException]]] = {
    "fails": lambda: ValueError("as planned"),
    "later": lambda: NeedRetry(delay=1.0),
    "rejects": lambda: Reject("as planned"),
}


class PullLoops:
    """The loops of one consumer whose messages are pulled.

    Args:
        worker: whose it is.
        consumer: the consumer.
        group: its group.
        ledger: hears of each message.
    """

    def __init__(
        self, worker: SimulatedWorker, consumer: Consumer, group: str, ledger: Ledger
    ) -> None:
        self._worker = worker
        self._process = worker.process
        self._scheduler = worker.process.scheduler
        self._group = group
        self._ledger = ledger
        self._consumer = consumer
        self._draw = Random(f"{worker.plan.seed}/{worker.process.name}/{group}/puts back")
        self._buffer = buffer = cast("PullBuffer", consumer.executor)
        self._engine: Any = buffer._work
        buffer._work = self
        self._looked_at = 0

    def start(self, count: int) -> None:
        """Begins so many loops."""
        for _ in range(count):
            self._scheduler.spawn(self._process, self._loop, "loop")

    def close(self) -> None:
        """Ends them, as leaving the block of a pull does."""
        self._buffer.stop()

    # Between buffer and engine: notes at which turn it was asked whose a message is.

    def begins_in_s(self, delivery: Any) -> float:
        return float(self._engine.begins_in_s(delivery))

    def take_over(self, attempt: Any) -> bool:
        self._looked_at = self._scheduler.steps
        return bool(self._engine.take_over(attempt))

    # A loop.

    def _loop(self) -> None:
        while (message := self._buffer.take(None)) is not None:
            if self._draw.random() < self._worker.plan.puts_back:
                self._consumer.put_back([message])
                continue
            call = Call(self._worker, self._group, message, message)
            call.is_fresh = self._looked_at == self._scheduler.steps
            self._handle(call)
            del message, call  # what it forgets is noticed once nobody has it

    def _handle(self, call: Call) -> None:
        self._ledger.begins(call)
        act = self._ledger.next_act(self._group, call.message.id)
        how = "returns" if act is None else act.ends
        if act is not None and act.takes_s:
            self._scheduler.sleep(act.takes_s)
        if how == "forgets":
            self._ledger.ends(call, how)
        elif how == "acks later":
            self._ledger.ends(call, how)
            self._scheduler.spawn(self._process, lambda: self._settle_later(call), "user")
        else:
            self._settle(call, "later" if how == "again" else how)

    def _settle_later(self, call: Call) -> None:
        self._scheduler.sleep(LATER_S)
        self._settle(call, "acks")

    def _settle(self, call: Call, how: str) -> None:
        message: Message = call.message
        self._ledger.ends(call, how)
        error = ERRORS.get(how)
        try:
            message.ack(error=None if error is None else error())
        except AlreadySettled as problem:  # it was given back, or is another worker's
            self._ledger.refused(call)
            self._worker.tell(f"cannot settle {message.id}: {problem}")
