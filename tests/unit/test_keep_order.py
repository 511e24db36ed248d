"""Streams whose consumers keep order: the worker's part of it, and whole workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qframe import AllOf, Batch, Message, NeedRetry, QFrame, Reject, Topic
from qframe.errors import BadOption
from qframe.message import Delivery
from qframe.options.consumer import consumer_options
from qframe.outcomes import Verdict
from qframe.runtime.handler.retry_policy import Disposition
from qframe.runtime.order.key_order import KeyOrder
from qframe.runtime.order.lanes import Lanes
from qframe.runtime.order.parked_keys import ParkedKeys
from qframe.runtime.order.settlement_order import One, SettlementOrder
from qframe.testing import Harness

EVENTS = Topic("events", slots=2)


def of_line(key: str | None, seq: int) -> Delivery:
    return Delivery(f"m{seq}", key, None, b"1", subject=None, seq=seq, receipt="window")


def parked(key: str, seq: int, receipt: str = "r") -> Delivery:
    return Delivery(f"m{seq}", key, None, b"1", subject=key, seq=seq, receipt=receipt)


def ends(told: list[Any]) -> list[tuple[Delivery, Verdict]]:
    """What the settler was told, one by one."""
    found = []
    for item in told:
        if isinstance(item, Disposition):
            found.append((item.delivery, item.verdict))
        else:
            found += [(one, Verdict.ACK) for one in (item if isinstance(item, list) else [item])]
    return found


class Line:
    """A `KeyOrder` that keeps order, and what it has told."""

    def __init__(self, *, by_slot: bool = False) -> None:
        self.told: list[Any] = []
        self.gone: list[Delivery] = []
        self.held: set[Delivery] = set()
        self.order = KeyOrder(
            Lanes(by_subject=False, by_slot=by_slot), by_run=False,
            parked=ParkedKeys(self.held.__contains__), gone=self.gone.extend, put=self.told.append,
        )  # fmt: skip

    def offer(self, *deliveries: Delivery) -> list[Delivery]:
        """The reply to the pull that was asked for."""
        self.held.update(deliveries)
        through: list[Delivery] = []
        self.order.offer([*deliveries], through.extend)
        return through

    def ask(self, *unanswered: Delivery) -> None:
        """A pull is asked for; by now the store has answered what it was told, but for these."""
        answered = {one for one, _ in self.ends}.difference(unanswered)
        self.held.difference_update(answered, self.gone)
        self.order.before_pull()

    def end(self, one: Delivery, verdict: Verdict) -> list[Delivery]:
        self.order.end(Disposition(one, verdict))
        return self.order.free([one])

    @property
    def ends(self) -> list[tuple[Delivery, Verdict]]:
        return ends(self.told)


def test_what_goes_back_with_another_is_gone_before_the_store_is_told_of_that() -> None:
    """Its lease ends with what is told: by then no renewal may take it for lost."""
    line = Line()
    first, behind = parked("k", 1), parked("k", 2)
    line.offer(first, behind)
    told: list[object] = []
    line.order._put, line.order._gone = told.append, told.append
    retried = Disposition(first, Verdict.RETRY)
    line.order.end(retried)
    assert told == [[behind], retried]


@pytest.mark.promise(3)
@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.RELEASE])
def test_what_waits_behind_one_that_comes_back_is_given_back_after_it(verdict: Verdict) -> None:
    line = Line()
    first, other, second, third = (of_line(key, seq) for seq, key in enumerate("abaa"))
    assert line.offer(first, other, second, third) == [first, other]
    assert line.end(first, verdict) == []
    assert line.ends == [(first, verdict), (second, Verdict.RELEASE), (third, Verdict.RELEASE)]
    assert line.gone == []


def test_what_waits_behind_a_dead_one_goes_on() -> None:
    line = Line()
    first, second = of_line("a", 0), of_line("a", 1)
    line.offer(first, second)
    assert line.end(first, Verdict.DEAD) == [second]
    assert line.offer(of_line("a", 2)) == []
    assert line.ends == [(first, Verdict.DEAD)]


@pytest.mark.promise(3)
def test_a_pull_that_was_asked_for_before_a_retry_was_answered_brings_nothing_of_its_key() -> None:
    line = Line()
    first, late, other = of_line("a", 0), of_line("a", 4), of_line("b", 5)
    line.offer(first)
    line.end(first, Verdict.RETRY)
    assert line.offer(late, other) == [other]
    assert line.ends == [(first, Verdict.RETRY), (late, Verdict.RELEASE)]
    line.ask()
    again, behind, new = parked("a", 0), parked("a", 4), of_line("a", 6)
    assert line.offer(again, behind) == [again]
    assert line.order.free([again]) == [behind]
    assert line.order.free([behind]) == []
    assert line.offer(new) == [new]


@pytest.mark.promise(3)
def test_what_was_handed_out_before_the_store_heard_of_an_earlier_one_is_given_back() -> None:
    """The third was given back alone, by a pause; then the second is retried."""
    line = Line()
    second, third = of_line("a", 1), of_line("a", 2)
    line.offer(second, third)
    line.order.give_back([], lambda _: True)
    line.ask()
    line.end(second, Verdict.RETRY)
    early = parked("a", 2, "of before")
    assert line.offer(early) == []
    assert line.ends == [
        (third, Verdict.RELEASE), (second, Verdict.RETRY), (early, Verdict.RELEASE),
    ]  # fmt: skip
    line.ask()
    again = parked("a", 1)
    assert line.offer(again, parked("a", 2)) == [again]


@pytest.mark.promise(3)
@pytest.mark.parametrize("wanted", [True, False])
def test_what_a_pause_gives_back_takes_along_what_waits_behind_it_and_parks_its_key(
    wanted: bool,
) -> None:
    line = Line()
    first, second, other, late = (of_line(key, seq) for seq, key in enumerate("aaba"))
    line.offer(first, second, other)
    line.order.give_back([first], lambda _: wanted)
    assert line.ends == [(first, Verdict.RELEASE), (second, Verdict.RELEASE)]
    assert line.order.free([first]) == []
    line.ask(second)
    assert line.offer(late) == []
    line.ask()
    assert line.offer(again := parked("a", 0)) == [again]


@pytest.mark.promise(3)
def test_a_run_with_a_gap_where_something_that_was_given_back_is_to_stand_goes_back() -> None:
    """The store answers while the pull is under way, which has passed it before the release."""
    line = Line()
    first, second = of_line("a", 0), of_line("a", 1)
    line.offer(first)
    line.end(first, Verdict.RETRY)
    assert line.offer(second) == []
    line.ask(second)
    line.held.clear()
    early = parked("a", 0, "r1")
    assert line.offer(early, parked("a", 2, "r1")) == []
    assert line.ends[2:] == [(early, Verdict.RELEASE)]
    line.ask()
    run = [parked("a", seq, "r2") for seq in range(3)]
    assert line.offer(*run) == run[:1]


@pytest.mark.promise(3)
def test_a_key_whose_first_was_removed_goes_on_all_the_same() -> None:
    line = Line()
    first, second = of_line("a", 0), of_line("a", 1)
    line.offer(first)
    line.end(first, Verdict.RETRY)
    assert line.offer(second) == []  # somebody skips the first meanwhile
    line.ask()
    again = parked("a", 1)
    assert line.offer(again) == [again]


def test_of_a_run_the_first_is_given_back_for_all() -> None:
    line = Line()
    first, second, third = (parked("a", seq) for seq in range(3))
    line.offer(first, second, third)
    line.end(first, Verdict.RETRY)
    assert line.ends == [(first, Verdict.RETRY)]
    assert line.gone == [second, third]


def test_a_message_without_a_key_parks_nothing() -> None:
    line = Line(by_slot=True)
    first, second, keyed = of_line(None, 0), of_line(None, 1), of_line("a", 2)
    assert line.offer(first, second, keyed) == [first]
    assert line.end(first, Verdict.RETRY) == [second]
    assert line.end(second, Verdict.RETRY) == [keyed]
    assert line.ends == [(first, Verdict.RETRY), (second, Verdict.RETRY)]


def test_in_the_lane_of_a_slot_the_other_keys_go_on() -> None:
    line = Line(by_slot=True)
    first, other, second = (of_line(key, seq) for seq, key in enumerate("aba"))
    line.offer(first, other, second)
    assert line.end(first, Verdict.RETRY) == [other]
    assert line.ends == [(first, Verdict.RETRY), (second, Verdict.RELEASE)]


def test_one_that_was_lost_meanwhile_gives_back_nothing_of_the_next_owners() -> None:
    line = Line()
    lost, again = of_line("a", 0), parked("a", 0)
    line.offer(lost)
    line.held.remove(lost)
    assert line.offer(again) == []
    assert line.end(lost, Verdict.RETRY) == [again]
    assert line.gone == []


def test_what_left_the_line_before_its_group_kept_order_is_of_no_key() -> None:
    keys = ParkedKeys(lambda _: True)
    keys.park([of_line("a", 3)])
    old = Delivery("m1", "a", None, b"1", subject="1", seq=1, receipt="r")
    late = of_line("a", 5)
    assert keys.sort([old, late]) == ([old], [late])


class Runs:
    """A `SettlementOrder` by key, and what it has told."""

    def __init__(self) -> None:
        self.told: list[One] = []
        self.gone: list[Delivery] = []
        self.held: set[Delivery] = set()
        self.order = SettlementOrder(
            self.told.append, self.gone.extend, parked=ParkedKeys(self.held.__contains__)
        )

    def retry(self, one: Delivery) -> list[Delivery]:
        return self.order.settle(one, Disposition(one, Verdict.RETRY))

    @property
    def ends(self) -> list[tuple[Delivery, Verdict]]:
        return ends(self.told)


@pytest.mark.promise(3)
def test_in_batches_all_behind_a_retried_one_goes_back_when_its_turn_has_come() -> None:
    runs = Runs()
    first, second, third, late = (of_line("a", seq) for seq in range(4))
    assert runs.order.note([first, second, third]) == [first, second, third]
    runs.order.settle(third, third)
    assert runs.retry(second) == [third]
    assert runs.order.note([late]) == []
    assert runs.told == []
    runs.order.settle(first, first)
    assert runs.ends == [
        (first, Verdict.ACK), (second, Verdict.RETRY), (third, Verdict.RELEASE),
        (late, Verdict.RELEASE),
    ]  # fmt: skip
    assert runs.gone == []
    runs.order.settle(third, third)
    assert runs.ends[4:] == [(third, Verdict.ACK)]  # the store judges


@pytest.mark.promise(3)
def test_in_batches_an_acknowledgement_behind_a_retried_one_does_not_count() -> None:
    runs = Runs()
    first, second, third = (of_line("a", seq) for seq in range(3))
    runs.order.note([first, second, third])
    runs.retry(second)
    runs.order.settle(third, third)
    runs.order.release([third])
    runs.order.settle(first, first)
    assert runs.ends == [
        (first, Verdict.ACK), (second, Verdict.RETRY), (third, Verdict.RELEASE),
    ]  # fmt: skip


@pytest.mark.promise(3)
@pytest.mark.parametrize("is_retried", [True, False])
def test_in_batches_a_key_stays_shut_until_the_store_has_heard_all_that_went_back(
    is_retried: bool,
) -> None:
    runs = Runs()
    first, second, late = (of_line("a", seq) for seq in range(3))
    runs.order.note([first, second])
    if is_retried:
        runs.retry(first)
    else:
        runs.order.release([first])
    runs.held.add(second)
    runs.order.before_pull()
    assert runs.order.note([late]) == []
    runs.held.clear()
    runs.order.before_pull()
    assert runs.order.note([again := parked("a", 0)]) == [again]


def test_in_batches_what_is_given_back_takes_along_all_of_its_key() -> None:
    runs = Runs()
    first, second, third, other = (of_line(key, seq) for seq, key in enumerate("aaab"))
    runs.order.note([first, second, third, other])
    runs.order.settle(third, third)
    assert runs.order.release([first]) == [second]
    assert runs.ends == [(one, Verdict.RELEASE) for one in (first, second, third)]
    runs.order.settle(other, other)
    assert runs.ends[3:] == [(other, Verdict.ACK)]


def test_in_batches_what_was_lost_keeps_nobody_waiting() -> None:
    runs = Runs()
    first, second = parked("a", 0), of_line("a", 1)
    runs.order.note([first, second])
    runs.order.settle(second, second)
    runs.order.forget([first])
    assert runs.ends == [(second, Verdict.ACK)]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"max_parked": 5}, "max_parked"), ({"keep_order": True, "max_parked": 0}, "max_parked"),
     ({"keep_order": 1}, "keep_order"), ({"keep_order": True, "max_parked": 1_000_001}, "max")],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(BadOption, match=named):
        consumer_options(**options)


# Whole workers, over the model.


@pytest.fixture
def app() -> Iterator[QFrame]:
    with QFrame(store="sqlite:////nowhere/at/all.db") as app:
        yield app


@pytest.fixture
def harness(app: QFrame) -> Iterator[Harness]:
    with Harness(app) as harness:
        yield harness


@pytest.mark.parametrize("kind", ["ordered", "delay", "priority", "merge"])
def test_only_a_stream_is_told_to_keep_order(app: QFrame, harness: Harness, kind: Any) -> None:
    topic = Topic(f"of-{kind}", kind=kind, slots=1)
    with pytest.raises(BadOption, match="keep_order"):
        app.consumer(topic, group="g", keep_order=True)
    with pytest.raises(BadOption, match="keep_order"):
        app.pull(topic, group="g", keep_order=True)
    app.parts.catalog().resolve(topic)

    @app.consumer(topic.name, group="g", keep_order=True)
    def handle(message: Message) -> None:
        """Is never called."""

    with pytest.raises(BadOption, match="keep_order"):
        harness.run_until_idle()


CASES: list[dict[str, Any]] = [
    {}, {"serial": True}, {"batch": Batch(3, within=0.01)}, {"batch": Batch(50, within=0.01)},
    {"max_in_flight": 1}, {"max_in_flight": 2}, {"tags": AllOf("wanted")},
    {"tags": "wanted", "batch": Batch(4, within=0.01)}, {"max_parked": 1}, {"breaker": None},
]  # fmt: skip


@pytest.mark.promise(3)
@pytest.mark.parametrize("options", CASES, ids=lambda options: "-".join(options) or "plain")
@settings(max_examples=30)
@given(data=st.data())
def test_each_key_is_handled_in_order_whatever_is_retried(
    options: dict[str, Any], data: st.DataObject
) -> None:
    """A failing message is tried again before any that follows it in its key."""
    keys = data.draw(st.lists(st.sampled_from(["a", "b", "1", None]), max_size=25))
    fails = data.draw(st.lists(st.integers(0, 2), min_size=len(keys), max_size=len(keys)))
    left = dict(enumerate(fails))
    done: list[int] = []
    with QFrame(store="sqlite:////nowhere/at/all.db") as app, Harness(app) as harness:

        def one(message: Message) -> None:
            number: int = message.body
            before = [each for each in range(number) if keys[each] == keys[number] is not None]
            wanted = [each for each in before if "tags" not in options or each % 3]
            assert set(done).issuperset(wanted), f"{number} before {wanted}"
            if left[number]:
                left[number] -= 1
                raise NeedRetry(delay=5) if number % 2 else ValueError("not yet")
            done.append(number)
            message.ack()

        def handle(message: Message) -> None:
            message.auto_ack = False
            one(message)

        def handle_batch(messages: list[Message]) -> None:
            for message in messages:
                one(message)

        called = handle_batch if "batch" in options else handle
        app.consumer(EVENTS, group="g", keep_order=True, **options)(called)
        for number, key in enumerate(keys):
            tags = ["wanted"] if number % 3 else []
            harness.publish(EVENTS, number, key=key, tags=tags)
            if data.draw(st.booleans()):
                harness.run_until_idle()
        harness.drain()
        harness.assert_all_done()
        assert sorted(done) == [
            number for number in range(len(keys)) if "tags" not in options or number % 3
        ]


@pytest.mark.promise(3)
def test_other_keys_go_on_while_a_key_is_parked(app: QFrame, harness: Harness) -> None:
    handled: list[str] = []

    @app.consumer(EVENTS, group="g", keep_order=True)
    def handle(body: str, message: Message) -> None:
        handled.append(body)
        if body == "a0" and message.attempt < 3:
            raise NeedRetry(delay=60)

    for number in range(3):
        for key in "ab":
            harness.publish(EVENTS, f"{key}{number}", key=key)
    harness.run_until_idle()
    assert sorted(handled) == ["a0", "b0", "b1", "b2"]
    harness.publish(EVENTS, "a3", key="a")
    harness.publish(EVENTS, "b3", key="b")
    harness.run_until_idle()
    assert handled[-1] == "b3"
    harness.advance(minutes=1)
    harness.run_until_idle()
    assert handled[-1] == "a0"
    harness.advance(minutes=1)
    harness.run_until_idle()
    assert handled[-4:] == ["a0", "a1", "a2", "a3"]
    assert [each for each in handled if each[0] == "a"] == ["a0", "a0", "a0", "a1", "a2", "a3"]
    harness.assert_all_done()


def test_a_dead_one_lets_its_key_go_on(app: QFrame, harness: Harness) -> None:
    handled: list[int] = []

    @app.consumer(EVENTS, group="g", keep_order=True, max_attempts=2)
    def handle(body: int) -> None:
        handled.append(body)
        if body == 0:
            raise ValueError("never")
        if body == 1:
            raise Reject("not this one")

    for number in range(3):
        harness.publish(EVENTS, number, key="a")
    harness.drain()
    assert handled == [0, 0, 1, 2]
    harness.assert_dead(EVENTS, "g", 0, 1)


@pytest.mark.promise(3)
def test_a_group_that_comes_a_week_late_and_a_seek_see_each_keys_history_in_order_and_go_on_live(
    app: QFrame, harness: Harness
) -> None:
    kept = Topic("kept", slots=2, retain="14d")
    seen: dict[str, dict[str | None, list[int]]] = {"early": {}, "late": {}}
    refused = {("early", 0), ("late", 2), ("early", 4), ("late", 13)}

    def handler(group: str) -> Any:
        def handle(body: int, message: Message) -> None:
            if (group, body) in refused:
                refused.discard((group, body))
                raise NeedRetry(delay=30)
            seen[group].setdefault(message.key, []).append(body)

        return handle

    app.consumer(kept, group="early", keep_order=True)(handler("early"))
    for number in range(4):
        harness.publish(kept, number, key="a")
        harness.publish(kept, 10 + number, key="b")
    harness.run_until_idle()
    harness.advance(days=7)
    app.consumer(kept, group="late", keep_order=True)(handler("late"))
    for number in range(4, 6):
        harness.publish(kept, number, key="a")
        harness.publish(kept, 10 + number, key="b")
    harness.run_until_idle()
    assert seen["late"] == {"a": [0, 1], "b": [10, 11, 12]}  # 2 and 13 are parked
    app.admin.seek(kept, "late", to="earliest")
    harness.run_until_idle()
    assert seen["late"] == {"a": [0, 1, *range(6)], "b": [10, 11, 12, *range(10, 16)]}
    harness.publish(kept, 6, key="a")  # live
    harness.drain()
    assert seen["early"] == {"a": [*range(7)], "b": [*range(10, 16)]}
    assert seen["late"] == {"a": [0, 1, *range(7)], "b": [10, 11, 12, *range(10, 16)]}
    harness.assert_all_done()


def test_a_slot_with_so_much_parked_is_told_of_once_and_again_when_it_is_read(
    app: QFrame, harness: Harness
) -> None:
    told: list[tuple[str, int]] = []

    def hear(name: str, facts: dict[str, Any]) -> None:
        if name in ("slot.full", "slot.open"):
            told.append((name, facts["slot"]))

    app.events.listen(hear)
    topic = Topic("narrow", slots=1)
    handled: list[int] = []
    refuses = [True]

    @app.consumer(topic, group="g", keep_order=True, max_parked=2, max_in_flight=1)
    def handle(body: int) -> None:
        if refuses[0]:
            raise NeedRetry(delay=60)
        handled.append(body)

    for number in range(6):
        harness.publish(topic, number, key="a")
    harness.publish(topic, 6, key="b")
    harness.run_until_idle()
    assert told == [("slot.full", 0)]
    assert handled == []
    refuses[0] = False
    harness.advance(minutes=1)
    harness.drain()
    assert handled[:6] == [*range(6)]
    assert 6 in handled
    assert told[:2] == [("slot.full", 0), ("slot.open", 0)]
    harness.assert_all_done()
