"""Messages that are made together are those that are made one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe import BadBody, BadInput, BadKey, Outgoing, QFrame, Topic
from qframe.codec import batch_mark
from qframe.producing.bulk import FEW, plain_entries
from qframe.producing.entry import entry_of
from qframe.producing.producer import PIECE
from qframe.stores.types import Entry
from qframe.topic import MAX_KEY_BYTES, checked_key, checked_keys

TOKEN = "0" * 20
MAX_BODY = 40

texts = st.text(max_size=6)
bodies = (
    st.none() | st.integers() | texts | st.dictionaries(texts, st.floats() | texts, max_size=2)
    | st.sampled_from([b"raw", msgspec.Raw(b'{"a":\n1}'), msgspec.Raw(b""), object(), "x" * 50])
)  # fmt: skip
keys = st.none() | texts | st.sampled_from(["k", "é" * 256, "é" * 257, "k" * 513, "\ud800", 7])
whole = st.lists(st.builds(Outgoing, st.integers(), key=st.sampled_from("abc")), max_size=20)
mixed = st.lists(
    bodies | st.builds(Outgoing, bodies, key=keys) | st.builds(Outgoing, bodies, id=st.just("one")),
    max_size=20,
)
TOPICS = [Topic("a", kind=kind, slots=4) for kind in ("stream", "ordered", "delay", "merge")]


def one_by_one(topic: Topic, items: list[Any], place: int) -> list[Entry]:
    """What the producer makes of each by itself."""
    mark = batch_mark(TOKEN)
    return [
        entry_of(
            topic,
            item if isinstance(item, Outgoing) else Outgoing(item),
            f"{TOKEN}-{number}",
            mark,
            MAX_BODY,
        )
        for number, item in enumerate(items, place)
    ]


@given(st.sampled_from(TOPICS), whole | st.lists(bodies, max_size=20) | mixed, st.integers(0, 500))
def test_what_is_made_together_is_what_is_made_one_by_one(
    topic: Topic, items: list[Any], place: int
) -> None:
    made = plain_entries(topic, items, TOKEN, place, MAX_BODY)
    if made is not None:
        alone = one_by_one(topic, items, place)
        assert list(map(msgspec.structs.astuple, made)) == list(map(msgspec.structs.astuple, alone))


@given(st.sampled_from(TOPICS), st.integers(FEW, 20), st.sampled_from(["key", "none", "body"]))
def test_plain_messages_are_made_together(topic: Topic, count: int, how: str) -> None:
    items = {
        "key": [Outgoing({"n": n}, key=f"k{n}") for n in range(count)],
        "none": [Outgoing({"n": n}) for n in range(count)],
        "body": [{"n": n} for n in range(count)],
    }[how]
    refused = how != "key" and topic.kind == "ordered"
    assert (plain_entries(topic, items, TOKEN, 0, MAX_BODY) is None) == refused


@given(st.lists(keys.filter(lambda key: key is not None)))
def test_keys_are_refused_together_if_one_is_refused_alone(given_keys: list[Any]) -> None:
    def refused(check: Callable[[], object]) -> bool:
        try:
            check()
        except (BadKey, TypeError):
            return True
        return False

    alone = [refused(lambda key=key: checked_key(key)) for key in given_keys]  # type: ignore[misc]
    assert refused(lambda: checked_keys(given_keys)) == any(alone)


def test_a_key_may_be_as_long_as_the_longest_and_no_longer() -> None:
    checked_keys(["k" * MAX_KEY_BYTES, "é" * (MAX_KEY_BYTES // 2)])
    with pytest.raises(BadKey):
        checked_keys(["k" * MAX_KEY_BYTES, "k" * (MAX_KEY_BYTES + 1)])


@pytest.fixture
def app() -> Iterator[QFrame]:
    with QFrame("model://") as app:
        yield app


def published(app: QFrame, topic: Topic) -> list[Any]:
    """All bodies, in the order of their ids."""
    found = [
        one for slot in range(topic.slots) for one in app.store.read_log(topic, slot, 0, 10_000)
    ]
    found.sort(key=lambda one: (one.id.split("-")[0], int(one.id.split("-")[1])))
    return [msgspec.json.decode(one.body) for one in found]


def test_a_dict_that_a_generator_yields_again_is_published_as_it_was_each_time(
    app: QFrame,
) -> None:
    def items() -> Iterator[dict[str, int]]:
        body = {"n": 0}
        for number in range(3 * FEW):
            body["n"] = number
            yield body

    topic = Topic("again", slots=4)
    app.publish_many(topic, items())
    assert published(app, topic) == [{"n": number} for number in range(3 * FEW)]


@pytest.mark.parametrize("batch", [1, FEW, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE])
def test_a_list_of_any_length_is_published_whole_and_in_order(app: QFrame, batch: int) -> None:
    topic = Topic("whole", slots=4)
    answers = app.publish_many(topic, list(range(2 * PIECE + 3)), batch=batch)
    ids = [answer.id for answer in answers]
    assert len(set(ids)) == len(ids) == 2 * PIECE + 3
    assert sorted(published(app, topic)) == list(range(2 * PIECE + 3))
    tokens = [token for token, _ in (name.split("-") for name in ids)]
    assert tokens.count(tokens[0]) == min(batch, len(ids))
    assert [int(name.split("-")[1]) for name in ids] == [n % batch for n in range(len(ids))]


@pytest.mark.parametrize("place", [0, FEW, PIECE, 2 * PIECE - 1])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Outgoing(object(), key="k"), BadBody),
        (Outgoing(1, key=""), BadKey),
        (Outgoing(1, key="k", delay=-1), BadInput),
    ],
)
def test_one_wrong_message_of_many_is_named_and_nothing_is_written(
    app: QFrame, place: int, wrong: Outgoing, error: type[BadInput]
) -> None:
    topic = Topic("wrong", slots=4)
    app.declare(topic)
    items = [Outgoing(n, key="k") for n in range(2 * PIECE)]
    items[place] = wrong
    with pytest.raises(error):
        app.publish_many(topic, items)
    assert published(app, topic) == []
