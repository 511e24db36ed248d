"""A pull loop step by step: what it asks of which slot, and for how long it sleeps between."""

from __future__ import annotations

import pytest
from late import loses
from pull_line import FIRST, SECOND, Line, later, rings

from qframe.errors import AnswerLost, StoreUnavailable
from qframe.runtime.feed.pull_loop import AWAY_SLEEP_S, LONGEST_SLEEP_WITH_BELL_S
from qframe.stores.types import PullRequest, PullResult, PullTerms, RevokeResult
from qframe.topic import Topic


def test_a_pull_whose_answer_was_lost_is_revoked_before_its_slots_are_asked_again() -> None:
    line = Line("delay")
    line.publish(0, 1)
    line.store.after("pull", loses(AnswerLost("store", "the answer was lost")))
    line.run(later(line, 50))
    assert [(one.attempt, int(one.body)) for one in line.got] == [(1, 1)]
    assert line.asked == [[0, 1], [0, 1]]


def test_a_slot_of_which_nothing_can_be_revoked_is_not_asked_and_the_pauses_grow() -> None:
    line = Line("delay", slots=4)
    line.publish(0, 1)
    revoke = line.model.revoke
    tries: list[list[int]] = []

    def away(topic: Topic, group: str, asks: list[PullRequest], receipt: str) -> RevokeResult:
        tries.append(sorted(ask.slot for ask in asks))
        if len(tries) <= 2:
            return RevokeResult(0, [0])
        return revoke(topic, group, asks, receipt)

    line.model.revoke = away  # type: ignore[method-assign, assignment]
    line.store.after("pull", loses(AnswerLost("store", "the answer was lost")))
    line.run(later(line, 50), later(line, 50), later(line, 100))
    assert tries == [[0, 1, 2, 3], [0], [0]]
    assert line.asked == [[0, 1, 2, 3], [1, 2, 3], [1, 2, 3], [0, 1, 2, 3]]
    assert line.slept[:3] == [0.05, 0.05, 0.1]
    assert line.bodies == [1]


@pytest.mark.promise(6)
def test_a_slot_is_unrevoked_from_its_lost_answer_until_its_revocation_has_been_heard() -> None:
    """Another worker that took it meanwhile would count a delivery that nobody has handled."""
    line = Line("delay", slots=1)
    line.publish(0, 1)
    line.store.after("pull", loses(AnswerLost("store", "the answer was lost")))
    line.store.after("revoke", loses(AnswerLost("store", "the answer was lost")))
    seen: list[frozenset[int]] = []

    def look() -> None:
        seen.append(line.in_flight.unanswered)
        line.clock.advance(50)

    line.run(look, look, look)
    assert seen == [{0}, {0}, frozenset()]
    assert line.asked[:2] == [[0], [0]]
    assert line.bodies == [1]


@pytest.mark.promise(6, 9)
def test_a_loop_that_is_stopped_revokes_what_is_in_doubt_before_it_ends() -> None:
    line = Line("delay", slots=1)
    line.publish(0, 1)
    line.store.after("pull", loses(AnswerLost("store", "the answer was lost")))
    line.run()
    [stats] = line.model.stats(line.topic, "g")
    assert (stats.todo, stats.doing) == (1, 0)
    assert line.in_flight.unanswered == frozenset()


def test_slots_whose_answers_were_lost_while_others_answered_are_revoked_alone() -> None:
    line = Line("delay")
    line.publish(0, 1)
    line.publish(1, 2)
    pull = line.model.pull

    def partly(topic: Topic, group: str, asks: list[PullRequest], terms: PullTerms) -> PullResult:
        pulled = pull(topic, group, asks, terms)
        if len(line.asked) == 1:
            pulled.deliveries = [one for one in pulled.deliveries if one.slot == 1]
            pulled.in_doubt = [0]
        return pulled

    line.model.pull = partly  # type: ignore[method-assign, assignment]
    line.run(later(line, 0))
    assert line.slept[0] == 0
    assert line.bodies == [2, 1]


