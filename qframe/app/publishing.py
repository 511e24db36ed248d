"""The methods of `QFrame` that publish; they need only a producer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Unpack

from qframe.outcomes import Published
from qframe.producing.outgoing import MessageOptions
from qframe.producing.producer import Producer
from qframe.topic import Body, Topic


class PublishMethods(ABC):
    """The part of an app that publishes."""

    @property
    @abstractmethod
    def producer(self) -> Producer:
        """The app's producer."""

    def publish(
        self, topic: Topic[Body] | str, body: Body, **options: Unpack[MessageOptions]
    ) -> Published:
        """Publishes one message.

        Args:
            topic: the topic, or the name of one that is declared.
            body: anything that JSON can hold, a dataclass, Struct or model of such, or bytes.
            options: any of these.

                - `key`: what must be handled serially and in order with it, such as an order id.
                - `headers`: a dict of texts that go with it; `tags`: texts by which consumers may
                  choose.
                - `id`: its id, 1 to 128 characters; the same one again within the topic's
                  `dedupe_window` is a duplicate. One is made up where there is none.
                - `delay`: due so much later: seconds, a text such as "10m", or a timedelta.
                - `at`: due then: a datetime with a time zone, or seconds since 1970.
                - `priority`: higher goes first; in `priority` and `ordered` topics.
                - `within`: in `merge` topics, the window: due so much later unless due already.
                - `sequence`: its number among its key's messages, from 1; in `ordered` topics.
                - `slot_basis`: what decides its slot instead of its key or body.

        Returns:
            Its id and the outcome: `stored`, `merged`, `replaced` or `duplicate`.

        Raises:
            BadInput: if anything about it is wrong; nothing was written.
            UnknownTopic: if the topic is a name that nobody has declared.
            TopicFull: if the topic is at its `max_length`.
            PublishUnknown: if the store's answer was lost; it is safe to publish it again under its
                id.
            StoreUnavailable: if the store cannot be reached; nothing was written.
            StoreFull: if the store has no room left; nothing was written.
        """
        return self.producer.publish(topic, body, **options)

    async def apublish(
        self, topic: Topic[Body] | str, body: Body, **options: Unpack[MessageOptions]
    ) -> Published:
        """Publishes one message from a coroutine; cancelled, it may be done all the same.

        Args:
            topic: the topic, or the name of one that is declared.
            body: anything that JSON can hold, a dataclass, Struct or model of such, or bytes.
            options: `key`, `headers`, `tags`, `id`, `delay`, `at`, `priority`, `within`,
                `sequence`, `slot_basis`, as for `publish`.

        Raises:
            QFrameError: as `publish`.
        """
        import asyncio  # not above: it is a fifth of `import qframe`, which is to be quick

        def publish() -> Published:
            return self.publish(topic, body, **options)

        return await asyncio.to_thread(publish)

    def publish_many(
        self, topic: Topic | str, items: Iterable[Any], batch: int | None = None
    ) -> list[Published]:
        """Publishes many messages, in order; nothing is written if one of them is wrong.

        Args:
            topic: the topic, or the name of one that is declared.
            items: bodies, or `Outgoing(body, key=…, …)`, whose options are those of `publish`.
            batch: how many go to the store in one call; by default the app's `publish_batch`.

        Raises:
            QFrameError: as `publish`. Earlier batches were written where the store cannot be
                reached or is full.
        """
        return self.producer.publish_many(topic, items, batch)
