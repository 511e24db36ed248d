"""A worker's report of a consumer: facts that stand in its memory alone."""

from __future__ import annotations

from typing import Final

import msgspec

from qframe.tags import AllOf, AnyOf, Tags

MOST_STACKS: Final = 32
"""How many handlers of a consumer a report shows at most."""


class HandlerStack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a handler is in its code at a moment.

    Attributes:
        id: the message that it handles, of a batch the first one.
        lines: the lines that run or wait, the innermost last, each such as
            `shop/handlers.py:31 in bill`; no values.
        others: how many more messages its batch has.
    """

    id: str
    lines: tuple[str, ...]
    others: int = 0


class ConsumerReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The word of a worker about its consumer of a group, so that others know why it waits.

    Attributes:
        max_attempts: after how many attempts a message is dead.
        tags: the tags that it wants; None where it wants every message.
        all_tags: whether a message must have all of these tags, not one of them.
        rate: its rate limit, such as "100/s"; None where there is none.
        limited: whether messages wait for the rate limit.
        failures: how many handlers in a row have failed, while its breaker is open.
        pause_ms: while its breaker is open, how long it pauses from when this was reported; 0 once
            the pause is over and a probe is wanted. None where it is closed.
        full: the slots in which so much is parked that their lines are not read.
        behind_s: for how long its worker has been behind with sweeping the topic, once that is more
            than a minute.
        started_ms: when its worker started, by the store's clock.
        stacks: where its handlers are in their code, up to `MOST_STACKS`; None unless somebody
            has asked for that.
    """

    max_attempts: int
    tags: tuple[str, ...] | None = None
    all_tags: bool = False
    rate: str | None = None
    limited: bool = False
    failures: int = 0
    pause_ms: int | None = None
    full: tuple[int, ...] = ()
    behind_s: int = 0
    started_ms: int | None = None
    stacks: tuple[HandlerStack, ...] | None = None

    @property
    def wanted(self) -> Tags | None:
        """The tags that it wants, as `@consumer` takes them."""
        if self.tags is None:
            return None
        return AllOf(*self.tags) if self.all_tags else AnyOf(self.tags)

    def to_json(self) -> str:
        """As a store keeps it."""
        return msgspec.json.encode(self).decode()


def report_of(text: str) -> ConsumerReport | None:
    """The report of a text that a store keeps; None where it is another version's."""
    try:
        return msgspec.json.decode(text, type=ConsumerReport)
    except (ValueError, RecursionError):
        return None
