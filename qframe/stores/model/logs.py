"""Reading a stream's log by offsets; no group is involved."""

from __future__ import annotations

from qframe.message import Delivery
from qframe.stores.model.state import TopicState


def read_log(state: TopicState, number: int, first: int, limit: int) -> list[Delivery]:
    """A slot's messages from an offset on, in order, at most `limit`."""
    wanted = [each for each in sorted(state.slots[number].log.items()) if each[0] >= first]
    return [
        Delivery(
            one.id, one.key, one.headers, one.body, one.published_at_ms, number, None, offset
        )
        for offset, one in wanted[:limit]
    ]  # fmt: skip
