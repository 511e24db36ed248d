"""The default app: what `qframe.consumer` and `qframe.publish` mean without a `QFrame`.

It is wired by `qframe.toml` and `QFRAME_*`; its store is `sqlite:///qframe.db` if nothing is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from qframe.app.pull import Pull, PullKeywords
from qframe.app.qframe import Function, Given, QFrame
from qframe.app.registry import REGISTRY
from qframe.options.consumer import ConsumerKeywords
from qframe.outcomes import Published
from qframe.producing.outgoing import MessageOptions
from qframe.topic import Body, Topic


def default_app() -> QFrame:
    """The default app; made when it is first asked for."""
    app: QFrame = REGISTRY.default(QFrame)
    return app


def consumer(
    topic: Topic | str, group: str, **options: Unpack[ConsumerKeywords]
) -> Callable[[Function], Function]:
    """Registers the decorated function with the default app: see `QFrame.consumer`."""
    return default_app().consumer(topic, group, **options)


def middleware(given: Given) -> Given:
    """Calls a `Middleware` around the default app's handlers: see `QFrame.middleware`."""
    return default_app().middleware(given)


def pull(topic: Topic | str, group: str, **options: Unpack[PullKeywords]) -> Pull:
    """Messages for a loop of your own, through the default app: see `Pull`."""
    return default_app().pull(topic, group, **options)


def publish(topic: Topic[Body] | str, body: Body, **options: Unpack[MessageOptions]) -> Published:
    """Publishes one message through the default app: see `QFrame.publish`."""
    return default_app().publish(topic, body, **options)


def publish_many(
    topic: Topic | str, items: Iterable[Any], batch: int | None = None
) -> list[Published]:
    """Publishes many messages through the default app: see `Producer.publish_many`."""
    return default_app().publish_many(topic, items, batch)


async def apublish(
    topic: Topic[Body] | str, body: Body, **options: Unpack[MessageOptions]
) -> Published:
    """Publishes from a coroutine through the default app: see `QFrame.apublish`."""
    return await default_app().apublish(topic, body, **options)
