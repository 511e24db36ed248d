"""Taking messages in: duplicates, limits, and what is declared."""

from __future__ import annotations

import pytest
from bench import Bench, body_of

from qframe.codec import batch_mark
from qframe.errors import TopicMismatch, UnknownTopic
from qframe.topic import Topic

KINDS = ("stream", "ordered", "delay", "priority", "merge")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_id_again_within_the_window_is_a_duplicate(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", dedupe_window="200ms")
    assert bench.publish(topic, 1, "k", id="order-1") == "stored"
    bench.advance(199)
    assert bench.publish(topic, 2, "k", id="order-1") == "duplicate"
    assert bench.bodies(topic) == [1]
    bench.advance(1)
    assert bench.publish(topic, 3, "k", id="order-1") == "stored"


def test_an_id_twice_in_one_call_is_stored_once(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    entries = [bench.entry(topic, number, "k", id="same") for number in range(3)]
    assert bench.store.publish(topic, entries) == ["stored", "duplicate", "duplicate"]


def test_one_mark_recognises_every_message_of_a_batch_that_comes_again(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4)
    token = "0" * 19 + "x"
    entries = [
        bench.entry(topic, number, f"k{number}", id=f"{token}-{number}", mark=batch_mark(token))
        for number in range(20)
    ]
    assert bench.store.publish(topic, entries) == ["stored"] * 20
    assert bench.store.publish(topic, entries) == ["duplicate"] * 20
    # As a user does who was told PublishUnknown: each by its id.
    for number in (0, 7, 19):
        assert bench.publish(topic, number, f"k{number}", id=f"{token}-{number}") == "duplicate"
    assert bench.total(topic).published == 20


def test_an_id_that_looks_like_a_batchs_is_a_users_own_where_there_was_no_such_batch(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, 1, "k", id="order")
    for message_id in ("order-1", "0" * 20 + "-1"):
        assert bench.publish(topic, 1, "k", id=message_id) == "stored"


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_from_the_first_message_that_does_not_fit_on_a_slots_messages_are_refused(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", max_length=3)
    entries = [bench.entry(topic, number, "k") for number in range(5)]
    assert bench.store.publish(topic, entries) == ["stored"] * 3 + ["full"] * 2
    assert bench.publish(topic, 9, "k") == "full"
    first, *_ = bench.got(topic)
    bench.ack(topic, first)
    assert bench.publish(topic, 3, "k") == "stored"
    assert bench.publish(topic, 4, "k") == "full"


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_a_full_topic_still_takes_what_replaces_or_merges(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", max_length=2)
    entries = [bench.entry(topic, key, key, delay_ms=50) for key in ("a", "b", "c", "a")]
    outcome = "merged" if kind == "merge" else "replaced"
    assert bench.store.publish(topic, entries) == ["stored", "stored", "full", outcome]


def test_a_refused_message_is_not_remembered_as_a_duplicate(bench: Bench) -> None:
    topic = bench.topic("stream", "g", max_length=1)
    bench.publish(topic, 1)
    assert bench.publish(topic, 2, id="again") == "full"
    bench.ack(topic, *bench.got(topic))
    assert bench.publish(topic, 2, id="again") == "stored"


def test_the_limit_is_that_of_the_group_which_is_furthest_behind(bench: Bench) -> None:
    topic = bench.topic("ordered", "slow", "quick", max_length=2)
    for number in range(2):
        bench.publish(topic, number, "k")
    bench.ack(topic, *bench.got(topic, "quick"), group="quick")
    assert bench.publish(topic, 2, "k") == "full"
    bench.ack(topic, *bench.got(topic, "slow"), group="slow")
    assert bench.publish(topic, 2, "k") == "stored"


def test_what_was_published_comes_out_as_it_was(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, {"a": "é"}, "ключ", id="m-1", headers={"h": "ü", "qf-tags": "x"})
    [one] = bench.got(topic)
    assert (one.id, one.key, one.headers) == ("m-1", "ключ", {"h": "ü", "qf-tags": "x"})
    assert body_of(one) == {"a": "é"}
    assert one.published_at_ms == bench.store.now_ms()


def test_a_topic_declared_with_another_kind_or_slot_count_is_refused(bench: Bench) -> None:
    topic = bench.topic("ordered", slots=4)
    for other in (Topic(topic.name, "delay", 4), Topic(topic.name, "ordered", 8)):
        with pytest.raises(TopicMismatch, match=topic.name):
            bench.store.declare(other)
    bench.store.declare(Topic(topic.name, "ordered", 4, retain="1h"))
    found = bench.store.topic(topic.name)
    assert found is not None
    assert found.retain_ms == 3_600_000


def test_a_topic_that_was_never_declared_is_unknown_to_every_operation(bench: Bench) -> None:
    topic = Topic("never")
    assert bench.store.topic("never") is None
    with pytest.raises(UnknownTopic, match="never"):
        bench.store.publish(topic, [bench.entry(topic, 1)])
    with pytest.raises(UnknownTopic, match="never"):
        bench.store.subscribe(topic, "g")
