"""A group that clients pull from, without a store: what is handed out, settled and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.errors import StoreUnavailable
from qframe.outcomes import Settled
from qframe.retry import NeedRetry
from qframe.web.gateway import open_group
from qframe.web.gateway.deliveries import Client, OpenDelivery, Settle, SettleOutcome, Verb
from qframe.web.gateway.feed import Feed
from qframe.web.gateway.open_group import OpenGroup
from qframe.web.gateway.receipts import Receipts


class StoredDelivery:
    """What the store knows of a message."""

    def __init__(self, size: int) -> None:
        self.body = b"x" * size


class FakeMessage:
    """A message that notes how it was settled."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.delivery = StoredDelivery(size)
        self.cancelled = False
        self.acks: list[BaseException | None] = []

    def ack(self, error: BaseException | None = None) -> None:
        self.acks.append(error)


class FakeFeed:
    """A feed that notes what it is asked for; messages arrive when the test says so."""

    def __init__(
        self, _name: str, _pull: object, _demand: object, *, on_arrived: Callable[..., None],
        on_end: Callable[..., None], **_: object,
    ) -> None:  # fmt: skip
        self.arrived, self.ended = on_arrived, on_end
        self.asked: list[tuple[int, bool]] = []
        self.returned: list[Any] = []
        self.certain = True

    def start(self) -> None:
        """Has no thread."""

    def ask(self, count: int, *, is_less: bool = False) -> None:
        self.asked.append((count, is_less))

    def hand_out(self, count: int) -> None:
        """Is of no interest here."""

    def look(self) -> int:
        return 1

    def has_looked(self, number: int) -> bool:
        return number == 1

    def is_certain(self) -> bool:
        return self.certain

    def put_back(self, messages: Sequence[Any]) -> None:
        self.returned += messages


class Scene:
    """A group, its feed, and a client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(open_group, "Feed", FakeFeed)
        self.clock = VirtualClock()
        self.ends: list[BaseException | None] = []
        self.group = OpenGroup(
            "orders", "billing", make_pull=lambda *_: None, receipts=Receipts(),  # type: ignore[arg-type,return-value]
            clock=self.clock,
            on_end=lambda _, failure: self.ends.append(failure),
        )  # fmt: skip
        self.feed: FakeFeed = self.group._feed  # type: ignore[assignment]
        self.client = Client(10)

    def arrive(self, *names: str, size: int = 1) -> list[FakeMessage]:
        messages = [FakeMessage(name, size) for name in names]
        self.feed.arrived(messages)
        return messages

    async def take(
        self, most: int = 9, *, wait_s: float = 0, lease_s: float = 30, most_bytes: int = 9
    ) -> list[OpenDelivery]:
        return await self.group.take(most, wait_s, lease_s, most_bytes, self.client)

    async def settle(self, *wanted: Settle, timeout_s: float = 5) -> list[SettleOutcome]:
        asked = [(one, one.failure()) for one in wanted]
        return [one.outcome for one in await self.group.settle(asked, timeout_s)]


def in_scene(test: Callable[[Scene], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs in an event loop, with a scene of its own."""

    def limited(monkeypatch: pytest.MonkeyPatch) -> None:
        async def begun() -> None:
            await test(Scene(monkeypatch))

        asyncio.run(asyncio.wait_for(begun(), 60))

    return limited


def names(opened: Sequence[OpenDelivery]) -> list[str]:
    return [one.message.name for one in opened]  # type: ignore[attr-defined]


@in_scene
async def test_a_message_larger_than_was_asked_for_comes_alone(scene: Scene) -> None:
    scene.arrive("large", size=20)
    scene.arrive("a", "b", size=5)
    assert [names(await scene.take()) for _ in range(3)] == [["large"], ["a"], ["b"]]


@in_scene
async def test_what_is_not_the_workers_any_more_is_not_handed_out(scene: Scene) -> None:
    [lost] = scene.arrive("lost")
    lost.cancelled = True
    scene.arrive("mine")
    assert names(await scene.take()) == ["mine"]
    assert [type(each) for each in lost.acks] == [NeedRetry]


@in_scene
async def test_nothing_is_settled_after_its_lease_though_no_timer_has_struck(scene: Scene) -> None:
    [message] = scene.arrive("a")
    [one] = await scene.take(lease_s=5)
    scene.clock.advance(5000)
    assert await scene.settle(Settle(one.receipt)) == ["stale"]
    assert [type(each) for each in message.acks] == [NeedRetry]
    assert scene.client.open == 0


