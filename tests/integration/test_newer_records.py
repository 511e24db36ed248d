"""Records that a newer version of qframe has written: named, passed by, and left as they are.

Each of `RECORDS` is planted in a store that is in use, and each door that reads is asked: those of
the program, of the console, of the gateway, and a worker and a producer of another topic.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
import redis
from apps import running, told
from click.testing import CliRunner
from consoling import ADDRESSES, LATER, ORDERS, browser, shop, text_of
from eventually import eventually
from redis_servers import RedisServer
from servers import ZooKeeperServer
from sqlalchemy import create_engine, text
from starlette.testclient import TestClient
from zookeeping import nobody

from qframe import Message, QFrame, QFrameError, Topic
from qframe.cli.main import cli
from qframe.clock import SYSTEM_CLOCK
from qframe.options.settings import PREFIX
from qframe.schedules.records import TOPIC as SCHEDULES
from qframe.stores.documents import Space
from qframe.stores.redis.keys import LAYOUT
from qframe.stores.sql.schema import metadata
from qframe.telemetry.store_numbers import StoreNumbers
from qframe.web.gateway import Gateway
from qframe.web.gateway.callers import Callers
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.routes import GatewayRoutes
from qframe.web.gateway.sqs import SqsFront
from qframe.web.gateway.sqs.queues import BOOK

NEWER: Final = "version of qframe"
OPTIONS: Final = {
    "retain_ms": 86_400_000, "max_length": None, "dedupe_window_ms": 3_600_000,
    "gap_timeout_ms": 30_000, "subject": None, "history_ms": 0,
}  # fmt: skip
EVERYWHERE: Final = ("redis", "sqlite", "postgres", "mariadb")
ELSEWHERE: Final = 3  # the slot of orders that belongs to a worker of a newer version, if one does
NEIGHBOUR: Final = Topic("neighbour", slots=2)

PROGRAM: Final = [
    "topics list", "topics list --json", "topics list --all", "topics show orders",
    "groups list orders", "store verify", "store verify orders", "store verify --json",
    "search --id dead-1", "search --key customer-77", "search --tag no",
    "search events --state settled", "workers list", "workers list --all", "workers list orders",
    "slots list orders billing", "groups scale orders billing", "doctor", "explain dead-1",
    "explain good-1", "explain --key customer-77", "explain no-such-message",
    "messages peek orders billing", "messages peek events stats --state dead",
    "dead list orders billing", "dead list events stats", "timers list later",
    "timers show later timer-1", "schedules list", "schedules list re", "schedules show report",
    "schedules preview report", "groups paused", "groups paused orders", "store audit", "ping",
    "store copy --all --to {copy} --dry-run",
]  # fmt: skip
"""The commands that read, as far as they concern all or what the record is not of."""

GATEWAY: Final = ["/v1/topics/orders/groups/billing/stats", "/v1/topics/events/groups/stats/stats"]


IsThere = Callable[[], bool]
"""Whether what was planted still stands there, byte for byte."""

Planted = AbstractContextManager[IsThere]
Change = Callable[[bytes], bytes]


class Raw:
    """What stands in a store, as a program of another version reads and writes it."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url, self.namespace = url, namespace

    def close(self) -> None:
        """Ends its connections."""

    def document(self, space: Space, name: str, text: str) -> Planted:
        """A document of billing has this text for a while."""
        raise NotImplementedError

    def text(self, space: Space, name: str) -> str | None:
        """The text of a document of billing, as it stands there."""
        raise NotImplementedError

    def member(self, text: str) -> Planted:
        return self.document(Space.ROSTER, "member/newer-1", text)

    def owner(self, slot: int, entry: Any) -> Planted:
        return self._entry(Space.ROSTER, "owners", str(slot), entry)

    def tuning(self, name: str, value: Any) -> Planted:
        return self._entry(Space.TUNING, "tuning", name, value)

    def report(self, worker: str, text: str) -> Planted:
        return self.document(Space.REPORTS, worker, text)

    @contextmanager
    def _entry(self, space: Space, name: str, field: str, value: Any) -> Iterator[IsThere]:
        """A document has this entry, too; yields whether it still has, with the very same value."""
        with self.document(space, name, json.dumps({**self._entries(space, name), field: value})):
            yield lambda: self._entries(space, name).get(field) == value

    def _entries(self, space: Space, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text(space, name) or "{}")
        return found


