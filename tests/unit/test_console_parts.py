"""Parts of the console by themselves: the sampler, searches, bodies, problems, charts."""

from __future__ import annotations

import gzip
import threading
from typing import Any
from unittest.mock import MagicMock

import pytest

from qframe.clock import VirtualClock
from qframe.codec import RAW, TYPE_HEADER
from qframe.errors import BadOption, StoreUnavailable
from qframe.options.report import ConsumerReport
from qframe.roster import Member, Roster
from qframe.stores.model.store import ModelStore
from qframe.stores.records import Record
from qframe.stores.types import Entry
from qframe.topic import Topic
from qframe.web.bodies import named_like_a_secret, shown_body, shown_headers
from qframe.web.problems import problems_of
from qframe.web.query import wanted_of
from qframe.web.rendering import HERE, charts_of, plain, span
from qframe.web.sampler import ChartPoint, Sampler

TOPIC = Topic("orders", kind="ordered", slots=2)
NOBODY = Roster(0, [], {})


class Scene:
    """A store of a topic with one group, and a sampler of it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.store.declare(TOPIC)
        self.store.subscribe(TOPIC, "billing")
        self.sampler = Sampler(lambda: self.store, roster=lambda *_: NOBODY, clock=self.clock)

    def publish(self, count: int) -> None:
        ids = [f"{self.clock.now_ms()}-{number}" for number in range(count)]
        self.store.publish(TOPIC, [Entry(0, id_, id_, id_, id_, None, b"1") for id_ in ids])


def record(body: bytes, headers: dict[str, str] | None = None) -> Record:
    return Record(
        topic="t", group="g", slot=0, state="todo", subject=None, seq=1, id="i", key=None,
        headers=headers, body=body, published_at_ms=0,
    )  # fmt: skip


def text_of(body: bytes, headers: dict[str, str] | None = None) -> str:
    return shown_body(record(body, headers), named_like_a_secret).text


def test_the_store_is_looked_at_once_a_second_however_many_look_and_never_for_nobody() -> None:
    scene = Scene()
    for _ in range(20):
        scene.sampler.look()
    assert scene.sampler.looks == 1
    scene.clock.advance(60_000)
    assert scene.sampler.looks == 1
    scene.sampler.look()
    assert scene.sampler.looks == 2
    scene.sampler.forget()
    scene.sampler.look()
    assert scene.sampler.looks == 3


def test_a_store_that_is_away_is_asked_once_a_second_and_what_was_seen_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.publish(3)
    scene.sampler.look()
    away = MagicMock(side_effect=StoreUnavailable("redis", "no reply"))
    monkeypatch.setattr(scene.store, "topics", away)
    scene.clock.advance(1000)
    looks = [scene.sampler.look() for _ in range(5)]
    assert (scene.sampler.looks, len({str(look.error) for look in looks})) == (2, 1)
    assert looks[0].error is not None
    assert looks[0].groups[0].totals.lag == 3


def test_a_store_that_hung_once_is_looked_at_again_at_once_and_a_slow_one_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.sampler.look()
    takes_ms, real = [8000], scene.store.topics

    def slow() -> Any:
        scene.clock.advance(takes_ms[0])
        return real()

    monkeypatch.setattr(scene.store, "topics", slow)
    scene.clock.advance(1000)
    scene.sampler.look()  # hangs, and then replies
    takes_ms[0] = 10
    scene.clock.advance(1000)
    scene.publish(3)
    assert scene.sampler.look().groups[0].totals.lag == 3
    takes_ms[0] = 4000
    for _ in range(2):
        scene.clock.advance(1000)
        scene.sampler.look()
    scene.clock.advance(19_000)
    scene.sampler.look()
    assert scene.sampler.looks == 5
    scene.clock.advance(2000)
    scene.sampler.look()
    assert scene.sampler.looks == 6


def test_what_is_changed_while_it_is_looked_is_seen_by_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    real = scene.store.now_ms

    def changed(*given: Any) -> int:  # at the end of a look
        monkeypatch.setattr(scene.store, "now_ms", real)
        scene.publish(3)
        scene.sampler.forget()
        return real(*given)

    monkeypatch.setattr(scene.store, "now_ms", changed)
    scene.sampler.look()
    assert scene.sampler.look().groups[0].totals.lag == 3


def test_while_a_store_hangs_others_are_told_so_and_shown_what_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.publish(3)
    scene.sampler.look()
    scene.sampler.forget()
    gate, hangs, real = threading.Event(), threading.Event(), scene.store.topics

    def hang() -> Any:
        hangs.set()
        gate.wait(60)
        return real()

    monkeypatch.setattr(scene.store, "topics", hang)
    monkeypatch.setattr("qframe.web.sampler.PATIENCE_S", 0.01)
    thread = threading.Thread(target=scene.sampler.look)
    thread.start()
    hangs.wait(60)
    look = scene.sampler.look()
    gate.set()
    thread.join()
    assert "has not replied" in str(look.error)
    assert look.groups[0].totals.lag == 3


def test_charts_have_the_last_hour_in_steps_of_ten_seconds_and_gaps_where_nobody_looked() -> None:
    scene = Scene()
    for _ in range(400):
        scene.sampler.look()
        scene.clock.advance(10_000)
    assert len(scene.sampler.points("orders", "billing")) == 360
    scene.clock.advance(600_000)
    scene.publish(100)
    scene.sampler.look()
    points = scene.sampler.points("orders", "billing")
    charts = charts_of(points, scene.clock.now_ms())
    assert len(charts["lag"].lines) == 2
    assert charts["lag"].top == 100
    assert charts["arrivals"].last == 0  # nobody knows when in these ten minutes they came


def test_problems_are_told_the_worst_first() -> None:
    scene = Scene()
    scene.publish(5)
    [worst] = problems_of(scene.sampler.look(), scene.sampler.points)
    assert (worst.level, worst.text) == ("bad", "no worker is alive, and 5 wait")
    scene.store.tune(TOPIC, "billing", {"paused": "yes"})
    scene.sampler.forget()
    [only] = problems_of(scene.sampler.look(), scene.sampler.points)
    assert (only.level, only.text) == ("warn", "paused")


def test_slots_without_an_owner_and_a_lag_that_grows_are_problems() -> None:
    scene = Scene()
    scene.publish(5)
    look = scene.sampler.look()
    seen = look.groups[0]._replace(workers=1, unowned=1, late_ms=60_000)
    look = look._replace(groups=(seen,))

    def lags(*lags: int) -> list[ChartPoint]:
        return [ChartPoint(10_000 * number, lag, 0, 0, 0, 0) for number, lag in enumerate(lags)]

    unowned, late = problems_of(look, lambda *_: lags(1, 2, 3, 4, 5))
    assert (unowned.level, unowned.text) == ("bad", "1 of 2 slots have no owner")
    assert (late.level, late.text) == (
        "bad", "the oldest due message waits 60 s, and the lag grows",
    )  # fmt: skip
    _, late = problems_of(look, lambda *_: lags(5, 5, 5, 4, 5))
    assert (late.level, late.text) == ("warn", "the oldest due message waits 60 s")


def test_a_late_group_is_told_with_the_breaker_or_the_limit_that_holds_it_back() -> None:
    scene = Scene()
    scene.publish(5)
    scene.clock.advance(60_000)
    alive = Roster(0, [Member("w1", 0, 10**15)], {})
    sampler = Sampler(lambda: scene.store, roster=lambda *_: alive, clock=scene.clock)

    def told(worker: str, **facts: Any) -> tuple[str, str]:
        report = ConsumerReport(max_attempts=16, **facts)
        scene.store.report(TOPIC, "billing", worker, report.to_json())
        sampler.forget()
        late = problems_of(sampler.look(), sampler.points)[-1]
        return late.text.removeprefix("the oldest due message waits 60 s"), late.remedy

    more = ("", "add workers or threads, or see what its handlers wait for")
    assert told("gone", failures=3, pause_ms=1000) == more  # a worker that lives no more
    assert told("w1") == more
    assert told("w1", rate="10/s", limited=True) == (
        ": the rate limit of 10/s is reached",
        "tune its rate, if what its handlers call allows more",
    )  # fmt: skip
    assert told("w1", failures=3, pause_ms=1000) == (
        ": a circuit breaker is open, after 3 failures in a row",
        "see with what its handlers fail: it closes when one succeeds",
    )  # fmt: skip


def test_recent_deaths_are_a_problem_and_old_ones_a_note() -> None:
    scene = Scene()
    look = scene.sampler.look()
    totals = look.groups[0].totals
    dead = type(totals)(group="billing", dead=7)
    look = look._replace(groups=(look.groups[0]._replace(totals=dead, workers=1, unowned=0),))

    def seen(before: int) -> list[ChartPoint]:
        return [ChartPoint(0, 0, 0, 0, 0, before), ChartPoint(10_000, 0, 0, 0, 0, 7)]

    assert problems_of(look, lambda *_: seen(2))[0].text == "5 died in the last ten minutes"
    assert problems_of(look, lambda *_: seen(7))[0].text == "7 dead letters"


def test_numbers_of_a_body_stand_as_they_were_written() -> None:
    body = b'{"id": 9223372036854775807, "x": 1.10, "y": 1e400, "z": -0.0, "a": 1, "a": 2}'
    text = text_of(body)
    for digits in ("9223372036854775807", "1.10", "1e400", "-0.0", '"a": 1', '"a": 2'):
        assert digits in text


@pytest.mark.parametrize(
    ("body", "headers", "shown"),
    [
        (b'{"user": {"password": {"a": 1}, "n": 1}}', None,
         '{\n  "user": {\n    "password": "***",\n    "n": 1\n  }\n}'),
        (b'{"apiKey": "k", "card_number": 4111}', None,
         '{\n  "apiKey": "***",\n  "card_number": "***"\n}'),
        (b'"redis://user:pw@host"', None, '"redis://***@host"'),
        (b"redis://user:pw@host", None, "redis://***@host"),
        (b"redis://user:pw@host", {TYPE_HEADER: RAW}, "redis://***@host"),
        (b"[]", None, "[]"),
        (b"{}", None, "{}"),
        (b"[true, null]", None, "[\n  true,\n  null\n]"),
        (b"not json", None, "not json"),
        (b'{"a": 1}', {TYPE_HEADER: RAW}, '{"a": 1}'),
        (b"\xff\x00\x01", None, "ff0001"),
        (b"[" * 100_000, None, "[" * 65_536),
    ],
)  # fmt: skip
def test_a_body_is_laid_out_for_people(
    body: bytes, headers: dict[str, str] | None, shown: str
) -> None:
    assert text_of(body, headers) == shown


def test_of_a_body_of_many_bytes_the_first_4096_are_shown() -> None:
    assert text_of(b"\xff" * 100_000).count("ff") == 4096


def test_headers_that_are_named_like_secrets_are_hidden() -> None:
    headers = {"Authorization": "Bearer x", "trace": "abc", "x-api-key": "y"}
    assert shown_headers(headers, named_like_a_secret) == [
        ("Authorization", "***"), ("trace", "abc"), ("x-api-key", "***"),
    ]  # fmt: skip


def test_the_words_of_a_search_are_told_apart() -> None:
    wanted = wanted_of('topic:orders key:"two words" header.trace: body.user.id:77 id:a:b')
    assert wanted.facts == {"topic": "orders", "key": "two words", "id": "a:b"}
    assert wanted.headers == {"trace": None}
    assert wanted.body == {"user.id": "77"}
    assert wanted_of("customer-77").word == "customer-77"
    assert wanted_of("urn:isbn:1").word == "urn:isbn:1"
    assert wanted_of("  ").is_nothing
    assert wanted_of(r"key:#1 id:a\b").facts == {"key": "#1", "id": r"a\b"}


@pytest.mark.parametrize("typed", ["a b", 'key:"open'])
def test_a_search_that_makes_no_sense_is_refused_with_a_remedy(typed: str) -> None:
    with pytest.raises(BadOption):
        wanted_of(typed)


def test_texts_from_outside_cannot_turn_others_round_or_hide() -> None:
    assert plain("a\u202eb\x00c\ufeff") == "a\\u202eb\\u0000c\\ufeff"
    assert plain("ü 漢 😀\n") == "ü 漢 😀\n"
    assert [span(ms) for ms in (5, 1999, 2000, 120_000, 7_200_000, None)] == [
        "5 ms", "1999 ms", "2 s", "2 min", "2 h", "\u2013",
    ]  # fmt: skip


def test_all_script_is_below_60_kb_gzipped_and_what_others_wrote_has_its_licence() -> None:
    static = HERE / "static"
    scripts = {each.name: gzip.compress(each.read_bytes()) for each in static.glob("*.js")}
    assert sum(map(len, scripts.values())) < 60_000
    for name in scripts.keys() - {"console.js", "theme.js"}:
        text = (static / f"{name.partition('.')[0]}.LICENSE.txt").read_text(encoding="utf-8")
        assert "Permission to use, copy, modify" in " ".join(text.split())
