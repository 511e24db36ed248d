"""Producers that know a topic which was deleted meanwhile, by another process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import RedisServer

from qframe import Outgoing, QFrame, Topic, TopicMismatch, UnknownTopic
from qframe.stores.redis import topics

pytestmark = [pytest.mark.gate, pytest.mark.promise(1)]

ORDERS = Topic("orders", "ordered", slots=2)


@pytest.fixture(params=["redis", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/qframe.db"
        return
    with RedisServer(tmp_path) as server:
        yield server.url


@pytest.fixture
def apps(url: str) -> Iterator[tuple[QFrame, QFrame]]:
    """A producer, and an operator in another process."""
    with QFrame(url) as producer, QFrame(url) as operator:
        yield producer, operator


def delete(operator: QFrame) -> None:
    while not operator.store.delete(ORDERS):
        pass
    assert operator.store.topic("orders") is None


def count(operator: QFrame, topic: Topic) -> int:
    return sum(one.published for one in operator.store.stats(topic))


@pytest.mark.parametrize("many", [False, True])
def test_who_has_declared_it_declares_it_again(apps: tuple[QFrame, QFrame], many: bool) -> None:
    """For ever it was told that its messages were stored, and nobody could read them."""
    producer, operator = apps
    producer.publish(ORDERS, 0, key="a")
    for number in range(2):
        delete(operator)
        if many:
            found = producer.publish_many(ORDERS, [Outgoing(number, key=key) for key in "ab"])
            assert {one.outcome for one in found} == {"stored"}
        else:
            assert producer.publish(ORDERS, number, key="a").outcome == "stored"
        operator.store.subscribe(ORDERS, "g")
        assert count(operator, ORDERS) == (2 if many else 1)


def test_who_knows_it_by_name_is_told(apps: tuple[QFrame, QFrame]) -> None:
    producer, operator = apps
    operator.declare(ORDERS)
    producer.publish("orders", 0, key="a")
    delete(operator)
    for _ in range(2):
        with pytest.raises(UnknownTopic, match="orders"):
            producer.publish("orders", 1, key="a")
    operator.declare(ORDERS)  # for the second time in its process
    assert producer.publish("orders", 2, key="a").outcome == "stored"


def test_who_means_another_kind_is_told_and_nothing_is_stored(
    apps: tuple[QFrame, QFrame],
) -> None:
    producer, operator = apps
    producer.publish(ORDERS, 0, key="a")
    delete(operator)
    anew = operator.declare(Topic("orders", "stream", slots=2))
    operator.store.subscribe(anew, "g")
    for _ in range(2):
        with pytest.raises(TopicMismatch, match="kind=stream, and now with kind=ordered"):
            producer.publish(ORDERS, 1, key="a")
    assert count(operator, anew) == 0
    assert operator.publish(anew, 2).outcome == "stored"
    assert operator.admin.verify() == []


def test_who_knows_it_by_name_is_told_of_another_kind_once(apps: tuple[QFrame, QFrame]) -> None:
    """On a database it was told so until its process ended, though it names no kind."""
    producer, operator = apps
    operator.declare(ORDERS)
    producer.publish("orders", 0, key="a")
    delete(operator)
    operator.declare(Topic("orders", "stream", slots=2))
    with pytest.raises(TopicMismatch, match="declare it with kind='stream', or"):
        producer.publish("orders", 1, key="a")
    assert producer.publish("orders", 1, key="a").outcome == "stored"


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("slots", [1, 8])
def test_who_knows_it_with_other_slots_finds_those_that_it_has_now(
    apps: tuple[QFrame, QFrame], slots: int, many: bool
) -> None:
    """A key was in two slots: two workers had it, and it had no order."""
    producer, operator = apps
    producer.publish(ORDERS, 0, key="a")
    delete(operator)
    anew = operator.declare(Topic("orders", "ordered", slots=slots))
    operator.store.subscribe(anew, "g")
    if many:
        found = producer.publish_many(ORDERS, [Outgoing(key, key=key) for key in "abcdefgh"])
        assert {one.outcome for one in found} == {"stored"}
    else:
        for key in "abcdefgh":
            assert producer.publish(ORDERS, key, key=key).outcome == "stored"
    records = operator.admin.peek("orders", "g")
    assert {(one.key, one.slot) for one in records} == {
        (key, anew.slot_of(key.encode())) for key in "abcdefgh"
    }
    assert operator.admin.verify() == []


def test_a_topic_that_is_declared_anew_takes_messages_before_it_has_a_group(
    apps: tuple[QFrame, QFrame],
) -> None:
    producer, operator = apps
    producer.publish(ORDERS, 0, key="a")
    delete(operator)
    operator.store.declare(ORDERS)
    assert operator.publish(ORDERS, 1, key="a").outcome == "stored"
    assert count(operator, ORDERS) == 1


def test_what_comes_between_the_steps_of_a_deletion_leaves_no_slot_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic is declared still, so whoever finds its slots closed opens them."""
    with RedisServer(tmp_path) as server, QFrame(server.url) as producer, QFrame(server.url) as own:
        producer.publish(ORDERS, 0, key="a")
        empty, outcomes = topics._empty, list[str]()

        def empty_and_wait(*given: Any) -> None:
            empty(*given)
            if not outcomes:
                outcomes.append(producer.publish(ORDERS, 1, key="a").outcome)

        monkeypatch.setattr(topics, "_empty", empty_and_wait)
        delete(own)
        assert outcomes == ["stored"]
        left = server.call("KEYS", "qf:{qframe:orders:*")
        assert {key.rpartition(b":")[2] for key in left} == {b"closed"}
        assert {server.call("GET", key) for key in left} == {b"gone"}