class InRedis(Raw):
    """The keys of a namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.client = redis.Redis.from_url(url)

    def key(self, topic: str, slot: int, name: str) -> str:
        return f"qf:{{{self.namespace}:{topic}:{slot}}}:{name}"

    @property
    def topics(self) -> str:
        return f"qf:{{{self.namespace}}}:topics"

    @contextmanager
    def field(self, key: str, field: str, value: bytes | str) -> Iterator[IsThere]:
        """A field of a hash is this for a while; yields whether it still is."""
        before = self.client.hget(key, field)
        self.client.hset(key, field, value)
        wanted = value if isinstance(value, bytes) else value.encode()
        try:
            yield lambda: self.client.hget(key, field) == wanted
        finally:
            if before is None:
                self.client.hdel(key, field)
            else:
                self.client.hset(key, field, before)

    def topic(
        self, name: str, kind: str, options: str, numbers: str = "16", layout: int = LAYOUT
    ) -> Planted:
        return self.field(self.topics, name, f"{kind}@{layout} {numbers} {options}")

    def options(self, name: str, options: str) -> Planted:
        before = self.client.hget(self.topics, name) or b""
        kind, numbers, _ = before.decode().split(" ", 2)
        return self.topic(name, kind.partition("@")[0], options, numbers)

    def document(self, space: Space, name: str, text: str) -> Planted:
        return self.field(self._documents(space), name, f"7 {2**41} 0 {text}")

    def scrap(self, space: Space, name: str) -> Planted:
        """A document of which not even the version can be read."""
        return self.field(self._documents(space), name, "v2")

    def text(self, space: Space, name: str) -> str | None:
        found = self.client.hget(self._documents(space), name)
        return None if found is None else found.decode().split(" ", 3)[3]

    def _documents(self, space: Space) -> str:
        return self.key("orders", 0, f"g:billing:documents:{space}")

    @contextmanager
    def record(
        self, topic: str, group: str, space: Space, name: str, text: str
    ) -> Iterator[IsThere]:
        """A document of a system topic, which is there, has this text, and nothing else."""
        key = self.key(topic, 0, f"g:{group}:documents:{space}")
        found = self.client.hget(key, name)
        assert found is not None, key
        numbers = found.split(b" ", 3)[:3]
        with self.field(key, name, b" ".join([*numbers, text.encode()])) as is_so:
            yield is_so

    @contextmanager
    def changed(self, topic: str, name: str, field: str, change: Change) -> Iterator[IsThere]:
        """A field of the hash of billing that has it, in whichever slot, is changed for a while."""
        for slot in range(4):
            key = self.key(topic, slot, f"g:billing:{name}")
            for at, value in self.client.hgetall(key).items():
                if at == field.encode() or (name == "graves" and field.encode() in value):
                    with self.field(key, at, change(value)) as is_so:
                        yield is_so
                    return
        raise AssertionError(field)

    def envelope(self) -> Planted:
        return self.changed(
            "orders", "body", "customer-77", lambda old: old[:28] + b"\xc1" + old[28:]
        )

    def dead_letter(self) -> Planted:
        return self.changed("orders", "graves", "dead-1", with_a_fact)

    def verdict(self, *, and_then: bool = False) -> Planted:
        def other(old: bytes) -> bytes:
            return old[:18] + b"\x63" + old[19:] + (old if and_then else b"")

        return self.changed("orders", "history", "good-1", other)


def with_a_fact(grave: bytes) -> bytes:
    """A dead letter of which a newer version has written one fact more."""
    published, size = struct.unpack_from(">QI", grave)
    facts = msgspec.msgpack.encode([*msgspec.msgpack.decode(grave[12 : 12 + size]), "fatal"])
    return struct.pack(">QI", published, len(facts)) + facts + grave[12 + size :]


class InTables(Raw):
    """The rows of a namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.engine = create_engine(url.partition("?")[0])

    def close(self) -> None:
        self.engine.dispose()

    def run(self, statement: str, **values: Any) -> list[Any]:
        with self.engine.begin() as connection:
            found = connection.execute(text(statement), values)
            return [tuple(row) for row in found] if found.returns_rows else []

    def group(self, topic: str, group: str) -> int:
        """The number of a group."""
        [(number,)] = self.run(
            "SELECT g.id FROM qframe_groups g JOIN qframe_topics t ON g.topic = t.id "
            "WHERE t.namespace = :ns AND t.name = :t AND g.name = :g",
            ns=self.namespace, t=topic, g=group,
        )  # fmt: skip
        return int(number)

    @contextmanager
    def row(self, table: str, key: Mapping[str, Any], **values: Any) -> Iterator[IsThere]:
        """A row is there for a while, in place of the one of that key if there is one."""
        where = " AND ".join(f"{name} = :{name}" for name in key)
        before = self.run(f"SELECT * FROM {table} WHERE {where}", **key)
        self.run(f"DELETE FROM {table} WHERE {where}", **key)
        self._insert(table, {**key, **values})
        planted = self.run(f"SELECT * FROM {table} WHERE {where}", **key)
        try:
            yield lambda: self.run(f"SELECT * FROM {table} WHERE {where}", **key) == planted
        finally:
            self.run(f"DELETE FROM {table} WHERE {where}", **key)
            for row in before:
                columns = [column.name for column in metadata.tables[table].columns]
                self._insert(table, dict(zip(columns, row, strict=True)))

    def _insert(self, table: str, row: Mapping[str, Any]) -> None:
        self.run(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{n}' for n in row)})",
            **row,
        )

    @contextmanager
    def column(
        self, table: str, name: str, value: Any, where: str, **key: Any
    ) -> Iterator[IsThere]:
        """A column of some rows has this value for a while."""
        read = f"SELECT {name} FROM {table} WHERE {where}"
        before = self.run(read, **key)
        assert before, where
        self.run(f"UPDATE {table} SET {name} = :new WHERE {where}", new=value, **key)
        try:
            yield lambda: {found for (found,) in self.run(read, **key)} == {value}
        finally:
            self.run(f"UPDATE {table} SET {name} = :new WHERE {where}", new=before[0][0], **key)

    def topic(self, name: str, kind: str, options: str) -> Planted:
        return self.row(
            "qframe_topics", {"id": 1}, namespace=self.namespace, name=name, kind=kind, slots=16,
            options=options,
        )  # fmt: skip

    def options(self, name: str, options: str) -> Planted:
        where = "namespace = :ns AND name = :n"
        return self.column("qframe_topics", "options", options, where, ns=self.namespace, n=name)

    def document(self, space: Space, name: str, text: str) -> Planted:
        key = {"group_id": self.group("orders", "billing"), "space": space.value, "name": name}
        return self.row("qframe_documents", key, version=7, written_at=2**41, value=text)

    def text(self, space: Space, name: str) -> str | None:
        found = self.run(
            "SELECT value FROM qframe_documents "
            "WHERE group_id = :g AND space = :s AND name = :n",
            g=self.group("orders", "billing"), s=space.value, n=name,
        )  # fmt: skip
        return found[0][0] if found else None

    def record(self, topic: str, group: str, space: Space, name: str, text: str) -> Planted:
        where, number = "group_id = :g AND space = :s AND name = :n", self.group(topic, group)
        return self.column(
            "qframe_documents", "value", text, where, g=number, s=space.value, n=name
        )

    def envelope(self) -> Planted:
        return self.column("qframe_subjects", "headers", '["v2"]', "id = 'blocked'")

    def dead_letter(self) -> Planted:
        return self.column("qframe_dead", "headers", '["v2"]', "id = 'dead-1'")

    def verdict(self) -> Planted:
        return self.column("qframe_history", "verdict", "parked", "id = 'good-1'")