def test_what_was_revoked_is_pulled_though_the_bell_has_rung_for_another_slot() -> None:
    line = Line("delay")
    line.publish(0, 1)
    revokes: list[int] = []
    revoke = line.model.revoke

    def away_once(topic: Topic, group: str, asks: list[PullRequest], receipt: str) -> RevokeResult:
        revokes.append(len(revokes))
        return RevokeResult(0, [0]) if len(revokes) == 1 else revoke(topic, group, asks, receipt)

    def ring_later() -> None:
        line.clock.advance(50)
        line.publish(1, 2)
        rings(line, 1)

    line.model.revoke = away_once  # type: ignore[method-assign, assignment]
    line.store.after("pull", loses(AnswerLost("store", "the answer was lost")))
    line.run(later(line, 50), ring_later)
    assert sorted(line.bodies) == [1, 2]


def test_after_each_outage_the_first_pause_is_short_again() -> None:
    line = Line()
    away = loses(StoreUnavailable("store", "away"))
    nothing = later(line, 0)
    line.store.before("pull", away, away, away, nothing, away)
    line.run(*[nothing] * 5)
    pauses = [each for each in line.slept if each < LONGEST_SLEEP_WITH_BELL_S]
    assert pauses == [0.05, 0.1, 0.2, 0.05]


def test_a_slot_that_comes_while_the_bell_rang_for_another_is_asked_at_once() -> None:
    line = Line()
    line.epochs = {0: FIRST}
    line.publish(1, 7)

    def come() -> None:
        line.epochs = {0: FIRST, 1: FIRST}
        rings(line, 0)

    line.run(come)
    assert line.asked == [[0], [0, 1]]
    assert line.bodies == [7]


def test_a_bell_for_slots_of_others_wakes_nothing_unless_there_are_slots_to_take() -> None:
    line = Line()
    line.epochs = {0: FIRST}
    line.run(lambda: rings(line, 1), lambda: rings(line, 1))
    assert line.asked == [[0]]
    lacking = Line()
    lacking.epochs, lacking.has_unread = {0: FIRST}, True
    lacking.run(lambda: rings(lacking, 1))
    assert len(lacking.asked) == 2
    assert lacking.slept == [AWAY_SLEEP_S] * 2


def test_a_worker_that_has_no_slot_sleeps_though_it_is_new_until_it_gets_one() -> None:
    line = Line()
    line.flow._slow_start._allowed = 1
    line.epochs = {}
    line.publish(0, 1)

    def rings_for_others() -> None:
        line.rung = frozenset({0})

    def gets_a_slot() -> None:
        line.epochs = {0: FIRST}

    line.run(rings_for_others, rings_for_others, gets_a_slot)
    assert line.slept[:3] == [AWAY_SLEEP_S] * 3
    assert line.asked[:1] == [[0]]
    assert line.bodies == [1]


def test_bells_for_others_wake_no_worker_without_a_slot_but_it_looks_every_second() -> None:
    line = Line()
    line.epochs = {}
    looks: list[int] = []
    line.held_back = lambda: looks.append(line.clock.now_ms())  # type: ignore[method-assign]
    begun_ms = line.clock.now_ms()

    def rings_for_others() -> None:
        line.clock.advance(400)
        line.rung = frozenset({0})

    line.run(rings_for_others, rings_for_others, later(line, 200))
    assert [round(each, 3) for each in line.slept] == [1.0, 0.6, 0.2, 1.0]
    assert looks == [begun_ms, begun_ms + 1000]


def test_a_slot_whose_bell_was_lost_is_asked_in_time_though_another_slots_rings() -> None:
    """Each bell began the longest sleep anew: found by simulation."""
    line = Line()

    def another_rings() -> None:
        line.clock.advance(60_000)
        line.rung = frozenset({1})

    def is_lost() -> None:
        line.publish(0, 7)
        another_rings()

    line.run(is_lost, another_rings)
    assert line.asked[:3] == [[0, 1], [1], [0, 1]]
    assert line.slept[:2] == [LONGEST_SLEEP_WITH_BELL_S, LONGEST_SLEEP_WITH_BELL_S - 60]
    assert line.bodies == [7]


