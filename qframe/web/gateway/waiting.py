"""Calls of clients that wait: for messages, and for what the store says of settlements."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from qframe.web.gateway.deliveries import Client, OpenDelivery, SettleReply


class WaitingPull(NamedTuple):
    """A pull that waits for messages."""

    most: int
    lease_s: float
    most_bytes: int
    client: Client | None
    found: asyncio.Future[list[OpenDelivery]]


class SettleCall:
    """The deliveries of one settle call that the store has not answered yet."""

    def __init__(self, replies: list[SettleReply], done: asyncio.Event) -> None:
        self.replies = replies
        self.done = done
        self.left = 0