def _json(**changes: Any) -> str:
    return json.dumps({**OPTIONS, **changes}, separators=(",", ":"))


def schedule(**changes: Any) -> str:
    """The record of the schedule `report`, as another version would put it."""
    whole: dict[str, Any] = {
        "name": "report", "timing": {"when": "0 9 * * *"}, "template": {"topic": "events"},
    }  # fmt: skip
    return json.dumps(whole | changes)


class Served(NamedTuple):
    """A store that is in use: an app of it, what stands there, and clients of its web pages."""

    app: QFrame
    raw: Any
    pages: TestClient
    gateway: TestClient


Act = Callable[[Served], object]


class Record(NamedTuple):
    """A record that this version cannot read.

    Attributes:
        plant: writes it for a while.
        named: the words that name it, by the doors that do.
        refused: what is done to it by name; each is one typed error.
        own: the doors that read the record itself, and say nothing but that.
        stores: those that keep it so.
    """

    plant: Callable[[Any], Planted]
    named: Mapping[str, str] = {}
    refused: tuple[Act, ...] = ()
    own: tuple[str, ...] = ()
    stores: tuple[str, ...] = ("redis", "sqlite")


_OF_TOPIC: Final[tuple[Act, ...]] = (
    lambda it: it.app.publish("ring", 1, key="k"),
    lambda it: it.app.publish(Topic("ring", "delay"), 1, key="k"),
    lambda it: it.app.declare(Topic("ring")),
    lambda it: it.app.store.declare(Topic("ring", "delay")),
    lambda it: it.app.admin.topic("ring"),
    lambda it: it.app.admin.verify("ring"),
    lambda it: it.app.admin.repair("ring"),
    lambda it: it.app.admin.dead_retry("ring", "g", "x"),
    lambda it: it.app.admin.search("ring", id="x"),
    lambda it: it.app.admin.explain("ring", "x"),
    lambda it: it.app.admin.delete_topic("ring", confirm="ring", force=True),
    lambda it: it.app.admin.drop_group("ring", "g"),
    lambda it: it.app.admin.pause("ring"),
    lambda it: it.app.timers.find("ring"),
    lambda it: it.app.schedules.put("rings", "@daily", topic="ring"),
    lambda it: program_of(it.app, "sqlite://")("topics show ring"),
    lambda it: program_of(it.app, "sqlite://")("store copy ring --to {copy}"),
    lambda it: program_of(it.app, "sqlite://")("dead list ring g"),
    lambda it: program_of(it.app, "sqlite://")("publish ring 1"),
)


