"""A topic's slots are doubled while it is used: keys keep order, and nothing is lost or doubled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from bench import SETTLED, STALE, Bench, body_of
from timer_acts import cancel, edit

from qframe.errors import TopicMismatch, UnknownGroup
from qframe.growth import Growth
from qframe.outcomes import Verdict
from qframe.stores.base import Store
from qframe.stores.depth import SlotTooDeep
from qframe.stores.doubling import Doubling
from qframe.stores.growth_lease import GrowthTaken
from qframe.stores.model.store import ModelStore
from qframe.stores.records import HeadPlace, Record, Section
from qframe.stores.searching import OPEN, next_token, sections_of, stands
from qframe.stores.sql.role import SqlRole
from qframe.stores.types import (
    LeaseRef,
    PullRequest,
    PullTerms,
    Settlement,
    SlotsClosed,
    SlotSplit,
)
from qframe.topic import Topic

KINDS = ("stream", "ordered", "delay", "priority", "merge")
HOUR_MS = 3_600_000


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has stores refuse what is asked of a closed slot at once, rather than wait for its split."""
    monkeypatch.setattr("qframe.stores.redis.role.CLOSED_PATIENCE_S", 0)
    asked: Any = SqlRole._with_ref
    monkeypatch.setattr(
        SqlRole, "_with_ref", lambda self, topic, act, _=0: asked(self, topic, act, 0)
    )


class Killed(BaseException):
    """Ends a doubling as the death of its process does."""


class Dying:
    """A store at whose n-th call something happens; by default it dies."""

    def __init__(
        self, store: Store, calls: int, happens: Callable[[], object] | None = None
    ) -> None:
        self.names: list[str] = []
        self._store = store
        self._left = calls
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        what = getattr(self._store, name)
        if not callable(what):
            return what

        def call(*args: Any, **options: Any) -> Any:
            self.names.append(name)
            self._left -= 1
            if self._left < 0 and self._happens is None:
                raise Killed
            if self._left == -1 and self._happens is not None:
                self._happens()
            return what(*args, **options)

        return call


def doubling(
    bench: Bench, topic: Topic, store: Any = None, pause: Callable[[float], object] | None = None
) -> Doubling:
    """A doubling in the hands of somebody to whom no owner says no."""
    return Doubling(
        bench.store if store is None else store, topic.name, owned=lambda *_: (),
        pause=pause or (lambda _: None),
    )  # fmt: skip


def grown(bench: Bench, topic: Topic, slots: int) -> Topic:
    """The topic, grown to so many slots, its groups owned anew."""
    grower = doubling(bench, topic)
    found = grower.finish(grower.begin(slots))
    assert found.slots == slots
    for group in bench.store.groups(topic):
        bench.take(found, group)
    return found


def filled(bench: Bench, kind: str, **how: Any) -> Topic:
    """A topic with messages in every place: done, dead, retried, delayed, held, replaced."""
    topic = bench.topic(kind, slots=2, **how)
    for group, most in (("g", 10 if kind == "stream" else 0), ("h", 0)):
        bench.store.subscribe(topic, group, max_parked=most)
        bench.take(topic, group)
    bench.store.publish(
        topic,
        [bench.entry(topic, n, f"k{n % 8}", id=f"m-{n}", headers={"n": str(n)}) for n in range(24)],
    )
    if kind != "ordered":
        bench.publish(topic, "keyless")
    bench.publish(topic, "later", "late", id="later", delay_ms=HOUR_MS)
    first, second, *others = bench.got(topic)
    bench.kill(topic, first, error="E: no", traceback="line 1")
    bench.retry(topic, second, error="E: again", traceback="line 2", delay_ms=60_000)
    bench.ack(topic, *others[:2])
    bench.publish(topic, "new", "k1", id="new")
    bench.publish(topic, "next", "k5", id="next")
    bench.ack(topic, bench.got(topic, "h")[0], group="h")
    if kind == "ordered":
        for number in (1, 3):
            bench.publish(topic, f"s{number}", "s", sequence=number, id=f"s-{number}")
    for group in ("g", "h"):
        bench.take(topic, group)
    return topic


