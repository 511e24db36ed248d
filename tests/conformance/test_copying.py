"""A topic that is copied to another store stands there as it stood, and goes on from there."""

from __future__ import annotations

from itertools import chain, product
from typing import Any

import msgspec
import pytest
from bench import Bench, body_of
from test_growing import filled as in_every_place
from test_growing import grown

from qframe.admin import copying
from qframe.admin.copying import Copied, copy_topic
from qframe.clock import VirtualClock
from qframe.errors import BadOption
from qframe.growth import NOT_GROWN
from qframe.stores.base import Store
from qframe.stores.documents import Space, Span, Write
from qframe.stores.model.store import ModelStore
from qframe.stores.positions import Position
from qframe.stores.records import Record, Section
from qframe.stores.searching import sections_of
from qframe.topic import Topic

KINDS = ("stream", "ordered", "delay")
HOUR_MS = 3_600_000


def model(bench: Bench) -> ModelStore:
    """A store in memory whose time is the bench's."""
    return ModelStore(namespace="elsewhere", clock=VirtualClock(bench.store.now_ms()))


def filled(bench: Bench, kind: str) -> Topic:
    """A topic with messages in every place, some of them in hand."""
    topic = in_every_place(bench, kind)
    bench.got(topic, limit=2)
    return topic


def contents(store: Store, topic: Topic) -> Any:
    """All that stands in a store: the counts, what each group has where, and what is remembered."""
    names = [*store.groups(topic)]
    found = []
    for section in sections_of(topic, names):
        if section.part != "line":
            page = store.section(topic, section, limit=1000)
            found += sorted(plain(section.part, each) for each in page.records)
    memory = [
        {mark: at for mark, at in store.remembered(topic, slot, what)[0].items() if mark[0] != "!"}
        for slot in topic.all_slots
        for what in ("marks", "sequences")
    ]
    log = [
        (one.seq, one.id, one.key, one.headers, one.body, one.published_at_ms)
        for slot in ([] if topic.has_subjects else topic.all_slots)
        for one in store.read_log(topic, slot, 0, 1000)
    ]
    counts = [
        (one.group, one.slot, one.published, one.waiting, one.retrying, one.todo, one.doing,
         one.settled, one.dead, one.cancelled, one.head, one.floor)
        for one in store.stats(topic)
    ]  # fmt: skip
    positions = [
        msgspec.structs.replace(one, receipt=None, lease_until_ms=None)  # the lease has passed
        for name in names
        for one in store.positions(topic, name)
    ]
    return found, memory, log, counts, positions


def plain(part: str, one: Any) -> tuple[str, ...]:
    """What a message is and where it stands.

    A lease ends where the copy says; not every store tells of what is behind a head whether it is
    in hand.
    """
    told = {"lease_until_ms", "held_since_ms", *(["state"] if part == "behind" else [])}
    return tuple(str(getattr(one, name)) for name in one.__struct_fields__ if name not in told)


def copied(source: Store, target: Store, topic: Topic) -> Copied:
    made = copy_topic(source, target, topic, by="ada")
    assert made.differences == []
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_a_copy_has_all_that_the_topic_has_and_hands_out_the_same(
    bench: Bench, kind: str
) -> None:
    topic = filled(bench, kind)
    middle, back = model(bench), bench.beside("back")
    copied(bench.store, middle, topic)
    copied(middle, back, topic)
    assert contents(middle, topic) == contents(bench.store, topic)
    assert contents(back, topic) == contents(bench.store, topic)
    here = bench.store
    bench.advance(2 * HOUR_MS)
    given = []
    for store in (here, back):
        bench.store = store
        given.append({group: drained(bench, topic, group) for group in ("g", "h")})
        assert store.verify(topic) == []
    bench.store = here
    assert given[0] == given[1]


def drained(bench: Bench, topic: Topic, group: str) -> list[tuple[Any, ...]]:
    """All that a new owner gets, in order, with what dead letters remain."""
    bench.take(topic, group)
    got = []
    while page := bench.got(topic, group):
        got += [(one.slot, one.seq, one.id, body_of(one), one.attempt, one.key) for one in page]
        bench.ack(topic, *page, group=group)
    dead = [(one.id, one.error, one.attempts) for one in bench.store.dead(topic, group)]
    return [*got, *dead]