def test_it_sleeps_until_the_first_of_all_slots_is_due_though_another_was_asked_last() -> None:
    line = Line("delay")
    line.publish(0, 1, delay_ms=300)
    line.publish(1, 2, delay_ms=90_000)

    def ring_for_the_other() -> None:
        line.clock.advance(100)
        rings(line, 1)

    line.run(ring_for_the_other, later(line, 200))
    assert line.slept[:2] == [0.3, 0.2]
    assert line.asked == [[0, 1], [1], [0, 1]]
    assert line.bodies == [1]


def test_a_position_counts_for_the_epoch_under_which_it_was_reached_alone() -> None:
    line = Line(slots=1)
    line.publish(0, 1, 2)

    def come_back() -> None:
        line.settle()
        line.epochs = {0: SECOND}
        line.model.take(line.topic, "g", line.epochs)
        line.publish(0, 3)

    line.run(come_back)
    assert line.positions[0] == 0
    assert line.positions[-1] != 2
    assert line.bodies == [1, 2, 3]


def test_of_a_group_that_is_gone_nothing_is_remembered() -> None:
    """Its log is read from the start again, also where the first answer is lost."""
    line = Line(slots=1)
    line.publish(0, 1, 2)

    def drop() -> None:
        line.settle()
        line.model.drop_group(line.topic, "g")

    lost = loses(AnswerLost("store", "the answer was lost"))
    line.store.after("pull", later(line, 0), lost)
    line.run(drop, later(line, 50))
    assert line.bodies == [1, 2, 1, 2]


def test_what_was_pulled_of_a_slot_that_has_gone_meanwhile_is_not_in_flight() -> None:
    line = Line()
    line.publish(0, 1)
    line.publish(1, 2)
    line.gone = {0}
    line.run()
    assert line.bodies == [2]
    assert line.in_flight.all() == line.got


@pytest.mark.promise(3)
@pytest.mark.parametrize("is_in_hand", [False, True])
def test_a_slot_of_a_stream_is_given_up_where_its_own_leases_have_passed(is_in_hand: bool) -> None:
    """What was lost would come again behind what is in hand: found by simulation."""
    line = Line(slots=1)
    line.publish(0, 1, 2)

    def passes() -> None:
        line.clock.advance(40_000)
        if not is_in_hand:
            line.in_flight.remove(line.in_flight.all())

    line.run(passes)
    assert line.bodies[:2] == [1, 2]
    assert (line.epochs == {}) is is_in_hand


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_slot_that_the_store_refuses_is_told_and_the_others_go_on(kind: str) -> None:
    line = Line(kind)
    line.publish(1, 5)
    line.model.take(line.topic, "g", {0: SECOND})
    line.run()
    assert dict(line.epochs) == {1: FIRST}
    assert line.bodies == [5]


def test_the_store_may_keep_a_part_of_the_bytes_and_what_it_keeps_takes_room() -> None:
    line = Line("stream", slots=1)
    terms_seen: list[PullTerms] = []
    pull = line.model.pull

    def keeps(topic: Topic, group: str, asks: list[PullRequest], terms: PullTerms) -> PullResult:
        terms_seen.append(terms)
        pulled = pull(topic, group, asks, terms)
        pulled.ahead_bytes = 77
        return pulled

    line.model.pull = keeps  # type: ignore[method-assign, assignment]
    line.run()
    assert terms_seen[0].ahead_bytes == line.in_flight.most_ahead_bytes > 0
    assert line.in_flight.ahead_bytes == 77


@pytest.mark.promise(1)
def test_a_look_sees_what_came_before_it_into_a_slot_that_was_asked_already() -> None:
    """The slots that were left were asked, and a client was told that nothing is there."""
    line = Line("delay", slots=4, room=2)
    line.epochs = dict.fromkeys(range(3), FIRST)
    first: list[int] = []
    pull = line.model.pull

    def look(topic: Topic, group: str, asks: list[PullRequest], terms: PullTerms) -> PullResult:
        pulled = pull(topic, group, asks, terms)
        if not first:
            line.publish(asks[-1].slot, 7)
            first.append(line.loop.look())
        return pulled

    line.model.pull = look  # type: ignore[method-assign, assignment]
    seen: list[tuple[bool, list[int]]] = []
    line.run(lambda: seen.append((line.loop.looked >= first[0], line.bodies)))
    assert seen[0] in [(True, [7]), (False, [])]
    assert line.bodies == [7]
