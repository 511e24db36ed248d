"""Topics are declared as they are, and sweeping takes settled and old rows, and nothing else."""

from __future__ import annotations

import pytest
from bench import SETTLED, Bench, body_of
from topic_kinds import of_kind
from whereabouts import whereabouts

from qframe.errors import TopicMismatch, UnknownTopic
from qframe.outcomes import Outcome
from qframe.stores.topic_options import TopicOptions
from qframe.stores.types import SlotsClosed
from qframe.topic import Kind, Topic

KINDS = ("stream", "ordered", "delay")


@pytest.mark.promise(8)
def test_a_topic_that_was_never_declared_is_unknown_to_every_operation(bench: Bench) -> None:
    topic = Topic("never")
    assert bench.store.topic("never") is None
    with pytest.raises(UnknownTopic, match="never"):
        bench.store.publish(topic, [bench.entry(topic, 1)])
    with pytest.raises(UnknownTopic, match="never"):
        bench.store.subscribe(topic, "g")


def test_a_topics_data_bear_one_name_until_they_are_deleted(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", slots=2)
    birth = bench.store.birth(topic)
    bench.store.declare(topic)
    bench.store.drop_group(topic, "g")
    assert bench.store.birth(topic) == birth
    while not bench.store.delete(topic):
        pass
    with pytest.raises(UnknownTopic):
        bench.store.birth(topic)
    bench.store.declare(topic)
    assert bench.store.birth(topic) != birth


def test_namespaces_of_one_place_know_nothing_of_each_other(bench: Bench) -> None:
    topic, other = bench.topic("ordered", "g"), bench.beside("other")
    assert (other.topic(topic.name), other.topics()) == (None, [])
    of_other = Topic(topic.name, "delay", 4)
    other.declare(of_other)
    bench.publish(topic, 1, "s")
    other.subscribe(of_other, "g")
    assert [one.published for one in other.stats(of_other)] == [0] * 4
    assert bench.store.topics() == [topic]
    assert bench.bodies(topic) == [1]


def test_topics_are_listed_by_name(bench: Bench) -> None:
    declared = [bench.topic(kind, slots=2) for kind in KINDS]
    assert bench.store.topics() == sorted(declared, key=lambda topic: topic.name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_declaration_comes_back_as_it_was_made(bench: Bench, kind: str) -> None:
    topic = bench.topic(
        kind, slots=8, max_length=99, dedupe_window="3m", history="5m",
        **of_kind(kind, retain="2h", gap_timeout="4s"),
    )  # fmt: skip
    assert bench.store.topic(topic.name) == topic


@pytest.mark.promise(8)
def test_a_refused_declaration_changes_nothing(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", slots=4, gap_timeout="2h")
    bench.publish(topic, 1, "k")
    with pytest.raises(TopicMismatch, match="declared with kind=ordered"):
        bench.store.declare(Topic(topic.name, "delay", 4, dedupe_window="9h"))
    with pytest.raises(TopicMismatch, match="declared with slots=4"):
        bench.store.declare(Topic(topic.name, "ordered", 8, gap_timeout="9h"))
    assert bench.store.topic(topic.name) == topic
    assert bench.bodies(topic) == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_store_remembers_of_options_that_do_nothing_in_a_kind_is_in_nobodys_way(
    bench: Bench, kind: str
) -> None:
    """Earlier versions took such options, and stored them."""
    name = bench.topic(kind, "g").name
    old = TopicOptions(3_600_000, None, 7_200_000, 5000).topic(name, Kind(kind), 1)
    bench.store.declare(old)
    assert bench.store.topic(name) == old
    bench.publish(old, 1, "k")
    new = Topic(name, kind, 1)
    bench.store.declare(new)
    assert bench.store.topic(name) == new
    assert bench.bodies(new) == [1]


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_declaring_again_keeps_what_is_in_the_topic(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    bench.store.declare(Topic(topic.name, kind, 1, dedupe_window="2h"))
    assert bench.store.topic(topic.name) == Topic(topic.name, kind, 1, dedupe_window="2h")
    assert bench.store.groups(topic) == ["g"]
    assert bench.bodies(topic) == [1]


@pytest.mark.promise(1)
def test_a_stream_keeps_settled_messages_for_retain_and_unsettled_ones_for_ever(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g", "h", retain="200ms", dedupe_window="1h")
    for number in range(4):
        bench.publish(topic, number)
    bench.ack(topic, *bench.got(topic))
    bench.ack(topic, *bench.got(topic, "h")[:2], group="h")
    bench.advance(199)
    assert bench.store.sweep(topic) == 0
    bench.advance(1)
    assert bench.store.sweep(topic) == 2
    bench.store.seek(topic, "g", {0: 0})
    assert bench.bodies(topic) == [2, 3]


def test_a_stream_without_groups_is_trimmed_by_age(bench: Bench) -> None:
    topic = bench.topic("stream", retain="50ms", dedupe_window="1h")
    bench.publish(topic, 1)
    bench.advance(50)
    bench.publish(topic, 2)
    assert bench.store.sweep(topic) == 1


def test_marks_go_after_the_window_in_steps_no_larger_than_asked(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", dedupe_window="100ms")
    for number in range(5):
        bench.publish(topic, number, "k", id=f"m{number}")
    assert bench.store.sweep(topic) == 0
    bench.advance(100)
    assert [bench.store.sweep(topic, 2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_delayed_message_that_is_older_than_those_before_it_leaves_no_hole_in_the_log(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g", retain="200ms")
    bench.publish(topic, "delayed", delay_ms=100)
    bench.advance(50)
    bench.publish(topic, "before it")
    bench.advance(50)
    bench.ack(topic, *bench.got(topic))
    bench.advance(100)
    bench.store.sweep(topic)
    bench.store.subscribe(topic, "late")
    bench.take(topic, "late")
    assert bench.bodies(topic, "late") == ["before it", "delayed"]
    assert bench.total(topic, "late").doing == 2
    bench.take(topic, "late")
    assert bench.bodies(topic, "late") == ["before it", "delayed"]
    bench.advance(100)
    while bench.store.sweep(topic):
        pass
    bench.store.seek(topic, "g", {0: 0})
    assert bench.got(topic) == []


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_settled_survives_any_sweep(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", dedupe_window="50ms", **of_kind(kind, retain="50ms"))
    for key in ("todo", "doing", "dead", "parked", "settled"):
        bench.publish(topic, key, key)
    got = {body_of(one): one for one in bench.got(topic)}
    bench.ack(topic, got["settled"])
    bench.kill(topic, got["dead"])
    bench.release(topic, got["todo"])
    bench.retry(topic, got["parked"], delay_ms=300)
    bench.publish(topic, "late", "late", delay_ms=300)
    bench.advance(250)
    before = bench.total(topic)
    while bench.store.sweep(topic):
        pass
    assert bench.total(topic) == before
    assert bench.ack(topic, got["doing"]) == SETTLED
    assert [letter.body for letter in bench.store.dead(topic, "g")] == [b'"dead"']
    bench.store.retry_dead(topic, "g")
    bench.advance(50)
    assert sorted(bench.bodies(topic)) == ["dead", "late", "parked", "todo"]


def test_a_sweep_removes_no_more_rows_than_asked_in_whatever_slots(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4, retain="50ms", dedupe_window="50ms")
    for number in range(20):
        bench.publish(topic, number, f"k{number}")
    bench.ack(topic, *bench.got(topic))
    bench.advance(50)
    removed = []
    while count := bench.store.sweep(topic, 7):
        removed.append(count)
    assert (max(removed), sum(removed)) == (7, 40)  # each message, and the mark of its id


def test_what_was_trimmed_is_not_in_the_log_and_offsets_go_on(bench: Bench) -> None:
    topic = bench.topic("stream", "g", retain="50ms")
    for number in range(3):
        bench.publish(topic, number, id=f"m{number}")
    bench.ack(topic, *bench.got(topic))
    bench.advance(50)
    assert bench.store.sweep(topic) == 3
    assert whereabouts(bench.store, topic, "m1") == []
    bench.publish(topic, 3)
    [one] = bench.got(topic)
    assert (body_of(one), one.seq) == (3, 3)
    bench.store.seek(topic, "g", {0: 0})
    assert bench.store.stats(topic)[0].floor == 3


def test_a_mark_that_was_swept_is_no_duplicate_and_one_that_was_not_is(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", dedupe_window="100ms")
    bench.publish(topic, 1, "k", id="old")
    bench.advance(60)
    bench.publish(topic, 2, "k", id="young")
    bench.advance(40)
    assert bench.store.sweep(topic) == 1
    assert bench.publish(topic, 2, "k", id="young") == "duplicate"
    assert bench.publish(topic, 1, "k", id="old") == "stored"


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_is_deleted_in_steps_with_all_that_it_holds(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h", slots=2)
    kept = bench.topic(kind, "g", slots=2)
    for each in (topic, kept):
        for number in range(12):
            bench.publish(each, number, key=f"k{number % 3}", id=f"m-{number}", delay_ms=number % 2)
        bench.kill(each, *bench.got(each, limit=2), error="boom")
        bench.retry(each, *bench.got(each, limit=2), delay_ms=60_000)
    if kind == "ordered":
        bench.publish(topic, 1, key="gap", sequence=7)
    steps = 1
    while not bench.store.delete(topic, 3):
        steps += 1
        if steps == 2:  # interrupted: another goes on
            assert bench.another().topic(topic.name) is not None
    assert steps >= 3
    bench.topics.remove(topic)
    assert bench.store.topic(topic.name) is None
    assert bench.store.topics() == [kept]
    with pytest.raises(UnknownTopic):
        bench.store.groups(topic)
    bench.store.declare(topic)
    assert bench.store.groups(topic) == []
    bench.store.subscribe(topic, "g")
    assert bench.total(topic).published == 0
    bench.take(topic)
    assert bench.publish(topic, "new", key="k0", id="m-0") is Outcome.STORED
    assert bench.bodies(topic) == ["new"]
    assert bench.store.verify(topic) == []
    assert bench.total(kept).dead > 0


@pytest.mark.parametrize("kind", KINDS)
def test_who_knew_a_topic_works_with_the_one_that_another_declared_in_its_place(
    bench: Bench, kind: str
) -> None:
    topic, other = bench.topic(kind, "g"), bench.another()
    bench.publish(topic, 1, "k")
    while not other.delete(topic):
        pass
    other.declare(topic)
    other.subscribe(topic, "h")
    assert bench.store.groups(topic) == ["h"]
    assert bench.publish(topic, 2, "k") is Outcome.STORED
    bench.take(topic, "h")
    assert bench.bodies(topic, "h") == [2]


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_who_knew_a_topic_stores_nothing_once_it_was_deleted_nor_once_it_is_of_another_kind(
    bench: Bench, kind: str
) -> None:
    """It was told that its messages were stored, and they reached nobody."""
    topic, other = bench.topic(kind, "g", slots=4), bench.another()
    bench.publish(topic, 1, "k")
    while not other.delete(topic):
        pass
    bench.topics.remove(topic)
    entries = [bench.entry(topic, number, f"k{number}") for number in range(20)]
    for some in (entries, entries[:1]):
        with pytest.raises((UnknownTopic, SlotsClosed)) as refused:
            bench.store.publish(topic, some)
        assert set(getattr(refused.value, "outcomes", [None])) == {None}
    anew = Topic(topic.name, "delay" if kind != "delay" else "stream", 4)
    other.declare(anew)
    other.subscribe(anew, "g")
    for some in (entries, entries[:1]):
        with pytest.raises((SlotsClosed, TopicMismatch)) as refused:
            bench.store.publish(topic, some)
        assert set(getattr(refused.value, "outcomes", [None])) == {None}
    assert [one.published for one in other.stats(anew)] == [0] * 4
    assert other.publish(anew, [bench.entry(anew, 1, "k")]) == [Outcome.STORED]
    assert other.verify(anew) == []


@pytest.mark.promise(1)
def test_what_one_group_of_several_has_not_settled_is_kept(bench: Bench) -> None:
    topic = bench.topic("stream", "first", "behind", "last", retain="1s")
    for number in range(4):
        bench.publish(topic, number)
    for group in ("first", "last"):
        bench.ack(topic, *bench.got(topic, group), group=group)
    bench.advance(60_000)
    while bench.store.sweep(topic):
        pass
    assert bench.bodies(topic, "behind") == [0, 1, 2, 3]


@pytest.mark.promise(4)
@pytest.mark.parametrize("slots", [2, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_who_knew_a_topic_of_other_slots_stores_nothing_there(
    bench: Bench, kind: str, slots: int
) -> None:
    """A key of theirs would be in another slot than the same key of everybody else."""
    topic = bench.topic(kind, "g", slots=4)
    bench.publish(topic, 1, "k")
    other = bench.another()
    while not other.delete(topic):
        pass
    bench.topics.remove(topic)
    anew = other.declare(Topic(topic.name, kind, slots))
    other.subscribe(anew, "g")
    for number in range(2):
        with pytest.raises(SlotsClosed) as caught:
            bench.store.publish(topic, [bench.entry(topic, 1, key) for key in "abcdefgh"])
        assert caught.value.outcomes == [None] * 8, number
    assert [one.published for one in other.stats(anew)] == [0] * slots
    assert other.publish(anew, [bench.entry(anew, 1, "k")]) == [Outcome.STORED]
    assert bench.store.publish(anew, [bench.entry(anew, 1, "j")]) == [Outcome.STORED]
    assert other.verify(anew) == []
