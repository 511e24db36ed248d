"""docs/wire.md is true: its recipe publishes, its table is the scripts', its users may enough."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from eventually import eventually
from script_heads import NAMES, head_of, sections, text_of
from servers import HOST, RedisCluster3, RedisServer

from qframe import Message, NeedRetry, Outgoing, QFrame, RedisChecker, Reject, Topic
from qframe.drivers.scripts import script
from qframe.errors import BadUrl, StoreForbidden, TopicFull
from qframe.growth import Growth
from qframe.idempotency.base import Claim, Scope, State
from qframe.stores.base import Store
from qframe.stores.doubling import Doubling
from qframe.stores.redis.keys import identity_of
from qframe.stores.redis.rights import COMMANDS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROLES = ("producer", "consumer", "dashboard")

CLICKS = Topic("clicks", slots=4)
ORDERS = Topic("orders", "ordered", slots=4)
REMINDERS = Topic("reminders", "delay", slots=4)


def blocks(language: str) -> list[str]:
    return [body for found, body in BLOCK.findall(PAGE) if found == language]


def permissions() -> dict[str, list[str]]:
    """Each role's ACL SETUSER, in words."""
    lines = [block.split() for block in blocks("acl")]
    return {words[2]: words for words in lines}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "server") as server:
        yield server


@pytest.fixture
def roles(server: RedisServer) -> dict[str, str]:
    """The URL of each of the page's users."""
    for words in permissions().values():
        assert server.call(*words)
    return {role: f"redis://{role}:secret@{HOST}:{server.port}" for role in ROLES}


@pytest.fixture
def opened() -> Iterator[Callable[[str], QFrame]]:
    """Opens apps in the page's namespace."""
    apps: list[QFrame] = []

    def open_(url: str) -> QFrame:
        apps.append(QFrame(store=url, namespace="shop"))
        return apps[-1]

    yield open_
    for app in apps:
        app.close()


@pytest.fixture(scope="session")
def script_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts' texts, written by the page's commands."""
    folder = tmp_path_factory.mktemp("scripts")
    [commands] = blocks("sh")
    for line in commands.splitlines():
        assert line.startswith("python -m qframe.stores.redis ")
        subprocess.run(
            f"{sys.executable} -W error {line.removeprefix('python ')}",
            shell=True, cwd=folder, check=True, timeout=60,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    return folder


@pytest.fixture
def recipe(
    script_files: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], SimpleNamespace]]:
    """Runs the recipe but for its examples, against a URL; answers its names."""
    clients = []

    def run(url: str) -> SimpleNamespace:
        monkeypatch.chdir(script_files)
        monkeypatch.setenv("REDIS_URL", url)
        *program, _ = blocks("py")
        names: dict[str, Any] = {}
        exec("\n\n".join(program), names)
        clients.append(names["server"])
        return SimpleNamespace(**names)

    yield run
    for client in clients:
        client.close()


def consumed(app: QFrame, *topics: Topic) -> dict[str, list[Message]]:
    """What a drained run hands to a handler of each topic, in order."""
    seen: dict[str, list[Message]] = {topic.name: [] for topic in topics}
    for topic in topics:

        @app.consumer(topic, group="watcher", threads=1)
        def watch(message: Message) -> None:
            seen[message.topic].append(message)

    app.run(drain=True)
    return seen


@pytest.mark.gate
def test_what_the_recipes_examples_publish_is_handled(
    server: RedisServer,
    script_files: Path,
    opened: Callable[[str], QFrame],
    recipe: Callable[[str], SimpleNamespace],
) -> None:
    """The page's program whole, in a process of its own, and then an app that consumes."""
    app = opened(server.url)
    for topic in (CLICKS, ORDERS, REMINDERS):
        app.declare(topic)
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n\n".join(blocks("py"))],
        cwd=script_files, env={**os.environ, "REDIS_URL": server.url},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    seen = consumed(app, CLICKS, ORDERS, REMINDERS)
    clicks = seen["clicks"]
    assert sorted(click.body["n"] for click in clicks) == list(range(50))
    assert len({click.id for click in clicks}) == 50
    assert len({click.id[:20] for click in clicks}) == 1
    for user in range(3):
        own = [click.body["n"] for click in clicks if click.key == f"user-{user}"]
        assert own == list(range(user, 50, 3))
    orders = seen["orders"]
    assert [order.body["total"] for order in orders] == [5, 6, 7]
    assert {order.key for order in orders} == {"ann"}
    assert (orders[0].id, orders[0].headers) == ("order-7", {"source": "till"})
    [reminder] = seen["reminders"]
    assert (reminder.key, reminder.body) == ("call ann", "now")
    assert app.admin.verify() == []


