"""What another program has written otherwise than docs/wire.md says harms itself alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import RedisServer
from timer_acts import edit

from qframe import Message, QFrame, Topic
from qframe.drivers.redis import Call
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.keys import of
from qframe.stores.redis.reading import Malformed, _cut, delivery_of

pytestmark = pytest.mark.promise(8)

LOG = Path(__file__).parents[4] / "qframe/stores/redis/scripts/parts/log.lua"
RAW: dict[str, bytes] = {
    "body as text": pack(["x1", None, None, '{"n":1}']),
    "body a number": pack(["x1", None, None, 5]),
    "no body": pack(["x1", None, None]),
    "body nil": pack(["x1", None, None, None]),
    "id a number": pack([5, None, None, b"1"]),
    "key a number": pack(["x1", 5, None, b"1"]),
    "key as bytes": pack(["x1", b"k", None, b"1"]),
    "key not UTF-8": b"\x94\xa2x1\xa2\xff\xfe\xc0\xc4\x011",
    "id not UTF-8": b"\x94\xa2\xff\xfe\xc0\xc0\xc4\x011",
    "header a number": pack(["x1", None, {"a": 5}, b"1"]),
    "headers a list": pack(["x1", None, ["a"], b"1"]),
    "one field more": pack(["x1", None, None, b"1", 0]),
    "fields of a delivery": pack(["x1", None, None, b"1", 1, 0, "other", 7, "r", 9, 3]),
    "a map": pack({"id": "x1", "body": b"1"}),
    "a number": b"\x05",
    "nothing inside": b"\x90",
    "cut off": pack(["x1", None, None, b"12345"])[:-3],
    "no msgpack": b"\xc1\xc1\xc1",
    "JSON": b'{"id": "x1", "body": 1}',
    "very deep": b"\x94\xa2x1\xc0" + b"\x91" * 5000 + b"\xc0\xc4\x011",
    "claims much": b"\x94\xa2x1\xc0\xdf\xff\xff\xff\xff\xc4\x011",
    "two in one": pack(["x1", None, None, b"1"]) + pack(["x2", None, None, b"2"]),
}


def good(number: int) -> bytes:
    return pack([f"good-{number}", f"k{number}", None, b"%d" % number])


class Shop:
    """An app on Redis, with one handler, and a producer that writes what it likes."""

    def __init__(self, url: str, namespace: str, kind: str) -> None:
        self.app = QFrame(url, namespace=namespace, grace=5)
        self.topic = Topic("orders", kind, slots=1)
        self.seen: list[Any] = []
        self.app.consumer(self.topic, "billing")(self._handle)
        self.app.declare(self.topic)
        self.store: Any = self.app.store
        self.store.subscribe(self.topic, "billing")
        self.prefix = f"qf:{{{namespace}:orders:0}}:".encode()

    def _handle(self, message: Message) -> None:
        self.seen.append(message.body)

    def script(self, name: str, *arguments: bytes | str | int) -> Any:
        [reply] = self.store._redis.run([Call(of(name), self.prefix, arguments)])
        return reply

    def publish(self, *envelopes: bytes) -> None:
        """As one batch, without a look at what it is."""
        if self.topic.has_subjects:
            words = [
                word for number, each in enumerate(envelopes) for word in ("", f"s{number}", each)
            ]
            given = ("", f"{self.topic.kind} 1", 1000, 0, 1000, "mark")
            assert self.script("publish_subjects", *given, *words) == b"s" * len(envelopes)
        else:
            given = ("", "stream 1", 1000, 0, "mark", "", len(envelopes), b"".join(envelopes))
            assert self.script("publish_stream", *given) == b"s"

    def log(self, name: str, *fields: bytes | str) -> None:
        """Adds an entry to the log by hand, and counts it."""
        key = self.prefix + b"log"
        self.store._redis.ask(key, "XADD", name, *fields)
        first, count = map(int, name.split("-"))
        self.store._redis.ask(self.prefix + b"head", "SET", first + count)

    def dead(self) -> list[Any]:
        return self.app.admin.dead(self.topic, "billing")


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture(params=["stream", "ordered", "delay"])
def shop(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(url, tmp_path.name, request.param)
    with shop.app:
        yield shop


@pytest.fixture
def stream(url: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(url, tmp_path.name, "stream")
    with shop.app:
        yield shop


@pytest.mark.gate
def test_each_malformed_envelope_is_one_dead_letter_at_once_and_its_neighbours_are_handled(
    shop: Shop,
) -> None:
    told: list[tuple[str, int]] = []
    shop.app.events.listen(
        lambda name, facts: told.append((name, facts["count"])) if "malformed" in name else None
    )
    # What cannot be told apart swallows what follows it in an entry of a log, so it is the last.
    whole = [each for name, each in RAW.items() if name not in ("cut off", "claims much")]
    if not shop.topic.has_subjects:
        whole = [
            RAW[name] for name in RAW
            if name not in ("cut off", "claims much", "no msgpack", "JSON", "two in one")
        ]  # fmt: skip
    batch = list(itertools.chain(*((good(n), each) for n, each in enumerate(whole))))
    shop.publish(*batch, good(len(whole)))
    before = shop.app.admin.verify("orders")
    assert len(before) == len(whole)
    assert all("MalformedMessage" in fault for fault in before)
    shop.app.admin.peek("orders", "billing", limit=1000)
    shop.app.run(burst=True)
    assert sorted(shop.seen) == list(range(len(whole) + 1))
    dead = shop.dead()
    assert [letter.body for letter in dead] == whole
    assert all(letter.attempts == 1 and "cannot be read" in letter.error for letter in dead)
    assert sum(count for _, count in told) == len(whole)
    assert len(shop.app.admin.verify("orders")) == len(whole)  # it names each
    [totals] = shop.app.admin.topic("orders").groups
    assert (totals.settled, totals.dead, totals.lag) == (len(whole) + 1, len(whole), 0)


@pytest.mark.parametrize("name", RAW)
def test_a_malformed_envelope_alone_is_listed_explained_retried_and_dropped(
    stream: Shop, name: str
) -> None:
    stream.publish(RAW[name])
    stream.app.run(burst=True)
    [letter] = stream.dead()
    assert letter.body == RAW[name]
    admin = stream.app.admin
    assert admin.dead_show("orders", "billing", letter.id) == letter
    assert [one.state for one in admin.explain("orders", letter.id)] == ["dead"]
    assert [one.id for one in admin.peek("orders", "billing", states=("dead",))] == [letter.id]
    assert admin.dead_retry("orders", "billing", [letter.id]) == 1
    [waits] = admin.peek("orders", "billing")
    assert (waits.id, waits.body) == (letter.id, RAW[name])
    stream.app.run(burst=True)
    [again] = stream.dead()
    assert (again.id, again.attempts) == (letter.id, 1)
    assert admin.dead_drop("orders", "billing", [letter.id]) == 1
    assert stream.dead() == []
    assert admin.verify("orders") == []
    assert stream.seen == []


def test_what_cannot_be_told_apart_takes_those_behind_it_in_its_entry_and_none_before_it(
    stream: Shop,
) -> None:
    cut = RAW["cut off"]
    stream.publish(good(0), cut, good(1), good(2))
    stream.log("4-1", b"b", good(3), b"t", b"5")
    stream.app.run(burst=True)
    assert stream.seen == [0, 3]
    dead = stream.dead()
    # The first of them has what it lacks from the next one, so that it is an envelope after all.
    assert len(dead) == 3
    assert good(2) in b"".join(letter.body for letter in dead)
    [totals] = stream.app.admin.topic("orders").groups
    assert (totals.published, totals.settled, totals.dead) == (5, 2, 3)


@pytest.mark.parametrize(
    "fields",
    [
        [b"b", b"", b"t", b"5"],
        [b"t", b"5"],
        [b"x", b"y"],
        [b"b", good(1), b"t", b"soon"],
        [b"t", b"5", b"b", b"\xff"],
    ],
    ids=["empty envelope", "no envelope", "other fields", "no time", "other order"],
)
def test_an_odd_entry_of_a_log_stops_neither_its_slot_nor_its_workers(
    stream: Shop, fields: list[bytes]
) -> None:
    stream.publish(good(0))
    stream.log("1-1", *fields)
    stream.log("2-1", b"b", good(2), b"t", b"5")
    stream.app.run(burst=True)
    odd = stream.dead()
    assert sorted(stream.seen) in ([0, 2], [0, 1, 2])
    assert len(odd) + len(stream.seen) == 3
    assert all(letter.id == "malformed-0-1" for letter in odd)
    stream.app.admin.dead_drop("orders", "billing", "all")
    assert stream.app.admin.verify("orders") == []


@pytest.mark.parametrize("claimed", [1, 3])
def test_an_entry_that_counts_its_messages_wrongly_loses_none_of_them(
    stream: Shop, claimed: int
) -> None:
    stream.log(f"0-{claimed}", b"b", good(0) + good(1), b"t", b"5")
    stream.log(f"{claimed}-1", b"b", good(9), b"t", b"5")
    stream.app.run(burst=True)
    assert stream.seen == ([9] if claimed == 1 else [0, 1, 9])
    if claimed == 1:
        [letter] = stream.dead()
        assert letter.body == good(0) + good(1)


@pytest.mark.parametrize(
    ("count", "envelopes"), [(0, good(0)), (-3, good(0)), ("x", good(0)), (1, b""), (99, b"\x05")]
)
def test_a_count_that_cannot_be_is_refused_before_anything_is_written(
    stream: Shop, count: Any, envelopes: bytes
) -> None:
    with pytest.raises(Exception, match=f"{count} messages in {len(envelopes)} bytes"):
        stream.script("publish_stream", "", "stream 1", 1000, 0, "mark", "", count, envelopes)
    stream.publish(good(1))
    stream.app.run(burst=True)
    assert stream.seen == [1]


def test_a_subject_that_is_not_a_text_is_a_dead_letter_that_can_be_dropped(
    url: str, tmp_path: Path
) -> None:
    shop = Shop(url, tmp_path.name, "ordered")
    with shop.app:
        given = ("", "ordered 1", 1000, 0, 1000, "mark")
        bad = b"\xff\xfe"
        words = ("", bad, good(0), "", bad, good(1), "", "s", good(2))
        shop.script("publish_subjects", *given, *words)
        for record in shop.app.admin.peek("orders", "billing"):
            assert record.subject in ("\\xff\\xfe", "s")
        shop.app.run(burst=True)
        assert shop.seen == [2]
        letters = shop.dead()
        assert len(letters) == 2
        assert shop.app.admin.dead_drop("orders", "billing", "all") == 2
        assert shop.app.admin.verify("orders") == []


def test_one_that_is_malformed_in_the_midst_of_a_key_waits_for_its_turn(
    url: str, tmp_path: Path
) -> None:
    shop = Shop(url, tmp_path.name, "ordered")
    with shop.app:
        words = [word for each in (good(0), RAW["a map"], good(1), b"\x05", b"\x05", good(2))
                 for word in ("", "s", each)]  # fmt: skip
        shop.script("publish_subjects", "", "ordered 1", 1000, 0, 1000, "mark", *words)
        shop.app.run(burst=True)
        assert shop.seen == [0, 1, 2]
        assert [letter.body for letter in shop.dead()] == [RAW["a map"], b"\x05", b"\x05"]
        shop.app.admin.dead_drop("orders", "billing", "all")
        assert shop.app.admin.verify("orders") == []


def test_garbage_among_what_joins_later_is_a_dead_letter(stream: Shop) -> None:
    redis, later = stream.store._redis, stream.prefix + b"later"
    for member in (b"garbage", b"garbage\0", b"id\0" + bytes(16) + b"\x05"):
        redis.ask(later, "ZADD", 1, member)
    assert "later: MalformedMessage" in stream.app.admin.verify("orders")[0]
    stream.app.admin.peek("orders", "billing")
    stream.publish(good(0))
    stream.app.run(burst=True)
    assert stream.seen == [0]
    assert [letter.body for letter in stream.dead()] == [b"garbage", b"garbage\0", b"\x05"]


def test_who_reads_the_log_sees_a_malformed_message_as_its_bytes(stream: Shop) -> None:
    stream.publish(good(0), RAW["a map"], good(1))
    zero, odd, one = stream.store.read_log(stream.topic, 0, 0, 10)
    assert (zero.id, one.id) == ("good-0", "good-1")
    assert (odd.id, odd.body, odd.seq) == ("malformed-0-1", RAW["a map"], 1)
    assert odd.headers == {"qf-type": "bytes"}


SNIPPETS = st.one_of(
    st.sampled_from([*RAW.values(), good(1), b""]),
    st.binary(max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
        | st.text(max_size=300) | st.binary(max_size=300),
        lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
        max_leaves=30,
    ).map(pack),
)  # fmt: skip


@given(st.lists(SNIPPETS, min_size=1, max_size=6), st.integers(1, 8))
@settings(suppress_health_check=list(HealthCheck), max_examples=150)
def test_lua_cuts_an_entry_where_python_does(
    redis_server: RedisServer, parts: list[bytes], count: int
) -> None:
    text = b"".join(parts)
    script = f"""{LOG.read_text(encoding="utf-8")}
        local found = {{}}
        redis.call('DEL', KEYS[1])
        redis.call('XADD', KEYS[1], '7-' .. ARGV[2], 'b', ARGV[1], 't', '5')
        each_message(KEYS[1], 7, 99, function(_, envelope) found[#found + 1] = envelope end)
        return found"""
    with redis_server.client() as client:
        assert client.eval(script, 1, "cutting", text, count) == _cut(text, count)


def test_an_envelope_that_is_sound_is_never_malformed_in_any_form_of_msgpack() -> None:
    forms = [
        good(1),
        b"\xdc\x00\x04" + good(1)[1:],
        b"\xdd\x00\x00\x00\x04" + good(1)[1:],
        b"\x94\xd9\x06good-1\xda\x00\x02k1\x80\xc6\x00\x00\x00\x011",
    ]
    for form in forms:
        one = delivery_of(form, 0, 1)
        assert not isinstance(one, Malformed)
        assert (one.id, one.key, one.body) == ("good-1", "k1", b"1")
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(pack(["a", None, None, b"", 0]), type=type(one))


def test_a_head_whose_header_is_long_can_be_changed_as_any_other(url: str, tmp_path: Path) -> None:
    with QFrame(url, namespace=tmp_path.name) as app:
        store: Any = app.store
        topic = Topic("reminders", "delay", slots=1)
        store.declare(topic)
        store.subscribe(topic, "g")
        prefix = f"qf:{{{tmp_path.name}:reminders:0}}:".encode()
        head = b"\xdc\x00\x04" + good(1)[1:]
        for subject, envelope in (("long", head), ("odd", b"\x05")):
            how = pack([subject, False, False, 60_000, 0, False])
            words = ("", "delay", 1000, 0, 1000, "mark", how, subject, envelope)
            store._redis.run([Call(of("publish_subjects"), prefix, words)])
        edit(store, topic, "long", body=b"2")
        edit(store, topic, "odd", body=b"2")
        [changed] = store.timer(topic, "long")
        assert (changed.id, changed.key, changed.body) == ("good-1", "k1", b"2")
        [odd] = store.timer(topic, "odd")
        assert odd.body == b"\x05"