def places(store: Store, topic: Topic) -> list[tuple[Any, ...]]:
    """Each message and how it stands, but for its slot, and for its number in a stream."""
    found = []
    for section in sections_of(topic, ["", *store.groups(topic)]):
        if section.group == "" and section.part not in ("later", "held", "line"):
            continue
        for one in store.section(topic, section, limit=1000).records:
            number = one.seq if topic.has_subjects else None
            subject = one.subject if topic.has_subjects else None
            found.append(
                (section.part, one.group or "", one.id, one.key or "", subject, number,
                 one.body, str(one.headers), one.published_at_ms, one.due_ms, one.priority,
                 one.attempts, one.lost, one.error, one.traceback, one.died_at_ms, one.sequence)
            )  # fmt: skip
    return sorted(found, key=repr)


@pytest.mark.promise(1, 3, 10)
@pytest.mark.parametrize("kind", KINDS)
def test_a_grown_topic_has_all_that_it_had(bench: Bench, kind: str) -> None:
    topic = filled(bench, kind)
    before = places(bench.store, topic)
    totals = [bench.total(topic, group) for group in ("g", "h")]
    slots = 8 if kind == "stream" else 4
    after = grown(bench, topic, slots)
    assert [*after.all_slots] == [*range(slots - 2, 2 * slots - 2)]
    assert places(bench.store, after) == before
    assert [bench.total(topic, group) for group in ("g", "h")] == totals
    assert bench.store.verify(after) == []
    for one in bench.store.stats(after):
        assert not any(
            mark.startswith(OPEN) for mark in bench.store.remembered(after, one.slot, "marks")[0]
        )
        for record in bench.store.peek(after, one.group, states=("todo", "doing"), limit=1000):
            if record.key is not None:
                assert record.slot == after.slot_of(record.key.encode())


@pytest.mark.promise(3)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_keys_keep_their_order_while_their_slots_are_split(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, slots=2)
    bench.store.subscribe(topic, "g", max_parked=1000 if kind == "stream" else 0)
    bench.take(topic)
    handled: dict[str, list[int]] = defaultdict(list)
    numbers = iter(range(10_000))

    def work(now: Topic) -> None:
        """Publishes some, handles some, and retries some of these later."""
        some = [next(numbers) for _ in range(20)]
        bench.store.publish(now, [bench.entry(now, n, f"k{n % 7}") for n in some])
        back: set[str | None] = set()
        for one in bench.got(now, limit=6):
            if one.key in back:
                bench.release(now, one)  # as the lane of a key that is retried does
            elif body_of(one) % 5 == 0 and one.attempt == 1:
                bench.retry(now, one, delay_ms=200)
                back.add(one.key)
            else:
                assert bench.ack(now, one) == SETTLED
                handled[one.key or ""].append(body_of(one))
        bench.advance(100)

    work(topic)
    grower = doubling(bench, topic)
    now = grower.begin(4)
    while now.growth.target:
        work(now)
        now = grower._split_next(now)
        bench.take(now)
    for _ in range(60):
        bench.advance(100)
        for one in bench.got(now):
            assert bench.ack(now, one) == SETTLED
            handled[one.key or ""].append(body_of(one))
    total = sum(map(len, handled.values()))
    assert total == next(numbers) == len({each for some in handled.values() for each in some})
    assert all(some == sorted(some) for some in handled.values()), handled


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_what_was_published_before_is_a_duplicate_afterwards(bench: Bench, kind: str) -> None:
    topic = filled(bench, kind)
    entries = [bench.entry(topic, number, f"b{number}") for number in range(8)]
    for place, entry in enumerate(entries):
        entry.id, entry.mark = f"00000000000000000000-{place}", "00000000000000000000-*"
    bench.store.publish(topic, entries)
    after = grown(bench, topic, 4)
    assert str(bench.publish(after, 3, "k3", id="m-3")) == "duplicate"
    for entry in entries:
        assert entry.hash is not None
        entry.slot = after.slot_of_hash(entry.hash)
    assert bench.store.publish(after, entries) == ["duplicate"] * 8


