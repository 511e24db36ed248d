"""A client of SQS that hangs up while its answer is made holds nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qframe import QFrame
from qframe.clock import SYSTEM_CLOCK
from qframe.web.gateway import Gateway, Settle
from qframe.web.gateway.callers import Caller, Callers
from qframe.web.gateway.deliveries import SettleReply
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.sqs import SqsFront
from qframe.web.gateway.sqs.message_verbs import MessageVerbs
from qframe.web.gateway.sqs.queue_verbs import QueueVerbs
from qframe.web.gateway.sqs.queues import GROUP
from qframe.web.gateway.sqs.requests import CreateQueue, ReceiveMessage, SendMessage
from qframe.web.gateway.sqs.service import SqsCall

pytestmark = pytest.mark.gate


class SlowStoreGateway(Gateway):
    """A gateway whose store does not answer settlements."""

    def __init__(self, app: QFrame) -> None:
        super().__init__(app)
        self.is_asked = asyncio.Event()

    async def settle(self, topic: str, group: str, wanted: Sequence[Settle]) -> list[SettleReply]:
        self.is_asked.set()
        await asyncio.Event().wait()
        return await super().settle(topic, group, wanted)


class Connection:
    """The request of a client that hangs up as soon as something is settled for it."""

    def __init__(self, gateway: SlowStoreGateway) -> None:
        self._gateway = gateway

    async def receive(self) -> dict[str, str]:
        await self._gateway.is_asked.wait()
        return {"type": "http.disconnect"}


def test_what_it_was_about_to_receive_is_put_back(tmp_path: Path) -> None:
    async def test(app: QFrame) -> None:
        async with asyncio.timeout(60), SlowStoreGateway(app) as gateway:
            callers = Callers(None, clock=SYSTEM_CLOCK, events=app.events)
            service = SqsFront(gateway, callers, Forwarder(gateway.receipts)).service
            messages, caller = MessageVerbs(service), Caller("one", None, SYSTEM_CLOCK)
            connection: Any = Connection(gateway)
            call = SqsCall(base="http://x", caller=caller, token="", request=connection)
            made = await QueueVerbs(service).create(CreateQueue(queue_name="q"), call)
            url = made["QueueUrl"]
            await messages.send(SendMessage(queue_url=url, message_body="x"), call)
            at_once = ReceiveMessage(queue_url=url, visibility_timeout=0, wait_time_seconds=20)
            assert await messages.receive(at_once, call) == {}
            assert (gateway.open_in("q", GROUP), caller.client.open) == (0, 0)
            [one] = await gateway.pull("q", GROUP, wait_s=20)
            assert one.message.attempt == 1

    with QFrame(f"sqlite:///{tmp_path}/q.db") as app:
        asyncio.run(test(app))
