"""Bodies, headers, ids, subjects and marks, as they lie in a store."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.clock import VirtualClock
from qframe.codec import (
    RAW,
    TAGS_HEADER,
    TYPE_HEADER,
    batch_mark,
    batch_mark_of,
    checked_id,
    decode_body,
    encode_body,
    encode_headers,
    new_token,
    subject_of,
    tags_of,
)
from qframe.errors import BadBody, BadOption
from qframe.topic import Topic

LARGE = 10**6
TOKEN_SIZE = 20

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)  # fmt: skip
ids = st.text(
    st.sampled_from("ABCXYZabcxyz0189_.:/@+=-"), min_size=1, max_size=128
)  # fmt: skip
user_headers = st.dictionaries(texts.filter(lambda name: name and name[:3] != "qf-"), texts)
tag_lists = st.lists(texts.filter(lambda tag: tag and "," not in tag))


@dataclass
class Flight:
    tail: str
    legs: int


class Leg(msgspec.Struct):
    origin: str


# Bodies


@given(plain)
def test_a_body_comes_back_as_it_was_published(body: Any) -> None:
    encoded, raw = encode_body(body, LARGE)
    assert not raw
    assert decode_body(encoded, None) == body
    assert json.loads(encoded) == body


@dataclass
class Price:
    amounts: tuple[float, ...]
    note: str | None = None


class Quote(msgspec.Struct):
    price: Price
    of: float = 1.0


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("body_with", "place"),
    [
        (lambda number: number, "body"),
        (lambda number: [1, [2.5, number]], "body[1][1]"),
        (lambda number: {"a": None, "prices": [{"b": number}]}, "body['prices'][0]['b']"),
        (lambda number: Price((1.5, number)), "body['amounts'][1]"),
        (lambda number: Quote(Price(()), of=number), "body['of']"),
        (lambda number: {"big": 10**30, "of": number}, "body['of']"),
        (lambda number: {"set": frozenset([number])}, "body['set'][0]"),
    ],
)
def test_a_number_that_would_come_out_as_none_is_refused_by_its_place(
    number: float, body_with: Callable[[float], Any], place: str
) -> None:
    with pytest.raises(BadBody) as refused:
        encode_body(body_with(number), LARGE)
    assert refused.value.why == f"JSON cannot hold {number}, found at {place}"
    assert "publish None or a string" in str(refused.value)


@given(plain)
def test_what_looks_like_such_a_number_and_is_none_is_published(body: Any) -> None:
    looks_so = [body, None, "null", 0x7FF0000000000000, b"\xcb\x7f\xf0", Quote(Price((1e308,)))]
    encoded, _ = encode_body(looks_so, LARGE)
    assert decode_body(encoded, None)[0] == body


@given(st.binary())
def test_bytes_are_stored_as_they_are_and_known_by_their_header(body: bytes) -> None:
    for given_body in (body, bytearray(body), memoryview(body)):
        encoded, raw = encode_body(given_body, LARGE)
        assert (encoded, type(encoded), raw) == (body, bytes, True)
    headers = encode_headers(None, None, raw=True, max_body=1000)
    assert headers == {TYPE_HEADER: RAW}
    assert decode_body(body, headers) == body


@pytest.mark.parametrize(
    ("body", "encoded"),
    [
        (Flight("N1", 2), b'{"tail":"N1","legs":2}'),
        (Leg("JFK"), b'{"origin":"JFK"}'),
        (Decimal("0.10"), b'"0.10"'),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), b'"2024-01-02T03:04:05Z"'),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        ((1, 2), b"[1,2]"),
        ({"é": [2**64 - 1, []]}, '{"é":[18446744073709551615,[]]}'.encode()),
    ],
)
def test_what_json_has_a_form_for_is_written_so(body: object, encoded: bytes) -> None:
    assert encode_body(body, LARGE) == (encoded, False)


def nested_without_end() -> list[Any]:
    body: list[Any] = []
    body.append(body)
    return body


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    "make", [object, lambda: {"f": print}, lambda: "\ud800", nested_without_end, lambda: {(1,): 2}]
)
def test_a_body_that_cannot_be_written_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(BadBody, match="cannot be written as JSON"):
        encode_body(make(), LARGE)


@pytest.mark.parametrize("body", [b"x" * 10, "x" * 8])
def test_a_body_may_be_just_as_large_as_max_body_and_no_larger(body: Any) -> None:
    encoded, _ = encode_body(body, 10)
    assert len(encoded) == 10
    with pytest.raises(BadBody, match="body 'of 10 bytes': max_body is 9"):
        encode_body(body, 9)


def test_a_stored_body_that_is_no_json_is_told_as_such() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_body(b"{", None)
    with pytest.raises(msgspec.DecodeError):
        decode_body(b"\xff", {"h": "x"})


# Headers and tags


def test_without_anything_there_are_no_headers() -> None:
    assert encode_headers(None, None, raw=False, max_body=1000) is None
    assert encode_headers({}, [], raw=False, max_body=1000) is None


@given(headers=user_headers, tags=tag_lists, raw=st.booleans())
def test_headers_and_tags_come_back_and_only_ours_are_added(
    headers: dict[str, str], tags: list[str], raw: bool
) -> None:
    stored = encode_headers(headers, tags, raw, max_body=100_000) or {}
    assert tags_of(stored) == tuple(tags)
    ours = {name: value for name, value in stored.items() if name.startswith("qf-")}
    assert {name: stored[name] for name in stored.keys() - ours.keys()} == headers
    assert ours.keys() == ({TAGS_HEADER} if tags else set()) | ({TYPE_HEADER} if raw else set())


def test_tags_may_be_given_one_by_one_or_not_at_all() -> None:
    assert encode_headers(None, (tag for tag in ("a", "b")), False, 1000) == {TAGS_HEADER: "a,b"}
    assert tags_of(None) == tags_of({}) == tags_of({"h": "x"}) == ()


@pytest.mark.parametrize(
    ("headers", "tags", "what"),
    [
        ({"n": 1}, None, "header"),
        ({1: "n"}, None, "header"),
        ({"": "n"}, None, "header"),
        ({"qf-tags": "x"}, None, "header"),
        ({"qf-mine": "x"}, None, "header"),
        (None, "urgent", "tags"),
        (None, ["a,b"], "tag"),
        (None, [""], "tag"),
        (None, [1], "tag"),
        ({"n": "x" * 999}, ["a"], "headers"),
        (None, ["é" * 500], "headers"),
    ],
)
def test_a_wrong_header_or_tag_is_refused(headers: Any, tags: Any, what: str) -> None:
    with pytest.raises(BadOption) as caught:
        encode_headers(headers, tags, raw=False, max_body=1000)
    assert caught.value.what == what


# Ids


@given(ids)
def test_an_id_is_1_to_128_of_letters_digits_and_eight_signs(value: str) -> None:
    assert checked_id(value) == value


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    "value", ["", "x" * 129, "a b", "a\n", "é", "a*", "{a}", None, 7, b"a", "-*"]
)
def test_any_other_id_is_refused(value: object) -> None:
    with pytest.raises(BadOption, match="1 to 128 of the characters"):
        checked_id(value)


def test_a_token_is_20_characters_that_an_id_may_have() -> None:
    token = new_token(VirtualClock())
    assert len(token) == TOKEN_SIZE
    assert set(token) <= set("0123456789abcdefghjkmnpqrstvwxyz")
    assert checked_id(f"{token}-0") == f"{token}-0"


@given(st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=30))
def test_tokens_sort_by_the_time_they_were_made(times: list[int]) -> None:
    made = [(ms, new_token(VirtualClock(ms))) for ms in times]
    for earlier_ms, earlier in made:
        for later_ms, later in made:
            if earlier_ms < later_ms:
                assert earlier < later


@given(st.integers(0, 2**48 - 1))
def test_a_token_holds_its_time_in_its_first_48_bits(ms: int) -> None:
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    number = 0
    for character in new_token(VirtualClock(ms)):
        number = number * 32 + alphabet.index(character)
    assert number >> 52 == ms


def test_tokens_of_one_moment_differ() -> None:
    clock = VirtualClock()
    assert len({new_token(clock) for _ in range(10_000)}) == 10_000


# Subjects

MERGE = Topic("t", kind="merge")
BY_BODY = [MERGE, *(Topic("t", kind=kind, subject="body") for kind in ("delay", "priority"))]


@given(key=texts, body=st.binary())
def test_the_subject_of_a_message_with_a_key_is_its_key(key: str, body: bytes) -> None:
    for kind in ("ordered", "delay", "priority", "merge"):
        assert subject_of(Topic("t", kind), key, body, "m-1") == key


@given(body=st.binary(), number=st.integers(0, 9))
def test_without_a_key_each_message_of_delay_and_priority_is_its_own_subject(
    body: bytes, number: int
) -> None:
    for kind in ("delay", "priority"):
        assert subject_of(Topic("t", kind), None, body, f"m-{number}") == f"#m-{number}"


def test_a_stream_queues_no_subjects() -> None:
    assert subject_of(Topic("t"), "a", b"1", "m-1") is None


@given(one=st.binary(), other=st.binary())
def test_without_a_key_messages_are_one_subject_by_body_if_their_bodies_are_equal(
    one: bytes, other: bytes
) -> None:
    for topic in BY_BODY:
        ours, theirs = subject_of(topic, None, one, "m-1"), subject_of(topic, None, other, "m-2")
        assert (ours == theirs) == (one == other)


def test_the_subject_of_a_body_is_as_published_for_those_who_write_in_another_language() -> None:
    assert subject_of(MERGE, None, b"abc", "m-1") == (
        "#" + blake2b(b"abc", digest_size=16).hexdigest()
    )
    assert len(subject_of(MERGE, None, b"", "m-1") or "") == 33


# Marks


@given(ms=st.integers(0, 2**48 - 1), number=st.integers(0, 10**9))
def test_the_mark_of_an_id_of_a_batch_is_the_mark_of_the_batch(ms: int, number: int) -> None:
    token = new_token(VirtualClock(ms))
    assert batch_mark_of(f"{token}-{number}") == batch_mark(token)


@given(ids)
def test_an_id_of_another_form_belongs_to_no_batch(message_id: str) -> None:
    token, dash, _ = message_id.rpartition("-")
    if not dash or len(token) != TOKEN_SIZE:
        assert batch_mark_of(message_id) is None


@given(ids)
def test_no_id_is_the_mark_of_a_batch(message_id: str) -> None:
    assert batch_mark(new_token(VirtualClock())) != message_id
    with pytest.raises(BadOption):
        checked_id(batch_mark(message_id[:120]))
