"""What a pull whose answer was lost has handed out comes back before its slot is pulled again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from eventually import eventually

from qframe import Message, Outgoing, QFrame, Topic
from qframe.errors import StoreUnavailable
from qframe.stores.types import PullRequest, PullResult, PullTerms, RevokeResult


@pytest.mark.parametrize("kind", ["stream", "ordered"])
@pytest.mark.parametrize("raises", [False, True])
def test_a_slot_in_doubt_stands_still_until_it_is_revoked_and_no_other_does(
    kind: str, raises: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("events", kind, slots=2)
    in_doubt, other = (
        next(key for key in map(str, range(99)) if topic.slot_of(key.encode()) == slot)
        for slot in range(2)
    )
    handled: list[int] = []
    asked: list[int] = []
    is_back = threading.Event()
    with QFrame("model://") as app:

        @app.consumer(topic, "g")
        def handle(message: Message) -> None:
            handled.append(message.body)

        app.publish_many(topic, [Outgoing(number, key=in_doubt) for number in range(5)])
        store = app.store
        # A worker has died with the first two in hand: they have left the line, and go first.
        store.take(topic, "g", {0: f"{1:016x}"})
        asks = [PullRequest(0, f"{1:016x}", 2)]
        store.pull(topic, "g", asks, PullTerms("r", 60_000, 16))
        pull, revoke = store.pull, store.revoke

        def lost_once(
            topic: Topic, group: str, asks: list[PullRequest], terms: PullTerms
        ) -> PullResult:
            pulled = pull(topic, group, asks, terms)
            slots = [ask.slot for ask in asks]
            if 0 in slots and 0 not in asked:
                pulled.deliveries = [one for one in pulled.deliveries if one.slot != 0]
                pulled.in_doubt = [0]
            asked.extend(slots)
            return pulled

        def away(topic: Topic, group: str, asks: list[PullRequest], receipt: str) -> RevokeResult:
            if is_back.is_set() or [ask.slot for ask in asks] == [1]:  # a reply that has come twice
                return revoke(topic, group, asks, receipt)
            assert [ask.slot for ask in asks] == [0]
            if raises:
                raise StoreUnavailable("model://", "it is away")
            return RevokeResult(0, [0])

        monkeypatch.setattr(store, "pull", lost_once)
        monkeypatch.setattr(store, "revoke", away)
        thread = threading.Thread(target=app.run)
        thread.start()
        eventually(lambda: 0 in asked)
        for number in range(100, 120):
            app.publish(topic, number, key=other)
            eventually(lambda number=number: handled[-1:] == [number])
        assert asked.count(0) == 1
        is_back.set()
        eventually(lambda: len(handled) >= 25)
        app.stop()
        thread.join()
        assert app.admin.verify("events") == []
    assert handled == [*range(100, 120), 0, 1, 2, 3, 4]


@pytest.mark.promise(3)
@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_what_comes_behind_it_waits_until_the_store_has_what_is_given_back(
    kind: str, is_paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a slot was to leave, and stays after all (found by simulation), or in a pause."""
    topic = Topic("events", kind, slots=1)
    is_back = threading.Event()
    with QFrame("model://") as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        settle = app.store.settle

        def away(*arguments: Any) -> Any:
            if not is_back.is_set():
                raise StoreUnavailable("model://", "it is away")
            return settle(*arguments)

        with app.pull(topic, "g") as messages:
            app.publish(topic, 0, key="a")
            first = messages.take("60s")
            app.publish(topic, 1, key="b")
            assert messages._worker is not None
            consumer = messages._worker.consumers[0]
            eventually(lambda: len(consumer.in_flight) == 2)
            monkeypatch.setattr(app.store, "settle", away)
            given = [one for one in consumer.in_flight.all() if one.key == "b"]
            if is_paused:
                consumer.flow.pause()
                eventually(lambda: consumer.in_flight.returning == {0})
                consumer.flow.resume()
            else:
                assert consumer.give_back([0]) == given
            app.publish(topic, 2, key="b")
            number = messages.look()
            eventually(lambda: consumer.pull_loop.looked >= number)
            assert messages.take("50ms") is None
            is_back.set()
            for body in (1, 2):
                following = messages.take("60s")
                assert following is not None
                assert following.body == body
                following.ack()
            assert first is not None
            first.ack()
