"""Commands that read, and `qframe groups seek`: what they show, and to whom."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_program import ORDERS, SHOP, Program

from qframe import Topic


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A shop with three handled orders, two dead ones, one due and one that waits."""
    program = Program(tmp_path_factory.mktemp("shop"))
    program.write("shop.py", SHOP)
    with program.app() as app:
        app.declare(Topic("events", slots=2))
        app.publish(Topic("wake", kind="delay", slots=1), 1, key="k", delay="1h")
        for number, extra in enumerate(({}, {}, {}, {"bad": True}, {"never": True})):
            app.publish(ORDERS, {"n": number, **extra}, key=f"k{number}", id=f"o-{number}")
        program.ok("worker", "shop", "--burst")
        app.publish(ORDERS, {"n": 5}, key="k5", id="o-5")
        app.publish(ORDERS, {"n": 6}, key="k6", id="o-6", delay="1h")
    return program


@pytest.mark.gate
def test_topics_are_a_table_of_plain_text_in_80_columns(shop: Program) -> None:
    lines = shop.ok("topics", "list").out.splitlines()
    assert lines[0].split() == [
        "topic", "kind", "slots", "group", "waiting", "todo", "doing", "dead", "settled",
    ]  # fmt: skip
    rows = {line.split()[0]: line for line in lines[1:]}
    assert rows["orders"].split() == ["orders", "ordered", "4", "billing", *"11023"]
    assert rows["events"].split()[:5] == ["events", "stream", "2", "(none", "yet)"]
    assert rows["wake"].split()[-5:] == list("10000")
    assert all(len(line) <= 80 and line.isprintable() for line in lines)


def test_json_is_all_that_is_on_stdout(shop: Program) -> None:
    ran = shop.ok("topics", "list", "--json")
    assert ran.err == ""
    assert [each["name"] for each in ran.json] == ["events", "orders", "wake"]
    (billing,) = ran.json[1]["groups"]
    assert (billing["group"], billing["lag"], billing["dead"]) == ("billing", 2, 2)
    assert shop.ok("groups", "list", "orders", "--json").json == [billing]
    assert shop.ok("groups", "list", "events", "--json").json == []


def test_peek_shows_what_stands_there(shop: Program) -> None:
    records = shop.ok("messages", "peek", "orders", "billing", "--json").json
    assert {each["id"]: each["state"] for each in records} == {"o-5": "todo", "o-6": "waiting"}
    (dead, _) = shop.ok("messages", "peek", "orders", "billing", "--state", "dead", "--json").json
    assert dead["state"] == "dead"
    cut = shop.ok("messages", "peek", "orders", "billing", "--limit", "1").out
    assert "these are the first 1, slot by slot; if there are more: --limit N" in cut
    out = shop.ok("messages", "peek", "orders", "billing", "--state", "todo").out
    assert "these are the first" not in out
    assert '{"n": 5}' in out
    assert (
        "no messages in these states"
        in shop.ok("messages", "peek", "orders", "billing", "--state", "doing").out
    )


@pytest.mark.promise(10)
@pytest.mark.parametrize(
    ("message_id", "shown"),
    [
        ("o-3", "dead in orders, group billing: it is dead after 1 attempt"),
        ("o-5", "todo in orders, group billing: no worker of billing is alive"),
        ("o-6", "waiting in orders, group billing: it is not due until 20"),
    ],
)
def test_explain_tells_why_a_message_is_where_it_is(
    shop: Program, message_id: str, shown: str
) -> None:
    for words in ((message_id,), ("orders", message_id), (message_id, "--topic", "orders")):
        assert shop.ok("explain", *words).out.startswith(shown)


def test_explain_takes_a_key_or_an_offset(shop: Program) -> None:
    by_key, unread = shop.ok("explain", "--key", "k6", "--json").json
    assert (unread["state"], "message by message: events" in unread["causes"][0]["text"]) == (
        "unknown", True,
    )  # fmt: skip
    assert (by_key["id"], by_key["state"]) == ("o-6", "waiting")
    assert [each["cause"] for each in by_key["causes"]] == ["not-due", "no-worker"]
    assert by_key["causes"][0]["until"] == by_key["due_at"]
    assert "is no stream" in shop.refused("explain", "--topic", "orders", "--offset", "1")
    ran = shop.run("explain", "orders")
    assert (ran.code, ran.err) == (
        1, "orders was taken for an id; it is a topic: --topic orders\n",
    )  # fmt: skip
    assert shop.run("explain", "o-99", "--key", "k6").err == ""