@pytest.mark.gate
def test_the_hex_of_the_page_is_the_envelope_of_the_recipe_and_of_the_store(
    server: RedisServer,
    opened: Callable[[str], QFrame],
    recipe: Callable[[str], SimpleNamespace],
) -> None:
    [shown] = blocks("hex")
    fields = ["order-7", "ann", {"source": "till"}, b'{"total":5}']
    assert bytes.fromhex(shown) == msgspec.msgpack.encode(fields)
    assert bytes.fromhex(shown) == recipe(server.url).pack(fields)
    app = opened(server.url)
    topic = Topic("one", slots=1)
    app.publish(topic, {"total": 5}, id="order-7", key="ann", headers={"source": "till"})
    [(_, entry)] = server.call("XRANGE", "qf:{shop:one:0}:log", "-", "+")
    assert entry[b"b"] == bytes.fromhex(shown)


def test_the_recipe_and_the_producer_know_each_others_messages(
    server: RedisServer,
    opened: Callable[[str], QFrame],
    recipe: Callable[[str], SimpleNamespace],
) -> None:
    """Slots, subjects, ids and marks are the same, so each finds the other's duplicates."""
    app, own = opened(server.url), recipe(server.url)
    for topic in (CLICKS, ORDERS, REMINDERS):
        app.declare(topic)
        token = own.new_token()
        keys = [f"k{n}" if topic.kind == "ordered" else None for n in range(9)]
        batch = [{"body": b'"%d"' % n, "key": keys[n]} for n in range(9)]
        assert own.publish(topic.name, batch, token) == ["s"] * 9
        for n in range(9):
            assert app.publish(topic, str(n), key=keys[n], id=f"{token}-{n}").outcome == "duplicate"
        named = own.publish(topic.name, [{"id": "a-1", "key": "é", "body": b"1"}])
        assert named == ["s"]
        assert app.publish(topic, 2, key="é", id="a-1").outcome == "duplicate"
        theirs = app.publish(topic, 3, key="ben")
        assert own.publish(topic.name, [{"id": theirs.id, "key": "ben", "body": b"3"}]) == ["d"]
    # By its id a message is its own subject, and by its body where the topic says so.
    assert own.publish(REMINDERS.name, [{"id": "b-1", "body": b'"b"'}]) == ["s"]
    assert app.timers.cancel(REMINDERS, "#b-1") == "done"
    merged = app.declare(Topic("merged", "merge", slots=2))
    assert app.publish(merged, "5").outcome == "stored"
    assert own.publish("merged", [{"body": b'"5"'}]) == ["m"]
    with pytest.raises(ValueError, match="an ordered topic takes no message without a key"):
        own.publish(ORDERS.name, [{"body": b"1"}])


def test_the_recipe_finds_the_slots_of_a_topic_that_grows(
    server: RedisServer,
    opened: Callable[[str], QFrame],
    recipe: Callable[[str], SimpleNamespace],
) -> None:
    """A slot is closed when it publishes, and is split while it waits."""
    app, own = opened(server.url), recipe(server.url)
    grower = Doubling(app.store, CLICKS.name, owned=lambda *_: (), pause=lambda _: None)
    app.declare(CLICKS)
    begun = grower.begin(8)
    app.store.close_slot(CLICKS, 0)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            grower._split_next(begun)

    own.publish.__globals__["time"] = SimpleNamespace(sleep=sleep, time_ns=time.time_ns)
    token = own.new_token()
    batch = [{"key": f"k{n}", "body": b"%d" % n} for n in range(20)]
    assert own.publish("clicks", batch, token) == ["s"] * 20
    assert own.publish("clicks", batch, token) == ["d"] * 20
    assert len(waits) == 3
    [halfway] = app.store.latest([CLICKS])
    assert halfway is not None
    assert (halfway.slots, halfway.growth.split) == (4, 1)
    topics = [CLICKS, halfway, grower.finish(halfway), CLICKS.grown(8, Growth(4, 3, True, 16, 9))]
    for topic in topics:
        word = identity_of(topic).split()[1]
        for n in range(99):
            assert own.slot_of(b"k%d" % n, word) == topic.slot_of(b"k%d" % n)
    assert own.publish("clicks", batch, token) == ["d"] * 20
    [stored] = app.store.latest([CLICKS])
    assert sum(one.published for one in app.store.stats(stored or CLICKS)) == 20
    assert app.admin.verify() == []


