"""Taking messages in: duplicates and limits."""

from __future__ import annotations

import pytest
from bench import Bench, body_of

from qframe.codec import batch_mark
from qframe.topic import Topic

KINDS = ("stream", "ordered", "delay")


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_id_again_within_the_window_is_a_duplicate(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", dedupe_window="200ms")
    assert bench.publish(topic, 1, "k", id="order-1") == "stored"
    bench.advance(199)
    assert bench.publish(topic, 2, "k", id="order-1") == "duplicate"
    assert bench.bodies(topic) == [1]
    bench.advance(1)
    assert bench.publish(topic, 3, "k", id="order-1") == "stored"


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_of_another_key_is_known_in_its_slot_alone(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    assert [topic.slot_of(key) for key in (b"a", b"b", b"d")] == [1, 1, 0]
    assert bench.publish(topic, 1, "a", id="created") == "stored"
    assert bench.publish(topic, 2, "d", id="created") == "stored"
    assert bench.publish(topic, 3, "b", id="created") == "duplicate"


def test_an_entry_goes_to_the_slot_that_it_names(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4)
    entries = [bench.entry(topic, number, "one key") for number in range(8)]
    for number, entry in enumerate(entries):
        entry.slot = number % 4
    bench.store.publish(topic, entries)
    got = [(one.slot, body_of(one)) for one in bench.got(topic)]
    assert got == sorted((number % 4, number) for number in range(8))


@pytest.mark.promise(1)
def test_an_id_twice_in_one_call_is_stored_once(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    entries = [bench.entry(topic, number, "k", id="same") for number in range(3)]
    assert bench.store.publish(topic, entries) == ["stored", "duplicate", "duplicate"]


@pytest.mark.promise(1)
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_of_a_series_is_taken_once_however_late_it_comes_again(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", dedupe_window="100ms")

    def publish(place: int, message_id: str, series: str = "daily") -> str:
        return bench.publish(topic, place, "k", id=message_id, series=(series, place))

    assert publish(7, "tick-7") == "stored"
    bench.advance(1000)
    while bench.store.sweep(topic):
        pass
    assert publish(7, "tick-7") == "duplicate"
    assert publish(6, "tick-6") == "duplicate"
    assert publish(7, "another id") == "duplicate"
    assert publish(6, "tick-6-of-another", "weekly") != "duplicate"
    assert publish(8, "tick-8") != "duplicate"
    assert publish(8, "tick-8") == "duplicate"
    bench.ack(topic, *bench.got(topic))
    assert publish(7, "tick-7") == "duplicate"


def test_places_of_a_series_in_one_call_are_taken_in_order(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    entries = [
        bench.entry(topic, place, "k", id=f"tick-{place}", series=("daily", place))
        for place in (1, 3, 2, 4)
    ]
    assert bench.store.publish(topic, entries) == ["stored", "stored", "duplicate", "stored"]
    assert bench.bodies(topic) == [1, 3, 4]


def test_a_place_that_found_no_room_is_free_still(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", max_length=1)
    assert bench.publish(topic, 1, "k", id="tick-1", series=("daily", 1)) == "stored"
    assert bench.publish(topic, 2, "k", id="tick-2", series=("daily", 2)) == "full"
    assert bench.publish(topic, 1, "k", id="once more", series=("daily", 1)) == "duplicate"
    bench.ack(topic, *bench.got(topic))
    assert bench.publish(topic, 2, "k", id="tick-2", series=("daily", 2)) == "stored"


@pytest.mark.promise(8)
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


@pytest.mark.promise(8)
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


@pytest.mark.promise(1)
def test_what_was_published_comes_out_as_it_was(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, {"a": "é"}, "ключ", id="m-1", headers={"h": "ü", "qf-tags": "x"})
    [one] = bench.got(topic)
    assert (one.id, one.key, one.headers) == ("m-1", "ключ", {"h": "ü", "qf-tags": "x"})
    assert body_of(one) == {"a": "é"}
    assert one.published_at_ms == bench.store.now_ms()


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_are_answered_in_the_order_of_the_entries(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=4)
    bench.publish(topic, 0, "k0", id="known")
    entries = [
        bench.entry(topic, 1, "k1"),
        bench.entry(topic, 2, "k0", id="known"),
        bench.entry(topic, 3, "k1"),
        bench.entry(topic, 4, "k2"),
    ]
    again = {"merge": "merged", "delay": "replaced", "priority": "replaced"}.get(kind, "stored")
    assert bench.store.publish(topic, entries) == ["stored", "duplicate", again, "stored"]
    assert bench.store.publish(topic, []) == []


def test_a_batchs_mark_is_remembered_only_in_the_slots_it_reached(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    keys = {topic.slot_of(key.encode()): key for key in map(str, range(20))}
    token = "a" * 20
    mine = bench.entry(topic, 1, keys[0], id=f"{token}-0", mark=batch_mark(token))
    assert bench.store.publish(topic, [mine]) == ["stored"]
    assert bench.publish(topic, 2, keys[1], id=f"{token}-1") == "stored"
    assert bench.publish(topic, 3, keys[0], id=f"{token}-7") == "duplicate"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_recognised_within_the_window_and_not_after_it(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", dedupe_window="100ms")
    token = "a" * 20
    entry = bench.entry(topic, 1, "k", id=f"{token}-0", mark=batch_mark(token))
    assert bench.store.publish(topic, [entry]) == ["stored"]
    bench.advance(99)
    assert bench.store.publish(topic, [entry]) == ["duplicate"]
    bench.ack(topic, *bench.got(topic))
    bench.advance(1)
    assert bench.store.publish(topic, [entry]) == ["stored"]


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_an_id_whose_message_was_replaced_is_still_a_duplicate(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", id="one")
    bench.publish(topic, 2, "k", id="two")
    assert bench.publish(topic, 1, "k", id="one") == "duplicate"
    assert bench.bodies(topic) == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_slot_refuses_nothing_of_another_slot(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2, max_length=4)
    keys: dict[int, list[str]] = {0: [], 1: []}
    for key in map(str, range(40)):
        keys[topic.slot_of(key.encode())].append(key)
    first, second = keys[0], keys[1]
    order = [first[0], first[1], first[2], second[0], first[3], second[1]]
    entries = [bench.entry(topic, key, key) for key in order]
    assert bench.store.publish(topic, entries) == [
        "stored", "stored", "full", "stored", "full", "stored",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_for_its_time_counts_towards_the_limit(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", max_length=2)
    for key in ("a", "b"):
        assert bench.publish(topic, key, key, delay_ms=200) == "stored"
    assert bench.publish(topic, "c", "c") == "full"


def test_what_is_held_behind_a_gap_counts_towards_the_limit(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", max_length=2)
    bench.publish(topic, 2, "k", sequence=2)
    bench.publish(topic, 3, "k", sequence=3)
    assert bench.publish(topic, 4, "k", sequence=4) == "full"
    assert bench.publish(topic, "x", "other") == "full"


@pytest.mark.parametrize("kind", KINDS)
def test_dead_letters_do_not_count_towards_the_limit_and_doing_does(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", max_length=1)
    bench.publish(topic, 1, "a")
    [one] = bench.got(topic)
    assert bench.publish(topic, 2, "b") == "full"
    bench.kill(topic, one)
    assert bench.publish(topic, 2, "b") == "stored"


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_a_next_round_is_one_more_message_for_the_limit(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", max_length=1)
    bench.publish(topic, 1, "k")
    bench.got(topic)
    assert bench.publish(topic, 2, "k") == "full"


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_the_limit_holds_before_there_is_a_group(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, max_length=1)
    assert bench.publish(topic, 1, "a") == "stored"
    assert bench.publish(topic, 2, "b") == "full"


def test_a_limit_that_is_raised_holds_from_then_on(bench: Bench) -> None:
    topic = bench.topic("stream", "g", max_length=1)
    bench.publish(topic, 1)
    assert bench.publish(topic, 2) == "full"
    wider = Topic(topic.name, "stream", 1, max_length=2)
    bench.store.declare(wider)
    assert bench.publish(wider, 2) == "stored"
    assert bench.publish(wider, 3) == "full"


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_bodies_come_out_byte_for_byte(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bodies = [bytes(range(256)), b"", b"\xff\xfe", b"x" * 100_000, "é🛫".encode()]
    entries = []
    for number, body in enumerate(bodies):
        entry = bench.entry(topic, number, f"k{number}")
        entry.body = body
        entries.append(entry)
    bench.store.publish(topic, entries)
    assert [one.body for one in bench.got(topic)] == bodies


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_any_text_come_out_as_they_were(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    keys = [*"Aaä %_'\"\\\n#0", "a ", "a\u0308", "k" * 512]
    for key in keys:
        assert bench.publish(topic, key, key) == "stored"
    assert [one.key for one in bench.got(topic)] == keys
