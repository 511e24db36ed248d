"""What is wrong is refused whole: a typed error, value and remedy, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from qframe import (
    BadBody,
    BadHandler,
    BadInput,
    BadKey,
    BadOption,
    BadTopic,
    BadUrl,
    ConsumerExists,
    Message,
    NeedRetry,
    Outgoing,
    QFrame,
    Topic,
    TopicFull,
    TopicMismatch,
    UnknownTopic,
)

pytestmark = pytest.mark.promise(8)

TOPICS = {
    kind: Topic(kind, kind=kind, slots=4)
    for kind in ("stream", "ordered", "delay", "priority", "merge")
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(store=f"sqlite:///{tmp_path / 'q.db'}", max_body=1000) as app:
        for topic in TOPICS.values():
            app.declare(topic)
        yield app


async def awaited(message: Message, error: BaseException) -> None:
    """What nobody would await."""


def count(app: QFrame) -> int:
    """How many messages there are in all topics."""
    found = 0
    for topic in TOPICS.values():
        app.store.subscribe(topic, "counter")
        found += sum(one.published for one in app.store.stats(topic, "counter"))
    return found


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
WRONG_MESSAGES: list[tuple[str, Any, dict[str, Any], type[BadInput], str]] = [
    ("stream", {1, object()}, {}, BadBody, "it cannot be written as JSON"),
    ("stream", object(), {}, BadBody, "publish dicts, lists, strings"),
    ("stream", {"a": [1.5, float("nan")]}, {}, BadBody, r"nan.*body\['a'\]\[1\]"),
    ("stream", "x" * 1000, {}, BadBody, "of 1002 bytes.*max_body is 1000.*raise max_body"),
    ("stream", b"x" * 1001, {}, BadBody, "of 1001 bytes"),
    ("stream", 1, {"key": 5}, BadKey, "key 5.*use str"),
    ("stream", 1, {"key": ""}, BadKey, "1 to 512 bytes"),
    ("stream", 1, {"key": "é" * 257}, BadKey, "1 to 512 bytes"),
    ("stream", 1, {"key": "a\0b"}, BadKey, "without NUL"),
    ("stream", 1, {"key": "\ud800"}, BadKey, "1 to 512 bytes"),
    ("stream", 1, {"id": "has space"}, BadOption, "id 'has space'.*use 1 to 128"),
    ("stream", 1, {"id": ""}, BadOption, "a wrong character or length"),
    ("stream", 1, {"headers": {"a": 1}}, BadOption, "it is not a string"),
    ("stream", 1, {"headers": {"file": "a\udcff"}}, BadOption, "UTF-8 cannot encode"),
    ("stream", 1, {"headers": {"a\udcff": "b"}}, BadOption, "header .*UTF-8 cannot encode"),
    ("stream", 1, {"tags": ["a", "b\udcff"]}, BadOption, "tag .*UTF-8 cannot encode"),
    ("stream", 1, {"headers": ["a"]}, BadOption, "it is not a dict"),
    ("stream", 1, {"headers": {"qf-tags": "a"}}, BadOption, "begin with qf- are reserved"),
    ("stream", 1, {"tags": "red"}, BadOption, r"use tags=\['red'\]"),
    ("stream", 1, {"tags": ["a,b"]}, BadOption, "without a comma"),
    ("stream", 1, {"delay": -1}, BadOption, "delay -1.*not a duration"),
    ("stream", 1, {"delay": "soon"}, BadOption, "delay 'soon'.*500ms"),
    ("stream", 1, {"at": "2030-01-01"}, BadOption, "it is not a point in time"),
    ("stream", 1, {"at": NAIVE}, BadOption, "it has no time zone"),
    ("stream", 1, {"at": 5, "delay": 5}, BadOption, "delay 5 is given too"),
    ("stream", 1, {"priority": 1}, BadOption, "of kind stream, which has no use for it"),
    ("priority", 1, {"priority": 1.5}, BadOption, "whole number within"),
    ("priority", 1, {"priority": True}, BadOption, "whole number within"),
    ("priority", 1, {"priority": 2**31}, BadOption, "whole number within"),
    ("priority", 1, {"priority": -(2**31)}, BadOption, "whole number within"),
    ("delay", 1, {"within": 5}, BadOption, "of kind delay, which has no use for it"),
    ("merge", 1, {"within": 5, "delay": 5}, BadOption, "a time is given too"),
    ("stream", 1, {"sequence": 1, "key": "k"}, BadOption, "of kind stream"),
    ("ordered", 1, {"sequence": 1}, BadKey, "topic 'ordered' is ordered by key"),
    ("ordered", 1, {}, BadKey, "give key=, such as an order id, or publish to a stream"),
    ("ordered", 1, {"sequence": 0, "key": "k"}, BadOption, "whole number from 1"),
    ("ordered", 1, {"sequence": 1, "key": "k", "delay": 1}, BadOption, "a time is given"),
]


@pytest.mark.gate
def test_a_wrong_message_is_refused_with_all_that_came_along(app: QFrame) -> None:
    good = [Outgoing(number, key="k") for number in range(700)]
    for kind, body, options, error, text in WRONG_MESSAGES:
        with pytest.raises(error, match=text) as caught:
            app.publish(kind, body, **options)
        assert caught.value.remedy in str(caught.value)
        with pytest.raises(error, match=text):
            app.publish_many(kind, [*good, Outgoing(body, **options)])
    assert count(app) == 0


WRONG_THINGS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Topic("has space"), BadTopic, "topic name 'has space'.*use 1 to 64"),
    (lambda: Topic("x" * 65), BadTopic, "a wrong character or length"),
    (lambda: Topic("."), BadTopic, "topic name '.': it is a path"),
    (lambda: Topic("t", kind="fifo"), BadTopic, "kind 'fifo': there is no such kind; use one"),
    (lambda: Topic("t", slots=12), BadTopic, "slots 12: it must be a power of two"),
    (lambda: Topic("t", slots=True), BadTopic, "power of two"),
    (lambda: Topic("t", max_length=0), BadTopic, "whole number from 1"),
    (lambda: Topic("t", retain="a day"), BadOption, "retain 'a day'.*not a duration"),
    (lambda: QFrame("nonsense").store, BadUrl, "it names no store"),
    (lambda: QFrame("sqlite:///no/such/dir/q.db").store, BadUrl, "there is no directory"),
    (lambda: QFrame("sqlite://host/q.db").store, BadUrl, "a file has no host"),
    (lambda: QFrame("sqlite://").store, BadUrl, "it names no file"),
    (lambda: QFrame("sqlite:///q.db?mode=ro").store, BadUrl, "mode is not an option"),
    (lambda: QFrame("postgresql://localhost").store, BadUrl, "names no database"),
    (lambda: QFrame("mysql+aiomysql://h/db").store, BadUrl, "not use the driver .*aiomysql"),
    (lambda: QFrame(namespace=".."), BadOption, "namespace '..': it is a path; use 1 to 64"),
    (lambda: QFrame(namespace="a b"), BadOption, "namespace"),
    (lambda: QFrame(max_body="big"), BadOption, "max_body"),
    (lambda: QFrame(colour="red"), BadOption, "colour"),
]


def test_a_wrong_topic_url_or_option_is_refused() -> None:
    for make, error, text in WRONG_THINGS:
        with pytest.raises(error, match=text):
            make()


def test_a_coordinator_that_there_is_not_is_refused(tmp_path: Path) -> None:
    for url in ("etcd://x", "zookeeper://", "zookeeper://h:port", "localhost"):
        with QFrame(f"sqlite:///{tmp_path / 'q.db'}", coordinator=url) as app:
            app.consumer(Topic("t"), group="g")(lambda: None)
            with pytest.raises(BadUrl, match="coordinator"):
                app.run(burst=True)


@pytest.mark.gate
@pytest.mark.parametrize("count_of", [1, 100], ids=["few", "many"])
def test_a_dict_that_reads_like_a_message_with_options_is_refused_and_both_ways_are_named(
    app: QFrame, count_of: int
) -> None:
    """The gateway takes it for one; here its key was part of the body, and order was lost."""
    item = {"body": 1, "key": "a"}
    for items in ([item] * count_of, (each for each in [item] * count_of)):
        with pytest.raises(BadBody, match=r"Outgoing\(\*\*item\) .* or Outgoing\(item\)"):
            app.publish_many("stream", items)
    with pytest.raises(BadBody, match=r"Outgoing\(\*\*item\)"):
        app.publish_many("stream", [{"body": 1}, *[5] * count_of, item])
    assert count(app) == 0
    app.publish_many("stream", [Outgoing(**item)] * count_of)
    app.publish_many("stream", [Outgoing(item)] * count_of)
    plain: list[Any] = [{"body": 1}, {"body": 1, "of": "a mail"}, {"key": "a", "id": "b"}]
    for body in plain:
        app.publish_many("stream", [body] * count_of)
    app.publish("stream", item)
    assert count(app) == 5 * count_of + 1


def test_a_call_that_means_another_is_refused_with_the_one_that_is_meant(app: QFrame) -> None:
    for items in ("abc", b"abc", {"total": 5}, 5, Outgoing(1)):
        with pytest.raises(BadOption, match=r"it is a single body, .* give a list: \[body\]"):
            app.publish_many("stream", items)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match=r"publish option 'keys'.* did you mean 'key'"):
        app.publish("stream", 1, keys="k")  # type: ignore[call-arg]
    deep: Any = 1
    for _ in range(3000):
        deep = {"a": deep}
    one = Outgoing(1, key="k")
    with app.buffered() as buffered:
        for publish, body, text in (
            (app.publish, one, "an Outgoing is for publish_many"),
            (app.publish, [one], "an Outgoing is for publish_many"),
            (buffered.publish, one, "an Outgoing is for publish_many"),
            (app.publish, deep, "body <dict>"),  # too deep even to be shown
        ):
            with pytest.raises(BadBody, match=text):
                publish("stream", body)
    assert count(app) == 0


def test_a_topic_nobody_has_declared_is_refused_with_how_to_declare_it(app: QFrame) -> None:
    with pytest.raises(UnknownTopic, match=r'Topic\("orders", kind="stream", slots=16\)'):
        app.publish("orders", 1)
    app.consumer("orders", group="g")(lambda: None)
    with pytest.raises(UnknownTopic, match="orders"):
        app.run(burst=True)
    assert app.store.topic("orders") is None


def test_a_topic_with_a_name_of_qframes_own_is_refused(app: QFrame) -> None:
    for act in (
        lambda topic: app.declare(topic),
        lambda topic: app.publish(topic, 1),
        lambda topic: app.publish_many(topic, [1]),
    ):
        with pytest.raises(BadTopic, match=r"'qframe\.mine'.* are qframe's own; use another name"):
            act(Topic("qframe.mine"))
    assert app.store.topic("qframe.mine") is None


def test_a_topic_declared_otherwise_is_refused_and_stays_as_it_was(app: QFrame) -> None:
    with pytest.raises(TopicMismatch, match="declared with kind=ordered, and now with kind=delay"):
        app.publish(Topic("ordered", kind="delay", slots=4), 1)
    more = "declared with slots=4, and now with slots=8; .* or double them: qframe topics resize"
    with pytest.raises(TopicMismatch, match=f"{more} ordered --slots 8$"):
        app.declare(Topic("ordered", kind="ordered", slots=8))
    with pytest.raises(TopicMismatch, match=r"declare it with slots=4, or rename it$"):
        app.declare(Topic("ordered", kind="ordered", slots=2))
    found = app.store.topic("ordered")
    assert found is not None
    assert (found.kind, found.slots) == ("ordered", 4)
    assert count(app) == 0


def test_a_wrong_option_of_a_consumer_registers_nothing(app: QFrame) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"threads": 0}, "threads"),
        ({"lease": 0.01}, "lease"),
        ({"max_attempts": "many"}, "max_attempts"),
        ({"start": "middle"}, "start"),
        ({"on_dead": 5}, "on_dead"),
        ({"on_dead": awaited}, "on_dead.*it is async, and on_dead is not awaited"),
        ({"thread": 4}, "did you mean 'threads'"),
        ({"idempotent_checker": object()}, "it is not a checker"),
        ({"timeout": 0}, "timeout 0: it must be seconds"),
        ({"rate_limit": "fast"}, "rate_limit"),
        ({"tags": []}, r"tags \[\]: it is empty"),
        ({"tags": ["red", 5]}, "a tag must be a string without a comma"),
        ({"tags": "red,blue"}, "a tag must be a string without a comma"),
        ({"broadcast": 1}, "broadcast"),
        ({"broadcast": True, "broadcast_expires": 5}, "broadcast_expires"),
        ({"batch": 5}, r"batch 5: it must be a Batch, such as Batch\(500, '50ms'\)"),
    ]
    for options, text in wrong:
        with pytest.raises(BadOption, match=text):
            app.consumer("stream", group="g", **options)
    assert app.consumers == []


def test_a_handler_that_cannot_be_filled_or_stands_there_already_is_refused(app: QFrame) -> None:
    def unclear(body): ...  # type: ignore[no-untyped-def]
    def handle(message: Message) -> None: ...

    with pytest.raises(BadHandler, match="has no annotation"):
        app.consumer("stream", group="g")(unclear)
    assert app.consumer("stream", group="g")(handle) is handle
    with pytest.raises(
        ConsumerExists,
        match="use another group, and both see every message; in a notebook, make the QFrame anew",
    ):
        app.consumer(TOPICS["stream"], group="g")(handle)
    assert len(app.consumers) == 1


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_wrong_argument_is_refused_before_the_message_counts_as_extended_or_settled(
    app: QFrame, kind: str
) -> None:
    wrong: list[dict[str, Any]] = [
        {"error": "it broke"}, {"error": ValueError}, {"elapsed": "long"},
        {"elapsed": float("nan")}, {"elapsed": True},
    ]  # fmt: skip
    seconds: list[Any] = [float("nan"), -1, "soon", None, 1e30, "99999999999d"]
    refused: list[str] = []
    seen: list[Any] = []

    @app.consumer(kind, group="g", max_attempts=1, auto_ack=False)
    def handle(message: Message) -> None:
        seen.append(message.body)
        for span in seconds:
            with pytest.raises(BadOption) as caught:
                message.extend(span)
            refused.append(caught.value.what)
        message.extend("60s")
        message.extend("10m")
        for options in wrong:
            with pytest.raises(BadOption) as caught:
                message.ack(**options)
            refused.append(caught.value.what)
        message.ack(elapsed=-0.5)

    app.publish_many(kind, [Outgoing(number, key="k") for number in range(2)])
    app.run(burst=True)
    assert refused == [*["seconds"] * 6, *["error"] * 2, *["elapsed"] * 3] * 2
    assert seen == [0, 1]


def test_a_handler_that_asks_for_a_retry_in_a_million_years_ends_no_worker(app: QFrame) -> None:
    died: list[BaseException] = []

    @app.consumer(
        "ordered", group="g", max_attempts=2, backoff=0,
        on_dead=lambda message, error: died.append(error),
    )  # fmt: skip
    def handle(message: Message) -> None:
        raise NeedRetry(delay="365000000d")

    app.publish("ordered", 1, key="k")
    app.run(burst=True)
    [error] = died
    assert str(error).startswith("delay '365000000d': it is longer than 3000 years; use seconds")


def test_a_schedule_that_its_topic_would_refuse_is_refused_where_it_is_declared(
    app: QFrame,
) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"priority": 5}, "of kind stream, which has no use for it"),
        ({"catchup": "all"}, "did you mean 'catch_up'"),
    ]
    for options, match in wrong:
        with pytest.raises(BadOption, match=match):
            app.cron("every 1s", topic=Topic("events"), name="tick", **options)(lambda: None)
        with pytest.raises(BadOption, match=match):
            app.schedules.put("tick", "every 1s", topic=Topic("events"), **options)


def test_an_app_without_consumers_does_not_run(app: QFrame) -> None:
    with pytest.raises(BadOption, match=r"use @app\.consumer, app\.relay or @app\.cron"):
        app.run(burst=True)


def test_a_full_topic_says_what_was_stored_and_what_was_not_copies_too(app: QFrame) -> None:
    small, two = Topic("small", slots=1, max_length=3), Topic("two", slots=2, max_length=1)
    for topic in (small, two):
        app.store.declare(topic)
        app.store.subscribe(topic, "g")
    with pytest.raises(TopicFull, match="2 of 5 messages were refused") as caught:
        app.publish_many(small, range(5), batch=2)
    assert [each.outcome for each in caught.value.outcomes] == ["stored"] * 3 + ["full"] * 2
    assert sum(one.published for one in app.store.stats(small)) == 3
    app.publish(two, 0, key="1")
    with pytest.raises(TopicFull) as caught:  # the last one is no copy: it has another slot
        app.publish_many(two, [Outgoing(1, id="a", key=key) for key in "114"])
    assert [one.outcome for one in caught.value.outcomes] == ["full", "full", "stored"]


def test_a_timer_gets_no_larger_body_than_the_app_publishes_whoever_edits_it(app: QFrame) -> None:
    app.timers.schedule(TOPICS["delay"], 1, key="k", delay="1h")
    for edit in (app.timers.edit, app.admin.edit_timer, app.admin.acting(by="ann").edit_timer):
        with pytest.raises(BadBody, match="max_body is 1000"):
            edit("delay", "k", body="x" * 1000)
    [timer] = app.timers.find("delay").records
    assert timer.body == b"1"
