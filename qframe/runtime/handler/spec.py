"""A consumer as an app has registered it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from qframe.errors import BadOption, ConsumerExists
from qframe.hooks import Middleware, is_async
from qframe.message import Delivery
from qframe.options.consumer import ConsumerOptions, checked_threads
from qframe.outcomes import Settled
from qframe.runtime.demand import Demand
from qframe.runtime.handler.binding import BatchHandler, Handler, module_run_twice, name_of
from qframe.topic import Topic, broadcast_group, legal_name

OnSettled = Callable[[Sequence[Delivery], Sequence[Settled]], None]

_HOOKS: Final = ("before", "after", "on_failure")


def check_hooks(function: Callable[..., Any], middleware: Iterable[Middleware]) -> None:
    """Checks that nobody would have to await the hooks of a plain handler.

    Raises:
        BadOption: if so.
    """
    for each in middleware:
        for hook in _HOOKS:
            if is_async(getattr(each, hook)):
                raise BadOption(
                    "middleware", each, f"its `{hook}` is async, and {name_of(function)} is not",
                    f"make `{hook}` a plain function, or give it to async consumers alone",
                )  # fmt: skip


class ConsumerSpec(msgspec.Struct, frozen=True):
    """A registered handler: its topic (or its name), its group, its options.

    `is_pulled` says that it has none: its messages are for a loop of the user's own. One that is
    not `is_served` collects, and other workers handle what it collects. `on_settled` is called with
    deliveries and what the store has said of their settlements, from the thread that sends them.
    With a `demand` no more is pulled than that asks for.
    """

    topic: Topic | str
    group: str
    function: Callable[..., Any]
    handler: Handler | BatchHandler
    options: ConsumerOptions
    is_pulled: bool = False
    is_served: bool = True
    on_settled: OnSettled | None = None
    demand: Demand | None = None

    def __post_init__(self) -> None:
        if self.options.batch is not None:
            checked_threads(self.options.threads, of="a handler of batches")
        elif not self.is_async:
            checked_threads(self.options.threads)
        if not self.is_async:
            check_hooks(self.function, self.options.middleware)

    @property
    def is_async(self) -> bool:
        """Whether its handler runs in the worker's event loop."""
        return is_async(self.function)

    @property
    def is_handled_elsewhere(self) -> bool:
        """Whether clients in other processes handle its messages, so that none can end a worker."""
        return self.on_settled is not None

    @property
    def topic_name(self) -> str:
        """The name of its topic."""
        return self.topic.name if isinstance(self.topic, Topic) else self.topic

    def refused_beside(self, other: ConsumerSpec) -> ConsumerExists:
        """The error of a consumer that is registered after another one of its topic and group."""
        why = f"{name_of(other.function)} is registered for it already"
        remedy = (
            "use another group, and both see every message; in a notebook, make the QFrame anew"
        )
        if module := module_run_twice(self.function, other.function):
            why = f"its file runs twice, as __main__ and as {module}, which is imported too"
            remedy = f"run qframe worker {module}, or call run() in a module that nobody imports"
        return ConsumerExists(self.topic_name, self.group, why, remedy)

    def group_of(self, instance: str) -> str:
        """The group under which the store knows it in a worker of this instance."""
        if not self.options.broadcast:
            return self.group
        return broadcast_group(self.group, instance or legal_name(socket.gethostname()))
