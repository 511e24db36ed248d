"""Keys of Redis that somebody has damaged: `verify` names each, and the other slots go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apps import running
from click.testing import CliRunner
from consoling import browser, text_of
from eventually import eventually
from servers import RedisServer

from qframe import Message, QFrame, Topic
from qframe.cli.main import cli
from qframe.clock import SYSTEM_CLOCK
from qframe.doctor.examine import examine
from qframe.options.settings import Settings
from qframe.runtime.feed import unanswered_pulls
from qframe.telemetry.store_numbers import StoreNumbers
from qframe.web.problems import problems_of
from qframe.web.sampler import Sampler

TYPES = {
    "head": "string", "log": "stream", "later": "zset", "ids": "zset", "groups": "hash",
    "g:g:cursor": "hash", "g:g:waiting": "zset", "g:g:retry": "zset", "g:g:todo": "zset",
    "g:g:doing": "zset", "g:g:body": "hash", "g:g:tries": "hash", "g:g:dead": "zset",
    "g:g:graves": "hash", "g:g:named": "zset", "g:g:keyed": "zset",
}  # fmt: skip
KINDS = ("stream", "ordered")


class Place:
    """A topic of two slots, of which slot 1 is damaged; an app, and what it handles."""

    def __init__(self, url: str, namespace: str, kind: str) -> None:
        self.app = QFrame(url, namespace=namespace, grace=5)
        self.topic = Topic("orders", kind, slots=2)
        self.seen: list[Any] = []
        self.told: list[tuple[str, int]] = []
        self.app.consumer(self.topic, "g")(self._handle)
        self.app.events.listen(self._listen)
        self.app.declare(self.topic)
        self.app.store.subscribe(self.topic, "g")
        self.keys = {
            slot: [key for key in map(str, range(100)) if self.topic.slot_of(key.encode()) == slot]
            for slot in range(2)
        }
        self._redis: Any = self.app.store._redis  # type: ignore[attr-defined]
        self._prefix = f"qf:{{{namespace}:orders:1}}:".encode()

    def ask(self, name: str, *words: Any) -> Any:
        """A command about a key of slot 1."""
        return self._redis.ask(self._prefix + name.encode(), *words)

    def publish(self, slot: int, *bodies: int, **options: Any) -> None:
        for body in bodies:
            key = self.keys[slot][body % 7]
            self.app.publish(self.topic, body, key=key, **options)

    def verify(self) -> list[str]:
        return self.app.admin.verify("orders")

    def _handle(self, message: Message) -> None:
        self.seen.append(message.body)

    def _listen(self, name: str, facts: dict[str, Any]) -> None:
        if name == "slot.damaged":
            self.told.append((name, facts["slot"]))


@pytest.fixture(params=KINDS)
def place(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Place]:
    place = Place(redis_server.url, tmp_path.name, request.param)
    with place.app:
        yield place


@pytest.mark.promise(7, 10)
@pytest.mark.parametrize("name", TYPES)
def test_a_key_of_another_type_is_named_its_slot_alone_stands_still_and_others_are_counted(
    place: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unanswered_pulls, "DAMAGED_SLEEP_S", 0.05)
    whole = Topic("whole", slots=2)
    place.app.declare(whole)
    place.app.store.subscribe(whole, "w")
    place.app.publish_many(whole, [1, 2, 3])
    place.publish(1, 1, 2)
    place.publish(1, 3, delay=3600)
    place.ask(name, "DEL")
    place.ask(name, "RPUSH", "garbage")
    assert any(f"its key {name} is a list, and should be a {TYPES[name]}" in fault
               for fault in place.verify())  # fmt: skip
    orders, counted = place.app.admin.topics()
    assert [totals.lag for totals in counted.groups] == [3]
    assert counted.damaged == {}
    assert [totals.group for totals in orders.groups] + list(orders.damaged) == ["g"]

    roster = place.app.admin._context.roster
    look = Sampler(lambda: place.app.store, roster=roster, clock=SYSTEM_CLOCK).look()
    assert look.error is None
    assert [each.name for each in look.groups][-1] == ("whole", "w")
    told = [each for each in problems_of(look, lambda *_: []) if each.page == "verify"]
    assert [(each.topic, each.group) for each in told] == [("orders", g) for g in orders.damaged]

    numbers = StoreNumbers(place.app.store, roster=roster, clock=SYSTEM_CLOCK)
    found = {family.name: dict(family.values) for family in numbers.families()}
    assert found["qframe_store_up"] == {(): 1}
    assert found["qframe_messages"]["whole", "w", "todo"] == 3
    assert found["qframe_damaged"] == {("orders", "g"): len(orders.damaged), ("whole", "w"): 0}

    place.publish(0, 10, 11)
    with running(place.app):
        eventually(lambda: {10, 11} <= set(place.seen))
        place.publish(0, 12)
        eventually(lambda: 12 in place.seen)


@pytest.mark.gate
@pytest.mark.promise(10)
@pytest.mark.parametrize(
    ("name", "words", "fault"),
    [
        ("head", ("INCRBY", 1000), "offsets 2 to 1001 are not in the log"),
        ("log", ("DEL",), "offsets 0 to 1 are not in the log"),
        ("head", ("SET", "garbage"), "cannot be read"),
        ("g:g:cursor", ("DEL",), "this slot has no record of it"),
        ("g:g:cursor", ("HSET", "floor", "garbage"), "cannot be read"),
        ("later", ("ZADD", 1, "garbage"), "later: MalformedMessage"),
    ],
)
def test_a_stream_that_was_tampered_with_is_not_called_clean_and_stops_no_worker(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
    words: tuple[Any, ...], fault: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(unanswered_pulls, "DAMAGED_SLEEP_S", 0.05)
    place = Place(redis_server.url, tmp_path.name, "stream")
    with place.app:
        place.publish(1, 1, 2)
        place.ask(name, *words)
        assert fault in "\n".join(place.verify())
        place.publish(0, 10)
        with running(place.app):
            eventually(lambda: 10 in place.seen)
            if words[1:2] != ("garbage",) and "floor" not in words:
                place.publish(1, 20)
                eventually(lambda: 20 in place.seen)
        assert place.seen.count(20) <= 1


def test_messages_that_are_missing_in_a_log_are_passed_in_one_step_and_told(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    place = Place(redis_server.url, tmp_path.name, "stream")
    with place.app:
        counts: list[int] = []
        place.app.events.listen(
            lambda name, facts: (
                counts.append(facts["count"]) if name == "delivery.missing" else None
            )
        )
        place.publish(1, 1)
        place.ask("head", "INCRBY", 5000)
        place.publish(1, 2, 3)
        place.app.run(burst=True)
        assert place.seen == [1, 2, 3]
        assert sum(counts) == 5000
        assert place.verify() == []
        place.app.store.sweep(place.topic)
        assert [each.body for each in place.app.store.read_log(place.topic, 1, 5001, 9)] == [
            b"2",
            b"3",
        ]


@pytest.mark.promise(10)
@pytest.mark.parametrize("name", ["g:g:body", "g:g:todo", "g:g:doing", "g:g:tries", "g:g:waiting"])
def test_a_deleted_key_of_subjects_is_told_and_what_is_published_afterwards_is_handled(
    redis_server: RedisServer, tmp_path: Path, name: str
) -> None:
    place = Place(redis_server.url, tmp_path.name, "delay")
    with place.app:
        place.publish(1, 1, 2)
        place.publish(1, 3, delay=3600)
        deleted = place.ask(name, "DEL")
        assert bool(place.verify()) == bool(deleted)
        place.publish(1, 4)
        place.app.run(burst=True)
        assert 4 in place.seen


@pytest.mark.parametrize(("name", "group"), [("g:g:dead", "g"), ("g:g:cursor", "g")])
def test_the_commands_show_the_others_beside_a_damaged_group(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
    group: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("QFRAME_STORE", redis_server.url)
    monkeypatch.setenv("QFRAME_NAMESPACE", tmp_path.name)
    place = Place(redis_server.url, tmp_path.name, "ordered")
    with place.app:
        place.app.store.subscribe(place.topic, "other")
        place.publish(1, 1, 2)
        place.ask(name, "DEL")
        place.ask(name, "SET", "hello")
        told = f"group {group} of topic orders is damaged: WRONGTYPE"
        for words in (
            ["topics", "list"],
            ["topics", "show", "orders"],
            ["groups", "list", "orders"],
        ):
            shown = CliRunner().invoke(cli, words)
            assert shown.exit_code == 0, shown.output
            text = " ".join(shown.stdout.split())
            assert told in text
            assert "run qframe store verify orders" in text
            assert "other" in text
        [listed] = json.loads(CliRunner().invoke(cli, ["topics", "list", "--json"]).stdout)
        assert [totals["group"] for totals in listed["groups"]] == ["other"]
        assert list(listed["damaged"]) == [group]
        settings = Settings(store=redis_server.url, namespace=tmp_path.name)
        findings = examine(settings, SYSTEM_CLOCK).findings
        [finding] = [each for each in findings if each.check == "store"]
        assert told in finding.what
        assert finding.remedy == "run qframe store verify orders to see where"


def test_the_console_shows_a_damaged_group_as_that_and_the_others_as_they_are(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    place = Place(redis_server.url, tmp_path.name, "ordered")
    with place.app:
        place.app.store.subscribe(place.topic, "other")
        place.ask("g:g:dead", "SET", "hello")
        web = browser(place.app)
        for address in ("/", "/topics/orders"):
            page = web.get(address)
            assert page.status_code == 200
            assert "orders / g damaged" in text_of(page.text)
            assert "orders / other" in text_of(page.text)
            assert "store is away" not in page.text
        assert "it is damaged: WRONGTYPE" in text_of(web.get("/").text)
        place.ask("g:g:dead", "DEL")
        place._redis.ask(place._prefix.replace(b":1}", b":0}") + b"g:g:reports", "SET", "hello")
        assert place.app.admin.workers() == []
