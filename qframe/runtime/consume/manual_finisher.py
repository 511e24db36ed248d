"""How attempts end as their users say, from any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from qframe.errors import NotSupported
from qframe.message import Delivery, Message
from qframe.options.consumer import ConsumerOptions
from qframe.runtime.consume.in_hand import AttemptsInHand
from qframe.runtime.context import ConsumerContext
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.failure_handler import FailureHandler
from qframe.runtime.handler.retry_policy import signal_in
from qframe.runtime.policies.base import EffectPolicy, Sorting

RETURN: Final = "return from the handler to commit, or raise"


class ManualFinisher:
    """Ends attempts as their users say, or when they forget them; any thread may call it.

    Args:
        context: the consumer's.
        in_hand: the consumer's attempts.
        extend: renews a lease.
    """

    def __init__(
        self,
        context: ConsumerContext,
        in_hand: AttemptsInHand,
        extend: Callable[[Delivery, float], None],
    ) -> None:
        self._context = context
        self.topic, self.group = context.topic.name, context.group
        self._in_hand, self._acks = in_hand, in_hand.acks
        self._policy, self._flow = in_hand.policy, in_hand.flow
        self._failures = FailureHandler(context, in_hand.flow.failed)
        self._extend = extend
        self._transaction = transaction_of(in_hand.policy, context.options)

    def acknowledge(
        self, message: Message, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        """Ends an attempt's effect, in the caller's thread, and settles it.

        Raises:
            AlreadySettled: if it is settled already.
            NotSupported: if its transaction ends with its handler.
            Exception: what the commit raised; it counts as the handler's own error.
        """
        attempt = cast("Attempt", message)
        error = None if error is None else signal_in(error)
        if self._transaction is not None:
            raise NotSupported(f"message.ack() in {self._transaction} transaction", RETURN)
        self._acks.begin_ending(attempt)
        if not self._policy.blocks:
            self._settle(attempt, elapsed_s, error)
            return
        sorting, problem = Sorting(), None
        try:
            if error is not None:
                self._policy.release([attempt])
            elif self._policy.is_joint and not self._in_hand.is_mine(attempt):
                self._policy.refuse([attempt])
                sorting.gone.append(attempt)
            else:
                sorting = self._policy.end([attempt])
        except BaseException as raised:
            problem = raised
        problem = problem or next((each for _, each in sorting.failed), None)
        if sorting.waiting:  # while its handler still runs, its return sees to it
            if self._acks.owe(attempt):
                self._in_hand.wait(sorting.waiting)
        elif sorting.gone:
            if self._acks.lose(attempt):
                self._in_hand.free([attempt.delivery])
        elif problem is not None:
            self._policy.release([attempt])
            self._settle(attempt, elapsed_s, problem)
            raise problem
        else:
            self._settle(attempt, elapsed_s, error)

    def acknowledge_many(self, messages: list[Message]) -> list[Message]:
        """Acknowledges what is not settled yet, in one step; returns those it can only singly."""
        if self._policy.blocks:
            return messages
        ended, returned = self._acks.end_all(cast("list[Attempt]", messages))
        self._flow.succeeded(ended)
        self._in_hand.acknowledge(ended)
        self._in_hand.free(returned)
        return []

    def _settle(
        self, attempt: Attempt, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        if elapsed_s is not None:
            self._context.emit("delivery.acknowledged", elapsed_s=elapsed_s)
        has_returned = self._acks.close(attempt)
        if error is not None:
            self._in_hand.end(self._failures.disposition_of(attempt, error))
        else:
            self._flow.succeeded([attempt.delivery])
            self._in_hand.acknowledge([attempt.delivery])
        if has_returned:  # else its handler's return frees the lane
            self._in_hand.free([attempt.delivery])

    def extend(self, message: Message, seconds: float) -> None:
        """Renews one message's lease, now, to end in `seconds` or later."""
        self._extend(cast("Attempt", message).delivery, seconds)

    def leaked(self, delivery: Delivery) -> None:
        """Hands back an attempt that its user let go unsettled: at once, and it counts."""
        self._policy.forget(self._acks.effect_of(delivery))
        if self._acks.let_go(delivery):
            self._in_hand.end(self._failures.disposition_of_leaked(delivery))
            self._in_hand.free([delivery])


def transaction_of(policy: EffectPolicy, options: ConsumerOptions) -> str | None:
    """The transaction that ends with a handler; None where its user may end messages first."""
    if policy.is_joint and options.batch is not None:
        return "a batch's"
    return "an AsyncSession's" if policy.in_loop else None
