"""Topics: what a name, a key, a duration and a slot may be, and what is refused."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.errors import BadKey, BadOption, BadTopic
from qframe.topic import (
    MAX_SLOTS,
    Kind,
    Topic,
    broadcast_group,
    checked_group,
    checked_key,
    checked_name,
    duration_ms,
    legal_name,
)

POWERS = [2**n for n in range(13)]
names = st.text(st.sampled_from("AZaz09_.-"), min_size=1, max_size=64).filter(
    lambda name: name not in (".", "..")
)


def test_a_topic_is_a_stream_of_16_slots_with_the_promised_defaults() -> None:
    topic = Topic("events")
    assert (topic.name, topic.kind, topic.slots) == ("events", Kind.STREAM, 16)
    assert topic.max_length is None
    assert topic.slot_max_length is None
    hour_ms = 3_600_000
    windows = (topic.retain_ms, topic.dedupe_window_ms, topic.gap_timeout_ms)
    assert windows == (24 * hour_ms, hour_ms, 30_000)


def test_there_are_five_kinds_and_only_a_stream_has_no_subjects() -> None:
    assert [str(kind) for kind in Kind] == ["stream", "ordered", "delay", "priority", "merge"]
    assert [kind for kind in Kind if not Topic("t", kind).has_subjects] == [Kind.STREAM]


@pytest.mark.parametrize("slots", POWERS)
def test_every_power_of_two_up_to_4096_is_a_slot_count(slots: int) -> None:
    assert Topic("t", slots=slots).slots == slots


@pytest.mark.promise(8)
@given(st.one_of(st.integers(), st.floats(), st.booleans(), st.text(), st.none()))
def test_nothing_else_is_a_slot_count(slots: Any) -> None:
    if not (type(slots) is int and slots in POWERS):
        with pytest.raises(BadTopic, match="power of two from 1 to 4096"):
            Topic("t", slots=slots)


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("options", "what", "value"),
    [
        ({"name": ""}, "topic name", ""),
        ({"name": "x" * 65}, "topic name", "x" * 65),
        ({"name": "a b"}, "topic name", "a b"),
        ({"name": "a\n"}, "topic name", "a\n"),
        ({"name": "{a}"}, "topic name", "{a}"),
        ({"name": "é"}, "topic name", "é"),
        ({"name": None}, "topic name", None),
        ({"kind": "queue"}, "kind", "queue"),
        ({"kind": None}, "kind", None),
        ({"max_length": 0}, "max_length", 0),
        ({"max_length": "10"}, "max_length", "10"),
        ({"max_length": 1.5}, "max_length", 1.5),
        ({"max_length": True}, "max_length", True),
        ({"max_length": 10**30}, "max_length", 10**30),
    ],
)
def test_a_topic_that_cannot_be_is_refused_by_name(
    options: dict[str, Any], what: str, value: object
) -> None:
    with pytest.raises(BadTopic) as caught:
        Topic(**{"name": "t", **options})
    assert (caught.value.what, caught.value.value) == (what, value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"kind": "ordered", "retain": "1h"},
            "retain '1h': it does nothing in a topic of kind ordered: only a stream keeps",
        ),
        (
            {"kind": "stream", "gap_timeout": 5},
            "gap_timeout 5: it does nothing in a topic of kind stream: only an ordered topic",
        ),
        *[
            ({"kind": kind, option: value}, f"{option} '24h': it does nothing in")
            for kind in ("delay", "priority", "merge")
            for option, value in (("retain", "24h"), ("gap_timeout", "24h"))
        ],
    ],
    ids=str,
)  # fmt: skip
def test_an_option_that_does_nothing_in_a_kind_is_refused_there(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadTopic, match=f"^{re.escape(why)}"):
        Topic("t", **options)


@pytest.mark.parametrize("option", ["retain", "dedupe_window", "gap_timeout"])
def test_a_wrong_duration_of_a_topic_is_named(option: str) -> None:
    with pytest.raises(BadOption, match=f"^{option} 'soon': it is not a duration"):
        Topic("t", **{option: "soon"})  # type: ignore[arg-type]


@given(names)
def test_names_are_1_to_64_of_letters_digits_and_three_signs(name: str) -> None:
    assert checked_name(name, "group") == name


@given(st.text(max_size=70))
def test_any_other_name_is_refused(name: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
    if not (1 <= len(name) <= 64 and set(name) <= allowed):
        with pytest.raises(BadOption, match=r"^group name "):
            checked_name(name, "group")


@given(names, names)
def test_a_broadcast_group_has_a_name_that_no_user_can_give(group: str, instance: str) -> None:
    name = broadcast_group(group, instance)
    assert checked_group(name) == name
    assert checked_group(group) == group
    with pytest.raises(BadOption, match=r"^group name "):
        checked_name(name, "group")
    for wrong in (f"{name}@", f"@{name}", f"{name}@x", f"{group}@", f"@{instance}", "", None):
        with pytest.raises(BadOption, match=r"^group name "):
            checked_group(wrong)


@given(st.text(max_size=70))
def test_a_legal_name_can_be_made_of_any_text(text: str) -> None:
    assert checked_name(legal_name(text), "instance")


@given(names)
def test_a_name_that_is_legal_stays_as_it_is(name: str) -> None:
    assert legal_name(name) == name


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_key_is_any_text_of_up_to_512_bytes(key: str) -> None:
    if len(key.encode()) <= 512:
        assert checked_key(key) is key


@pytest.mark.parametrize("key", ["k" * 512, "ключ" * 64, "🛫" * 128, "€" * 170 + "xx"])
def test_a_key_of_just_512_bytes_is_one(key: str) -> None:
    assert len(key.encode()) == 512
    assert checked_key(key) is key


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    "key",
    [
        "", "k" * 513, "ключ" * 64 + "k", "🛫" * 128 + "k", "a\0b", "\0", "\ud800", "ok\udfff",
        None, 7, b"key", ["a"],
    ],
)  # fmt: skip
def test_what_is_no_key_is_refused(key: object) -> None:
    with pytest.raises(BadKey, match="string of 1 to 512 bytes"):
        checked_key(key)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0), (0.25, 250), (1, 1000), (1e9, 10**12), (0.0004, 0), (0.0006, 1),
        ("500ms", 500), ("0s", 0), ("30s", 30_000), ("2m", 120_000), ("24h", 86_400_000),
        ("7d", 604_800_000), ("1.5h", 5_400_000), (" 10 s ", 10_000), ("0.5ms", 0), ("1.5ms", 2),
    ],
)  # fmt: skip
def test_a_duration_is_seconds_or_a_text_with_a_unit(value: float | str, ms: int) -> None:
    assert duration_ms(value, "delay") == ms


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    "value",
    [
        -1, -0.001, "-1s", "", "10", "s", "1 s s", "1.s", ".5s", "1w", "1S", "1e3s", "10s\n2",
        None, True, float("nan"), float("inf"), 1e11, [1], b"1s",
        10**400, "99999999999999d", "9" * 400 + "ms",
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(BadOption) as caught:
        duration_ms(value, "linger")
    assert caught.value.what == "linger"


@given(
    number=st.integers(0, 10**6),
    unit=st.sampled_from([("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]),
)
def test_a_duration_is_its_number_times_its_unit(number: int, unit: tuple[str, int]) -> None:
    name, ms = unit
    assert duration_ms(f"{number}{name}", "delay") == number * ms
    assert duration_ms(number * ms / 1000, "delay") == number * ms


@given(basis=st.binary(), slots=st.sampled_from(POWERS))
def test_a_slot_is_the_crc32_of_its_basis_mod_the_slot_count(basis: bytes, slots: int) -> None:
    assert Topic("t", slots=slots).slot_of(basis) == crc32(basis) % slots


def test_slots_are_as_published_for_those_who_write_in_another_language() -> None:
    topic = Topic("t", slots=MAX_SLOTS)
    # The check value of CRC-32 (ISO 3309) for "123456789".
    assert topic.slot_of(b"123456789") == 0xCBF43926 & 0xFFF
    assert topic.slot_of(b"") == 0


@pytest.mark.parametrize(
    ("max_length", "slots", "each"), [(1, 16, 1), (16, 16, 1), (17, 16, 2), (100, 1, 100)]
)
def test_the_longest_a_slot_may_be_is_its_share_rounded_up(
    max_length: int, slots: int, each: int
) -> None:
    assert Topic("t", slots=slots, max_length=max_length).slot_max_length == each


@pytest.mark.parametrize(
    "options",
    [
        {"name": "other"}, {"kind": "delay"}, {"slots": 8}, {"retain": "1h"}, {"max_length": 5},
        {"dedupe_window": 1}, {"history": 1},
    ],
    ids=str,
)  # fmt: skip
def test_topics_are_equal_if_all_their_options_are(options: dict[str, Any]) -> None:
    assert Topic("t") == Topic("t", "stream", 16, retain=86_400)
    assert hash(Topic("t")) == hash(Topic("t", "delay"))
    assert Topic("t") != Topic(**{"name": "t", **options})
    assert Topic("t") != "t"


def test_a_topic_shows_what_it_cannot_change() -> None:
    assert repr(Topic("t", "delay", 4)) == "Topic('t', kind='delay', slots=4)"