def test_the_recipe_serves_every_kind_and_option(
    server: RedisServer,
    opened: Callable[[str], QFrame],
    recipe: Callable[[str], SimpleNamespace],
) -> None:
    app, own = opened(server.url), recipe(server.url)
    urgent, changes = Topic("urgent", "priority", slots=1), Topic("changes", "merge", slots=1)
    numbered, late = Topic("numbered", "ordered", slots=1), Topic("late", slots=1)
    small, few = Topic("small", slots=1, max_length=2), Topic("few", "delay", 1, max_length=2)
    topics = (urgent, changes, numbered, late, small, few)
    for topic in topics:
        app.declare(topic)
    bodies = [json.dumps(n).encode() for n in range(4)]
    ranks = [{"body": body, "priority": n % 3} for n, body in enumerate(bodies)]
    assert own.publish("urgent", ranks) == ["s"] * 4
    window = [{"key": "k", "body": body, "delay_ms": 50} for body in bodies]
    assert own.publish("changes", window) == ["s", "m", "m", "m"]
    turns = [{"key": "k", "body": bodies[n], "sequence": n + 1} for n in (2, 0, 1)]
    assert own.publish("numbered", turns) == ["s"] * 3
    times = [{"body": b"1", "delay_ms": 60}, {"body": b"0", "at_ms": 5}, {"body": b"2"}]
    assert own.publish("late", times) == ["s"] * 3
    for topic in ("small", "few"):
        assert own.publish(topic, [{"body": body} for body in bodies]) == ["s", "s", "f", "f"]
    seen = consumed(app, *topics)
    found = {name: [message.body for message in messages] for name, messages in seen.items()}
    assert found == {
        "urgent": [2, 1, 0, 3], "changes": [3], "numbered": [0, 1, 2], "late": [0, 2, 1],
        "small": [0, 1], "few": [0, 1],
    }  # fmt: skip
    assert app.admin.verify() == []


def test_the_recipe_publishes_to_many_groups_in_parts(
    server: RedisServer, opened: Callable[[str], QFrame], recipe: Callable[[str], SimpleNamespace]
) -> None:
    app, own = opened(server.url), recipe(server.url)
    topic = app.declare(Topic("wide", "ordered", slots=2))
    for number in range(64):
        app.store.subscribe(topic, f"g{number}")
    token = own.new_token()
    batch = [{"body": b"%d" % number, "key": f"k{number % 7}"} for number in range(900)]
    assert own.publish("wide", batch, token) == ["s"] * 900
    assert {one.published for one in app.admin.topic("wide").groups} == {900}
    assert app.publish(topic, 1, key="k1", id=f"{token}-8").outcome == "duplicate"
    assert app.admin.verify() == []


@pytest.mark.gate
def test_the_table_is_that_of_the_scripts() -> None:
    shown = [
        line for line in PAGE.splitlines() if line.startswith(tuple(f"| `{n}` |" for n in NAMES))
    ]
    expected = []
    for name in NAMES:
        parts = {part[:4]: part for part in sections(head_of(text_of(name)))}
        purpose, reply = parts["Purp"], parts["Repl"]
        expected.append(
            f"| `{name}` | {purpose.removeprefix('Purpose: ')} | {parts['ARGV']} "
            f"| {reply.removeprefix('Reply: ')} |"
        )
    assert shown == expected