def test_a_timer_is_moved_and_cancelled_by_whoever_does_not_know_yet(bench: Bench) -> None:
    topic = bench.topic("delay", "g", slots=2)
    for number in range(8):
        bench.publish(topic, number, f"k{number}", delay_ms=HOUR_MS)
    other = bench.another()
    assert other.topic(topic.name) == topic
    after = grown(bench, topic, 4)
    due_ms = bench.store.now_ms() + 1
    assert [str(edit(other, topic, f"k{number}", due_ms=due_ms)) for number in range(4)] == (
        ["done"] * 4
    )
    assert [str(cancel(other, topic, f"k{number}")) for number in range(4, 8)] == ["done"] * 4
    bench.advance(2)
    assert sorted(bench.bodies(after)) == [0, 1, 2, 3]


def test_a_closed_slot_takes_nothing_and_hands_nothing_out(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    bench.publish(topic, 0, "a")
    [held] = bench.got(topic)
    slot, other = held.slot, 1 - held.slot
    epoch = bench.store.epochs(topic, "g")[slot]
    bench.store.close_slot(topic, slot)
    keys = iter(f"x{number}" for number in range(100))
    here = next(key for key in keys if topic.slot_of(key.encode()) == slot)
    there = next(key for key in keys if topic.slot_of(key.encode()) == other)
    entries = [bench.entry(topic, 1, here), bench.entry(topic, 2, there)]
    with pytest.raises(SlotsClosed) as raised:
        bench.store.publish(topic, entries)
    assert raised.value.outcomes == [None, "stored"]
    assert bench.ack(topic, held, epoch=epoch) == STALE
    asked = [PullRequest(slot, epoch, 10)]
    pulled = bench.store.pull(topic, "g", asked, PullTerms("r", 100, 3, run=1))
    assert pulled.fenced == [slot]
    assert bench.store.take(topic, "g", {slot: "f" * 16}) == []
    bench.store.close_slot(topic, slot)  # again
    bench.topics.remove(topic)


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_new_slot_takes_nothing_until_it_is_in_use(bench: Bench, kind: str) -> None:
    """Also of whoever has known it to be in use, before the store failed over."""
    topic = bench.topic(kind, "g", slots=2)
    bench.publish(topic, 0, "a")
    halves = topic.split_of(0)
    for half in halves:
        bench.store.open_slot(topic, half, 0, "t")
        bench.store.remember(topic, half, marks={"m": 10**13}, head=3, token="t")
    known = topic.grown(4, Growth(first=2))
    keys = iter(f"x{number}" for number in range(100))
    here = next(key for key in keys if known.slot_of(key.encode()) == halves[0])
    for _ in range(2):
        with pytest.raises(SlotsClosed) as raised:
            bench.store.publish(known, [bench.entry(known, 1, here)])
        assert raised.value.outcomes == [None]
    assert bench.store.take(known, "g", {halves[0]: "f" * 16}) == []
    after = grown(bench, topic, 4)
    bench.publish(after, 1, here)
    assert sorted(bench.bodies(after)) == [0, 1]


OF_OPERATORS: list[Callable[[Store, Topic, HeadPlace], object]] = [
    lambda store, topic, _: edit(store, topic, "k", due_ms=1),
    lambda store, topic, _: cancel(store, topic, "k"),
    lambda store, topic, place: store.hasten(topic, "g", place),
    lambda store, topic, place: store.skip(topic, "g", place, "skipped"),
    lambda store, topic, _: store.retry_dead(topic, "g"),
    lambda store, topic, _: store.drop_dead(topic, "g"),
    lambda store, topic, _: store.drop_group(topic, "g"),
    lambda store, topic, _: store.restore(topic, Section(0, "dead", "g"), store.dead(topic, "g")),
]


@pytest.mark.usefixtures("impatient")
def test_a_closed_slot_stays_as_it_is_whatever_an_operator_does(
    bench: Bench,
) -> None:
    topic = bench.topic("delay", "g")
    bench.publish(topic, 1, "dead")
    bench.kill(topic, *bench.got(topic))
    bench.publish(topic, 1, "k", delay_ms=HOUR_MS)
    [record] = bench.store.timer(topic, "k")
    bench.store.close_slot(topic, 0)
    for act in OF_OPERATORS:
        with pytest.raises(SlotsClosed):
            act(bench.store, topic, record.head_place)
    assert bench.store.timer(topic, "k") == [record]
    assert bench.total(topic).dead == 1
    bench.topics.remove(topic)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("kind", "most"), [("stream", 0), ("stream", 5), ("delay", 0)])
