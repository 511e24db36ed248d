"""A pull that stands is answered by publishing, once, and what it was answered with is its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bench import LEASE_MS, SETTLED, Bench, body_of
from eventually import eventually

from qframe.drivers.redis import Command
from qframe.message import Delivery
from qframe.stores.bell import Bell
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import LateReply, PullRequest, PullResult, PullTerms, StandingTerms
from qframe.topic import Topic

KINDS = ["stream", "ordered", "delay"]


class Owner:
    """Who owns all slots of a group, with a bell; its pulls stand where the store has that."""

    def __init__(self, bench: Bench, topic: Topic, group: str = "g") -> None:
        self.bench, self.topic, self.group = bench, topic, group
        self.bell: Bell = bench.store.bell([topic])
        bench.hear_out(self.bell)
        self.bell.hints()
        assert not self.bell.has_lost()
        self.epochs = bench.store.epochs(topic, group)

    @property
    def can_stand(self) -> bool:
        return bool(self.bell.address)

    def pull(self, receipt: str = "standing", position: int | None = 0) -> PullResult:
        """Pulls, and stands where it finds nothing."""
        asks = [PullRequest(slot, epoch, 10, position) for slot, epoch in self.epochs.items()]
        return self.bench.store.pull(
            self.topic, self.group, asks,
            PullTerms(
                f"beside-{receipt}", LEASE_MS, 16,
                standing=StandingTerms(self.bell.address, receipt),
            ),
        )  # fmt: skip

    def heard(self) -> list[LateReply]:
        """What the bell brings at its next ring."""
        assert self.bell.wait(60)
        assert not self.bell.has_lost()
        return self.bell.late()

    def answer(self) -> Delivery:
        """The one delivery that it brings."""
        [reply] = self.heard()
        assert reply.epoch == self.epochs[reply.slot]
        assert reply.delivery is not None
        return reply.delivery


def standing(bench: Bench, topic: Topic, group: str = "g") -> Owner:
    owner = Owner(bench, topic, group)
    assert owner.pull().deliveries == []
    return owner


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_published_comes_with_the_bell_and_is_handed_out(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=4)
    owner = standing(bench, topic)
    bench.publish(topic, {"n": 1}, "k", headers={"h": "ä"})
    if owner.can_stand:
        got = owner.answer()
        [slot] = owner.bell.hints() or [None]
        assert slot == got.slot == topic.slot_of(b"k")
        assert (body_of(got), got.key, got.headers, got.attempt, got.lost) == (
            {"n": 1}, "k", {"h": "ä"}, 1, 0,
        )  # fmt: skip
        assert bench.total(topic).doing == 1
        assert owner.pull(position=1).deliveries == []
    else:
        [got] = owner.pull().deliveries
    assert bench.ack(topic, got) == SETTLED
    assert bench.total(topic).settled == 1
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_same_delivery_that_a_pull_would_have_brought(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    owner = standing(bench, topic)
    bench.publish(topic, 1, "k")
    pulled = bench.got(topic, "h")
    if owner.can_stand:
        pushed = owner.answer()
        assert [told(pushed)] == [told(one) for one in pulled]
    owner.bell.close()


def told(one: Delivery) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.structs.asdict(one)
    return facts | {"receipt": ""}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise(1)
def test_one_whose_reply_was_lost_is_given_back_by_its_receipt(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    owner = standing(bench, topic)
    bench.publish(topic, 1, "k")
    asks = [PullRequest(slot, epoch, 1, 0) for slot, epoch in owner.epochs.items()]
    bench.store.revoke(topic, "g", asks, "standing")
    [again] = owner.pull("another").deliveries
    assert (body_of(again), again.attempt) == (1, 1)
    owner.bell.close()


@pytest.mark.promise(1)
def test_one_of_a_stream_comes_again_to_who_has_not_come_so_far(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    owner = standing(bench, topic)
    bench.publish(topic, 1, "k")
    [again] = owner.pull("another", position=0).deliveries
    assert (body_of(again), again.attempt) == (1, 1)
    assert bench.ack(topic, again) == SETTLED
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise(6)
def test_one_that_is_not_settled_counts_as_lost(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    owner = standing(bench, topic)
    bench.publish(topic, 1, "k")
    if owner.can_stand:
        owner.answer()
        bench.advance(LEASE_MS)
        [again] = owner.pull("another", position=1).deliveries
        assert (again.attempt, again.lost) == (2, 1)
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise(4)
def test_a_pull_under_an_epoch_that_has_passed_is_answered_with_nothing(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    owner = standing(bench, topic)
    bench.take(topic)
    bench.publish(topic, 1, "k")
    if owner.can_stand:
        assert owner.heard() == []
    assert bench.bodies(topic) == [1]
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_handed_out_to_a_bell_that_is_gone(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    owner = standing(bench, topic)
    owner.bell.close()
    if isinstance(bench.store, RedisStore) and owner.can_stand:
        listening = Command(b"", ("PUBSUB", "NUMSUB", owner.bell.address))
        eventually(lambda: bench.store._redis.one(listening)[1] == 0)  # type: ignore[attr-defined]
    bench.publish(topic, 1, "k")
    assert bench.total(topic).doing == 0
    [one] = bench.got(topic)
    assert one.attempt == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_revocation_ends_it(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    owner = standing(bench, topic)
    asks = [PullRequest(slot, epoch, 1, 0) for slot, epoch in owner.epochs.items()]
    bench.store.revoke(topic, "g", asks, "standing")
    bench.publish(topic, 1, "k")
    assert bench.total(topic).doing == 0
    assert bench.bodies(topic) == [1]
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pull_is_answered_once(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    owner = standing(bench, topic)
    bench.publish(topic, 1, "k")
    bench.publish(topic, 2, "l")
    if owner.can_stand:
        assert body_of(owner.answer()) == 1
        assert [body_of(one) for one in owner.pull("another", position=1).deliveries] == [2]
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
def test_several_messages_in_one_call_and_late_ones_only_ring(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    owner = standing(bench, topic)
    entries = [bench.entry(topic, n, f"k{n}") for n in range(2)]
    for entry in entries:
        entry.mark = entries[0].mark
    bench.store.publish(topic, entries)
    assert bench.total(topic).doing == 0
    assert len(owner.pull("another").deliveries) == 2
    assert owner.pull("a third", position=2).deliveries == []
    bench.publish(topic, 3, "k3", delay_ms=50)
    bench.advance(50)
    assert [body_of(one) for one in owner.pull("a fourth", position=2).deliveries] == [3]
    owner.bell.close()


@pytest.mark.parametrize("kind", ["ordered", "delay", "priority", "merge"])
def test_a_message_behind_one_in_hand_or_waiting_is_not_handed_out(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    owner = Owner(bench, topic)
    [first] = owner.pull("one").deliveries
    assert owner.pull("two").deliveries == []
    bench.publish(topic, 2, "k")
    assert bench.total(topic).doing == 1
    bench.ack(topic, first)
    assert [body_of(one) for one in owner.pull("three").deliveries] == [2]
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise(5)
def test_what_falls_due_meanwhile_goes_first(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", delay_ms=50)
    owner = standing(bench, topic)
    bench.advance(50)
    bench.publish(topic, 2, "l")
    assert bench.total(topic).doing == 0
    assert sorted(body_of(one) for one in owner.pull("another").deliveries) == [1, 2]
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pull_that_stands_is_answered_before_what_falls_due_later(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", delay_ms=50)
    owner = standing(bench, topic)
    bench.advance(49)
    bench.publish(topic, 2, "l")
    assert bench.total(topic).doing == int(owner.can_stand)
    owner.bell.close()


def test_a_lease_of_a_line_that_passes_meanwhile_is_lost_first(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, 1, "k")
    owner = Owner(bench, topic)
    assert len(owner.pull("one").deliveries) == 1
    assert owner.pull("two", position=1).deliveries == []
    bench.advance(LEASE_MS)
    bench.publish(topic, 2, "l")
    got = owner.pull("three", position=1).deliveries
    assert sorted((body_of(one), one.lost) for one in got) == [(1, 1), (2, 0)]
    owner.bell.close()


def test_a_second_one_of_a_window_has_its_receipt(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    owner = standing(bench, topic)
    bench.publish(topic, 1, "k")
    if owner.can_stand:
        first = owner.answer()
        assert owner.pull("another", position=1).deliveries == []
        bench.publish(topic, 2, "l")
        second = owner.answer()
        assert second.receipt == first.receipt
        assert bench.ack(topic, second, first) == SETTLED * 2
        assert bench.total(topic).settled == 2
    owner.bell.close()


def test_a_group_that_keeps_order_is_rung_for_alone(bench: Bench) -> None:
    topic = bench.topic("stream")
    bench.store.subscribe(topic, "g", max_parked=10)
    bench.take(topic)
    owner = standing(bench, topic)
    bench.publish(topic, 1, "k")
    assert bench.total(topic).doing == 0
    [first] = owner.pull("another").deliveries
    bench.retry(topic, first, delay_ms=50)
    assert owner.pull("a third", position=1).deliveries == []
    bench.publish(topic, 2, "k")
    assert owner.pull("a fourth", position=1).deliveries == []
    bench.advance(50)
    assert [body_of(one) for one in owner.pull("a fifth", position=2).deliveries] == [1, 2]
    owner.bell.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise(7)
def test_each_group_has_its_own_and_who_does_not_stand_is_rung_for(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h", "i")
    owners = [standing(bench, topic, group) for group in ("g", "h")]
    plain = Owner(bench, topic, "i")
    assert bench.got(topic, "i") == []
    for owner in owners:
        assert owner.pull("once more").deliveries == []
    bench.publish(topic, 1, "k")
    if owners[0].can_stand:
        for owner in owners:
            assert [body_of(owner.answer())] == [1]
        assert plain.heard() == []
    assert bench.bodies(topic, "i") == [1]
    for owner in (*owners, plain):
        owner.bell.close()


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_large_message_only_rings(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    owner = standing(bench, topic)
    bench.publish(topic, "x" * 70_000, "k")
    assert bench.total(topic).doing == 0
    assert len(owner.pull("another").deliveries) == 1
    owner.bell.close()
