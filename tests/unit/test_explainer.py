"""Messages are looked up, and explained where they are gone, in a store whose answers are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from explaining import NOW_MS, SERVED, record

from qframe.admin.explain.cause import Explanation
from qframe.admin.explain.explainer import Explainer, checked_sought
from qframe.clock import VirtualClock
from qframe.codec import new_token
from qframe.errors import BadOption
from qframe.stores.records import Found, LogSpan, Record, Remembered, ScanPage, Sought
from qframe.topic import Topic

STREAM, ORDERED = Topic("t", slots=1), Topic("t", kind="ordered", slots=1)
DELAY, MERGE = Topic("t", kind="delay", slots=1), Topic("t", kind="merge", slots=1)


class Store:
    """A store in which an id leads to `found`, a key to `keyed`, and a scan to `pages`."""

    def __init__(
        self, found: Found | None = None, *, keyed: tuple[Record, ...] = (),
        pages: tuple[ScanPage, ...] = (), groups: tuple[str, ...] = ("g",),
        first: tuple[Record, ...] = (),
    ) -> None:  # fmt: skip
        self._found = found or Found()
        self._keyed, self._first = list(keyed), list(first)
        self._pages = list(pages)
        self._groups = list(groups)
        self.asked: list[str] = []

    def find(self, _topic: Topic, sought: Sought, _limit: int = 0, *, limit: int = 0) -> Found:
        self.asked.append("find" if sought.key is None else "find key")
        if sought.key is None:
            return self._found
        return Found([one for one in self._keyed if sought.fits(one)])

    def scan(self, _topic: Topic, place: str | None, limit: int, _sought: Sought) -> ScanPage:
        self.asked.append(f"scan {place} {limit}")
        return self._pages.pop(0) if self._pages else ScanPage([], 0, None)

    def first_of_key(self, *_: object) -> list[Record]:
        self.asked.append("first")
        return self._first

    def groups(self, _topic: Topic) -> list[str]:
        return self._groups

    def tunings(self, _places: object) -> list[None]:
        self.asked.append("tunings")
        return [None]

    def reports(self, *_: object) -> list[SimpleNamespace]:
        return []

    def now_ms(self, _topic: Topic) -> int:
        return NOW_MS


def explained(store: Store, *topics: Topic, look: int = 100, **sought: Any) -> list[Explanation]:
    asked: Any = store
    explainer = Explainer(
        asked, roster=lambda *_: SERVED, sought=Sought(**(sought or {"id": "m"})), look=look,
        shown=lambda one: one, end_shown=lambda one: one,
    )  # fmt: skip
    return explainer.explained(topics)


def cause_of(store: Store, topic: Topic, **sought: Any) -> str:
    """The cause of the only explanation, and the moment or number that it is known by."""
    [one] = explained(store, topic, **sought)
    facts = one.cause.facts
    return f"{one.cause.name} {facts.get('first', facts.get('published_ms'))}"


def test_an_offset_is_trimmed_where_slots_begin_behind_it() -> None:
    kept = {0: LogSpan(5, 9, 1), 1: LogSpan(3, 9, 1), 2: LogSpan(8, 0, None)}
    for sought, cause in (
        ({"offset": 4}, "trimmed 5"), ({"offset": 2}, "trimmed 3"), ({"offset": 5}, "unknown None"),
        ({"offset": 2, "slot": 0}, "trimmed 5"), ({"offset": 4, "slot": 1}, "unknown None"),
    ):  # fmt: skip
        assert cause_of(Store(Found(kept=kept)), STREAM, **sought) == cause
    [one] = explained(Store(Found(kept=kept)), STREAM, offset=2)
    assert one.cause.text.endswith("the oldest that is kept is 3")


def test_a_message_is_trimmed_where_all_that_its_slots_keep_is_newer() -> None:
    remembered = [Remembered(0, 100), Remembered(1, 50)]
    for since_ms, cause in (
        ((101, 51), "trimmed 50"), ((101, 50), "forgotten 100"), ((101, None), "trimmed 50"),
        ((101,), "forgotten 100"),
    ):  # fmt: skip
        kept = {slot: LogSpan(1, 9, at_ms) for slot, at_ms in enumerate(since_ms)}
        assert cause_of(Store(Found(remembered=remembered, kept=kept)), STREAM) == cause


def test_an_id_tells_when_it_was_made_where_one_topic_is_asked() -> None:
    found = Found(kept={0: LogSpan(1, 9, NOW_MS + 1)})
    token = new_token(VirtualClock(NOW_MS))
    [one] = explained(Store(found), STREAM, id=token)
    assert one.cause.name == "trimmed"
    [one] = explained(Store(found), STREAM, Topic("u", slots=1), id=token)
    assert one.cause.name == "unknown"


def test_a_newer_message_of_its_key_has_replaced_it() -> None:
    remembered = Found(remembered=[Remembered(0, 100)])
    newer = record(published_at_ms=100, key="k", id="n")
    for topic, keyed, name in (
        (DELAY, newer, "replaced"), (MERGE, newer, "merged"), (ORDERED, newer, "forgotten"),
        (STREAM, newer, "forgotten"), (DELAY, record("dead", published_at_ms=100), "forgotten"),
        (DELAY, record(published_at_ms=99), "forgotten"),
    ):  # fmt: skip
        store = Store(remembered, keyed=(keyed,))
        sought: Any = Sought(id="m", key="k")
        store.find = lambda _topic, asked, *_, store=store, sought=sought: (  # type: ignore[method-assign]
            store._found if asked == sought else Found(store._keyed)
        )
        [one] = explained(store, topic, id="m", key="k")
        assert one.cause.name == name
        assert one.duplicate_until_ms == 100 + topic.dedupe_window_ms


def test_what_is_forgotten_may_be_replaced_only_where_a_key_has_one_message() -> None:
    for topic, words in ((ORDERED, "settled or dropped"), (DELAY, "settled, replaced or dropped")):
        [one] = explained(Store(Found(remembered=[Remembered(0, 100)])), topic)
        assert f"is {words} since" in one.cause.text


def names(store: Store, topic: Topic) -> list[str]:
    return [each.name for each in explained(store, topic)[0].causes]


def test_it_waits_behind_the_first_of_its_key_in_its_group() -> None:
    second = record("waiting", key="k", subject="k", seq=2)
    first = record("doing", key="k", subject="k", seq=1, id="first", lease_until_ms=NOW_MS + 1)
    others = record("doing", key="k", subject="k", seq=1, id="x", group="h")
    dead = record("dead", key="k", subject="k", seq=0, id="dead")
    other = record("doing", key="k", subject="other", seq=1, id="other")
    for keyed, behind in (
        ((others, first, second), True), ((others, second), False), ((dead, second), False),
        ((other, second), False), ((dead, first, second), True),
    ):  # fmt: skip
        found = names(Store(Found([second]), keyed=(*keyed,)), ORDERED)
        assert ("behind" in found) is behind
    for state in ("dead", "settled", "doing"):
        store = Store(Found([record(state, key="k", subject="k", seq=2)]), first=(first,))
        assert "behind" not in names(store, STREAM)
        assert "first" not in store.asked


def test_what_left_the_line_of_a_stream_alone_waits_behind_nobody() -> None:
    first = record("waiting", key="k", subject="k", seq=1, id="first")
    for subject, behind in (("k", True), ("2", False)):
        second = record("waiting", key="k", subject=subject, seq=2)
        store = Store(Found([second]), first=(first,))
        assert ("behind" in names(store, STREAM)) is behind
        assert ("first" in store.asked) is behind


def test_the_circumstances_of_a_group_are_asked_for_once() -> None:
    store = Store(Found([record(slot=0), record(slot=0, seq=2), record(group="h")]))
    assert len(explained(store, STREAM)) == 3
    assert store.asked.count("tunings") == 2


def test_a_message_of_no_group_waits_for_one_where_there_is_none() -> None:
    one = record(group=None)
    assert names(Store(Found([one]), groups=()), STREAM) == ["no-group"]
    [found] = explained(Store(Found([one]), groups=("g",)), STREAM)
    assert found.causes == ()
    [found] = explained(Store(Found([record()]), groups=()), STREAM)
    assert found.cause.name == "ready"


def test_groups_that_do_not_have_what_another_has_are_told() -> None:
    def states(
        topic: Topic, *records: Record, keyed: tuple[Record, ...] = (), **sought: Any
    ) -> Any:
        store = Store(Found([*records]), keyed=(*records, *keyed), groups=("g", "h"))
        return [(one.group, one.state) for one in explained(store, topic, **sought)]

    mine = record(key="k", subject="k")
    both = [("g", "todo"), ("h", "absent")]
    assert states(ORDERED, mine) == both
    assert states(STREAM, mine) == both
    assert states(ORDERED, mine, key="k") == both[:1]
    assert states(DELAY, record()) == both
    assert states(MERGE, record()) == both  # what has no key is found by its body: by a scan
    assert states(ORDERED, record(key="k", group=None)) == [(None, "todo")]


def test_what_a_scan_comes_upon_is_looked_up_for_all_groups_by_its_key() -> None:
    come_upon, others = record(key="k", subject="k"), record(key="k", subject="k", group="h")
    alone = record(key="other", subject="other", slot=0, seq=9)
    pages = (ScanPage([], 3, "a"), ScanPage([come_upon, alone], 2, "b"), ScanPage([], 1, None))
    store = Store(keyed=(come_upon, others), pages=pages, groups=("g", "h"))
    told = explained(store, ORDERED)
    assert [(one.group, one.key, one.looked) for one in told] == [
        ("g", "k", 5), ("h", "k", 5), ("g", "other", 5),
    ]  # fmt: skip
    assert [one for one in store.asked if one.startswith("scan")] == [
        "scan None 100", "scan a 97",
    ]  # fmt: skip


def test_a_scan_that_may_look_at_nothing_is_not_complete() -> None:
    for look, complete in ((0, False), (1, True)):
        [one] = explained(Store(), STREAM, look=look)
        assert one.cause.facts == {"looked": 0, "complete": complete}
    pages = (ScanPage([], 60, None), ScanPage([], 40, "on"))
    [one] = explained(Store(pages=pages), STREAM, Topic("u", slots=1))
    assert one.cause.facts == {"looked": 100, "complete": False}


def test_a_duplicate_is_one_for_as_long_as_the_slot_remembers_it() -> None:
    found = Found([record(), record(slot=1)], remembered=[Remembered(0, NOW_MS)])
    told = explained(Store(found), STREAM)
    until_ms = [one.duplicate_until_ms for one in told]
    assert until_ms == [NOW_MS + STREAM.dedupe_window_ms, None]


def test_what_cannot_be_looked_for_is_refused() -> None:
    two = [STREAM, Topic("u", kind="ordered", slots=4)]
    assert checked_sought(two, None, None, 7, 3, named=False) == Sought(offset=7, slot=3)
    for words, options in (
        ((None, None, None, None), {"named": False}), (("m", None, None, 4), {"named": False}),
    ):  # fmt: skip
        with pytest.raises(BadOption):
            checked_sought(two, *words, **options)
    with pytest.raises(BadOption, match="no offsets"):
        checked_sought([ORDERED], None, None, 1, None, named=True)
    assert checked_sought([ORDERED], None, None, 1, None, named=False).offset == 1
