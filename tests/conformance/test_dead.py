"""Dead letters stand until somebody decides."""

from __future__ import annotations

import pytest
from bench import SETTLED, Bench, body_of
from whereabouts import whereabouts

from qframe.admin.admin import Admin
from qframe.stores.records import ChosenDead

KINDS = ("stream", "ordered", "delay")


@pytest.mark.promise(6)
@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_keeps_message_error_traceback_and_attempts(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, {"n": 1}, "k", id="m-1", headers={"h": "x"})
    [one] = bench.got(topic)
    bench.retry(topic, one, error="first")
    [one] = bench.got(topic)
    assert bench.kill(topic, one, error="E: no", traceback="line 1") == SETTLED
    [letter] = bench.store.dead(topic, "g")
    assert (letter.id, letter.key, letter.body) == ("m-1", "k", b'{"n":1}')
    assert (letter.headers, letter.attempts, letter.state) == ({"h": "x"}, 2, "dead")
    assert (letter.error, letter.traceback) == ("E: no", "line 1")
    assert letter.died_at_ms == bench.store.now_ms()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_dead_letter_is_gone_and_counted_as_cancelled(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for key in ("a", "b", "c"):
        bench.publish(topic, key, key, id=key)
    bench.kill(topic, *bench.got(topic))
    assert bench.store.drop_dead(topic, "g", ChosenDead(["b"])) == 1
    assert bench.store.drop_dead(topic, "g", ChosenDead(limit=1)) == 1
    assert len(bench.store.dead(topic, "g")) == 1
    assert bench.total(topic).cancelled == 2


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_a_retried_dead_letter_gives_way_to_a_newer_equal_subject(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, "old", "k")
    bench.kill(topic, *bench.got(topic))
    bench.publish(topic, "new", "k")
    assert bench.store.retry_dead(topic, "g") == 1
    assert bench.bodies(topic) == ["new"]
    assert bench.total(topic).published == 1


@pytest.mark.parametrize("cause", [None, "E: no"])
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_all_are_those_too_that_died_before_the_clock_was_set_back(
    bench: Bench, kind: str, cause: str | None
) -> None:
    """As by a failover to a server whose clock is behind; a death meanwhile is left alone still."""
    topic = bench.topic(kind, "g")
    admin = Admin(bench.store, roster=bench.store.roster)

    def die(*ids: str) -> None:
        bench.advance(1)
        for one in ids:
            bench.publish(topic, one, one, id=one)
        bench.kill(topic, *bench.got(topic), error="E: no")

    die("a", "b")
    seen = admin.dead(topic, "g")[0]
    bench.advance(-3_600_000)
    die("c")
    name = cause and admin.dead_causes(topic, "g").causes[0].name
    assert admin.dead_drop(topic, "g", "all", until=seen, cause=name) == 2
    die("d")
    done = admin.dead_drop(topic, "g", "all", cause=name, on_progress=lambda _: die("late"))
    assert done == 2
    assert [letter.id for letter in bench.store.dead(topic, "g")] == ["late"]


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_stands_for_its_group_only(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, "k", id="m-1")
    bench.kill(topic, *bench.got(topic))
    assert bench.store.dead(topic, "h") == []
    assert bench.store.retry_dead(topic, "h") == bench.store.drop_dead(topic, "h") == 0
    [letter] = bench.store.dead(topic, "g")
    assert (letter.topic, letter.group, letter.slot) == (topic.name, "g", 0)
    assert (letter.headers, letter.error, letter.traceback) == (None, None, None)
    assert bench.store.retry_dead(topic, "g") == 1
    assert (bench.total(topic, "g").todo, bench.total(topic, "h").todo) == (1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_ids_and_no_ids_name_nothing(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", id="m-1")
    bench.kill(topic, *bench.got(topic))
    for ids in ([], ["unknown"], ["m-"]):
        assert bench.store.dead(topic, "g", ChosenDead(ids=ids)) == []
        assert bench.store.retry_dead(topic, "g", ChosenDead(ids)) == 0
        assert bench.store.drop_dead(topic, "g", ChosenDead(ids)) == 0
    assert bench.total(topic).dead == 1


@pytest.mark.parametrize("kind", KINDS)
def test_limits_take_the_longest_dead(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=4)
    for number in range(6):
        bench.publish(topic, number, f"k{number}", id=f"m{number}")
    for one in sorted(bench.got(topic), key=body_of):
        bench.kill(topic, one)
        bench.advance(5)
    assert bench.store.retry_dead(topic, "g", ChosenDead(limit=2)) == 2
    assert [letter.id for letter in bench.store.dead(topic, "g")] == ["m2", "m3", "m4", "m5"]
    assert bench.store.drop_dead(topic, "g", ChosenDead(limit=3)) == 3
    assert [letter.id for letter in bench.store.dead(topic, "g")] == ["m5"]
    assert sorted(bench.bodies(topic)) == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page", [1, 3])
def test_all_are_listed_once_page_by_page_also_when_those_before_are_gone(
    bench: Bench, kind: str, page: int
) -> None:
    topic = bench.topic(kind, "g", slots=4)
    for number in range(10):
        bench.publish(topic, number, f"k{number}", id=f"m{number}")
    for number, one in enumerate(sorted(bench.got(topic), key=body_of)):
        bench.kill(topic, one)
        if number % 4 == 3:  # the others have died at one moment, in several slots
            bench.advance(5)
    whole = [letter.id for letter in bench.store.dead(topic, "g")]
    seen: list[str] = []
    after = None
    while found := bench.store.dead(topic, "g", ChosenDead(limit=page, after=after)):
        assert len(found) <= page
        seen += [letter.id for letter in found]
        after = found[-1].dead_place
        bench.store.drop_dead(topic, "g", ChosenDead([letter.id for letter in found]))
    assert seen == whole
    assert sorted(seen) == [f"m{number}" for number in range(10)]


@pytest.mark.promise(6)
@pytest.mark.parametrize("kind", KINDS)
def test_a_retried_dead_letter_is_the_message_it_was_and_forgets_its_error(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, {"n": 1}, "k", id="m-1", headers={"h": "x"})
    for _ in range(3):
        bench.retry(topic, *bench.got(topic), error="busy")
    bench.kill(topic, *bench.got(topic), error="no", traceback="line 1")
    bench.advance(10)
    assert bench.store.retry_dead(topic, "g") == 1
    [record] = whereabouts(bench.store, topic, "m-1")
    assert (record.state, record.attempts, record.error) == ("todo", 0, None)
    [one] = bench.got(topic)
    assert (one.id, one.key, one.headers, one.body) == ("m-1", "k", {"h": "x"}, b'{"n":1}')
    assert (one.attempt, one.lost) == (1, 0)
    assert bench.ack(topic, one) == SETTLED
    total = bench.total(topic)
    assert (total.published, total.settled, total.dead) == (1, 1, 0)


def test_a_retried_dead_letter_of_a_stream_comes_back_alone_under_its_offset(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    got = bench.got(topic)
    bench.kill(topic, got[1])
    bench.ack(topic, got[0], got[2])
    assert bench.store.stats(topic)[0].floor == 3
    bench.store.retry_dead(topic, "g")
    [again] = bench.got(topic)
    assert (body_of(again), again.subject, again.seq, again.attempt) == (1, "1", 1, 1)
    assert bench.store.stats(topic)[0].floor == 3


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_a_retried_dead_letter_is_absorbed_by_an_equal_subject_that_is_in_doing(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, "old", "k")
    bench.kill(topic, *bench.got(topic))
    bench.publish(topic, "new", "k")
    [one] = bench.got(topic)
    assert bench.store.retry_dead(topic, "g") == 1
    assert bench.ack(topic, one) == SETTLED
    assert bench.got(topic) == []
    total = bench.total(topic)
    assert (total.published, total.settled, total.dead) == (1, 1, 0)


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_the_newest_of_a_subject_s_dead_letters_is_handled_last(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for body in ("first", "second", "third"):
        bench.publish(topic, body, "k", id=body)
        bench.kill(topic, *bench.got(topic))
        bench.advance(5)
    assert bench.store.retry_dead(topic, "g", ChosenDead(["first"])) == 1
    [one] = bench.got(topic)
    assert bench.store.retry_dead(topic, "g", ChosenDead(["third"])) == 1
    assert bench.store.retry_dead(topic, "g", ChosenDead(["second"])) == 1
    assert bench.ack(topic, one) == SETTLED
    assert bench.bodies(topic) == ["third"]
    total = bench.total(topic)
    assert (total.published, total.settled, total.doing, total.dead) == (2, 1, 1, 0)


def test_retried_dead_letters_of_ordered_are_appended_the_longest_dead_first(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    for one in bench.got(topic):
        bench.kill(topic, one)
        bench.advance(5)
    bench.publish(topic, 3, "k")
    assert bench.store.retry_dead(topic, "g") == 3
    assert [(body_of(one), one.attempt) for one in bench.got(topic)] == [
        (3, 1), (0, 1), (1, 1), (2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["ordered", "priority"])
def test_a_dead_letter_keeps_its_priority_when_it_is_retried(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, "high", "a", priority=9)
    bench.kill(topic, *bench.got(topic))
    bench.publish(topic, "middle", "b", priority=5)
    bench.store.retry_dead(topic, "g")
    assert bench.bodies(topic) == ["high", "middle"]


@pytest.mark.promise(6)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_dead_is_handed_out_to_nobody_and_lost_by_nobody(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    bench.kill(topic, *bench.got(topic, lease_ms=50))
    bench.advance(400)
    bench.take(topic)
    pulled = bench.pull(topic)
    assert (pulled.deliveries, pulled.lost, pulled.next_due_ms) == ([], 0, None)
    assert bench.total(topic).dead == 1


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_retry_and_drop_keep_to_the_places_between_which_they_were_asked(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(6):
        bench.publish(topic, number, key=f"k{number}", id=f"m-{number}")
        bench.kill(topic, *bench.got(topic), error="boom")
        bench.advance(number % 2)  # some die at one moment
    dead = bench.store.dead(topic, "g")
    places = [each.dead_place for each in dead]
    retried = bench.store.retry_dead(topic, "g", ChosenDead(after=places[0], until=places[2]))
    assert retried == 2
    assert (
        bench.store.drop_dead(topic, "g", ChosenDead([dead[0].id, dead[5].id], until=places[4]))
        == 1
    )
    assert bench.store.drop_dead(topic, "g", ChosenDead(until=places[2])) == 0
    assert [each.id for each in bench.store.dead(topic, "g")] == [each.id for each in dead[3:]]
    assert bench.store.drop_dead(topic, "g", ChosenDead(limit=2, until=places[4])) == 2
    assert [each.id for each in bench.store.dead(topic, "g")] == [dead[5].id]