def test_a_group_that_is_there_subscribes_while_a_slot_is_closed_and_a_new_one_does_not(
    bench: Bench, kind: str, most: int
) -> None:
    """All workers may start anew while nobody sees to the growth: they finish it."""
    topic = bench.topic(kind, "g", slots=2)
    assert bench.store.subscribe(topic, "g", max_parked=most) is False
    bench.publish(topic, 1, "a")
    bench.store.close_slot(topic, 0)
    before = bench.store.stats(topic), bench.store.epochs(topic, "g")
    assert bench.store.subscribe(topic, "g", max_parked=most) is False
    assert (bench.store.stats(topic), bench.store.epochs(topic, "g")) == before
    with pytest.raises(SlotsClosed):
        bench.store.subscribe(topic, "new", beside=["g"], max_parked=most)
    assert bench.store.groups(topic) == ["g"]
    bench.topics.remove(topic)


@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_a_slot_that_is_closed_is_its_owners_no_more_who_hears_of_it(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2, history="1h")
    last = "00000000ffffffff"
    assert bench.store.take(topic, "g", {0: last, 1: last}) == [0, 1]
    bench.publish(topic, 1, "k", id="m")
    [one] = bench.got(topic)
    bell = bench.store.bell([topic])
    if bell is not None:
        bench.hear_out(bell)
    for _ in range(2):
        bench.store.close_slot(topic, one.slot)
        assert bench.store.epochs(topic, "g")[one.slot] == f"{2**32:016x}"
    if bench.store.capabilities.bell:
        assert bell is not None
        assert bell.wait(60)
    [entry] = bench.store.history(topic, "m")
    assert (entry.verdict, entry.attempt) == ("lost", 1)
    bench.topics.remove(topic)


