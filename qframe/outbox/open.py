"""The door to relays: it loads them, and SQLAlchemy with them, for an app that has an outbox."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from qframe.errors import BadOption

if TYPE_CHECKING:
    from qframe.clock import Clock
    from qframe.events import Events
    from qframe.outbox.binding import BindingStore, OutboxBinding
    from qframe.outbox.inspector import InspectingStore, OutboxInspector
    from qframe.outbox.outbox import Outbox
    from qframe.outbox.relay import Relay

    TopicNames = Callable[[], list[str]]


def relay_class() -> type[Relay]:
    """`Relay`."""
    from qframe.outbox.relay import Relay

    return Relay


def binding_of(
    outbox: Outbox, store: BindingStore, *, events: Events, clock: Clock
) -> OutboxBinding:
    """An `OutboxBinding`."""
    from qframe.outbox.binding import OutboxBinding

    return OutboxBinding(outbox, store, events=events, clock=clock)


def inspector_of(outbox: Outbox, store: InspectingStore) -> OutboxInspector:
    """An `OutboxInspector`."""
    from qframe.outbox.inspector import OutboxInspector

    return OutboxInspector(outbox, store)


def unrelayed(
    functions: Iterable[Callable[..., Any]], relayed: Collection[Outbox], topics: TopicNames
) -> list[str]:
    """The outboxes beside handlers, such as `shop.orders:outbox`, that no relay has ever served.

    Args:
        functions: the handlers; an outbox is one of the names that their modules have.
        relayed: the outboxes that the apps of this process relay.
        topics: the names of the store's topics, of which each relayed outbox has one.
    """
    if "qframe.outbox.outbox" not in sys.modules:
        return []
    from qframe.outbox.outbox import Outbox
    from qframe.outbox.rows import slots_stem

    modules = [getattr(unwrap(each), "__globals__", {}) for each in functions]
    found = {
        f"{names.get('__name__')}:{name}": value
        for names in modules
        for name, value in names.items()
        if isinstance(value, Outbox) and value not in relayed
    }
    known = topics() if found else []
    return [
        place
        for place, outbox in found.items()
        if not any(topic.startswith(slots_stem(outbox.prefix)) for topic in known)
    ]


def check_relayed(outbox: object, others: Iterable[Outbox]) -> None:
    """Refuses what no relay can serve, or another serves already.

    Raises:
        BadOption: then.
    """
    from sqlalchemy.pool import SingletonThreadPool

    from qframe.outbox.outbox import Outbox

    if not isinstance(outbox, Outbox):
        raise BadOption("outbox", outbox, "it is not an Outbox", "use Outbox(engine)")
    if outbox.engine.dialect.is_async:
        raise BadOption(
            "outbox", outbox.engine.driver, "a relay cannot use an async driver",
            "give the relay an Outbox of its own, on create_engine(url)",
        )  # fmt: skip
    if isinstance(outbox.engine.pool, SingletonThreadPool):
        raise BadOption(
            "outbox", str(outbox.engine.url), "each thread would have its own empty database",
            "use a file, or create_engine(…, poolclass=StaticPool)",
        )  # fmt: skip
    if outbox in others:
        raise BadOption(
            "outbox", outbox.prefix, "it has a relay already", "call app.relay once per outbox"
        )
