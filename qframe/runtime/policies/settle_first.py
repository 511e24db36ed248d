"""Effects at most once: the store is told before the handler is called."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice
from typing import Final

from qframe.message import Delivery
from qframe.outcomes import Settled
from qframe.runtime.context import ConsumerContext
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.policies.base import EffectPolicy, Sorting
from qframe.tags import Matches

AGAIN_S: Final = 0.25


class SettleRequest:
    """One thread's share of a combined settle call, and its results."""

    __slots__ = ("deliveries", "results")

    def __init__(self, deliveries: list[Delivery]) -> None:
        self.deliveries: list[Delivery] = deliveries
        self.results: list[Settled] = []


class SettleFirst(EffectPolicy):
    """Settles attempts in one call to the store; only what that has settled is handled.

    An attempt that the store refuses is not handled: another worker may do that. Nor is one that it
    refuses the second time, after its reply was lost. One whose server is away is asked for again.

    In a topic with subjects, attempts that are unwanted by their tags are settled in their turn, as
    all others are, and then not handled.

    A delivery that was settled stays in flight until its handler has ended, so that its slot is not
    given to another worker before.

    Args:
        context: the consumer's.
        settle_now: settles deliveries, in the caller's thread.
        matches: whether a message with these headers is wanted, where that is asked here.
    """

    blocks = settles_first = True
    in_loop = is_joint = False

    def __init__(
        self,
        context: ConsumerContext,
        *,
        settle_now: Callable[[list[Delivery]], list[Settled]],
        matches: Matches | None,
    ) -> None:
        self._context = context
        self._settle_now = settle_now
        self._matches = matches
        self.filters: bool = matches is not None  # what is behind it is refused where it is not
        self._requests: deque[SettleRequest] = deque()
        self._asking = threading.Lock()
        self.settled: set[Delivery] = set()
        self._unanswered: set[Delivery] = set()

    @property
    def asked(self) -> list[Delivery]:
        """The deliveries that were settled, or may be, since their server has not answered."""
        return [*self.settled.copy(), *self._unanswered.copy()]  # one goes from that to this

    def asks_for_a_token(self, attempt: Attempt) -> bool:
        """Whether an attempt has not begun yet, and is to be handled."""
        return attempt.delivery not in self.settled and self._wants(attempt)

    def has_handled(self, deliveries: Collection[Delivery]) -> None:
        """Hears that the handlers of what it has settled first have ended."""
        self.settled.difference_update(deliveries)

    def _wants(self, attempt: Attempt) -> bool:
        return self._matches is None or self._matches(attempt.delivery.headers)

    def prepare(self, run: list[Attempt]) -> Sorting:
        """Settles a run in one call."""
        return self.begin(run)

    def begin(self, unit: list[Attempt]) -> Sorting:
        """Settles what is not settled yet."""
        sorting = Sorting()
        fresh = [attempt for attempt in unit if attempt.delivery not in self.settled]
        sorting.go = [attempt for attempt in unit if attempt.delivery in self.settled]
        if fresh:
            deliveries = [attempt.delivery for attempt in fresh]
            self.settled.update(deliveries)  # first: renewal may find them gone from the store
            skipped = 0
            for attempt, result in zip(fresh, self._settle_together(deliveries), strict=True):
                skipped += self._sort(attempt, result, sorting)
            if skipped:
                self._context.emit("delivery.skipped", count=skipped)
        return sorting

    def _sort(self, attempt: Attempt, result: Settled, sorting: Sorting) -> bool:
        """Sorts one out; returns whether it was settled and is not wanted."""
        if result is Settled.AWAY and not attempt.cancelled:
            self._unanswered.add(attempt.delivery)  # first: a renewal is to find it in one of them
            self.settled.discard(attempt.delivery)
            wait_s = AGAIN_S * random.uniform(0.5, 1)  # noqa: S311 - jitter, no secret
            sorting.waiting.append((attempt, wait_s))
            return False
        self._unanswered.discard(attempt.delivery)
        if result is not Settled.SETTLED or attempt.cancelled:
            sorting.gone.append(attempt)  # refused; or given back or lost in the meantime
        elif self._wants(attempt):
            attempt.settle_first()
            sorting.go.append(attempt)
        else:
            sorting.gone.append(attempt)
            return True
        return False

    def end(self, unit: list[Attempt]) -> Sorting:
        """Ends all: the store was told."""
        return Sorting(ended=unit)

    def _settle_together(self, deliveries: list[Delivery]) -> list[Settled]:
        """Has deliveries settled; threads that come while one asks the store ask it together."""
        mine = SettleRequest(deliveries)
        self._requests.append(mine)
        with self._asking:
            if not mine.results:
                requests: list[SettleRequest] = []
                with suppress(IndexError):
                    while True:
                        requests.append(self._requests.popleft())
                results = iter(
                    self._settle_now([one for each in requests for one in each.deliveries])
                )
                for each in requests:
                    each.results = list(islice(results, len(each.deliveries)))
        return mine.results

    def let_go(self, unit: list[Attempt]) -> None:
        """Cannot take back what was settled; it is asked about no more."""
        self._unanswered.difference_update([attempt.delivery for attempt in unit])