@pytest.mark.gate
def test_explain_takes_the_name_of_a_topic_before_a_key_or_an_offset_for_the_topic(
    shop: Program,
) -> None:
    for words in (("orders", "--key", "k6"), ("--topic", "orders", "--key", "k6")):
        (by_key,) = shop.ok("explain", *words, "--json").json
        assert (by_key["topic"], by_key["id"]) == ("orders", "o-6")
    assert "topic orders is no stream" in shop.refused("explain", "orders", "--offset", "1")
    assert "in events" in shop.run("explain", "events", "--offset", "1").out


def test_search_finds_messages_by_what_they_have(shop: Program) -> None:
    def ids(*words: str) -> list[str]:
        return sorted(each["id"] for each in shop.ok("search", *words, "--json").json["found"])

    assert ids("orders", "--id", "o-5") == ids("--key", "k5") == ["o-5"]
    assert ids("--body", "n=6") == ids("orders", "--state", "waiting") == ["o-6"]
    assert ids("orders", "--state", "dead", "--body", "bad=true") == ["o-3"]
    assert ids("orders", "--error", "BAD") == ["o-3"]
    found = shop.ok("search", "orders", "--look", "1", "--json").json
    seen = [each["id"] for each in found["found"]]
    while found["place"]:
        found = shop.ok("search", "orders", "--look", "1", "--from", found["place"], "--json").json
        seen += [each["id"] for each in found["found"]]
    assert sorted(seen) == ["o-3", "o-4", "o-5", "o-6"]
    assert shop.ok("search", "--tag", "gold").out == "nothing found\nlooked at all 5 messages\n"
    assert "go on: --from orders:" in shop.ok("search", "orders", "--look", "1").out
    assert "it has no value" in shop.refused("search", "--body", "n")


def test_search_for_a_key_of_all_topics_names_the_streams_that_it_has_left_out(
    program: Program,
) -> None:
    with program.app() as app:
        for name, kind in (("a-log", "stream"), ("orders", "ordered")):
            topic = app.declare(Topic(name, kind=kind, slots=1))
            app.store.subscribe(topic, "g")
            app.publish(topic, 1, key="ann's", id=f"of-{name}")
    found = program.ok("search", "--key", "ann's")
    assert "of-orders" in found.out
    assert "of-a-log" not in found.out
    assert "not looked at, since streams find a key only message by message: a-log" in found.out
    assert """qframe search TOPIC --key 'ann'"'"'s'""" in found.out
    assert program.ok("search", "--key", "ann's", "--json").json["unread"] == ["a-log"]
    assert "of-a-log" in program.ok("search", "a-log", "--key", "ann's").out
    assert "not looked at" not in program.ok("search", "orders", "--key", "ann's").out


HURRIED = """
import qframe.admin.explain.explainer, qframe.admin.rounds, qframe.admin.search
from qframe.cli.main import main

qframe.admin.rounds.ROUND_S = 0
qframe.admin.search.LOOK_UP_S = qframe.admin.explain.explainer.LOOK_UP_S = 0
main()
"""


def test_looks_at_many_topics_say_how_far_they_came(program: Program) -> None:
    with program.app() as app:
        for name in ("a", "b", "c"):
            app.store.subscribe(app.declare(Topic(name, kind="delay", slots=1)), "g")
        app.publish("b", 1, key="k", id="one")
    Path(program.directory, "hurried.py").write_text(HURRIED)

    def said(*words: str) -> str:
        return program.run(*words, module="hurried").out

    left = "2 more topics were not counted yet; go on: qframe topics list --from a"
    assert left in said("topics", "list")
    assert "1 more topics" in said("topics", "list", "--from", "a")
    assert "more topics" not in said("topics", "list", "--from", "b")
    assert [each["name"] for each in json.loads(said("topics", "list", "--json"))] == [
        "a",
        "b",
        "c",
    ]
    assert "go on: qframe doctor --from a" in " ".join(said("doctor").split())
    assert "--from" not in said("doctor", "--from", "b")
    told = said("explain", "one")
    assert "it was looked up in 1 of 3 topics, up to a" in told
    assert "go on: qframe search --id one --from @a" in told
    found = json.loads(said("search", "--id", "one", "--from", "@a", "--json"))
    assert ([each["id"] for each in found["found"]], found["place"]) == (["one"], "@@b")


def test_a_message_that_is_nowhere_is_said_to_be(shop: Program) -> None:
    ran = shop.run("explain", "orders", "o-99")
    assert ran.out.startswith("absent in orders: topic orders has no such message")
    ran = shop.run("explain", "orders", "o-99", "--json")
    assert (ran.code, ran.json[0]["state"]) == (1, "absent")
    assert ran.json[0]["causes"][0]["cause"] == "unknown"


@pytest.mark.promise(10)
def test_verify_finds_no_fault(shop: Program) -> None:
    assert shop.ok("store", "verify").out == "events: ok\norders: ok\nwake: ok\n"
    assert shop.ok("store", "verify", "orders", "--json").json == [
        {"topic": "orders", "faults": [], "repaired": []}
    ]


