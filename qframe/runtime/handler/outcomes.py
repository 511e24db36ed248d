"""How deliveries of one consumer end whose handlers have raised, and who is told of it."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any, Final

from qframe.errors import Forgotten, NotSupported
from qframe.events import Events
from qframe.message import Delivery, Message
from qframe.options.consumer import ConsumerOptions
from qframe.outcomes import Verdict
from qframe.retry import Backoff, NeedRetry
from qframe.runtime.handler.retry_policy import Ending, ending_of

NO_RETRY: Final = "raise another exception, or leave out at_most_once= to allow retries"


class Endings:
    """Turns a message and its error into its ending, and tells of it.

    Args:
        topic: the topic's name.
        group: the group.
        options: the consumer's.
        events: told of each ending.
        on_failed: called with a delivery and how its handling has failed, before it ends.
    """

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        options: ConsumerOptions,
        events: Events,
        on_failed: Callable[[Delivery, BaseException], None],
    ) -> None:
        self._topic = topic
        self._group = group
        self._options = options
        self._events = events
        self._on_failed = on_failed

    def of(self, message: Message, error: BaseException) -> Ending:
        """The retry or the death of a message; of its death `on_dead` is told."""
        self._on_failed(message.delivery, error)
        options = self._options
        ending = ending_of(
            message.delivery, error, max_attempts=options.max_attempts, backoff=options.backoff
        )
        is_dead = ending.verdict is Verdict.DEAD
        self.tell("delivery.dead" if is_dead else "delivery.retried", message, error)
        if is_dead:
            self._mourn(message, error)
        return ending

    def of_settled(self, message: Message, error: BaseException) -> None:
        """The failure of a message that was settled before: nobody tries it again."""
        if isinstance(error, NeedRetry):
            problem = NotSupported("NeedRetry of a consumer with at_most_once=True", NO_RETRY)
            problem.__cause__ = error
            error = problem
        self.tell("delivery.failed", message, error, settled=True)
        if isinstance(error, Exception | SystemExit | CancelledError):
            self._mourn(message, error)

    def of_forgotten(self, delivery: Delivery) -> Ending:
        """The end of a delivery that was let go unsettled: back at once, and it counts."""
        why = Forgotten(delivery.id)
        self.tell("delivery.leaked", delivery, why)
        return ending_of(delivery, why, max_attempts=self._options.max_attempts, backoff=Backoff(0))

    def _mourn(self, message: Message, error: BaseException) -> None:
        """Tells the user's `on_dead`."""
        if self._options.on_dead is not None:
            try:
                self._options.on_dead(message, error)
            except BaseException as problem:  # the message dies whatever its mourners do
                self.tell("on_dead.failed", message, problem)

    def tell(
        self, name: str, message: Message | Delivery, error: BaseException, **facts: Any
    ) -> None:
        """Tells of what a message's error has led to."""
        if self._events:
            self._events.emit(
                name, topic=self._topic, group=self._group, id=message.id, key=message.key,
                attempt=message.attempt, error=error, **facts,
            )  # fmt: skip
