"""Where equal bodies are one subject, dicts and sets in another order are equal, by every door."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import NullPool, create_engine

from qframe import Outbox, Outgoing, QFrame, Topic
from qframe.codec import body_as_basis, encode_body
from qframe.testing import Harness

MERGE = Topic("merge", kind="merge", slots=64)
DELAY = Topic("delay", kind="delay", slots=64, subject="body")
PRIORITY = Topic("priority", kind="priority", slots=64, subject="body")
TOPICS = [MERGE, DELAY, PRIORITY]


@dataclass
class Place:
    city: str
    area: int


class Turned(msgspec.Struct):
    area: int
    city: str


LETTERS = "abcdefghij"
EQUAL: dict[str, list[Any]] = {
    "dicts": [{"city": "Ulm", "area": 7}, {"area": 7, "city": "Ulm"}],
    "dicts in others": [
        {"a": [{"x": 1, "y": {"p": 1, "q": 2}}]}, {"a": [{"y": {"q": 2, "p": 1}, "x": 1}]},
    ],
    "a dataclass and a dict": [Place("Ulm", 7), {"area": 7, "city": "Ulm"}],
    "a dataclass and a Struct": [Place("Ulm", 7), Turned(7, "Ulm")],
    "sets": [set(LETTERS), frozenset(LETTERS[::-1]), sorted(LETTERS)],
    "sets in dicts": [{"s": set(LETTERS), "n": 1}, {"n": 1, "s": frozenset(LETTERS[::-1])}],
    "numbers as keys": [{10: "a", 9: "b"}, {9: "b", 10: "a"}, {"10": "a", "9": "b"}],
    "JSON": [msgspec.Raw(b'{"b": 1, "a": 2}'), msgspec.Raw(b'{"a":2,"b":1}'), {"b": 1, "a": 2}],
}  # fmt: skip
OTHERS = [[1, 2], [2, 1], {"a": 1}, {"a": "1"}, {"a": [1]}, b"raw", '{"a":1}', None]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame("model://") as app:
        for topic in TOPICS:
            app.consumer(topic, "g")(lambda: None)
        yield app


def many(app: QFrame, topic: Topic, bodies: list[Any]) -> None:
    app.publish_many(topic, bodies * 8)


def some(app: QFrame, topic: Topic, bodies: list[Any]) -> None:
    app.publish_many(topic, [Outgoing(body, headers={"a": "b"}) for body in bodies])


def one_by_one(app: QFrame, topic: Topic, bodies: list[Any]) -> None:
    for body in bodies:
        app.publish(topic, body)


def buffered(app: QFrame, topic: Topic, bodies: list[Any]) -> None:
    with app.buffered() as producer:
        for body in bodies:
            producer.publish(topic, body)


DOORS: list[Callable[[QFrame, Topic, list[Any]], None]] = [many, some, one_by_one, buffered]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
@pytest.mark.parametrize("bodies", EQUAL.values(), ids=EQUAL)
def test_equal_bodies_are_one_subject_by_every_door(
    app: QFrame, bodies: list[Any], topic: Topic, tmp_path: Path
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'outbox.db'}", poolclass=NullPool)
    outbox = app.relay(Outbox(engine))
    with Harness(app) as harness:
        for publish in DOORS:
            publish(app, topic, bodies)
        with engine.begin() as connection:
            for body in bodies:
                outbox.publish(connection, topic, body)
        for relay in harness._wired().relays():
            while relay.turn():
                pass
        assert len(harness.waiting(topic)) == 1


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_other_bodies_are_other_subjects(app: QFrame, topic: Topic) -> None:
    with Harness(app) as harness:
        for publish in DOORS:
            publish(app, topic, OTHERS)
        assert len(harness.waiting(topic)) == len(OTHERS)


def test_a_body_is_stored_in_the_order_in_which_it_was_published(app: QFrame) -> None:
    with Harness(app) as harness:
        harness.publish(MERGE, {"b": 1, "a": 2})
        [record] = app.store.peek(MERGE, "g", states=("todo", "waiting"), limit=9)
        assert record.body == b'{"b":1,"a":2}'


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
PLAIN = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False)
)  # fmt: skip
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
)


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, list):
        return [shuffled(each, chance) for each in value]
    if isinstance(value, dict):
        names = list(value)
        chance.shuffle(names)
        return {name: shuffled(value[name], chance) for name in names}
    return value


@given(body=VALUES, seed=st.integers(0, 9))
def test_in_whatever_order_it_is_and_by_its_json_alone_a_body_has_the_same_bytes(
    body: Any, seed: int
) -> None:
    other = shuffled(body, random.Random(seed))
    encoded, _ = encode_body(body, 2**20)
    bytes_of_json = body_as_basis(MERGE, None, msgspec.Raw(encoded), encoded)
    assert body_as_basis(MERGE, None, body, encoded) == bytes_of_json
    assert body_as_basis(MERGE, None, other, encode_body(other, 2**20)[0]) == bytes_of_json


def test_what_is_no_json_is_its_own_basis() -> None:
    assert body_as_basis(MERGE, None, msgspec.Raw(b"{"), b"{") == b"{"
    assert body_as_basis(MERGE, None, b'{"b":1,"a":2}', b'{"b":1,"a":2}') == b'{"b":1,"a":2}'
    assert body_as_basis(MERGE, "k", {"b": 1, "a": 2}, b'{"b":1,"a":2}') == b'{"b":1,"a":2}'
