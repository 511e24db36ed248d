"""Every predicament of a message is named by its true cause, on every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from bench import Bench

from qframe.admin.admin import Admin
from qframe.admin.explain.cause import Explanation
from qframe.clock import VirtualClock
from qframe.codec import TAGS_HEADER, batch_mark, new_token
from qframe.message import Delivery
from qframe.options.report import ConsumerReport
from qframe.stores.records import Sought
from qframe.topic import Topic

pytestmark = pytest.mark.written_once

WORKER = "host-1-abc"


def admin(bench: Bench) -> Admin:
    return Admin(bench.store, roster=bench.store.roster, by="ann")


def explained(bench: Bench, *words: Any, **options: Any) -> Explanation:
    [one] = admin(bench).explain(*words, **options)
    return one


def names(one: Explanation) -> list[str]:
    return [cause.name for cause in one.causes]


def of_whom(one: Explanation) -> list[tuple[str, str | None]]:
    return [(cause.name, cause.of) for cause in one.causes]


def serve(bench: Bench, topic: Topic, slots: Sequence[int] | None = None, **report: Any) -> None:
    """A worker of the group `g` that owns slots, all by default, and has reported."""
    bench.store.heartbeat(topic, "g", WORKER, 60_000)
    epochs = bench.store.epochs(topic, "g")
    owned = range(topic.slots) if slots is None else slots
    bench.store.claim(topic, "g", WORKER, {slot: epochs[slot] for slot in owned})
    bench.store.report(topic, "g", WORKER, ConsumerReport(max_attempts=5, **report).to_json())


def take(bench: Bench, topic: Topic, **options: Any) -> list[Delivery]:
    receipt = new_token(VirtualClock(bench.store.now_ms()))
    return bench.got(topic, receipt=receipt, **options)


@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_it_waits_until_it_is_due(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    serve(bench, topic)
    until_ms = bench.store.now_ms() + 3_600_000
    bench.publish(topic, 1, "k", id="order-77", delay_ms=3_600_000)
    for one in (explained(bench, topic, "order-77"), explained(bench, message_id="order-77")):
        assert (one.state, names(one)) == ("waiting", ["not-due"])
        assert one.cause.facts == {"until_ms": until_ms}
        assert "it is not due until 20" in one.cause.text
        assert "(in 60 min)" in one.cause.text
    if kind != "stream":
        assert explained(bench, topic, key="k").id == "order-77"


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_it_waits_behind_another_of_its_key_that_a_worker_has(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    serve(bench, topic)
    bench.publish(topic, 1, "k", id="first")
    since_ms = bench.store.now_ms()
    [first] = take(bench, topic, run=1)
    bench.advance(50)
    bench.publish(topic, 2, "k", id="second")
    one = explained(bench, message_id="second")
    assert of_whom(one) == [("behind", None), ("running", "first")]
    assert one.causes[1].text.startswith(f"first was handed out to {WORKER} at 20")
    assert one.cause.facts == {
        "before": "first", "before_state": "doing", "key": "k", "worker": WORKER,
        "since_ms": since_ms, "attempt": 1,
    }  # fmt: skip
    by_key = admin(bench).explain(key="k")
    assert [(each.id, each.cause.name) for each in by_key] == [
        ("first", "running"), ("second", "behind"),
    ]  # fmt: skip
    if kind == "ordered":
        bench.retry(topic, first, error="KeyError: 'price'", delay_ms=5000)
        one = explained(bench, topic, "second")
        assert of_whom(one) == [("behind", None), ("retry", "first")]
        assert one.causes[1].text.startswith("first waits for a retry after 1 attempt of 5, until")
        assert explained(bench, topic, "first").cause.of is None


@pytest.mark.parametrize("kind", ["ordered", "delay", "priority", "merge"])
def test_behind_another_of_its_key_it_waits_for_its_own_time_too(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    serve(bench, topic)
    bench.publish(topic, 1, "k", id="first")
    take(bench, topic, run=1)
    bench.publish(topic, 2, "k", id="second", delay_ms=3_600_000)
    one = explained(bench, topic, "second")
    assert names(one) == ["behind", "running", "not-due"]
    assert one.causes[2].of is None
    bench.advance(3_600_000)
    assert names(explained(bench, topic, "second"))[-1] != "not-due"


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_it_was_in_hand_and_nobody_is_alive_to_go_on(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", id="m")
    serve(bench, topic)
    take(bench, topic, lease_ms=1000)
    bench.store.leave(topic, "g", WORKER)
    one = explained(bench, topic, "m")
    assert (one.state, names(one)) == ("doing", ["running", "no-worker"])
    assert one.cause.text.startswith("it was handed out to a worker that is gone at 20")
    bench.advance(1000)
    one = explained(bench, topic, "m")
    if kind == "ordered":
        assert names(one) == ["lease-over", "no-worker"]
        bench.publish(topic, 2, "k", id="second")
        assert names(explained(bench, topic, "second")) == ["behind", "lease-over", "no-worker"]
    bench.store.heartbeat(topic, "g", "other", 60_000)
    assert names(explained(bench, topic, "m"))[-1] == "no-owner"


@pytest.mark.parametrize("kind", ["stream", "priority"])
def test_a_worker_has_it_since_when_and_at_which_attempt(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    serve(bench, topic)
    bench.publish(topic, 1, "k", id="m")
    bench.retry(topic, *take(bench, topic), error="busy")
    bench.advance(10)
    since_ms = bench.store.now_ms()
    take(bench, topic, lease_ms=1000)
    one = explained(bench, topic, "m")
    assert (one.state, names(one)) == ("doing", ["running"])
    assert one.cause.facts == {
        "worker": WORKER, "since_ms": since_ms, "attempt": 2, "max_attempts": 5,
        "lease_until_ms": since_ms + 1000,
    }  # fmt: skip
    bench.advance(1000)
    assert names(explained(bench, topic, "m")) == ["lease-over"]


def test_a_message_of_a_streams_window_is_with_the_owner_of_its_slot(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    serve(bench, topic)
    bench.publish(topic, 1, "k", id="m")
    since_ms = bench.store.now_ms()
    take(bench, topic)
    for one in (explained(bench, topic, "m"), explained(bench, topic, offset=0)):
        assert names(one) == ["running"]
        assert (one.cause.facts["worker"], one.cause.facts["since_ms"]) == (WORKER, since_ms)


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_its_group_or_its_key_is_paused_by_whom_since_when(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    serve(bench, topic)
    bench.publish(topic, 1, "k", id="m")
    since_ms = bench.store.now_ms()
    admin(bench).pause(topic, "g", key="k", why="bad data")
    one = explained(bench, topic, "m")
    assert names(one) == ["paused"]
    assert one.cause.facts == {
        "scope": "key", "key": "k", "by": "ann", "why": "bad data", "since_ms": since_ms
    }  # fmt: skip
    assert one.cause.text.startswith("key k is paused by ann since 20")
    admin(bench).resume(topic, "g", key="k")
    admin(bench).pause(topic)
    one = explained(bench, topic, "m")
    assert (names(one), one.cause.facts["scope"], one.cause.facts["by"]) == (
        ["paused"], "group", "ann",
    )  # fmt: skip
    admin(bench).resume(topic)
    assert names(explained(bench, topic, "m")) == ["ready"]


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_it_waits_for_a_retry_because_of_an_error(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    serve(bench, topic)
    bench.publish(topic, 1, "k", id="m")
    bench.retry(topic, *take(bench, topic), error="KeyError: 'price'", delay_ms=5000)
    one = explained(bench, topic, "m")
    assert (one.state, names(one)) == ("waiting", ["retry"])
    assert one.cause.facts == {
        "until_ms": bench.store.now_ms() + 5000, "attempts": 1, "max_attempts": 5,
        "error": "KeyError: 'price'",
    }  # fmt: skip
    assert "after 1 attempt of 5, until 20" in one.cause.text


def test_it_is_held_in_a_gap_of_its_sequence(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", slots=2, gap_timeout="30s")
    bench.publish(topic, 2, "k", id="second", sequence=2)
    for one in (explained(bench, topic, "second"), explained(bench, topic, key="k")):
        assert (one.state, names(one)) == ("held", ["sequence-gap"])
        assert one.cause.facts == {"until_ms": bench.store.now_ms() + 30_000, "key": "k"}
        assert "a sequence number before 2" in one.cause.text


@pytest.mark.parametrize(("kind", "name"), [("merge", "merged"), ("delay", "replaced")])
def test_it_is_merged_into_another_or_replaced_by_it(bench: Bench, kind: str, name: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    bench.publish(topic, 1, "k", id="first", delay_ms=1000)
    bench.advance(5)
    bench.publish(topic, 2, "k", id="second", delay_ms=1000)
    one = explained(bench, topic, "first", key="k")
    assert (one.state, names(one)) == ("absent", [name])
    assert one.cause.facts == {
        "by": "second", "since_ms": bench.store.now_ms(),
        "published_ms": bench.store.now_ms() - 5,
    }  # fmt: skip
    assert names(explained(bench, topic, "first")) == ["forgotten"]


@pytest.mark.parametrize("kind", ["stream", "merge"])
def test_its_id_is_remembered_so_another_of_it_is_a_duplicate(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", dedupe_window="10s")
    began = bench.store.now_ms()
    bench.publish(topic, 1, "k", id="m")
    bench.advance(1000)
    bench.publish(topic, 2, "k", id="m")
    assert explained(bench, topic, "m").duplicate_until_ms == began + 10_000
    bench.advance(9000)
    assert explained(bench, topic, "m", key="k").duplicate_until_ms is None


def test_it_was_filtered_by_the_tags_of_the_consumer(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    serve(bench, topic, tags=("gold", "silver"))
    bench.publish(topic, 1, "k", id="m", headers={TAGS_HEADER: "tin"})
    bench.publish(topic, 1, "k", id="wanted", headers={TAGS_HEADER: "gold"})
    bench.ack(topic, *take(bench, topic))
    one = explained(bench, topic, "m")
    assert (one.state, names(one)) == ("settled", ["filtered"])
    assert one.cause.facts == {
        "tags": ["tin"], "wanted": ["gold", "silver"], "worker": WORKER,
        "reported_ms": bench.store.now_ms(),
    }  # fmt: skip
    assert names(explained(bench, topic, "wanted")) == ["settled"]


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_it_is_dead_since_when_and_why(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    bench.publish(topic, 1, "k", id="m")
    bench.advance(10)
    bench.kill(topic, *take(bench, topic), error="ValueError: no")
    for one in (explained(bench, message_id="m"), explained(bench, topic, key="k")):
        assert (one.state, names(one)) == ("dead", ["dead"])
        assert one.cause.facts == {
            "since_ms": bench.store.now_ms(), "attempts": 1, "error": "ValueError: no"
        }  # fmt: skip


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_it_is_settled_and_what_the_store_does_not_keep_it_says(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    published_ms = bench.store.now_ms()
    bench.publish(topic, 1, "k", id="m")
    bench.ack(topic, *take(bench, topic))
    one = explained(bench, topic, "m")
    if kind == "stream":
        assert (one.state, names(one)) == ("settled", ["settled"])
        assert "when and by whom, the store does not keep" in one.cause.text
    else:
        assert (one.state, names(one)) == ("absent", ["forgotten"])
        assert one.cause.facts == {"published_ms": published_ms}


@pytest.mark.parametrize(("kind", "key"), [("ordered", "k"), ("delay", "k"), ("delay", None)])
def test_a_group_that_does_not_have_what_another_has_is_told_too(
    bench: Bench, kind: str, key: str | None
) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, key, id="m")
    bench.ack(topic, *take(bench, topic))
    there, gone = admin(bench).explain(topic, "m")
    assert (there.group, there.state) == ("h", "todo")
    assert (gone.group, gone.state, names(gone)) == ("g", "absent", ["forgotten"])
    assert "it is settled, replaced or dropped there" in gone.cause.text
    bench.kill(topic, *take(bench, topic, group="h"), group="h", error="ValueError: no")
    dead, gone = admin(bench).explain(topic, "m")
    assert (dead.state, gone.group) == ("dead", "g")


def test_it_is_trimmed_from_the_stream(bench: Bench) -> None:
    topic = bench.topic("stream", "g", retain="1s", dedupe_window="1d")
    token = new_token(VirtualClock(bench.store.now_ms()))
    bench.publish(topic, 1, "k", id=f"{token}-0", mark=batch_mark(token))
    bench.ack(topic, *take(bench, topic))
    bench.advance(2000)
    bench.publish(topic, 2, "k", id="kept")
    while bench.store.sweep(topic):
        pass
    for one in (explained(bench, topic, f"{token}-0"), explained(bench, topic, offset=0)):
        assert (one.state, names(one)) == ("absent", ["trimmed"])
    assert names(explained(bench, topic, "kept")) == ["no-worker"]
    assert explained(bench, topic, "kept").cause.text == "no worker of g is alive"
    bench.advance(2000)
    retired = explained(bench, topic, "kept").cause
    assert "stream keeps it for longer than 1000 ms because of that" in retired.text
    assert f"qframe groups drop {topic.name} g" in retired.text
    assert retired.facts == {"retain_s": 1.0}


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_it_was_never_seen(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(5):
        bench.publish(topic, number, f"k{number}")
    one = explained(bench, topic, "order-77")
    assert (one.state, names(one)) == ("absent", ["unknown"])
    assert one.cause.facts["complete"]
    assert one.looked == one.cause.facts["looked"] >= 5
    one = explained(bench, topic, "order-77", look=0)
    assert one.cause.facts == {"looked": 0, "complete": False}


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_no_group_has_subscribed_yet(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind)
    bench.publish(topic, 1, "k", id="m")
    assert names(explained(bench, topic, "m")) == ["no-group"]


def test_a_report_is_the_last_word_of_its_worker_and_goes_with_its_group(bench: Bench) -> None:
    topic = bench.topic("stream", "g", "h")
    for worker, text in (("b", "old"), ("a", "1"), ("b", "ü")):
        bench.advance(1)
        bench.store.report(topic, "g", worker, text)
    now_ms = bench.store.now_ms()
    assert bench.store.reports(topic, "g") == [("a", now_ms - 1, "1"), ("b", now_ms, "ü")]
    assert bench.store.reports(topic, "h") == []
    bench.advance(86_400_000)
    bench.store.report(topic, "g", "c", "3")
    assert [one.worker for one in bench.store.reports(topic, "g")] == ["c"]
    bench.store.drop_group(topic, "g")
    bench.store.subscribe(topic, "g")
    assert bench.store.reports(topic, "g") == []


@pytest.mark.parametrize("kind", ["ordered", "stream", "delay"])
@pytest.mark.parametrize("history", ["0s", "1d"])
def test_every_group_is_answered_for_whatever_became_of_it_with_another(
    bench: Bench, kind: str, history: str
) -> None:
    topic = bench.topic(kind, "done", "waits", history=history)
    bench.publish(topic, 1, "k", id="first")
    bench.advance(5)
    if kind == "delay":  # behind what a handler has, a subject of this kind has one message
        take(bench, topic, group="waits")
    bench.publish(topic, 2, "k", id="second")
    while some := take(bench, topic, group="done"):
        bench.ack(topic, *some, group="done")
    for options in ({}, {"topic": topic}):
        told = {each.group: each for each in admin(bench).explain(message_id="second", **options)}
        assert set(told) == {"done", "waits"}
        assert told["waits"].state == "todo"
        if history == "1d" or kind == "stream":
            assert told["done"].state == "settled"
        else:
            assert (told["done"].state, names(told["done"])) == ("absent", ["forgotten"])


def test_a_group_whose_messages_were_not_all_looked_at_is_told_as_such(bench: Bench) -> None:
    topic = bench.topic("ordered", "done", "waits", slots=1, history="1d")
    for number in range(30):
        bench.publish(topic, number, f"k{number % 3}", id=f"m{number}")
        bench.advance(1)
    while some := take(bench, topic, group="done"):
        bench.ack(topic, *some, group="done")
    if bench.store.find(topic, Sought(id="m29")).records:
        return  # the model looks at everything
    done, waits = admin(bench).explain(topic, "m29", look=1)
    assert (done.group, done.state) == ("done", "settled")
    assert (waits.group, waits.state, names(waits)) == ("waits", "unknown", ["unknown"])
    assert waits.cause.facts["complete"] is False
    assert waits.place is not None
    found, place = [], waits.place
    while place is not None and not found:
        hits = admin(bench).search(topic, id="m29", look=7, place=place)
        found, place = hits.records, hits.place
    assert [(each.group, each.id) for each in found] == [("waits", "m29")]
    assert {each.group for each in admin(bench).explain(topic, "m29")} == {"done", "waits"}


@pytest.mark.parametrize("kind", ["ordered", "stream"])
def test_a_message_is_looked_for_first_where_its_id_is_remembered(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=8)
    for _ in range(10):  # by name some are before it
        other = bench.topic("ordered", "g", slots=4)
        for number in range(20):
            bench.publish(other, number, f"k{number}")
    delay_ms = 3_600_000 if kind == "stream" else 0
    bench.publish(topic, 1, "k", id="first", delay_ms=delay_ms)
    bench.publish(topic, 2, "k", id="second", delay_ms=delay_ms)
    one = explained(bench, message_id="second", look=20)
    assert (one.topic, one.id, one.state) == (
        topic.name, "second", "waiting" if kind == "stream" else "todo",
    )  # fmt: skip
    hits = admin(bench).search(id="second", look=20)
    assert [each.id for each in hits.records] == ["second"]
    assert hits.place is None


def test_what_is_remembered_and_gone_is_told_so_and_what_was_not_looked_at_too(
    bench: Bench,
) -> None:
    other = bench.topic("ordered", "g", slots=1)
    for number in range(60):
        bench.publish(other, number, f"k{number}")
    topic = bench.topic("ordered", "g", slots=1)
    bench.publish(topic, 1, "k", id="m")
    bench.ack(topic, *take(bench, topic))
    one = explained(bench, message_id="m", look=20)
    assert (one.topic, one.state, names(one)) == (topic.name, "absent", ["forgotten", "unknown"])
    assert "in other topics it was looked up by indexes alone" in one.causes[1].text
    one = explained(bench, message_id="never", look=20)
    assert (one.state, one.looked, one.cause.facts["complete"]) == ("unknown", one.looked, False)
    place, looked = one.place, one.looked
    while place is not None:
        hits = admin(bench).search(id="never", look=25, place=place)
        assert not hits.records
        place, looked = hits.place, looked + hits.looked
    assert looked >= 60
    hits = admin(bench).search(id="m", look=5)
    places = [hits.place]
    while hits.place is not None:
        hits = admin(bench).search(id="m", look=50, place=hits.place)
        places.append(hits.place)
    assert len(places) > 1


def test_a_key_in_a_stream_is_told_as_far_as_it_was_looked_for(bench: Bench) -> None:
    queue, stream = bench.topic("ordered", "g"), bench.topic("stream", "g", slots=1)
    for number in range(40):
        bench.publish(stream, number, f"k{number}", id=f"m{number}")
    bench.publish(queue, 1, "k35", id="queued")
    queued, unread = admin(bench).explain(key="k35")
    assert (queued.id, unread.state) == ("queued", "unknown")
    assert stream.name in unread.cause.text
    [one] = admin(bench).explain(stream, key="k35", look=5)
    assert (one.state, one.cause.facts["complete"]) == ("unknown", False)
    [one] = admin(bench).explain(stream, key="k35")
    assert (one.id, one.state) == ("m35", "todo")
    *_, more = admin(bench).explain(stream, key="k3", look=20)
    assert (more.state, "there may be more of key k3" in more.cause.text) == ("unknown", True)
