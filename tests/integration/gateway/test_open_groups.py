"""The gateway without HTTP: handing out, leases, receipts, settling, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import pytest

from qframe import BadOption, BadTopic, Outgoing, PublishUnknown, QFrame, Topic, UnknownTopic
from qframe.web.gateway import Gateway, OpenDelivery, Settle, SettleOutcome, Verb
from qframe.web.gateway import gateway as module
from qframe.web.gateway.deliveries import Client
from qframe.web.gateway.gateway import GatewayFull, GatewayStopped

pytestmark = pytest.mark.gate

P = ParamSpec("P")
ORDERS = Topic("orders", kind="ordered", slots=2)
LONG_S = 20.0


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs in an event loop."""

    @wraps(test)
    def limited(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*given, **named), 120))

    return limited


async def pulled(gateway: Gateway, count: int, lease_s: float = 60.0) -> list[OpenDelivery]:
    """So many deliveries of the group, however many calls that takes."""
    found: list[OpenDelivery] = []
    while len(found) < count:
        most = count - len(found)
        found += await gateway.pull(
            "orders", "billing", most=most, wait_s=LONG_S, lease_s=lease_s
        )  # fmt: skip
    return found


async def settled(gateway: Gateway, *wanted: Settle) -> list[SettleOutcome]:
    return [one.outcome for one in await gateway.settle("orders", "billing", wanted)]


async def publish(gateway: Gateway, *keys: str) -> None:
    gateway.app.declare(ORDERS)
    gateway.app.store.subscribe(ORDERS, "billing")
    await gateway.publish(
        "orders", [Outgoing(place, key=key) for place, key in enumerate(keys)]
    )  # fmt: skip


@in_loop
async def test_a_keys_next_message_comes_when_the_one_before_is_settled(each_app: QFrame) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway, "ann", "ann", "ben")
        first = {one.message.key: one for one in await pulled(gateway, 2)}
        assert {key: one.message.body for key, one in first.items()} == {"ann": 0, "ben": 2}
        assert await gateway.pull("orders", "billing", most=5, wait_s=0.2) == []
        assert await settled(gateway, Settle(first["ann"].receipt)) == ["settled"]
        [second] = await pulled(gateway, 1)
        assert (second.message.key, second.message.body) == ("ann", 1)
        await settled(gateway, *[Settle(one.receipt) for one in (second, first["ben"])])
    assert [slot.settled for slot in each_app.store.stats(ORDERS, "billing")] != [0, 0]
    assert sum(slot.doing + slot.todo for slot in each_app.store.stats(ORDERS, "billing")) == 0


@in_loop
async def test_each_verb_does_what_it_says(each_app: QFrame) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway, "ack", "retry", "reject", "extend")
        opened = {one.message.key or "": one for one in await pulled(gateway, 4)}
        outcomes = await settled(
            gateway,
            Settle(opened["ack"].receipt),
            Settle(opened["retry"].receipt, Verb.RETRY, error="not now", delay="0s"),
            Settle(opened["reject"].receipt, Verb.REJECT, error="no such card"),
            Settle(opened["extend"].receipt, Verb.EXTEND, lease_s=90),
        )
        assert outcomes == ["settled", "settled", "settled", "extended"]
        [again] = await pulled(gateway, 1)
        assert (again.message.key, again.message.attempt) == ("retry", 2)
        [dead] = each_app.admin.dead(ORDERS, "billing")
        assert (dead.key, dead.error) == ("reject", "Reject: no such card")


@in_loop
async def test_a_lease_that_ends_makes_the_receipt_stale_and_counts(each_app: QFrame) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway, "ann", "ann")
        [first] = await pulled(gateway, 1, lease_s=0.1)
        [second] = await pulled(gateway, 1)
        assert (second.message.id, second.message.attempt) == (first.message.id, 2)
        assert await settled(gateway, Settle(first.receipt)) == ["stale"]
        assert await settled(gateway, Settle(second.receipt)) == ["settled"]
        assert await settled(gateway, Settle(second.receipt)) == ["stale"]


@in_loop
async def test_a_receipt_settles_nothing_in_another_group_or_gateway(each_app: QFrame) -> None:
    async with Gateway(each_app, address="http://one:1") as one, Gateway(each_app) as two:
        await publish(one, "ann")
        [opened] = await pulled(one, 1)
        await two.pull("orders", "audit")
        [other] = await one.settle("orders", "audit", [Settle(opened.receipt)])
        assert other.outcome == "stale"
        [reply] = await two.settle("orders", "audit", [Settle(opened.receipt)])
        assert (reply.outcome, reply.gateway) == ("elsewhere", "http://one:1")
        assert await settled(one, Settle("q1.junk"), Settle("")) == ["stale", "stale"]
        assert await settled(one, Settle(opened.receipt)) == ["settled"]