@in_scene
async def test_a_lease_that_is_made_shorter_ends_then(scene: Scene) -> None:
    [message] = scene.arrive("a")
    [one] = await scene.take(lease_s=3600)
    extend = Settle(one.receipt, Verb.EXTEND, lease_s=0.01)
    assert await scene.settle(extend) == ["extended"]
    scene.clock.advance(10)
    while scene.client.open:
        await asyncio.sleep(0)
    assert [type(each) for each in message.acks] == [NeedRetry]


@in_scene
async def test_an_extended_lease_ends_later(scene: Scene) -> None:
    [message] = scene.arrive("a")
    [one] = await scene.take(lease_s=5)
    scene.clock.advance(4999)
    assert await scene.settle(Settle(one.receipt, Verb.EXTEND, lease_s=60)) == ["extended"]
    scene.clock.advance(59_999)
    scene.group._expire()
    assert (message.acks, scene.client.open) == ([], 1)


@in_scene
async def test_what_comes_back_unseen_keeps_its_order(scene: Scene) -> None:
    scene.arrive("a", "b", "c")
    opened = await scene.take(2)
    scene.group.put_back(opened)
    assert names(await scene.take()) == ["a", "b", "c"]


@in_scene
async def test_nothing_is_read_for_a_client_that_has_gone_with_nothing(scene: Scene) -> None:
    assert await scene.take(7, wait_s=0.001) == []
    assert scene.feed.asked == [(7, False), (0, True)]


@in_scene
async def test_what_a_cancelled_client_was_about_to_get_goes_to_the_next(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.take(wait_s=20))
    await asyncio.sleep(0)
    scene.arrive("a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert scene.client.open == 0
    assert names(await scene.take()) == ["a"]


@in_scene
async def test_a_settlement_of_which_the_store_says_nothing_is_unknown_and_forgotten(
    scene: Scene,
) -> None:
    [message] = scene.arrive("a")
    [one] = await scene.take()
    assert await scene.settle(Settle(one.receipt), timeout_s=0.001) == ["unknown"]
    assert (message.acks, scene.group.open_count) == ([None], 0)


@in_scene
async def test_the_reply_is_what_the_store_has_said(scene: Scene) -> None:
    messages = scene.arrive("a", "b")
    opened = await scene.take()
    settling = asyncio.create_task(scene.settle(*[Settle(one.receipt) for one in opened]))
    await asyncio.sleep(0)
    deliveries: Any = [message.delivery for message in messages]
    scene.group._settled_by_store(deliveries, [Settled.SETTLED, Settled.STALE])
    assert await settling == ["settled", "stale"]


@in_scene
async def test_while_another_may_own_the_slot_nothing_is_extended(scene: Scene) -> None:
    scene.arrive("a")
    [one] = await scene.take()
    scene.feed.certain = False
    assert await scene.settle(Settle(one.receipt, Verb.EXTEND, lease_s=9)) == ["stale"]
    assert scene.client.open == 0


@in_scene
async def test_at_its_end_clients_have_nothing_in_hand_and_wait_no_more(scene: Scene) -> None:
    scene.arrive("a")
    await scene.take()
    waiting = asyncio.create_task(scene.take(wait_s=20))
    await asyncio.sleep(0)
    failure = StoreUnavailable("store", "it is away")
    scene.feed.ended(failure)
    with pytest.raises(StoreUnavailable):
        await waiting
    assert (scene.client.open, scene.ends) == (0, [failure])


@in_scene
async def test_a_group_is_not_idle_while_a_client_waits_in_it(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.take(wait_s=20))
    await asyncio.sleep(0)
    scene.clock.advance(60_000)
    assert scene.group.idle_s() == 0
    scene.arrive("a")
    await waiting
    scene.clock.advance(60_000)
    assert scene.group.idle_s() == 60


def test_as_much_is_read_ahead_as_clients_have_taken_just_now() -> None:
    clock, wanted = VirtualClock(), []
    demand: Any = SimpleNamespace(until=wanted.append)
    feed = Feed(
        "feed", SimpleNamespace(), demand, clock=clock, tell=lambda *_: None,  # type: ignore[arg-type]
        on_arrived=lambda _: None, on_end=lambda _: None,
    )  # fmt: skip
    feed.hand_out(40)
    clock.advance(150)
    feed.hand_out(3)
    feed.ask(2)
    assert wanted == [5]
