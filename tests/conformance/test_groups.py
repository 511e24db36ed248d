"""Groups: each sees every message, and none affects another."""

from __future__ import annotations

import pytest
from bench import SETTLED, STALE, Bench, body_of

from qframe.errors import UnknownGroup
from qframe.message import Delivery
from qframe.stores.records import ChosenDead
from qframe.stores.types import NO_EPOCH, PullTerms
from qframe.topic import Topic

SUBJECTS = ("ordered", "delay")
KINDS = ("stream", *SUBJECTS)


@pytest.mark.promise(1, 7)
@pytest.mark.parametrize("kind", KINDS)
def test_every_group_sees_every_message_and_settles_for_itself(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    for number in range(3):
        bench.publish(topic, number, f"k{number}")
    mine = bench.got(topic, "g")
    bench.ack(topic, *mine[:2])
    bench.kill(topic, mine[2])
    assert sorted(bench.bodies(topic, "h")) == [0, 1, 2]
    assert bench.total(topic, "h").doing == 3
    assert (bench.total(topic, "g").settled, bench.total(topic, "g").dead) == (2, 1)


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_published_before_any_group_is_kept_for_the_first(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind)
    bench.publish(topic, "early", "k")
    assert bench.store.subscribe(topic, "g")
    assert not bench.store.subscribe(topic, "g", "latest")
    assert bench.store.subscribe(topic, "second")
    bench.take(topic)
    bench.take(topic, "second")
    assert bench.bodies(topic) == ["early"]
    # A stream keeps its log for those who come later; elsewhere it went to the first.
    assert bench.bodies(topic, "second") == (["early"] if kind == "stream" else [])
    assert bench.store.groups(topic) == ["g", "second"]


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_groups_that_subscribe_together_each_get_all_that_was_kept_and_later_ones_nothing(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, slots=4)
    keys = [f"k{number}" for number in range(12)]
    for key in keys:
        bench.publish(topic, key, key)
        bench.publish(topic, key, key, delay_ms=50 if key > "k5" else 0)
    bench.store.subscribe(topic, "new", "latest")
    expected = sorted(keys * 2 if kind == "ordered" else keys)
    assert bench.store.subscribe(topic, "g", beside=["h", "i", "new"])
    assert not bench.store.subscribe(topic, "g", beside=["h", "late"])
    for group in ("g", "h", "i", "new", "late"):
        bench.take(topic, group)
    bench.kill(topic, *bench.got(topic, "h")[:2], group="h")
    bench.advance(50)
    assert bench.store.verify(topic) == []
    for group in ("g", "i"):
        assert drained(bench, topic, group) == expected
        total = bench.total(topic, group)
        assert (total.published, total.settled) == (len(expected), len(expected))
    assert drained(bench, topic, "new") == drained(bench, topic, "late") == []
    assert bench.total(topic, "h").published == len(expected)
    bench.publish(topic, "next", "k")
    assert "next" in bench.bodies(topic, "h")
    assert bench.bodies(topic, "late") == ["next"]


def drained(bench: Bench, topic: Topic, group: str) -> list[object]:
    """What a group gets until nothing is due, acknowledged."""
    found: list[object] = []
    while got := bench.got(topic, group):
        found += [body_of(one) for one in got]
        bench.ack(topic, *got, group=group)
    return sorted(found, key=str)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_starts_at_the_latest_sees_only_what_comes_then(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind)
    bench.publish(topic, "early", "a")
    bench.store.subscribe(topic, "g", "latest")
    bench.take(topic)
    bench.publish(topic, "late", "b")
    assert bench.bodies(topic) == ["late"]


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", KINDS)
def test_dropping_a_group_forgets_it_and_leaves_the_others(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, "k")
    assert bench.store.drop_group(topic, "g")
    assert not bench.store.drop_group(topic, "g")
    assert bench.store.groups(topic) == ["h"]
    with pytest.raises(UnknownGroup, match=r"group 'g'.*name one of these: h"):
        bench.pull(topic, "g")
    assert bench.bodies(topic, "h") == [1]


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_when_all_groups_are_dropped_messages_are_kept_for_the_next_first(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.store.drop_group(topic, "g")
    bench.publish(topic, 1, "k")
    bench.store.subscribe(topic, "h")
    bench.take(topic, "h")
    assert bench.bodies(topic, "h") == [1]


def test_an_outcome_is_stored_if_it_is_for_any_group(bench: Bench) -> None:
    topic = bench.topic("merge", "g", "h")
    bench.publish(topic, 1, "k")
    bench.ack(topic, *bench.got(topic, "h"), group="h")
    assert bench.publish(topic, 2, "k") == "stored"
    assert bench.bodies(topic, "g") == bench.bodies(topic, "h") == [2]


@pytest.mark.promise(4)
def test_a_stream_is_replayed_from_an_offset_and_what_was_handed_out_is_fenced_off(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    for number in range(6):
        bench.publish(topic, number)
    got = bench.got(topic)
    bench.ack(topic, *got[:3])
    bench.retry(topic, got[3], delay_ms=300)
    bench.store.seek(topic, "g", {0: 1})
    assert bench.ack(topic, got[4]) != SETTLED
    assert bench.bodies(topic) == [1, 2, 3, 4, 5]
    bench.store.seek(topic, "g", {0: 99})
    assert bench.bodies(topic) == []
    bench.store.seek(topic, "g", {0: -5})
    assert len(bench.got(topic)) == 6


def test_seeking_among_very_many_dead_letters_drops_those_alone_that_come_again(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    for start in range(0, 1600, 400):
        bench.store.publish(topic, [bench.entry(topic, n) for n in range(start, start + 400)])
    got = bench.got(topic, limit=1600)
    for start in range(0, 1600, 400):
        bench.kill(topic, *got[start : start + 400])
    for offset in (1600, 750, 0):
        bench.store.seek(topic, "g", {0: offset})
        dead = bench.store.dead(topic, "g", ChosenDead(limit=2000))
        assert sorted(letter.seq or 0 for letter in dead) == list(range(offset))
        assert bench.store.verify(topic) == []
    assert len(bench.got(topic, limit=1600)) == 1600


@pytest.mark.parametrize("kind", SUBJECTS)
def test_what_is_kept_for_the_first_group_obeys_its_kind(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind)
    outcomes = [bench.publish(topic, number, "k", delay_ms=50) for number in range(2)]
    again = {"ordered": "stored", "merge": "merged"}.get(kind, "replaced")
    assert outcomes == ["stored", again]
    bench.store.subscribe(topic, "g")
    bench.take(topic)
    assert bench.pull(topic).next_due_ms == 50
    bench.advance(50)
    assert bench.bodies(topic) == ([0, 1] if kind == "ordered" else [1])


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", KINDS)
def test_retries_losses_and_dead_letters_of_a_group_are_its_own(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    for key in ("a", "b", "c"):
        bench.publish(topic, key, key)
    before = bench.total(topic, "h")
    first, second, _ = bench.got(topic, "g", lease_ms=50)
    bench.retry(topic, first, delay_ms=200)
    bench.kill(topic, second)
    bench.advance(50)
    bench.take(topic, "g")
    bench.pull(topic, "g")
    assert bench.total(topic, "h") == before
    assert [(body_of(one), one.attempt) for one in bench.got(topic, "h")] == [
        ("a", 1), ("b", 1), ("c", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_is_dropped_and_comes_again_starts_anew(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    for key in ("a", "b"):
        bench.publish(topic, key, key)
    first, second = bench.got(topic, "g")
    bench.kill(topic, first)
    bench.store.drop_group(topic, "g")
    assert bench.store.subscribe(topic, "g", "latest")
    assert set(bench.store.epochs(topic, "g").values()) == {NO_EPOCH}
    bench.take(topic, "g")
    assert bench.ack(topic, second) == STALE
    assert bench.store.dead(topic, "g") == []
    bench.publish(topic, "c", "c")
    assert bench.bodies(topic, "g") == ["c"]
    total = bench.total(topic, "g")
    assert (total.published, total.doing) == (1, 1)


@pytest.mark.promise(8)
@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_group_is_unknown_to_every_operation(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.store.drop_group(topic, "g")
    store = bench.store
    for ask in (
        lambda: store.pull(topic, "g", [], PullTerms("r", 1, 1)),
        lambda: store.settle(topic, "g", []),
        lambda: store.renew(topic, "g", [], 1),
        lambda: store.revoke(topic, "g", [], "r"),
        lambda: store.epochs(topic, "g"),
        lambda: store.take(topic, "g", {}),
        lambda: store.dead(topic, "g"),
        lambda: store.retry_dead(topic, "g"),
        lambda: store.drop_dead(topic, "g"),
        lambda: store.stats(topic, "g"),
        lambda: store.peek(topic, "g", states=["todo"]),
    ):
        with pytest.raises(UnknownGroup, match="g"):
            ask()


def test_seeking_moves_only_the_slots_that_are_named_and_only_this_group(bench: Bench) -> None:
    topic = bench.topic("stream", "g", "h", slots=2)
    for number in range(20):
        bench.publish(topic, number, f"k{number}")
    sizes = [one.head for one in bench.store.stats(topic, "g")]
    assert min(sizes) > 0
    for group in ("g", "h"):
        bench.ack(topic, *bench.got(topic, group), group=group)
    bench.store.seek(topic, "g", {1: 1})
    assert [(one.slot, one.seq) for one in bench.got(topic)] == [
        (1, seq) for seq in range(1, sizes[1])
    ]
    assert bench.got(topic, "h") == []


def test_after_a_seek_counts_begin_where_the_group_was_moved_to(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(5):
        bench.publish(topic, number)
    got = bench.got(topic)
    bench.ack(topic, *got[:3])
    bench.kill(topic, *got[3:])
    assert bench.store.drop_dead(topic, "g", ChosenDead([got[4].id])) == 1
    assert bench.total(topic).cancelled == 1
    bench.store.seek(topic, "g", {0: 2})
    one = bench.store.stats(topic)[0]
    assert (one.published, one.todo, one.settled, one.dead, one.doing) == (3, 3, 0, 0, 0)
    assert one.cancelled == 0
    assert (one.floor, one.head) == (2, 5)


def handed_out_again(bench: Bench) -> tuple[Topic, list[Delivery], list[Delivery]]:
    """Two messages of a stream, handed out before a seek and after it."""
    topic = bench.topic("stream", "g")
    for number in range(2):
        bench.publish(topic, number)
    old = bench.got(topic)
    bench.store.seek(topic, "g", {0: 0})
    return topic, old, bench.got(topic)


@pytest.mark.parametrize("end", ["ack", "retry", "kill", "release"])
def test_what_is_handed_out_again_after_a_seek_ends_under_its_new_receipt_alone(
    bench: Bench, end: str
) -> None:
    topic, old, new = handed_out_again(bench)
    assert [one.seq for one in new] == [one.seq for one in old]
    settle = getattr(bench, end)
    assert settle(topic, *old) == STALE * 2
    assert bench.total(topic).doing == 2
    assert settle(topic, *new) == SETTLED * 2


def test_of_what_is_acknowledged_together_only_that_of_the_receipt_in_force_is(
    bench: Bench,
) -> None:
    topic, old, new = handed_out_again(bench)
    epochs = bench.store.epochs(topic, "g")
    assert bench.store.acknowledge(topic, "g", [old[0], new[1]], epochs) == [*STALE, *SETTLED]
    assert bench.ack(topic, new[0]) == SETTLED


def test_the_offsets_of_a_time_are_told_for_each_slot_and_of_what_is_kept(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2, retain="100ms")
    keys = {topic.slot_of(key.encode()): key for key in map(str, range(20))}
    began = bench.store.now_ms()
    bench.publish(topic, 1, keys[0])
    bench.advance(50)
    bench.publish(topic, 2, keys[1])
    bench.publish(topic, 3, keys[0])
    assert bench.store.offsets_at(topic, began) == {0: 0, 1: 0}
    assert bench.store.offsets_at(topic, began + 1) == {0: 1, 1: 0}
    assert bench.store.offsets_at(topic, began + 50) == {0: 1, 1: 0}
    assert bench.store.offsets_at(topic, began + 51) == {0: 2, 1: 1}
    bench.ack(topic, *bench.got(topic))
    bench.advance(50)
    bench.store.sweep(topic)
    assert bench.store.offsets_at(topic, began) == {0: 1, 1: 0}


def test_the_offset_of_a_time_counts_a_delayed_one_from_when_it_joined_the_log(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    began = bench.store.now_ms()
    bench.publish(topic, "delayed", delay_ms=100)
    bench.advance(50)
    bench.publish(topic, "before it")
    bench.advance(50)
    bench.pull(topic)
    bench.advance(20)
    bench.publish(topic, "after it")
    found = [bench.store.offsets_at(topic, began + ms)[0] for ms in (0, 1, 50, 51, 120, 121)]
    assert found == [0, 0, 0, 1, 2, 3]
