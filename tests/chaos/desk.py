"""What handlers do with messages, however they are called: take time, fail, and tell of it.

Handlers take their time by the message's id, so that each takes as long in whatever worker.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from zlib import crc32

import msgspec
from history import CANCELLED, ENDED, FAILED, STARTED, History

from qframe import Message, NeedRetry

SLOW_ONE = 5
STUMBLING_ONE = 3
EARLY_ONE = 2
PLAIN, ASYNC, BATCH, ASYNC_BATCH, PULL = "plain", "async", "batch", "async batch", "pull"
OF_BATCHES = (BATCH, ASYNC_BATCH)
WANTED = "wanted"


class Ways(msgspec.Struct, kw_only=True):
    """How a worker's handler is called, and what it does.

    Attributes:
        slow_s: how long one message of sixteen takes.
        rare: one message of so many takes `rare_s`: if it began before a fault, it is still in
            hand when its slot is another's.
        rare_s: how long that is.
        manner: how handlers are called: one of the words above.
        stumble: one message of so many fails when it is handled first; 0 for none.
        is_tagged: whether only messages with the tag WANTED are handled.
        rate: how often handlers of the whole group may begin, if there is a limit.
        keeps_order: whether the group keeps order, where the topic is a stream.
        business: the database that effects are written to, under a TransactionalChecker, if any.
    """

    slow_s: float
    rare: int
    rare_s: float = 1.5
    manner: str = PLAIN
    stumble: int = 0
    is_tagged: bool = False
    rate: str = ""
    keeps_order: bool = False
    business: str = ""


class Stumble(Exception):
    """Raised when a message fails because it was chosen to."""


class Call:
    """One call of a handler: its messages, as far as they are in hand still."""

    def __init__(self, number: int, messages: Sequence[Message], facts: History) -> None:
        self.number = number
        self._messages = list(messages)
        self._facts = facts

    def begin(self, at_ns: int) -> None:
        """The handler has them, all from the same moment on, in their order."""
        for later_ns, message in enumerate(self._messages):
            self._facts.note_of(STARTED, message, self.number, at_ns + later_ns)

    def end(self, what: str, *its: Message) -> None:
        """These are not in hand any more; all that still are, if none is named."""
        for message in its or tuple(self._messages):
            if message.cancelled:
                self._facts.note_of(CANCELLED, message, self.number)
            self._facts.note_of(what, message, self.number)
            self._messages.remove(message)


class Desk:
    """What handlers do with messages.

    Args:
        ways: what they do.
        facts: the history.
        keeps_order_when_delayed: whether a delayed retry costs no key its order.
        began_ns: when the call that begins now has begun.
    """

    def __init__(
        self,
        ways: Ways,
        facts: History,
        *,
        keeps_order_when_delayed: bool,
        began_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.ways = ways
        self._began_ns = began_ns
        self._facts = facts
        self._keeps_order = keeps_order_when_delayed
        self._calls = itertools.count(1)

    @contextmanager
    def in_hand(self, messages: Sequence[Message]) -> Iterator[Call]:
        """What happens in this block happens with these messages in hand."""
        began_ns = self._began_ns()
        call = Call(next(self._calls), messages, self._facts)
        call.begin(began_ns)
        try:
            yield call
        except BaseException:
            call.end(FAILED)
            raise
        call.end(ENDED)

    def takes_s(self, message: Message) -> float:
        """How long a message takes."""
        chosen = crc32(message.id.encode())
        if chosen % self.ways.rare == 0:
            return self.ways.rare_s
        return self.ways.slow_s if chosen % 16 == SLOW_ONE else 0.0

    def is_early(self, message: Message) -> bool:
        """Whether a handler of batches acknowledges a message itself, before it returns."""
        return crc32(message.id.encode()) % 8 == EARLY_ONE

    def stumble(self, message: Message, among: int = 1) -> None:
        """Raises what a message that stumbles fails with, in a call with so many messages.

        On a stream a delayed retry would give up the key's order, as it may. There a message fails
        in a batch, and not alone; where it is alone, it is tried again in place.
        """
        stumbles = self.ways.stumble and (
            crc32(message.id.encode()) % self.ways.stumble == STUMBLING_ONE
        )
        if not stumbles or message.attempt > 1 or message.local_retries:
            return
        if self._keeps_order or among > 1:
            raise Stumble(message.id)
        if self.ways.manner not in (BATCH, ASYNC_BATCH, PULL):
            raise NeedRetry