@in_loop
async def test_what_no_client_has_asked_for_is_not_handed_out_so_it_loses_no_attempt(
    each_app: QFrame,
) -> None:
    def doing() -> int:
        return sum(slot.doing for slot in each_app.store.stats(ORDERS, "billing"))

    async with Gateway(each_app) as gateway:
        await publish(gateway, *(f"key{number}" for number in range(50)))
        await pulled(gateway, 1)
        assert doing() == 1
        await pulled(gateway, 9)
        assert doing() < 20  # at most as many again as clients have just taken
        assert len(await pulled(gateway, 40)) == 40


@in_loop
async def test_the_messages_of_a_key_in_hand_do_not_stop_those_behind_them(
    each_app: QFrame,
) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway, *(["ann"] * 40 + ["ben"]))
        found = await pulled(gateway, 2)
        assert {one.message.key for one in found} == {"ann", "ben"}


@in_loop
async def test_pulls_of_one_client_share_its_room(each_app: QFrame) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway)
        client = Client(3)
        waiting = [
            asyncio.create_task(gateway.pull(
                "orders", "billing", most=2, wait_s=LONG_S, client=client
            ))
            for _ in range(4)
        ]  # fmt: skip
        await publish(gateway, *"abcdef")
        while client.room and not all(each.done() for each in waiting):
            await asyncio.sleep(0.01)
        found = [one for each in await asyncio.gather(*waiting) for one in each]
        assert (len(found), client.open) == (3, 3)
        await settled(gateway, *[Settle(one.receipt) for one in found])
        assert client.room == 3
        assert len(await pulled(gateway, 3)) == 3


@in_loop
async def test_wrong_verdicts_are_refused_whole(each_app: QFrame) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway, "ann", "ben")
        ann, ben = await pulled(gateway, 2)
        with pytest.raises(BadOption, match="delay 'soon'"):
            await settled(
                gateway, Settle(ann.receipt), Settle(ben.receipt, Verb.RETRY, delay="soon")
            )
        assert await settled(gateway, Settle(ann.receipt)) == ["settled"]


@in_loop
async def test_what_is_open_at_the_end_is_given_back_uncounted(each_app: QFrame) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway, "ann")
        [one] = await pulled(gateway, 1)
    async with Gateway(each_app) as gateway:
        [again] = await pulled(gateway, 1)
        assert (again.message.id, again.message.attempt) == (one.message.id, 1)
        assert await settled(gateway, Settle(one.receipt)) == ["elsewhere"]
        await gateway.drain(0)
        with pytest.raises(GatewayStopped):
            await gateway.pull("orders", "billing")
        assert await settled(gateway, Settle(again.receipt)) == ["settled"]


@pytest.mark.parametrize("secret", [None, "a secret of all"])
@in_loop
async def test_a_receipt_of_a_gateway_that_was_here_before_is_stale(
    each_app: QFrame, secret: str | None
) -> None:
    async with Gateway(each_app, address="http://one:1", secret=secret) as before:
        await publish(before, "ann")
        [one] = await pulled(before, 1)
    async with Gateway(each_app, address="http://one:1", secret=secret) as gateway:
        [reply] = await gateway.settle("orders", "billing", [Settle(one.receipt)])
        assert (reply.outcome, reply.gateway) == ("stale", None)


@in_loop
async def test_it_leaves_a_group_that_nobody_pulls_from(each_app: QFrame) -> None:
    async with Gateway(each_app, idle_s=0.1) as gateway:
        await publish(gateway, "ann")
        [one] = await pulled(gateway, 1)
        assert list(gateway.groups()) == [("orders", "billing")]
        await settled(gateway, Settle(one.receipt))
        while gateway.groups() or each_app.coordinator.roster(ORDERS, "billing").members:
            await asyncio.sleep(0.05)


def key_of(slot: int) -> str:
    return next(key for key in map(str, range(100)) if ORDERS.slot_of(key.encode()) == slot)


def slot_of(one: OpenDelivery) -> int:
    return ORDERS.slot_of((one.message.key or "").encode())


