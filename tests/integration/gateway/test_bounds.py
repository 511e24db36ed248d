"""How many groups a gateway serves, and what it tells of those that cannot be served."""

from __future__ import annotations

import asyncio

import pytest

from qframe import BadOption, BadTopic, Outgoing, PublishUnknown, QFrame, Topic, UnknownTopic
from qframe.web.gateway import Gateway, Settle
from qframe.web.gateway import gateway as module
from qframe.web.gateway.gateway import GatewayFull

pytestmark = pytest.mark.gate


def test_a_group_that_is_being_left_still_has_its_place(
    events_app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 1)

    async def test() -> None:
        async with Gateway(events_app) as gateway:
            await gateway.publish("stream", [Outgoing(1)])
            [held] = await gateway.pull("stream", "group", wait_s=20)
            with pytest.raises(GatewayFull):
                await gateway.pull("stream", "other")
            gateway.set_options("stream", "group", max_attempts=3)  # it is left, once settled
            with pytest.raises(GatewayFull):
                await gateway.pull("stream", "other")
            assert gateway.open_in("stream", "group") == 1
            await gateway.settle("stream", "group", [Settle(held.receipt)])
            while gateway.groups():
                await asyncio.sleep(0)
            assert len(await gateway.pull("stream", "other")) == 1

    asyncio.run(asyncio.wait_for(test(), 60))


def test_what_a_client_has_asked_for_wrongly_is_no_failure_of_the_gateway(
    events_app: QFrame,
) -> None:
    failed: list[str] = []
    events_app.events.listen(lambda name, _: failed.append(name) if name == "part.failed" else None)

    async def test() -> None:
        async with Gateway(events_app) as gateway:
            for topic, group, error in [
                ("nothing", "group", UnknownTopic), ("a b", "group", BadTopic),
                ("stream", "a b", BadOption),
            ]:  # fmt: skip
                with pytest.raises(error):
                    await gateway.pull(topic, group, wait_s=20)
            assert gateway.groups() == []

    asyncio.run(asyncio.wait_for(test(), 60))
    assert failed == []


def test_each_message_of_which_nobody_knows_has_an_error_of_its_own(
    events_app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish_many(topic: Topic | str, items: list[Outgoing]) -> None:
        raise PublishUnknown("stream", [str(item.id) for item in items])

    monkeypatch.setattr(events_app, "publish_many", publish_many)

    async def test() -> None:
        async with Gateway(events_app) as gateway:
            found = await gateway.publish_each("stream", [Outgoing(1, id="a"), Outgoing(2, id="b")])
            assert [getattr(one, "ids", None) for one in found] == [["a"], ["b"]]

    asyncio.run(asyncio.wait_for(test(), 60))