def test_the_pages_commands_write_the_texts_that_the_store_runs(script_files: Path) -> None:
    for name in ("publish_stream", "publish_subjects"):
        text = (script_files / f"{name}.lua").read_text(encoding="utf-8")
        assert text == script("qframe.stores.redis", name).text


def every_kind(app: QFrame) -> list[Topic]:
    kinds = ("stream", "ordered", "delay", "priority", "merge")
    topics = [Topic(f"all-{kind}", kind, slots=2) for kind in kinds]
    topics += [Topic(f"full-{kind}", kind, slots=1, max_length=4) for kind in kinds]
    for topic in topics:
        app.declare(topic)
    return topics


def publish_everything(app: QFrame, topics: list[Topic]) -> None:
    """All that a producer may do, to subjects that are free, waiting and repeated."""
    for topic in topics:
        items = [Outgoing(n % 2, key=f"k{n % 2}") for n in range(3)]
        key = "named" if topic.kind == "ordered" else None
        items += [Outgoing(0, key=key, id=f"{topic.name}-id") for _ in range(2)]
        if topic.max_length is None:
            items += [Outgoing(0, key="late", delay=9000), Outgoing(0, key="late", delay="20ms")]
            if topic.kind == "ordered":
                items += [Outgoing(n, key="s", sequence=n) for n in (3, 1, 2)]
                items += [Outgoing(0, key="p", priority=1)]
            if topic.kind == "priority":
                items += [Outgoing(0, key="k1", priority=n) for n in (2, 1)]
            if topic.kind == "merge":
                items += [Outgoing(0, key="w", within="10ms")] * 2
        else:
            items = items[:2]
        app.publish_many(topic, items)


@pytest.mark.gate
def test_a_producer_needs_no_more_than_the_page_says(
    server: RedisServer,
    roles: dict[str, str],
    opened: Callable[[str], QFrame],
    recipe: Callable[[str], SimpleNamespace],
) -> None:
    admin = opened(server.url)
    for number in range(2):
        app = opened(roles["producer"])
        topics = every_kind(app)
        for topic in topics:
            with suppress(TopicFull):
                publish_everything(app, [topic])
        own = recipe(roles["producer"])
        for topic in topics:
            outcomes = own.publish(topic.name, [{"key": f"own{number}", "body": b"1"}])
            assert outcomes in (["s"], ["f"] if topic.max_length else ["s"])
        for topic in topics:  # the second time there is a group, and it has looked
            admin.store.subscribe(topic, "g")
            assert admin.admin.stats(topic, "g")
    assert not admin.admin.verify()
    with pytest.raises(StoreForbidden, match="refuses its user"):
        opened(roles["producer"]).admin.drop_group("all-delay", "g")


# A right that was not needed to write, or without which nothing could be asked.
AROUND = {"+eval", "+evalsha", "+script|load", "+info"}


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_the_rights_that_are_asked_for_are_those_of_the_page(role: str) -> None:
    asked = {f"+{line.split()[0]}" for line in COMMANDS[role]}
    assert asked == {word for word in permissions()[role] if word[0] == "+"} - AROUND


@pytest.mark.gate
@pytest.mark.promise(8)
@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_a_user_who_lacks_a_right_is_told_which_before_anything_is_written(
    server: RedisServer, roles: dict[str, str], opened: Callable[[str], QFrame], role: str
) -> None:
    """A script that is refused a command in its midst would leave what it has written by then."""
    admin = opened(server.url)
    topics = every_kind(admin)
    before = server.call("DBSIZE")
    for right in [line.split()[0] for line in COMMANDS[role]]:
        server.call("ACL", "SETUSER", role, f"-{right}")
        app = opened(roles[role])
        acts: dict[str, Callable[[Topic], object]] = {
            "producer": lambda topic, app=app: app.publish(topic.name, 1, key="a"),
            "consumer": lambda topic, app=app: app.store.subscribe(topic, "g"),
        }
        for topic in topics:
            with pytest.raises(StoreForbidden, match=rf"its user: .*\b{right}\b.*; grant the perm"):
                acts[role](topic)
        assert server.call("DBSIZE") == before
        server.call("ACL", "SETUSER", role, f"+{right}")
    app.publish(topics[0].name, 1)  # the same app, by now