@pytest.mark.parametrize("idle_s", [0.1, LONG_S], ids=["nobody pulls", "drains"])
@in_loop
async def test_a_gateway_keeps_of_a_group_that_it_leaves_the_slots_of_open_deliveries_alone(
    each_app: QFrame, idle_s: float
) -> None:
    async with Gateway(each_app, idle_s=idle_s) as gateway, Gateway(each_app) as other:
        await publish(gateway, "ann")
        [held] = await pulled(gateway, 1)
        draining = idle_s == LONG_S and asyncio.create_task(gateway.drain(LONG_S))
        here = slot_of(held)
        await publish(gateway, key_of(here), key_of(1 - here))
        [one] = await pulled(other, 1)
        assert slot_of(one) == 1 - here
        assert await settled(other, Settle(one.receipt)) == ["settled"]
        assert await other.pull("orders", "billing", wait_s=0.3) == []
        extend = Settle(held.receipt, Verb.EXTEND, lease_s=60)
        assert await settled(gateway, extend) == ["extended"]
        assert await settled(gateway, Settle(held.receipt)) == ["settled"]
        [last] = await pulled(other, 1)
        assert slot_of(last) == here
        if draining:
            await draining


@in_loop
async def test_a_client_that_comes_while_it_leaves_has_it_join_anew(each_app: QFrame) -> None:
    async with Gateway(each_app, idle_s=0.1) as gateway:
        await publish(gateway, key_of(0))
        [first] = await pulled(gateway, 1)
        while len(each_app.coordinator.roster(ORDERS, "billing").owners) > 1:
            await asyncio.sleep(0.02)
        await publish(gateway, key_of(1))
        [second] = await pulled(gateway, 1)
        assert gateway.open_in("orders", "billing") == 2
        assert list(gateway.groups()) == [("orders", "billing")]
        outcomes = await settled(gateway, Settle(second.receipt), Settle(first.receipt))
        assert outcomes == ["settled", "settled"]


@in_loop
async def test_what_its_client_has_not_seen_goes_back_uncounted_when_it_leaves(
    each_app: QFrame,
) -> None:
    async with Gateway(each_app, idle_s=0.1) as gateway, Gateway(each_app) as other:
        await publish(gateway, key_of(0), key_of(1))
        held, unseen = await pulled(gateway, 2)
        gateway.put_back("orders", "billing", [unseen])
        [one] = await pulled(other, 1)
        assert (one.message.id, one.message.attempt) == (unseen.message.id, 1)
        gateway.put_back("orders", "billing", [held])  # its reply has found nobody, late
        [last] = await pulled(other, 1)
        assert (last.message.id, last.message.attempt) == (held.message.id, 1)
        assert await settled(gateway, Settle(held.receipt)) == ["stale"]


@in_loop
async def test_new_options_leave_what_is_open_to_its_client(each_app: QFrame) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway, key_of(0), key_of(1))
        [first] = await pulled(gateway, 1)
        gateway.set_options("orders", "billing", max_attempts=1)
        [second] = await pulled(gateway, 1)
        failing = Settle(second.receipt, Verb.RETRY, error="no")
        assert await settled(gateway, Settle(first.receipt), failing) == ["settled", "settled"]
        assert [one.id for one in each_app.admin.dead(ORDERS, "billing")] == [second.message.id]


@in_loop
async def test_wrong_messages_of_a_batch_are_refused_alone_or_with_all(each_app: QFrame) -> None:
    async with Gateway(each_app) as gateway:
        await publish(gateway)
        items = [Outgoing(1, key="ann"), Outgoing(2), Outgoing(3, key="ann", id="x")]
        with pytest.raises(ValueError, match="ordered by key"):
            await gateway.publish("orders", items)
        assert each_app.store.topic("orders") == ORDERS
        first, wrong, last = await gateway.publish_each("orders", items)
        assert "ordered by key" in str(wrong)
        assert [getattr(one, "outcome", "") for one in (first, last)] == ["stored", "stored"]


@in_loop
async def test_a_group_that_is_being_left_still_has_its_place(
    events_app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
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


@in_loop
async def test_what_a_client_has_asked_for_wrongly_is_no_failure_of_the_gateway(
    events_app: QFrame,
) -> None:
    failed: list[str] = []
    events_app.events.listen(lambda name, _: failed.append(name) if name == "part.failed" else None)
    async with Gateway(events_app) as gateway:
        for topic, group, error in [
            ("nothing", "group", UnknownTopic), ("a b", "group", BadTopic),
            ("stream", "a b", BadOption),
        ]:  # fmt: skip
            with pytest.raises(error):
                await gateway.pull(topic, group, wait_s=20)
        assert gateway.groups() == []
    assert failed == []


@in_loop
async def test_each_message_of_which_nobody_knows_has_an_error_of_its_own(
    events_app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish_many(topic: Topic | str, items: list[Outgoing]) -> None:
        raise PublishUnknown("stream", [str(item.id) for item in items])

    monkeypatch.setattr(events_app, "publish_many", publish_many)
    async with Gateway(events_app) as gateway:
        found = await gateway.publish_each("stream", [Outgoing(1, id="a"), Outgoing(2, id="b")])
        assert [getattr(one, "ids", None) for one in found] == [["a"], ["b"]]