@pytest.mark.gate
@pytest.mark.promise(10)
@pytest.mark.parametrize("words", [["store", "verify"], ["store", "verify", "orders"]])
def test_verify_exits_with_1_where_something_is_wrong_however_it_is_shown(
    tmp_path: Path, words: list[str]
) -> None:
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(ORDERS)
        app.declare(Topic("events", slots=2))
        app.store.subscribe(ORDERS, "billing")
        app.publish(ORDERS, {"n": 1}, key="k1")
    with closing(sqlite3.connect(tmp_path / "qframe.db")) as database, database:
        assert database.execute("DELETE FROM qframe_subjects").rowcount == 1
    shown = program.run(*words)
    assert (shown.code, "orders: 1 wrong\n" in shown.out) == (1, True)
    assert shown.out.endswith("qframe store verify --repair mends 1 of these\n")
    ran = program.run(*words, "--json")
    assert ran.code == 1
    assert [len(each["faults"]) for each in ran.json if each["topic"] == "orders"] == [1]
    mended = program.ok(*words, "--repair")
    assert "orders: 1 repaired\n  repaired: topic orders: orders/billing slot " in mended.out
    assert "1 messages that are missing are counted as cancelled\n" in mended.out
    assert "admin.action" in mended.err
    assert "orders: ok\n" in program.ok(*words).out


def test_verify_says_why_it_leaves_a_fault_and_exits_with_1_again(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(ORDERS)
        app.store.subscribe(ORDERS, "billing")
    with closing(sqlite3.connect(tmp_path / "qframe.db")) as database, database:
        database.execute("DELETE FROM qframe_cursors")
    ran = program.run("store", "verify", "--repair")
    assert (ran.code, "repaired" in ran.out) == (1, False)
    assert "(no repair: epoch and counts are gone with it: " in ran.out


def test_a_group_of_a_stream_is_moved(program: Program) -> None:
    program.write(
        "feed.py",
        "from qframe import Message, Topic, consumer\n\n"
        "@consumer(Topic('feed', slots=1), group='g')\n"
        "def handle(message: Message) -> None: ...\n",
    )
    with program.app() as app:
        app.publish_many(Topic("feed", slots=1), range(3))
    program.ok("worker", "feed", "--burst")
    assert (
        program.ok("groups", "seek", "feed", "g", "earliest").out
        == "feed/g continues at:\n  slot 0: 0\n"
    )
    words = ("groups", "seek", "feed", "g", "latest", "--preview")
    shown = "0 messages would be handed out, 0 of them again; 3 unsettled would be passed"
    assert shown in program.ok(*words).out
    found = program.ok(*words, "--json").json
    assert (found["offsets"], found["coming"], found["passed"]) == ({"0": 3}, 0, 3)
    assert program.ok("groups", "list", "feed", "--json").json[0]["lag"] == 3
    moved = program.ok("groups", "seek", "feed", "g", "1", "--slot", "0", "--json").json
    assert moved["offsets"] == {"0": 1}
    program.ok("groups", "seek", "feed", "g", "2099-01-01T00:00:00Z")
    assert program.ok("groups", "list", "feed", "--json").json[0]["lag"] == 0
    assert "it is not a time" in program.refused("groups", "seek", "feed", "g", "yesterday")
    assert "slots are 0 to 0" in program.refused("groups", "seek", "feed", "g", "1", "--slot", "3")


def test_what_a_terminals_encoding_lacks_is_escaped(shop: Program) -> None:
    with shop.app() as app:
        app.publish("wake", {"name": "Müller 東京"}, key="mü", id="foreign", delay=3600)
    words = ("explain", "wake", "foreign")
    assert (
        shop.ok(*words, "--json", PYTHONIOENCODING="ascii").json == shop.ok(*words, "--json").json
    )
    assert r"M\xfcller \u6771\u4eac" in shop.ok(*words, PYTHONIOENCODING="ascii").out


@pytest.mark.parametrize("servers", ["redis_cluster", "redis_sentinel"])
def test_a_url_of_several_hosts_works_in_every_command(
    request: pytest.FixtureRequest, tmp_path: Path, servers: str
) -> None:
    program = Program(tmp_path)
    place = ("--store", request.getfixturevalue(servers).url, "--namespace", tmp_path.name)
    program.ok("topics", "declare", "orders", *place)
    program.ok("publish", "orders", "1", "--id", "one", *place)
    assert "orders" in program.ok("topics", "list", *place).out
    program.ok("store", "verify", "orders", *place)
    assert "orders" in program.ok("explain", "orders", "one", *place).out