def test_whoever_was_thought_dead_writes_nothing_into_a_slot_that_another_fills(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g", slots=2)
    for number in range(4):
        bench.publish(topic, number, f"k{number}")
    half = topic.split_of(0)[0]
    bench.store.open_slot(topic, half, 0, "first")
    bench.store.remember(topic, half, marks={"m": 10**13}, token="first")
    with pytest.raises(SlotsClosed):
        bench.store.open_slot(topic, half, 0, "second")
    assert bench.store.discard(topic, half)
    with pytest.raises(SlotsClosed):
        bench.store.open_slot(topic, half, 0, "first", again=True)
    bench.store.open_slot(topic, half, 0, "second")
    bench.store.open_slot(topic, half, 0, "second", again=True)
    for again in (False, True):
        with pytest.raises(SlotsClosed):
            bench.store.open_slot(topic, half, 0, "first", again=again)
    with pytest.raises(SlotsClosed):
        bench.store.remember(topic, half, marks={"n": 10**13}, token="first")
    with pytest.raises(SlotsClosed):
        bench.store.restore(topic, Section(half, "line", ""), [], token="first")
    [position, _] = bench.store.positions(topic, "g")
    moved = msgspec.structs.replace(position, slot=half)
    with pytest.raises(SlotsClosed):
        bench.store.restore_positions(topic, "g", [moved], token="first")
    with pytest.raises(SlotsClosed):
        bench.store.remember(topic, half, head=3, token="first")
    assert bench.store.discard(topic, half)  # as another does that begins anew
    for writes in (
        lambda: bench.store.remember(topic, half, head=3, token="second"),
        lambda: bench.store.restore(topic, Section(half, "line", ""), [], token="second"),
        lambda: bench.store.restore_positions(topic, "g", [moved], token="second"),
    ):
        with pytest.raises(SlotsClosed):
            writes()
    after = topic.grown(2, topic.growth._replace(split=1))
    with pytest.raises(SlotsClosed):
        bench.store.grow(topic, after, dict.fromkeys(topic.split_of(0), "second"))
    after = grown(bench, topic, 4)
    with pytest.raises(SlotsClosed):
        bench.store.remember(after, half, marks={"n": 10**13}, token="second")


def test_whoever_writes_on_after_the_store_has_forgotten_a_page_is_refused(bench: Bench) -> None:
    """A token is used up by a page; without that page it is the one of before."""
    topic = bench.topic("stream", "g", slots=2)
    half, other = topic.split_of(0)
    for slot in (half, other):
        bench.store.open_slot(topic, slot, 0, "t")
    line, token = Section(half, "line", ""), "t"
    [position, _] = bench.store.positions(topic, "g")
    writes: list[Callable[[str], object]] = [
        lambda token: bench.store.remember(topic, half, marks={"m": 10**13}, token=token),
        lambda token: bench.store.restore(topic, line, [], token=token),
        lambda token: bench.store.open_slot(topic, half, 0, token, again=True),
        lambda token: bench.store.restore_positions(
            topic, "g", [msgspec.structs.replace(position, slot=half)], token=token
        ),
        lambda token: bench.store.remember(topic, half, sequences={"k": 3}, token=token),
        lambda token: bench.store.remember(topic, half, head=3, token=token),
    ]
    for write in writes:
        with pytest.raises(SlotsClosed):  # as if the page before this one was forgotten
            write(next_token(token))
        write(token)
        write(token)  # whose reply was lost
        token = next_token(token)
    before = topic.grown(2, Growth(closing=True, target=4))
    assert bench.store.grow(topic, before)
    after = topic.grown(2, Growth(split=1, target=4))
    for tokens in ({half: next_token(token), other: "t"}, {half: "t", other: "t"}):
        with pytest.raises(SlotsClosed):
            bench.store.grow(before, after, tokens)
    with pytest.raises(SlotsClosed):  # as if the closing was forgotten
        bench.store.grow(before, after, {half: token, other: "t"})
    with pytest.raises(SlotsClosed):
        bench.store.close_slot(topic, 7)
    bench.topics.remove(topic)


@pytest.mark.promise(1, 3, 10)
@pytest.mark.parametrize("kind", ["stream", "ordered", "merge"])
def test_a_growth_that_was_killed_at_any_call_is_finished_by_another(
    bench: Bench, kind: str
) -> None:
    topic = filled(bench, kind)
    before = places(bench.store, topic)
    calls = 0
    while True:
        dying = doubling(bench, topic, Dying(bench.store, calls))
        bench.advance(0)
        try:
            found = dying.finish(
                dying.go_on() if bench.store.latest([topic])[0].growth.target else dying.begin(4)  # type: ignore[union-attr]
            )
            break
        except Killed:
            calls += 11
            bench.advance(31_000)  # its lease
    assert found.slots == 4
    for group, most in (("g", 10 if kind == "stream" else 0), ("h", 0)):
        bench.take(found, group)
        positions = bench.store.positions(found, group)
        assert [one.max_parked for one in positions] == [most] * 4, "whether it keeps order"
    assert bench.store.verify(found) == []
    assert [one[:9] for one in places(bench.store, found) if one[0] != "line"] == (
        [one[:9] for one in before if one[0] != "line"]
    )


@pytest.mark.promise(1, 3, 10)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_whoever_was_thought_dead_begins_anew_at_any_call_of_another_and_nothing_is_lost(
    bench: Bench, kind: str
) -> None:
    """The calls are those of the growth, and so the model has them all; others have some."""
    counted = Dying(bench.store, 10**6)
    one = doubling(bench, filled(bench, kind), counted)
    one.finish(one.begin(4))
    every = 1 if isinstance(bench.store, ModelStore) else 9
    for calls, name in enumerate(counted.names):
        if calls % every and name != "grow":
            continue
        topic = filled(bench, kind)
        before = places(bench.store, topic)
        first = Dying(bench.store, calls, partial(begin_anew, bench.store, topic))
        one = doubling(bench, topic, first)
        found = one.finish(one.begin(4))
        assert found.slots == 4
        assert bench.store.verify(found) == []
        now = places(bench.store, found)
        assert [one[:9] for one in now if one[0] != "line"] == (
            [one[:9] for one in before if one[0] != "line"]
        )
        logged, now_logged = (
            sorted(one[2] for one in each if one[0] == "line") for each in (before, now)
        )
        assert now_logged == logged


def begin_anew(store: Store, topic: Topic) -> None:
    """Discards the two into which a slot is being split, and opens them."""
    [latest] = store.latest([topic])
    assert latest is not None
    slot = latest.growth.first + latest.growth.split
    with suppress(SlotsClosed):
        for half in topic.split_of(slot) if latest.growth.target else ():
            while not store.discard(latest, half):
                pass
            store.open_slot(latest, half, slot, "thought dead")


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_whoever_was_thought_dead_is_refused_at_any_call_after_another_has_finished(
    bench: Bench, kind: str
) -> None:
    for calls in range(4, 16, 1 if isinstance(bench.store, ModelStore) else 3):
        topic = filled(bench, kind)

        def finish() -> None:
            bench.advance(31_000)  # its lease
            other = doubling(bench, topic)  # noqa: B023 - called at once
            other.finish(other.go_on())

        one = doubling(bench, topic, Dying(bench.store, calls, finish))
        with pytest.raises((GrowthTaken, SlotsClosed)):
            one.finish(one.begin(4))
        [found] = bench.store.latest([topic])
        assert found is not None
        assert found.slots == 4
        assert bench.store.verify(found) == []


def test_a_slot_that_is_discarded_in_part_takes_nothing_of_whoever_has_opened_it(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g", slots=2)
    for number in range(6):
        bench.publish(topic, number, f"k{number % 3}")
    half = topic.split_of(0)[0]
    bench.store.open_slot(topic, half, 0, "token")
    for part in ("heads", "behind"):
        for slot in (0, 1):
            records = bench.store.section(topic, Section(slot, part, "g")).records
            moved = [msgspec.structs.replace(one, slot=half) for one in records]
            if moved:
                bench.store.restore(topic, Section(half, part, "g"), moved, token="token")
    is_empty = bench.store.discard(topic, half, limit=1)
    assert is_empty == isinstance(bench.store, ModelStore)
    for again in (False, True):
        if again or not is_empty:
            with pytest.raises(SlotsClosed):
                bench.store.open_slot(topic, half, 0, "token", again=again)
    with pytest.raises(SlotsClosed):
        bench.store.remember(topic, half, head=3, token="token")
    while not bench.store.discard(topic, half, limit=1):
        pass
    bench.store.open_slot(topic, half, 0, "another")
    assert bench.store.section(topic, Section(half, "heads", "g")).records == []
    while not bench.store.discard(topic, half):
        pass


def test_a_topic_is_declared_as_it_was_is_or_will_be(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    after = grown(bench, topic, 8)
    for slots in (2, 4, 8):
        found = bench.store.declare(Topic(topic.name, "stream", slots, retain="2h"))
        assert (found.slots, found.growth, found.retain_ms) == (8, Growth(first=6), 7_200_000)
        assert bench.store.topic(topic.name) == found
    for slots in (1, 16):
        with pytest.raises(TopicMismatch):
            bench.store.declare(Topic(topic.name, "stream", slots))
    assert after.growth == Growth(first=6)
    other = bench.another()
    assert other.declare(Topic(topic.name, "stream", 2)).slots == 8


class Slow(Dying):
    """A store that takes a millisecond to write down each message, by a clock of its own."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, 10**9)
        self.now_s = 0.0

    def restore(
        self, topic: Topic, section: Section, records: Sequence[Record], token: str
    ) -> None:
        self.now_s += len(records) / 1000
        self._store.restore(topic, section, records, token)


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_slot_in_which_too_much_waits_for_a_short_pause_stays_as_it_is(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=1)
    delay_ms = HOUR_MS if kind == "stream" else 0
    keys = 300 if kind == "ordered" else 1400
    many = [bench.entry(topic, n, f"k{n % keys}") for n in range(1400)]
    for entry in many:
        entry.delay_ms = delay_ms
    bench.store.publish(topic, many)
    before = bench.total(topic)
    slow = Slow(bench.store)
    impatient, patient = [
        Doubling(
            slow, topic.name, owned=lambda *_: (), pause=lambda _: None, max_pause_s=most_s,
            monotonic_s=lambda: slow.now_s,
        )
        for most_s in (0.9, 2.0)
    ]  # fmt: skip
    with pytest.raises(SlotTooDeep):
        impatient.finish(impatient.begin(2))
    [found] = bench.store.latest([topic])
    assert found is not None
    assert (found.all_slots, found.shared_slots) == (range(1), range(1))
    assert bench.total(found) == before
    patient.leave()
    after = patient.finish(patient.go_on())
    assert after.slots == 2
    assert bench.total(after).published == before.published


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_a_group_that_a_closed_slot_refuses_does_not_hold_up_its_split(
    bench: Bench, kind: str
) -> None:
    """On Redis it stands in the other slots by then."""
    topic = bench.topic(kind, slots=2)
    for number in range(6):
        bench.publish(topic, number, f"k{number}")
    closed = bench.store.close_slot

    class Busy(Dying):
        """A group comes as soon as the second slot is closed."""

        def __getattr__(self, name: str) -> Any:
            return self._close if name == "close_slot" else super().__getattr__(name)

        def _close(self, topic: Topic, slot: int) -> None:
            closed(topic, slot)
            if slot == 1:
                with pytest.raises(SlotsClosed):
                    bench.store.subscribe(topic, "late")

    grower = doubling(bench, topic, Busy(bench.store, 10**6))
    after = grower.finish(grower.begin(4))
    assert after.slots == 4
    bench.store.subscribe(after, "late")
    bench.take(after, "late")
    assert sorted(bench.bodies(after, "late")) == [0, 1, 2, 3, 4, 5]


def test_a_group_that_subscribes_or_goes_meanwhile_is_there_or_not_afterwards(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g", "h", slots=2)
    for number in range(6):
        bench.publish(topic, number, f"k{number}")

    class Busy(Dying):
        """Others subscribe and drop groups once the log was begun to be copied."""

        done = False

        def __getattr__(self, name: str) -> Any:
            if name == "read_log" and not self.done:
                self.done = True
                self._store.subscribe(topic, "late")
                self._store.drop_group(topic, "h")
            return super().__getattr__(name)

    grower = doubling(bench, topic, Busy(bench.store, 10**6))
    after = grower.finish(grower.begin(4))
    assert bench.store.groups(after) == ["g", "late"]
    for group in ("g", "late"):
        bench.take(after, group)
        assert sorted(bench.bodies(after, group)) == [0, 1, 2, 3, 4, 5]
    bench.store.drop_group(after, "late")
    assert bench.store.groups(after) == ["g"]
    assert bench.store.subscribe(after, "new") is True
    bench.take(after, "new")
    assert sorted(bench.bodies(after, "new")) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_the_last_subscription_to_a_grown_topic_says_when_its_group_goes(
    bench: Bench, kind: str
) -> None:
    topic = grown(bench, bench.topic(kind), 2)
    for first, second in ((100, None), (None, 100), (100, 5000)):
        group = f"g-{first}-{second}"
        bench.store.subscribe(topic, group, expires_ms=first)
        bench.store.subscribe(topic, group, expires_ms=second)
    bench.advance(1000)
    while bench.store.sweep(topic):
        pass
    assert bench.store.groups(topic) == ["g-100-5000", "g-100-None"]


def test_a_message_that_ended_before_its_slot_was_split_is_not_told_as_the_last_of_its_key(
    bench: Bench,
) -> None:
    topic = bench.topic("delay", "g", slots=1, history="1d")
    for name in ("before", "after"):
        bench.publish(topic, 1, "k", id=name)
        bench.ack(topic, *bench.got(topic))
        assert [one.id for one in bench.store.last_ended(topic, "k")] == [name]
        topic = grown(bench, topic, topic.slots * 2)
    assert [one.id for one in bench.store.last_ended(topic, "k")] == ["after"]


@pytest.mark.promise(3)
def test_a_late_group_and_a_seek_find_the_log_of_a_grown_topic_in_order(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)

    def publish(now: Topic, numbers: range) -> None:
        bench.store.publish(now, [bench.entry(now, n, f"k{n % 5}") for n in numbers])

    publish(topic, range(40))
    bench.ack(topic, *bench.got(topic))
    after = grown(bench, topic, 4)
    assert bench.got(after) == []
    publish(after, range(40, 60))
    bench.store.subscribe(after, "late")
    bench.take(after, "late")
    assert in_order(bench, after, "late") == list(range(60))
    assert in_order(bench, after, "g") == list(range(40, 60))
    bench.store.seek(after, "g", bench.store.offsets_at(after, 0))
    bench.take(after, "g")
    assert in_order(bench, after, "g") == list(range(60))


def test_a_seek_in_a_slot_that_was_split_is_refused_at_once(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    after = grown(bench, topic, 4)
    for known in (topic, after):
        with pytest.raises(SlotSplit, match="its slots are 2 to 5"):
            bench.store.seek(known, "g", {1: 0})
    bench.store.seek(after, "g", {2: 0})


def in_order(bench: Bench, topic: Topic, group: str) -> list[int]:
    """The bodies that a group gets, sorted, each key's in order."""
    got = defaultdict(list)
    deliveries = bench.got(topic, group)
    bench.ack(topic, *deliveries, group=group)
    for one in deliveries:
        got[one.key].append(body_of(one))
    assert all(some == sorted(some) for some in got.values()), got
    return sorted(each for some in got.values() for each in some)


def test_a_deleted_topic_that_had_grown_leaves_nothing(bench: Bench) -> None:
    topic = filled(bench, "stream")
    after = grown(bench, topic, 4)
    while not bench.store.delete(after):
        pass
    assert bench.store.topic(topic.name) is None
    bench.store.declare(topic)
    assert bench.store.topic(topic.name) == topic
    bench.store.subscribe(topic, "g")
    bench.take(topic)
    assert bench.got(topic) == []
    bench.publish(topic, 1, "k1")
    assert bench.bodies(topic) == [1]
    assert isinstance(bench.store, ModelStore) or bench.store.verify(topic) == []


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_store_that_has_forgotten_a_growth_says_so_to_whoever_knows_of_it(
    bench: Bench, kind: str
) -> None:
    """It failed over; workers hold slots and deliveries that it does not know."""
    topic = bench.topic(kind, "g", slots=2)
    bench.publish(topic, 1, key="a")
    [one] = bench.got(topic)
    known = topic.grown(4, Growth(first=2))
    held = msgspec.structs.replace(one, slot=known.all_slots[-1])
    own = bench.store.epochs(topic, "g")[0]
    ask = PullRequest(held.slot, own, 1)
    with pytest.raises(UnknownGroup):
        bench.store.pull(known, "g", [ask], PullTerms("r", 1000, 16))
    hold = LeaseRef(held.slot, own, held.subject, held.receipt)
    with pytest.raises(UnknownGroup):
        bench.store.renew(known, "g", [hold], 1000)
    with pytest.raises(UnknownGroup):
        bench.store.revoke(known, "g", [ask], "r")
    with pytest.raises(UnknownGroup):
        bench.store.take(known, "g", {held.slot: own})
    ack = Settlement(held.slot, held.subject, held.seq, held.receipt, 1, own, Verdict.ACK)
    with suppress(UnknownGroup):
        assert bench.store.settle(known, "g", [ack]) == STALE
    with pytest.raises(SlotsClosed):
        bench.store.publish(known, [bench.entry(known, n, key=f"k{n}") for n in range(8)])
    assert bench.ack(topic, one) == SETTLED


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_who_knows_a_topic_from_before_it_grew_still_finds_what_stands_there(
    bench: Bench, kind: str
) -> None:
    before = bench.topic(kind, "g", slots=2)
    bench.store.publish(before, [bench.entry(before, n, f"k{n}", id=f"m{n}") for n in range(8)])
    grown(bench, before, 4)
    assert [stands(bench.store, before, f"m{n}") for n in range(9)] == [True] * 8 + [False]
