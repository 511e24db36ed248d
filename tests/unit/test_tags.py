"""Which messages a consumer wants by their tags, and what becomes of the others in its lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe import AllOf, BadOption
from qframe.codec import encode_headers
from qframe.message import Delivery
from qframe.options.consumer import consumer_options
from qframe.runtime.order.tag_filter import TagFilter
from qframe.tags import tags_wanted

WANTED = encode_headers(None, ["wanted"], raw=False, max_body=1000)


def matches(tags: Any, *published: str) -> bool:
    wanted = tags_wanted(tags)
    assert wanted is not None
    return wanted.matches(encode_headers({"other": "vip"}, published, raw=False, max_body=1000))


@pytest.mark.parametrize(
    ("tags", "published", "wanted"),
    [
        ("vip", ["vip"], True),
        ("vip", ["big", "vip"], True),
        ("vip", ["vips"], False),
        ("vip", [], False),
        (["vip", "big"], ["small", "big"], True),
        ({"vip", "big"}, ["small"], False),
        (AllOf("vip", "big"), ["big"], False),
        (AllOf("vip", "big"), ["big", "new", "vip"], True),
        (AllOf("vip"), [], False),
    ],
)
def test_a_list_wants_any_of_its_tags_and_all_of_wants_all(
    tags: Any, published: list[str], wanted: bool
) -> None:
    assert matches(tags, *published) is wanted
    assert consumer_options(tags=tags).tags is not None


def test_a_message_without_headers_has_no_tag() -> None:
    for wanted in (tags_wanted("vip"), AllOf("vip")):
        assert wanted is not None
        assert not wanted.matches(None)


@pytest.mark.parametrize("wrong", [(), ("",), ("a,b",), (5,)])
def test_all_of_nothing_or_of_what_no_message_can_bear_is_refused(wrong: Any) -> None:
    with pytest.raises(BadOption, match="use tags="):
        AllOf(*wrong)


@pytest.mark.parametrize("wrong", [5, "", [], "a,b", ["a", None], {"a": 1}])
def test_wrong_tags_of_a_consumer_are_named(wrong: Any) -> None:
    with pytest.raises(BadOption, match=r'^tags .*use tags="vip"'):
        consumer_options(tags=wrong)


def delivery(key: str | None, seq: int, wanted: bool) -> Delivery:
    return Delivery(f"m{seq}", key, WANTED if wanted else None, b"1", subject=key, seq=seq)


Offer = list[tuple[str | None, bool]]
OFFERS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.booleans()), max_size=30)


def passed(
    offered: Offer, by_subject: bool, data: st.DataObject, note: Callable[[str, Delivery], None]
) -> list[Delivery]:
    """Sends deliveries through a tag filter, as a line does; answers those that were handled."""
    wanted = tags_wanted("wanted")
    assert wanted is not None

    def skip(deliveries: list[Delivery]) -> None:
        for each in deliveries:
            note("settled", each)

    tag_filter = TagFilter(
        matches=wanted.matches, skip=skip, in_turn=by_subject, by_subject=by_subject
    )
    waiting = [delivery(key, seq, fits) for seq, (key, fits) in enumerate(offered)]
    through: list[Delivery] = []
    handled: list[Delivery] = []
    while waiting or through:
        if waiting and (not through or data.draw(st.booleans())):
            size = data.draw(st.integers(1, len(waiting)))
            through += tag_filter.offer(waiting[:size])
            del waiting[:size]
        else:
            one = through.pop(data.draw(st.integers(0, len(through) - 1)))
            handled.append(one)
            note("settled", one)
            through += tag_filter.free([one])
    return handled


@given(OFFERS, st.booleans(), st.data())
def test_what_is_wanted_is_handled_and_everything_is_settled_once(
    offered: Offer, by_subject: bool, data: st.DataObject
) -> None:
    settled: list[int] = []
    handled = passed(offered, by_subject, data, lambda _, one: settled.append(one.seq))
    assert sorted(settled) == list(range(len(offered)))
    assert sorted(one.seq for one in handled) == [
        seq for seq, (_, fits) in enumerate(offered) if fits
    ]
    for key in ("a", "b"):
        seqs = [one.seq for one in handled if one.key == key]
        assert seqs == sorted(seqs)


@given(OFFERS, st.data())
def test_a_subject_is_settled_in_its_order_whatever_is_skipped(
    offered: Offer, data: st.DataObject
) -> None:
    settled: list[Delivery] = []
    passed(offered, True, data, lambda _, one: settled.append(one))
    for key in ("a", "b"):
        seqs = [one.seq for one in settled if one.subject == key]
        assert seqs == sorted(seqs)


def test_on_a_stream_what_is_skipped_does_not_wait_in_its_lane() -> None:
    skipped: list[Delivery] = []
    wanted = tags_wanted("wanted")
    assert wanted is not None
    tag_filter = TagFilter(
        matches=wanted.matches, skip=skipped.extend, in_turn=False, by_subject=False
    )
    slow, others = delivery("a", 0, True), [delivery("a", seq, False) for seq in (1, 2)]
    assert tag_filter.offer([slow, *others]) == [slow]
    assert skipped == others
    assert tag_filter.free([slow]) == []