def _of_topic(why: str) -> dict[str, str]:
    told = ("topics list", "store verify", "search --id dead-1", "workers list", "doctor",
            "groups paused", "explain dead-1", "store copy --all --to {copy} --dry-run",
            "topics list --json", "/")  # fmt: skip
    return dict.fromkeys(told, why)


_KIND: Final = "of kind 'spiral', which this version of qframe does not know"
_CANNOT: Final = "this version of qframe cannot read"
_OF_SCHEDULE: Final = {"schedules list": "report", "schedules list re": "report",
                       "/schedules": NEWER}  # fmt: skip
_OWN_OF_SCHEDULE: Final = ("schedules show report", "schedules preview report",
                           "/schedules?schedule=report")  # fmt: skip
_ON_SCHEDULE: Final[tuple[Act, ...]] = (
    lambda it: it.app.schedules.get("report"),
    lambda it: it.app.schedules.put("report", "@daily", topic="events"),
    lambda it: it.app.schedules.pause("report"),
    lambda it: it.app.schedules.delete("report"),
    lambda it: it.app.schedules.run_now("report"),
    lambda it: program_of(it.app, "sqlite://")("schedules show report"),
)

RECORDS: Final[dict[str, Record]] = {
    "a topic of another kind": Record(
        lambda raw: raw.topic("ring", "spiral", _json()), _of_topic(_KIND), _OF_TOPIC,
        stores=EVERYWHERE,
    ),
    "a topic with another rule for subjects": Record(
        lambda raw: raw.topic("ring", "delay", _json(subject="header")), _of_topic(_CANNOT),
        _OF_TOPIC,
    ),
    "a topic whose line is cut": Record(
        lambda raw: raw.topic("ring", "delay", '{"retain_ms":864'), _of_topic(_CANNOT), _OF_TOPIC
    ),
    "a topic whose kind is cut off": Record(
        lambda raw: raw.topic("ring", "", ""), _of_topic("of kind ''"), _OF_TOPIC
    ),
    "a topic in another layout": Record(
        lambda raw: raw.topic("ring", "delay", _json(), layout=LAYOUT + 1),
        _of_topic(f"it is laid out as {LAYOUT + 1}"), _OF_TOPIC, stores=("redis",),
    ),
    "a topic that has grown otherwise": Record(
        lambda raw: raw.topic("ring", "delay", _json(), "16,1,2,3,4,5,6"), _of_topic(_CANNOT),
        _OF_TOPIC, stores=("redis",),
    ),
    "a topic of another sort of name": Record(
        lambda raw: raw.topic("ring/of/fire", "delay", _json()), {"topics": "ring/of/fire"}
    ),
    "the mark of a store": Record(lambda raw: raw.topic("qframe.bound.v2", "stream", _json())),
    "an option of a topic": Record(
        lambda raw: raw.options("orders", _json(history_ms=86_400_000, z=[1])), stores=EVERYWHERE
    ),
    "a setting of a group": Record(lambda raw: raw.tuning("warp", "9")),
    "a value of a setting": Record(lambda raw: raw.tuning("threads", "auto")),
    "a value of a setting that is no text": Record(lambda raw: raw.tuning("threads", [4, "auto"])),
    "settings in another form": Record(
        lambda raw: raw.document(Space.TUNING, "tuning", "\x02tuning")
    ),
    "settings of another sort": Record(lambda raw: raw.document(Space.TUNING, "about", "v2")),
    "a pause": Record(lambda raw: raw.tuning("hold.v2", "\x01of:all")),
    "a report": Record(lambda raw: raw.report("newer-1", "\x02report")),
    "a report without a time": Record(
        lambda raw: raw.scrap(Space.REPORTS, "newer-1"), stores=("redis",)
    ),
    "a member": Record(lambda raw: raw.member('{"lease":"v2"}')),
    "a member in another form": Record(lambda raw: raw.member("\x02member")),
    "a member without a time": Record(
        lambda raw: raw.scrap(Space.ROSTER, "member/newer-1"), stores=("redis",)
    ),
    "a document of the roster": Record(lambda raw: raw.document(Space.ROSTER, "leader", "v2")),
    "an owner": Record(lambda raw: raw.owner(ELSEWHERE, "v2 lease 77")),
    "an owner in another form": Record(lambda raw: raw.owner(ELSEWHERE, {"lease": 77})),
    "an end in the history": Record(
        lambda raw: raw.verdict(), {"explain good-1": "newer version"}, stores=EVERYWHERE
    ),
    "a schedule with another rule": Record(
        lambda raw: raw.record(
            SCHEDULES.name, "leader", Space.SCHEDULES, "report",
            schedule(rules={"holidays": "skip"}),
        ),
        _OF_SCHEDULE, _ON_SCHEDULE, _OWN_OF_SCHEDULE,
    ),
    "a schedule in another form": Record(
        lambda raw: raw.record(
            SCHEDULES.name, "leader", Space.SCHEDULES, "report", "\x02schedule"
        ),
        _OF_SCHEDULE, _ON_SCHEDULE, _OWN_OF_SCHEDULE,
    ),
    "a queue of SQS": Record(
        lambda raw: raw.record(
            BOOK.name, "sqs", Space.QUEUES, "jobs", '{"name":"jobs","moves":7}'
        ),
        refused=(
            lambda it: refused_by_sqs(it, "GetQueueUrl", QueueName="jobs"),
            lambda it: refused_by_sqs(it, "CreateQueue", QueueName="jobs"),
        ),
    ),
    "an envelope": Record(lambda raw: raw.envelope()),
    "an end before another in the history": Record(
        lambda raw: raw.verdict(and_then=True), {"explain good-1": "settled it"}, stores=("redis",)
    ),
    "a dead letter": Record(
        lambda raw: raw.dead_letter(), {"dead list orders billing": "declined"}
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("newer")
    namespace = folder.name
    url = f"sqlite:///{folder / 'q.db'}?synchronous=normal"
    if request.param == "redis":
        url = request.getfixturevalue("redis_server").url
    elif request.param != "sqlite":
        url = request.getfixturevalue(request.param).new_database()
    raw: Raw = (InRedis if request.param == "redis" else InTables)(url, namespace)
    with shop(url, namespace=namespace) as app, gateway_of(app) as web, browser(app) as pages:
        app.declare(NEIGHBOUR)
        app.store.subscribe(NEIGHBOUR, "g")
        app.admin.pause("events", "stats", why="so that there is an audit")
        app.admin.resume("events", "stats")
        assert of_sqs(web, "CreateQueue", QueueName="jobs") == 200
        yield Served(app, raw, pages, web)
    raw.close()


@contextmanager
def gateway_of(app: QFrame) -> Iterator[TestClient]:
    """A client of a gateway of the store, which serves SQS too."""
    served = Gateway(app)
    callers = Callers(None, clock=SYSTEM_CLOCK, events=app.events)
    forwarder = Forwarder(served.receipts)
    front = SqsFront(served, callers, forwarder)
    routes = GatewayRoutes(served, callers, forwarder, others=front.routes())
    with TestClient(routes.starlette(), "http://127.0.0.1", client=("127.0.0.1", 1)) as web:
        yield web


def of_sqs(web: TestClient, operation: str, **request: Any) -> int:
    """The status of the answer to an operation of SQS."""
    words = {"x-amz-target": f"AmazonSQS.{operation}"}
    return web.post("/", content=json.dumps(request), headers=words).status_code


def program_of(app: QFrame, copy: str) -> Callable[[str], str]:
    """Runs commands on the app's store; an error that `main` would say in a line is raised."""

    def run(words: str) -> str:
        result = CliRunner().invoke(cli, [word.format(copy=copy) for word in words.split()])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    return run


def refused_by_sqs(served: Served, operation: str, **request: Any) -> None:
    """Raises what a client of SQS is told."""
    words = {"x-amz-target": f"AmazonSQS.{operation}"}
    answer = served.gateway.post("/", content=json.dumps(request), headers=words)
    assert 400 <= answer.status_code < 500, answer.text
    raise QFrameError(answer.text)


def doors_of(served: Served, copy: str) -> dict[str, Callable[[], str]]:
    """All doors that read, by name; each returns what it shows, and raises what ends it."""
    app, run = served.app, program_of(served.app, copy)

    def page(address: str) -> str:
        shown = served.pages.get(address)
        words = unescape(text_of(shown.text))
        if shown.status_code == 400:
            raise QFrameError(words)
        assert shown.status_code in (200, 404), words
        return words

    def asked(address: str) -> str:
        answer = served.gateway.get(address)
        assert answer.status_code == 200, answer.text
        return answer.text

    def numbers() -> str:
        roster = app.coordinator.roster
        found = StoreNumbers(app.store, roster=roster, clock=SYSTEM_CLOCK).families()
        assert len(found) > 5
        return str(found)

    return {
        **{words: partial(run, words) for words in PROGRAM},
        **{at: partial(page, at) for some in ADDRESSES.values() for at in some},
        **{at: partial(asked, at) for at in GATEWAY},
        "metrics": numbers,
        "ListQueues": lambda: str(of_sqs(served.gateway, "ListQueues")),
        "app.admin.topics": lambda: str(app.admin.topics()),
        "app.schedules.find": lambda: str(app.schedules.find()),
        "app.timers.find": lambda: str(app.timers.find("later")),
    }  # fmt: skip


def is_served(served: Served) -> None:
    """A worker handles what is published in the group beside the record, and in another topic.

    It leads the schedules, too, and ends well.
    """
    seen: list[str] = []
    url = served.raw.url
    with QFrame(url, namespace=served.raw.namespace, grace=5, schedules="on") as app:

        @app.consumer(NEIGHBOUR, group="g")
        @app.consumer(ORDERS, group="billing")
        def handle(message: Message) -> None:
            seen.append(message.id)

        app.events.listen(lambda name, facts: None)  # its log is not for the test's output
        with running(app):
            sent = [app.publish(NEIGHBOUR, 1).id for _ in range(3)]
            keys = [f"k{number}" for number in range(20)]
            here = [key for key in keys if ORDERS.slot_of(key.encode()) != ELSEWHERE]
            sent += [app.publish(ORDERS, {}, key=key).id for key in here]
            eventually(lambda: sorted(seen) == sorted(sent), within=60)


GATE: Final = ("a topic of another kind", "an option of a topic", "an owner")
CASES: Final = [
    pytest.param(
        store, name,
        marks=[pytest.mark.gate] if name in GATE else [],
        id=f"{store}-{name}",
    )
    for store in ("redis", "sqlite", "postgres", "mariadb")
    for name, record in RECORDS.items() if store in record.stores
]  # fmt: skip


@pytest.mark.parametrize(("served", "name"), CASES, indirect=["served"])
def test_a_record_of_a_newer_version_is_named_passed_by_and_left_as_it_is(
    served: Served, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RECORDS[name]
    monkeypatch.setenv(f"{PREFIX}STORE", served.raw.url)
    monkeypatch.setenv(f"{PREFIX}NAMESPACE", served.raw.namespace)
    monkeypatch.chdir(tmp_path)
    doors = doors_of(served, f"sqlite:///{tmp_path / 'copy.db'}")
    wrong: list[str] = []
    with record.plant(served.raw) as stands:
        if "/" in record.named:  # the console may show what it saw a second ago
            eventually(lambda: record.named["/"] in doors["/"](), within=60)
        for door, ask in doors.items():
            try:
                shown = ask()
            except Exception as error:
                if door in record.own and isinstance(error, QFrameError) and NEWER in str(error):
                    continue
                wrong.append(f"{door}: {type(error).__name__}: {error}")
                continue
            if record.named.get(door, "") not in shown:
                wrong.append(f"{door} does not say {record.named[door]!r}: {shown}")
        for number, act in enumerate(record.refused):
            try:
                wrong.append(f"act {number} is not refused: {act(served)}")
            except QFrameError as error:
                if NEWER not in str(error):
                    wrong.append(f"act {number}: {error}")
            except Exception as error:
                wrong.append(f"act {number}: {type(error).__name__}: {error}")
        is_served(served)
        assert stands(), "it was changed"
    assert not wrong, "\n".join(wrong)


def test_topics_of_timers_in_a_database_of_their_own_are_read_past_those_that_cannot_be(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    timers, namespace = f"sqlite:///{tmp_path / 'timers.db'}", tmp_path.name
    with QFrame(redis_server.url, namespace=namespace, timers_db=timers) as app:
        app.declare(LATER)
        app.declare(NEIGHBOUR)
        with (
            InRedis(redis_server.url, namespace).topic("ring", "spiral", _json()),
            InTables(timers, namespace).topic("reel", "spool", _json()),
        ):
            found = app.store.topics()
            names = {each.name for each in app.admin.topics() if each.kind != "unknown"}
            assert names == {"later", "neighbour"}
            assert [error.value for error in found.unread] == ["ring", "reel"]
            assert app.store.latest([LATER, Topic("ring"), NEIGHBOUR])[1] is None
            assert app.publish(LATER, 1, key="k").outcome == "stored"


def test_a_member_of_zookeeper_waits_while_a_newer_version_has_written_the_plan(
    zookeeper: ZooKeeperServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    seen: list[str] = []
    namespace = tmp_path.name
    with QFrame(redis_server.url, namespace=namespace, coordinator=zookeeper.url, grace=5) as app:

        @app.consumer(NEIGHBOUR, group="g")
        def handle(message: Message) -> None:
            seen.append(message.id)

        troubles = told(app)
        app.declare(NEIGHBOUR)
        app.store.subscribe(NEIGHBOUR, "g")
        with nobody(zookeeper) as client:
            path = f"/{namespace}/{NEIGHBOUR.name}/g"
            client.create(f"{path}/owners", makepath=True)
            client.create(f"{path}/owners/0", b"v2 lease of ada")
            for plan in (b"v2 plan", b'{"members":["ada"],"slots":[0,7]}'):
                client.ensure_path(f"{path}/plan")
                client.set(f"{path}/plan", plan)
                troubles.clear()
                with running(app):
                    eventually(lambda: troubles["coordinator.unavailable"] > 0, within=60)
                    assert app.coordinator.roster(NEIGHBOUR, "g").owners == {}
                assert client.get(f"{path}/plan")[0] == plan
            client.delete(f"{path}/owners/0")
            client.set(f"{path}/plan", b"{}")
            with running(app):
                sent = [app.publish(NEIGHBOUR, 1).id for _ in range(4)]
                eventually(lambda: sorted(seen) == sorted(sent), within=60)