def test_a_command_that_the_server_has_not_is_named(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path, config={"rename-command": 'COPY ""'}) as server,
        QFrame(server.url) as app,
    ):
        app.publish(CLICKS, 1)
        with pytest.raises(StoreForbidden, match="may not run copy, as a consumer does"):
            app.store.subscribe(CLICKS, "g")
    with (
        RedisServer(tmp_path, config={"rename-command": 'EVAL ""'}) as server,
        QFrame(server.url) as app,
        pytest.raises(BadUrl, match=r"the server lacks a command .*EVAL.*rename no command"),
    ):
        app.declare(CLICKS)


def share_slots(store: Store, topic: Topic) -> None:
    """All that a worker does with a roster."""
    bell = store.roster_bell(topic, "g")
    assert bell is not None
    for number in range(2):
        store.heartbeat(topic, "g", "a", 60_000)
        assert bell.wait(60)
        assert store.claim(topic, "g", "a", {0: "1", 1: "1"}) == [0, 1]
        store.release_slots(topic, "g", "a", [0])
        assert store.heartbeat(topic, "g", "b", 60_000 * number)
        assert store.roster(topic, "g")
    store.leave(topic, "g", "b")
    store.leave(topic, "g", "a")
    bell.close()


@pytest.mark.gate
def test_a_consumer_needs_no_more_than_the_page_says(
    roles: dict[str, str], opened: Callable[[str], QFrame]
) -> None:
    app = opened(roles["consumer"])
    topics = every_kind(app)
    seen: list[str] = []
    for topic in topics:

        @app.consumer(topic, group="g", threads=2, max_attempts=2)
        def handle(message: Message) -> None:
            seen.append(message.topic)
            if message.key == "k0" and message.attempt == 1:
                raise NeedRetry(delay="10ms")
            if message.key == "k1":
                raise Reject("no")

    publish_everything(app, topics)
    app.timers.schedule(topics[2], 1, key="t", delay=60)
    assert app.timers.get(topics[2], "t")
    assert app.timers.change(topics[2], "t", 2) == "done"
    assert app.timers.move(topics[2], "t", delay=50) == "done"
    app.run(burst=True)
    assert app.timers.cancel(topics[2], "t") == "done"
    assert set(seen) == {topic.name for topic in topics}
    for topic in topics:
        assert app.admin.dead(topic, "g")
        app.admin.dead_retry(topic, "g", "all")
        app.store.sweep(topic)
        assert app.admin.verify(topic) == []
    app.run(burst=True)
    for topic in topics:
        assert app.admin.dead_drop(topic, "g", "all")
        app.admin.peek(topic, "g")
    app.admin.seek(topics[0], "g", to="earliest")
    app.run(burst=True)
    share_slots(app.store, topics[0])
    app.admin.tune(topics[1], "g", threads=3, rate="5/s")
    app.admin.tune(topics[1], "g", rate="reset")
    assert app.admin.tuned(topics[1], "g").threads == 3
    assert app.store.draw(topics[1], "g", 2, rate=1, per_ms=1000, burst=5).granted == 2
    app.admin.drop_group(topics[1], "g")
    kept = app.declare(Topic("kept", "ordered", slots=1))
    for number in range(2):
        app.publish(kept, number, key="k")
    app.store.subscribe(kept, "g", beside=["h"])
    assert app.admin.lag(kept, "g") == app.admin.lag(kept, "h") == 2


