"""Publishing what clients send: each message has an outcome of its own."""

from __future__ import annotations

from collections.abc import Sequence

from qframe.app.qframe import QFrame
from qframe.errors import BadInput, PublishUnknown, TopicFull
from qframe.outcomes import Published
from qframe.producing.outgoing import Outgoing


class Publishing:
    """Publishes by an app's producer; its methods block.

    Args:
        app: the app.
    """

    def __init__(self, app: QFrame) -> None:
        self._app = app

    def publish(self, topic: str, items: Sequence[Outgoing]) -> list[Published]:
        """As `Gateway.publish`."""
        try:
            return self._app.publish_many(topic, items)
        except TopicFull as full:
            return list(full.outcomes)

    def publish_each(
        self, topic: str, items: Sequence[Outgoing]
    ) -> list[Published | BadInput | PublishUnknown]:
        """As `Gateway.publish_each`."""
        found = self._app.parts.catalog().resolve(topic)
        refused: dict[int, BadInput] = {}
        try:
            return list(self._publish_or_doubt(topic, items))
        except BadInput:
            for place, item in enumerate(items):
                try:
                    self._app.producer.check(found, [item])
                except BadInput as error:
                    refused[place] = error
        right = [item for place, item in enumerate(items) if place not in refused]
        published = iter(self._publish_or_doubt(topic, right))
        return [refused.get(place) or next(published) for place in range(len(items))]

    def _publish_or_doubt(
        self, topic: str, items: Sequence[Outgoing]
    ) -> Sequence[Published | PublishUnknown]:
        try:
            return self.publish(topic, items)
        except PublishUnknown as unknown:
            return [PublishUnknown(topic, [each], unknown.__cause__) for each in unknown.ids]