@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_a_message_published_to_both_is_a_duplicate_in_the_copy(bench: Bench, kind: str) -> None:
    topic = filled(bench, kind)
    back = bench.beside("back")
    copied(bench.store, back, topic)
    bench.store, here = back, bench.store
    assert str(bench.publish(topic, 3, "k3", id="m-3")) == "duplicate"
    assert str(bench.publish(topic, 99, "k3", id="m-99")) != "duplicate"
    bench.store = here


@pytest.mark.parametrize("kind", ["stream", "ordered", "merge"])
def test_a_copy_that_broke_off_goes_on_and_has_all_once(bench: Bench, kind: str) -> None:
    topic = filled(bench, kind)
    back = bench.beside("back")
    for steps in (1, 3, *([9] if kind == "ordered" else [])):  # then it has come to what is held
        with pytest.raises(KeyboardInterrupt):
            copy_topic(bench.store, back, topic, by="ada", on_progress=stopping(steps))
        assert back.tunings([(topic, "g")])[0]["paused"]
    copied(bench.store, back, topic)
    assert contents(back, topic) == contents(bench.store, topic)
    assert back.tunings([(topic, "g")]) == [{}]


def stopping(steps: int) -> Any:
    """Breaks off at the step of a number."""
    left = [steps]

    def step(_done: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    return step


def test_records_go_with_the_copy_of_their_topic(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_PAGE", 2)
    topic, back = bench.topic("delay", "g", "h"), bench.beside("back")

    def write(store: Store, *writes: Write, group: str = "g") -> None:
        store.write_documents(topic, group, Space.SCHEDULES, writes)

    def records(store: Store, space: Space = Space.SCHEDULES) -> list[tuple[int, str, str]]:
        listed = store.list_documents(topic, "g", space, Span(limit=99)).documents
        return [(*each.ranked_name, each.value) for each in listed]

    write(bench.store, *(Write(f"s{n}", f"text {n}", None, n % 3) for n in range(5)))
    write(bench.store, Write("other", "of h", None, 7), group="h")
    bench.store.write_documents(topic, "g", Space.QUEUES, [Write("jobs", "{}")])
    bench.store.report(topic, "g", "worker", "well")
    bench.store.heartbeat(topic, "g", "worker", 1)
    bench.advance(5)
    assert copy_topic(bench.store, back, topic, by="ada", dry_run=True).documents == 7
    ending: Any = Ending(back, "restore_positions", 1)
    with pytest.raises(KeyboardInterrupt):
        copy_topic(bench.store, ending, topic, by="ada")
    write(bench.store, Write("s0", None), Write("s1", "again", None, 9))
    assert copied(bench.store, back, topic).documents == 6
    assert records(back) == records(bench.store)
    assert [name for _, name, _ in records(back)] == ["s3", "s4", "s2", "s1"]
    assert records(back, Space.QUEUES) == [(0, "jobs", "{}")]
    assert back.reports(topic, "g") == []
    with pytest.raises(BadOption, match="has schedules already"):
        copied(bench.store, back, topic)


def test_a_record_that_is_written_meanwhile_is_told(bench: Bench) -> None:
    topic, back = bench.topic("delay", "g"), bench.beside("back")

    class Meanwhile(Ending):
        """A store in which somebody changes a record, once it was copied."""

        def __getattr__(self, name: str) -> Any:
            if name == "restore_positions":
                writes = [Write("s", "other")]
                bench.store.write_documents(topic, "g", Space.SCHEDULES, writes)
            return getattr(self._store, name)

    bench.store.write_documents(topic, "g", Space.SCHEDULES, [Write("s", "one")])
    meanwhile: Any = Meanwhile(back, "", 0)
    made = copy_topic(bench.store, meanwhile, topic, by="ada")
    assert made.differences == ["group g: s of its schedules differs"]
    copied(bench.store, back, topic)


def test_what_is_published_meanwhile_is_told_and_the_next_copy_has_it(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    bench.publish(topic, 1, "a", id="one")
    back = bench.beside("back")
    more = iter(["two", None, None, None, None])

    def publish(_done: int) -> None:
        if name := next(more):
            bench.publish(topic, 2, "a", id=name)

    made = copy_topic(bench.store, back, topic, by="ada", on_progress=publish)
    assert any("by somebody else" in each for each in made.differences)
    assert back.tunings([(topic, "g")])[0]["paused"]
    copied(bench.store, back, topic)
    assert contents(back, topic) == contents(bench.store, topic)


class Ending:
    """A store to which a copy ends, as a process does that is killed, before a call of a name."""

    def __init__(self, store: Store, name: str, calls: int) -> None:
        self._store = store
        self._name = name
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            self._calls -= 1
            if not self._calls:
                raise KeyboardInterrupt
        return getattr(self._store, name)


def test_the_copy_of_a_copy_may_end_anywhere_and_at_last_only_lets_its_groups_go(
    bench: Bench,
) -> None:
    topic = filled(bench, "stream")
    source, back = model(bench), bench.beside("back")
    copied(bench.store, source, topic)
    for name, calls in (("restore_positions", 1), ("tune", 3)):
        ending: Any = Ending(back, name, calls)
        with pytest.raises(KeyboardInterrupt):
            copy_topic(source, ending, topic, by="ada")
        assert back.tunings([(topic, "h")])[0]["paused"]
    assert copied(source, back, topic).messages == 0
    assert contents(back, topic) == contents(source, topic)
    assert back.tunings([(topic, "g"), (topic, "h")]) == [{}, {}]


def test_a_broadcast_group_that_nobody_joins_again_ends_in_the_copy_too(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bench.store.subscribe(topic, "g@host", expires_ms=HOUR_MS)
    back = bench.beside("back")
    copied(bench.store, back, topic)
    bench.advance(7 * 24 * HOUR_MS)
    back.sweep(topic)
    assert back.groups(topic) == ["g"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_has_grown_is_copied_with_the_numbers_of_its_slots(
    bench: Bench, kind: str
) -> None:
    topic = grown(bench, filled(bench, kind), 8)
    middle, back = model(bench), bench.beside("back")
    copied(bench.store, middle, topic)
    copied(middle, back, topic)
    assert back.topic(topic.name) == topic
    assert contents(back, topic) == contents(bench.store, topic)
    assert back.verify(topic) == []


def test_a_topic_that_holds_messages_is_not_copied_over(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, 1, "a")
    back = bench.beside("back")
    copied(bench.store, back, topic)
    with pytest.raises(BadOption, match="holds messages"):
        copied(bench.store, back, topic)


def test_what_no_group_has_claimed_goes_to_the_first_one_of_the_copy(bench: Bench) -> None:
    topic = bench.topic("delay")
    bench.publish(topic, 1, "a")
    back = bench.beside("back")
    assert copied(bench.store, back, topic).messages == 1
    here, bench.store = bench.store, back
    back.subscribe(topic, "first")
    bench.take(topic, "first")
    assert bench.bodies(topic, "first") == [1]
    bench.store = here


def test_a_dry_run_counts_and_writes_nothing(bench: Bench) -> None:
    topic = filled(bench, "ordered")
    back = bench.beside("back")
    planned = copy_topic(bench.store, back, topic, by="ada", dry_run=True)
    assert back.topics() == []
    assert copied(bench.store, back, topic).messages == planned.messages > 20


def test_a_topic_with_other_slots_is_not_copied_over_and_the_error_says_what_to_do(
    bench: Bench,
) -> None:
    topic = grown(bench, filled(bench, "ordered"), 8)
    back = bench.beside("back")
    back.declare(topic.grown(8, NOT_GROWN))
    with pytest.raises(BadOption, match=r"slots 0 to 7, and this one .* delete that topic"):
        copied(bench.store, back, topic)


def record(bench: Bench, topic: Topic, seq: int, **how: Any) -> Record:
    """A message as another store tells of it."""
    group = None if how.get("state") is None else "g"
    facts = {"state": "todo", "published_at_ms": bench.store.now_ms(), "subject": "k", **how}
    return Record(
        topic=topic.name, group=group, slot=0, seq=seq, id=f"m-{seq}", key="k", headers=None,
        body=b"1", **facts,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_what_is_written_down_again_stands_and_counts_as_it_was_written_last(
    bench: Bench, kind: str
) -> None:
    """As where a copy broke off, and goes on when the messages stand elsewhere."""
    topic = bench.topic(kind)
    bench.store.subscribe(topic, "g", max_parked=10 if kind == "stream" else 0)
    is_alone = kind == "delay"
    behind = [] if is_alone else [record(bench, topic, seq, due_ms=0) for seq in (1, 2)]
    of = 1 + len(behind)
    if topic.has_subjects:
        position = Position(slot=0, published=of)
    else:
        bench.store.remember(topic, 0, head=of)
        position = Position(slot=0, floor=of, read=of, max_parked=10)
    bench.store.restore_positions(topic, "g", [position])
    soon_ms = bench.store.now_ms() + HOUR_MS
    run = min(2, of)
    states: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
        "waiting": ({"state": "waiting", "due_ms": soon_ms}, (of, 0, 0)),
        "retrying": ({"state": "waiting", "due_ms": soon_ms, "attempts": 1}, (of, 0, 0)),
        "todo": ({"state": "todo", "due_ms": 0}, (0, of, 0)),
        "doing": ({"state": "doing", "due_ms": 0, "attempts": 1, "given": run}, (0, of - run, run)),
    }
    for name in chain.from_iterable(product(states, states)):
        how, counts = states[name]
        bench.store.restore(topic, Section(0, "heads", "g"), [record(bench, topic, 0, **how)])
        if behind:
            for page in (behind, behind[::-1]):  # no store sorts its pages by number
                bench.store.restore(topic, Section(0, "behind", "g"), page)
        one = bench.total(topic)
        assert (one.waiting, one.todo, one.doing) == counts, name
        assert bench.store.verify(topic) == []


def test_a_group_that_keeps_order_no_more_is_copied_with_what_is_parked_still(
    bench: Bench,
) -> None:
    topic = bench.topic("stream")
    bench.store.subscribe(topic, "g", max_parked=10)
    bench.take(topic, "g")
    for number in range(6):
        bench.publish(topic, number, "waits" if number < 3 else "runs", id=f"m-{number}")
    got = bench.got(topic)
    bench.retry(topic, *got[:3], delay_ms=60_000)
    bench.retry(topic, *got[3:])
    assert len(bench.got(topic, run=2)) == 2
    bench.store.subscribe(topic, "g")
    back = bench.beside("back")
    copied(bench.store, back, topic)
    assert contents(back, topic) == contents(bench.store, topic)
    assert bench.store.verify(topic) == back.verify(topic) == []
    one = bench.total(topic)
    assert (one.waiting, one.todo, one.doing) == (3, 1, 2)


def test_a_log_is_written_down_once_and_its_times_of_joining_grow(bench: Bench) -> None:
    """One that was delayed has joined later than it was published, and clocks differ."""
    topic, line = bench.topic("stream"), Section(0, "line", "")
    now_ms = bench.store.now_ms()
    times = [now_ms + by_ms for by_ms in (-5000, -3000, -4000, 9000, 9000)]
    records = [
        record(bench, topic, seq, subject=None, published_at_ms=at_ms)
        for seq, at_ms in enumerate(times, start=5)
    ]
    bench.store.restore(topic, line, records[:4])
    bench.store.restore(topic, line, records)  # the last of those before came with another
    bench.store.restore(topic, line, records)
    log = bench.store.read_log(topic, 0, 0, 10)
    found = [(one.seq, one.id, one.published_at_ms) for one in log]
    assert found == [(seq, f"m-{seq}", at_ms) for seq, at_ms in enumerate(times, start=5)]
    for by_ms, offset in ((-9000, 5), (-4999, 6), (-3500, 6), (-2999, 8), (0, 8), (1, 10)):
        assert bench.store.offsets_at(topic, now_ms + by_ms) == {0: offset}, by_ms


def test_a_log_that_had_nothing_any_more_begins_at_its_next_number(bench: Bench) -> None:
    topic = bench.topic("stream")
    bench.store.remember(topic, 0, head=7)
    assert bench.store.offsets_at(topic, 0) == {0: 7}
    bench.publish(topic, 1)
    assert [one.seq for one in bench.store.read_log(topic, 0, 0, 10)] == [7]
    assert bench.store.offsets_at(topic, 0) == {0: 7}