def test_a_dashboard_sees_and_cannot_publish(
    server: RedisServer, roles: dict[str, str], opened: Callable[[str], QFrame]
) -> None:
    admin = opened(server.url)
    topics = every_kind(admin)
    publish_everything(admin, topics)
    soon_ms = admin.store.now_ms() + 20  # what becomes due meanwhile would change the counts
    eventually(lambda: admin.store.now_ms() > soon_ms)
    sent = {topic.name: admin.publish(topic, "x", key="x").id for topic in topics}
    for topic in topics:
        admin.store.subscribe(topic, "g")
    page = opened(roles["dashboard"])
    assert len(page.admin.topics()) == len(topics)
    for topic in topics:
        assert page.admin.groups(topic.name) == ["g"]
        assert page.admin.lag(topic.name, "g") > 0
        assert page.admin.stats(topic.name, "g") == admin.admin.stats(topic.name, "g")
        assert page.admin.peek(topic.name, "g")
        assert page.admin.dead(topic.name, "g") == []
        assert page.admin.explain(topic.name, sent[topic.name])
        assert page.admin.verify(topic.name) == []
        admin.store.heartbeat(topic, "g", "a", 60_000)
        assert page.store.roster(topic, "g") == admin.store.roster(topic, "g")
        with pytest.raises(StoreForbidden, match="refuses its user"):
            page.store.leave(topic, "g", "a")
        admin.admin.pause(topic, "g")
        assert page.admin.tuned(topic, "g").paused
        with pytest.raises(StoreForbidden, match="refuses its user"):
            page.admin.resume(topic, "g")
        with pytest.raises(StoreForbidden, match="refuses its user"):
            page.store.draw(topic, "g", 1, rate=1, per_ms=1000, burst=5)
        before = admin.admin.stats(topic.name, "g")
        for options in ({}, {"delay": 5}, {"id": "other"}):
            with pytest.raises(StoreForbidden, match="refuses its user"):
                page.publish(topic.name, 1, key="y", **options)
        with pytest.raises(StoreForbidden, match="refuses its user"):
            page.admin.drop_group(topic.name, "g", force=True)
        with pytest.raises(StoreForbidden, match="refuses its user"):
            page.store.take(topic, "g", {0: "f" * 16})
        assert admin.admin.stats(topic.name, "g") == before


def test_no_role_may_do_what_it_has_no_use_for(server: RedisServer, roles: dict[str, str]) -> None:
    """Each role's words are needed: none names a command that empties or stops a server."""
    for role in ROLES:
        for command in ("FLUSHALL", "SHUTDOWN", "CONFIG GET x", "KEYS *", "ACL LIST"):
            answer = server.call("ACL", "DRYRUN", role, *command.split())
            assert b"no permissions" in answer, (role, command)
        answer = server.call("ACL", "DRYRUN", role, "HGET", "qf:{other:t:0}:body", "x")
        assert b"no permissions" in answer


def test_a_consumer_with_marks_needs_what_the_page_adds(
    server: RedisServer, roles: dict[str, str]
) -> None:
    """Without, no claim was renewed or waited for, so marks of slow handlers were lost."""
    more = re.search(r"`RedisChecker`.+?needs\s+`(.+?)` for its marks", PAGE, re.DOTALL)
    assert more is not None
    server.call("ACL", "SETUSER", "consumer", *more[1].split())
    checker = RedisChecker(roles["consumer"])
    scope = Scope("shop", "orders", "g")
    mine, others = Claim("a"), Claim("a")
    checker.open()
    checker.claim_many(scope, [mine], 60_000)
    checker.claim_many(scope, [others], 60_000)
    assert (mine.state, others.state) == (State.CLAIMED, State.RUNNING)
    assert checker.renew_many(scope, [mine], 60_000) == [True]
    assert checker.finish_many(scope, [mine]) == [True]
    assert checker.release_many(scope, [others]) == [False]
    checker.close()


@pytest.mark.gate
def test_a_cluster_asks_for_no_more_than_the_page_says(
    redis_cluster: RedisCluster3, tmp_path: Path
) -> None:
    more = re.search(r"each\s+user\s+needs\s+`(.+?)` as\s+well", PAGE)
    assert more is not None
    name, namespace = f"user-{tmp_path.name}", f"shop{tmp_path.name}"
    words = [word.replace("{shop", "{" + namespace) for word in permissions()["consumer"]]
    words[2] = name
    for server in redis_cluster.servers:
        server.call(*words, *more[1].split())
    hosts = redis_cluster.url.removeprefix("redis+cluster://")
    app = QFrame(store=f"redis+cluster://{name}:secret@{hosts}", namespace=namespace)
    try:
        app.declare(ORDERS)
        app.publish_many(ORDERS, [Outgoing(n, key=str(n)) for n in range(20)])
        seen = consumed(app, ORDERS)
        assert sorted(message.body for message in seen["orders"]) == list(range(20))
    finally:
        app.close()
        for server in redis_cluster.servers:
            server.call("ACL", "DELUSER", name)
