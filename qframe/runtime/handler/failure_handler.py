"""Failed handlers: how their deliveries end, and the events and `on_dead` calls that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from qframe.errors import Forgotten, NotSupported, WorkerLost
from qframe.hooks import check_result
from qframe.message import Delivery, Message
from qframe.outcomes import Verdict
from qframe.retry import Backoff, NeedRetry
from qframe.runtime.context import ConsumerContext
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.middleware import WorkerEnd
from qframe.runtime.handler.retry_policy import Disposition, disposition_of

NO_RETRY: Final = "raise another exception, or leave out at_most_once= to allow retries"


class FailureHandler:
    """Turns a message and its error into a disposition, and emits the events.

    Args:
        context: the consumer's.
        on_failed: called with a delivery and how its handling has failed, before it ends.
    """

    def __init__(
        self, context: ConsumerContext, on_failed: Callable[[Delivery, BaseException], None]
    ) -> None:
        self._context = context
        self._options = context.options
        self._on_failed = on_failed

    def disposition_of(self, message: Attempt, error: BaseException) -> Disposition:
        """The retry or the death of a message; `on_dead` is called for its death."""
        if not isinstance(error, WorkerLost):
            self._on_failed(message.delivery, error)
        options = self._options
        disposition = disposition_of(
            message.delivery, error, max_attempts=options.max_attempts, backoff=options.backoff
        )
        is_dead = disposition.verdict is Verdict.DEAD
        self.emit("delivery.dead" if is_dead else "delivery.retried", message, error)
        if is_dead:
            self._notify_dead(message, error)
        return disposition

    def report_settled(self, message: Message, error: BaseException) -> None:
        """Reports the failure of a message that was settled before: nobody tries it again."""
        if isinstance(error, NeedRetry):
            problem = NotSupported("NeedRetry of a consumer with at_most_once=True", NO_RETRY)
            problem.__cause__ = error
            error = problem
        self.emit("delivery.failed", message, error, settled=True)
        if not isinstance(error, WorkerEnd):
            self._notify_dead(message, error)

    def disposition_of_leaked(self, delivery: Delivery) -> Disposition:
        """The end of a delivery that was let go unsettled: back at once, and it counts.

        Its message is gone: where its last attempt was that, `on_dead` is called with its next one.
        """
        why = Forgotten(delivery.id)
        self.emit("delivery.leaked", delivery, why)
        most = self._options.deliveries_at_most
        return disposition_of(delivery, why, max_attempts=most, backoff=Backoff(0))

    def _notify_dead(self, message: Message, error: BaseException) -> None:
        """Calls the user's `on_dead`."""
        if self._options.on_dead is not None:
            try:
                check_result(self._options.on_dead(message, error))
            except BaseException as problem:  # a failing on_dead must not keep the message alive
                self.emit("on_dead.failed", message, problem)

    def emit(
        self, name: str, message: Message | Delivery, error: BaseException, **facts: Any
    ) -> None:
        """Emits an event about a message and its error."""
        self._context.emit(
            name, id=message.id, key=message.key, attempt=message.attempt, error=error, **facts
        )
