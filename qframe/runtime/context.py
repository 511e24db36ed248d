"""The consumer that a part of the runtime works for, and how the part reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from qframe.clock import Clock
from qframe.errors import StoreUnavailable
from qframe.events import Events
from qframe.options.consumer import ConsumerOptions
from qframe.topic import Topic


class ConsumerContext(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The facts that every part of one consumer shares.

    It has no store: a part asks for the role of the store that it uses.

    Attributes:
        topic: the topic, as declared; `Slots.topic` says how far it has grown since.
        group: the group.
        events: hears what happens.
        clock: the clock.
        fail: called with a part's name and the error that ended it.
        options: its options; those of a relay or a leader, which have no handler, are the defaults.
        worker: the worker's id, which a history tells.
    """

    topic: Topic
    group: str
    events: Events
    clock: Clock
    fail: Callable[[str, BaseException], None]
    options: ConsumerOptions = ConsumerOptions()
    worker: str = ""

    def emit(self, name: str, /, **facts: Any) -> None:
        """Emits an event of this consumer; one that nobody hears costs one `if`."""
        if self.events:
            self.events.emit(name, topic=self.topic.name, group=self.group, **facts)

    def unavailable(self, part: str, error: StoreUnavailable) -> None:
        """Reports that a part could not reach the store."""
        if self.events:
            self.events.emit("store.unavailable", part=part, error=str(error))

    def name_of(self, part: str) -> str:
        """The name of a part, and of its thread."""
        return f"qframe.{part}.{self.topic.name}.{self.group}"
