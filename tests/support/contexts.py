"""The context of a consumer whose parts a test takes alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.events import Events
from qframe.options.consumer import ConsumerOptions, consumer_options
from qframe.runtime.context import ConsumerContext
from qframe.topic import Topic


def context_of(
    topic: Topic | str = "t",
    group: str = "g",
    *,
    events: Events | None = None,
    clock: Clock = SYSTEM_CLOCK,
    fail: Callable[[str, BaseException], None] = lambda _part, _error: None,
    options: ConsumerOptions | None = None,
    **given: Any,
) -> ConsumerContext:
    """The context of a group of a topic; nobody hears its events unless the test does.

    Its options are those that are given, alone or together.
    """
    return ConsumerContext(
        topic=Topic(topic) if isinstance(topic, str) else topic,
        group=group, events=events or Events(), clock=clock, fail=fail,
        options=consumer_options(**given) if options is None else options,
    )  # fmt: skip
