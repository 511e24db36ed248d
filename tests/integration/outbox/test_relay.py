"""The relay beside what goes wrong: refusals, things that are away, marks that are old."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from apps import Shop
from business import engine_of
from eventually import eventually
from late import Late, loses
from seated import Seated
from servers import MariaDbServer, PostgresServer, RedisServer
from sqlalchemy import Engine, text, update
from sqlalchemy.orm import Session
from topic_kinds import of_kind

from qframe import Message, Outbox, Outgoing, QFrame, Topic
from qframe.clock import SYSTEM_CLOCK
from qframe.errors import AnswerLost, PublishUnknown, StoreUnavailable
from qframe.events import Events
from qframe.outbox.relay import Relay
from qframe.outbox.rows import SLOTS, line_of, slot_of
from qframe.producing.entry_sender import TRIES

orders = Topic("orders", kind="ordered", slots=4)


ODD_ROWS: list[dict[str, Any]] = [
    {"options": "{no json"},
    {"options": '{"delay_ms":"soon"}'},
    {"options": '{"delay_ms":-1}'},
    {"options": f'{{"at_ms":{10**14}}}'},
    {"options": f'{{"priority":{10**30}}}'},
    {"options": '{"sequence":0}'},
    {"options": f'{{"within_ms":{10**14}}}'},
    {"headers": "[1]"},
    {"id": "not an id"},
    {"key": ""},
]


class Worker(Shop):
    """A worker in a thread that relays, and handles what comes."""

    def __init__(self, store: str, outbox: Outbox, *topics: Topic, **options: Any) -> None:
        super().__init__(store, **options)
        self.bodies: dict[str, list[Any]] = defaultdict(list)
        for topic in topics:
            self.app.consumer(topic, group="g")(self._note)
        self.app.relay(outbox)

    def _note(self, message: Message) -> None:
        self.bodies[message.topic].append(message.body)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        assert self.failure is None
        self.app.close()


def put(outbox: Outbox, topic: Topic | str, *bodies: object, **options: Any) -> None:
    """Publishes each in a transaction of its own."""
    for body in bodies:
        with Session(outbox.engine) as session:
            outbox.publish(session, topic, body, **options)
            session.commit()


def sent_times(outbox: Outbox) -> list[int | None]:
    """When each row was handed to the store, if it may have been."""
    with outbox.engine.connect() as connection:
        return [row.sent_at for row in outbox.rows.page(connection, limit=99)]


@pytest.mark.gate
@pytest.mark.promise(7)
def test_a_full_topic_holds_back_its_lines_and_nothing_else(local: Engine, store: str) -> None:
    small, free = Topic("small", slots=1, max_length=2), Topic("free")
    outbox = Outbox(local)
    with QFrame(store=store) as app:
        app.declare(small)
        app.store.subscribe(small, "g")
    put(outbox, small, 1, 2, 3, 4, key="a")
    put(outbox, free, 1, 2, key="a")
    with Worker(store, outbox, free) as worker:
        eventually(lambda: worker.events["outbox.blocked"])
        eventually(lambda: worker.bodies["free"] == [1, 2])
        eventually(lambda: outbox.pending() == 2)
        put(outbox, free, 3, key="a")
        eventually(lambda: worker.bodies["free"] == [1, 2, 3])
        # The store has not taken them for sure, so nobody has to look for them there.
        eventually(lambda: sent_times(outbox) == [None, None])
    with Worker(store, outbox, small) as worker:
        eventually(lambda: worker.bodies["small"] == [1, 2, 3, 4])
    assert outbox.pending() == 0


def test_a_topic_that_nobody_has_declared_waits_until_somebody_does(
    local: Engine, store: str
) -> None:
    outbox = Outbox(local)
    put(outbox, "later", *range(50))
    with Worker(store, outbox, orders) as worker:
        eventually(lambda: worker.events["outbox.blocked"])
        put(outbox, orders, 1, key="a")
        eventually(lambda: worker.bodies["orders"] == [1])
        eventually(lambda: outbox.pending() == 50)
        worker.app.declare(Topic("later"))
        eventually(lambda: outbox.pending() == 0)


def test_a_message_meant_for_another_kind_of_topic_holds_back_its_line_and_no_other(
    local: Engine, store: str
) -> None:
    outbox = Outbox(local)
    put(outbox, orders, 1, key="a")
    put(outbox, Topic("orders", kind="priority", slots=4), 1, key="b")
    put(outbox, orders, 2, key="b")
    put(outbox, orders, 2, key="a")
    with Worker(store, outbox, orders) as worker:
        eventually(lambda: worker.bodies["orders"] == [1, 2])
        eventually(lambda: worker.events["outbox.blocked"])
        eventually(lambda: outbox.pending() == 2)


@pytest.mark.parametrize("kind", ["stream", "ordered", "merge"])
def test_a_topic_given_whole_is_declared_by_the_relay(local: Engine, store: str, kind: Any) -> None:
    outbox = Outbox(local)
    topic = Topic(
        "whole", kind=kind, slots=2, max_length=9, dedupe_window="3h", history="5m",
        **of_kind(kind, retain="2h", gap_timeout=4),
    )  # fmt: skip
    put(outbox, topic, 1, key="k")
    with Worker(store, outbox):
        eventually(lambda: outbox.pending() == 0)
    with QFrame(store=store) as app:
        assert app.store.topic("whole") == topic


@pytest.mark.promise(7, 8)
def test_a_row_that_makes_no_sense_holds_back_its_line_and_nothing_else(
    local: Engine, store: str
) -> None:
    outbox = Outbox(local)
    outbox.create()
    row = dict.fromkeys(("key", "headers", "options")) | {"id": "x", "body": b"1", "topic": "odd"}
    for number, odd in enumerate(ODD_ROWS):
        with local.begin() as connection:
            for one in (row | odd, row | {"id": "behind"}):
                connection.execute(outbox.rows.add, {**one, "line": 1030 + number})
    put(outbox, orders, 1, key="k")
    with Worker(store, outbox, orders, Topic("odd")) as worker:
        eventually(lambda: worker.bodies["orders"] == [1])
        eventually(lambda: worker.events["outbox.blocked"] == len(ODD_ROWS))
    assert outbox.pending() == 2 * len(ODD_ROWS)
    assert worker.bodies["odd"] == []


@pytest.mark.promise(7)
def test_a_body_that_the_store_cannot_take_holds_back_its_line_and_nothing_else(
    local: Engine, mariadb: MariaDbServer
) -> None:
    [(limit,)] = mariadb.call("SELECT @@max_allowed_packet")
    assert isinstance(limit, int)
    outbox = Outbox(local, max_body=limit)
    with Session(local) as session:
        for number in range(4):
            outbox.publish(session, orders, number, key=f"key-{number}")
        outbox.publish(session, orders, b"x" * (limit - 1000), key="large")
        outbox.publish(session, orders, "behind", key="large")
        for number in range(4, 8):
            outbox.publish(session, orders, number, key=f"key-{number}")
        session.commit()
    with Worker(mariadb.new_database(), outbox, orders) as worker:
        eventually(lambda: sorted(worker.bodies["orders"]) == list(range(8)))
        assert worker.events["outbox.blocked"] == 1
    assert outbox.pending() == 2


@pytest.mark.gate
@pytest.mark.promise(1)
@pytest.mark.parametrize("sent_at", [1, 2**42])
def test_what_was_sent_before_a_crash_is_looked_up_once_its_id_may_be_forgotten(
    local: Engine, store: str, sent_at: int
) -> None:
    """As if a relay was killed between publishing and deleting, and none came for an hour.

    Nobody knows how long that was where the database's clock was ahead then.
    """
    brief = Topic("brief", dedupe_window="1ms")
    outbox = Outbox(local)
    put(outbox, brief, 1, 2, id="sent", key="a")
    put(outbox, brief, 3, id="unsent", key="a")
    with QFrame(store=store) as app:
        app.publish(brief, 1, id="sent", key="a")
    with local.begin() as connection:
        connection.execute(update(outbox._tables.outbox).values(sent_at=sent_at))
    with Worker(store, outbox, brief) as worker:
        eventually(lambda: outbox.pending() == 0)
        eventually(lambda: worker.bodies["brief"] == [1, 3])
        assert worker.events["outbox.doubted"] == 3


@pytest.mark.gate
@pytest.mark.parametrize("later", [AnswerLost, StoreUnavailable])
def test_what_may_have_been_sent_is_looked_up_once_its_id_may_be_forgotten(
    local: Engine, store: str, later: type[StoreUnavailable]
) -> None:
    """The topic has it, every answer is lost, and the outage is longer than ids are remembered."""
    brief, outbox = Topic("brief", dedupe_window="1ms"), Outbox(local)
    put(outbox, brief, 1, key="a")
    worker = Worker(store, outbox, brief)
    away = loses(later("store", "away"))
    late: Any = Late(worker.app.store)
    late.after("publish", loses(AnswerLost("store", "the answer was lost")))
    late.before("publish", lambda: None, *[away] * (1 if later is StoreUnavailable else TRIES - 1))
    worker.app.producer._sender._store = late
    with worker:
        eventually(lambda: outbox.pending() == 0)
        assert not late.waits
        eventually(lambda: worker.bodies["brief"])
        assert worker.events["outbox.doubted"] == 1
        [topic] = [each for each in worker.app.store.topics() if each.name == "brief"]
        assert sum(each.published for each in worker.app.store.stats(topic, "g")) == 1


class Served:
    """One relay of an outbox, turn by turn, with the slots that it is told."""

    def __init__(self, app: QFrame, outbox: Outbox) -> None:
        self.seat = Seated()
        self.producer: Any = Late(app.producer)
        self.relay = Relay(
            outbox, store=app.store, producer=self.producer, catalog=app.parts.catalog(),
            coordinator=self.seat, events=Events(), clock=SYSTEM_CLOCK,
            on_failure=lambda *_: None,
        )  # fmt: skip

    def turn(self, number: int, *slots: int) -> None:
        self.seat.owns(**{f"s{slot}": f"{number:016x}" for slot in slots})
        self.relay.turn()


class Two:
    """Two relays of one outbox, whose database can be restored, and a topic with a short memory."""

    def __init__(self, app: QFrame, engine: Engine) -> None:
        self.topic = app.declare(Topic("brief", dedupe_window="1ms"))
        app.store.subscribe(self.topic, "g")
        self.outbox, self.app = Outbox(engine), app
        self.outbox.create()
        self.one, self.other = Served(app, self.outbox), Served(app, self.outbox)

    def published(self) -> int:
        return sum(each.published for each in self.app.store.stats(self.topic, "g"))

    @contextmanager
    def forgotten(self) -> Iterator[None]:
        """Restores the database as it was before the block."""
        engine = self.outbox.engine
        with (
            closing(sqlite3.connect(":memory:")) as backup,
            closing(sqlite3.connect(str(engine.url.database))) as file,
        ):
            file.backup(backup)
            yield
            engine.dispose()
            backup.backup(file)


@pytest.fixture
def two(local: Engine, store: str) -> Iterator[Two]:
    with QFrame(store=store) as app:
        two = Two(app, local)
        yield two
        for each in (two.one, two.other):
            each.relay.leave()


@pytest.mark.gate
def test_a_relay_takes_no_mark_back_of_what_was_anothers_to_send_meanwhile(two: Two) -> None:
    """It was refused, lost the row's slot, and has others when it gets on."""
    put(two.outbox, two.topic, 1, key="a")
    its = slot_of(line_of("brief", "a", ""))
    two.one.producer.before("send", loses(StoreUnavailable("store", "away")))
    with pytest.raises(StoreUnavailable):
        two.one.turn(1, its)
    two.other.producer.after("send", loses(PublishUnknown("brief", ["m"])))
    with pytest.raises(PublishUnknown):
        two.other.turn(2, its)
    two.one.turn(3, 1 - min(1, its))
    for _ in range(2):
        two.other.turn(2, its)
    assert (two.outbox.pending(), two.published()) == (0, 1)


@pytest.mark.gate
@pytest.mark.promise(1)
def test_a_row_under_a_number_that_was_given_before_is_relayed(two: Two) -> None:
    """The database was restored without the rows that the relay is about to delete."""
    with two.forgotten():
        put(two.outbox, two.topic, 1, key="a")
        two.one.turn(1, *range(SLOTS))
    put(two.outbox, two.topic, 2, key="a")
    for _ in range(2):
        two.one.turn(1, *range(SLOTS))
    assert (two.outbox.pending(), two.published()) == (0, 2)


@pytest.mark.gate
@pytest.mark.promise(1)
def test_a_relay_takes_no_mark_back_of_a_row_under_a_number_that_was_given_before(two: Two) -> None:
    """The database was restored without the row that was refused, and has lent its number."""
    first, second = (slot_of(line_of("brief", key, "")) for key in "ab")
    assert first != second
    with two.forgotten():
        put(two.outbox, two.topic, 1, key="a")
        two.one.producer.before("send", loses(StoreUnavailable("store", "away")))
        with pytest.raises(StoreUnavailable):
            two.one.turn(1, first)
    put(two.outbox, two.topic, 2, key="b")
    two.other.producer.after("send", loses(PublishUnknown("brief", ["m"])))
    with pytest.raises(PublishUnknown):
        two.other.turn(2, second)
    two.one.relay.turn()
    for _ in range(2):
        two.other.turn(2, second)
    assert (two.outbox.pending(), two.published()) == (0, 1)


@pytest.mark.promise(5)
def test_a_delay_counts_from_publishing_and_is_handed_out_by_the_store(
    local: Engine, store: str
) -> None:
    outbox = Outbox(local)
    topic = Topic("timed", kind="delay")
    put(outbox, topic, "soon", delay=0.2)
    put(outbox, topic, "late", delay="1h")
    with Worker(store, outbox, topic) as worker:
        eventually(lambda: worker.bodies["timed"] == ["soon"])
        [timer] = worker.app.timers.find(topic).records
        assert timer.body == b'"late"'
        assert timer.due_ms is not None
        assert timer.due_ms - worker.app.store.now_ms() <= 3_600_000


def test_priority_sequence_and_window_come_through(local: Engine, store: str) -> None:
    outbox = Outbox(local)
    ranked, merged = Topic("ranked", kind="priority", slots=1), Topic("merged", kind="merge")
    with Session(local) as session:
        outbox.publish(session, ranked, "low", priority=1)
        outbox.publish(session, ranked, "high", priority=9)
        outbox.publish_many(session, orders, [Outgoing(n, key="a", sequence=n) for n in (2, 1)])
        outbox.publish(session, merged, 1, key="a", within="1h")
        outbox.publish(session, merged, 2, key="a", within="1h")
        session.commit()
    with Worker(store, outbox):
        eventually(lambda: outbox.pending() == 0)
    with QFrame(store=store) as app:
        seen: dict[str, list[Any]] = defaultdict(list)

        def note(message: Message) -> None:
            seen[message.topic].append(message.body)

        app.consumer(ranked, group="g", threads=1)(note)
        app.consumer(orders, group="g")(note)
        app.run(burst=True)
        assert seen["ranked"] == ["high", "low"]
        assert seen["orders"] == [1, 2]
        [timer] = app.timers.get(merged, "a")
        assert timer.body == b"2"


def test_it_goes_on_when_the_store_comes_back(local: Engine, tmp_path: Path) -> None:
    outbox = Outbox(local)
    with (
        RedisServer(tmp_path, aof=True) as server,
        Worker(server.url, outbox, orders) as worker,
    ):
        put(outbox, orders, 1, key="a")
        eventually(lambda: worker.bodies["orders"] == [1])
        server.kill()
        put(outbox, orders, 2, key="a")
        eventually(lambda: worker.events["store.unavailable"])
        server.restart()
        eventually(lambda: worker.bodies["orders"] == [1, 2])
        eventually(lambda: outbox.pending() == 0)


@pytest.mark.gate
def test_it_goes_on_when_the_database_comes_back(tmp_path: Path, store: str) -> None:
    with PostgresServer(tmp_path) as server:
        url = server.new_database()
        engine = engine_of(url)
        outbox = Outbox(engine)
        with Worker(store, outbox, orders) as worker:
            put(outbox, orders, 1, key="a")
            eventually(lambda: worker.bodies["orders"] == [1])
            server.kill()
            eventually(lambda: worker.events["outbox.unavailable"])
            server.restart()
            # Not by the worker's engine: its connections may be broken, or in the relay's hands.
            another = engine_of(url)
            put(Outbox(another), orders, 2, key="a")
            another.dispose()
            eventually(lambda: worker.bodies["orders"] == [1, 2])
        engine.dispose()


def test_a_relay_says_what_its_database_refuses_and_goes_on_once_that_is_mended(
    local: Engine, store: str
) -> None:
    outbox = Outbox(local, create_tables=False)
    with Worker(store, outbox, orders) as worker:
        eventually(lambda: worker.errors)
        assert worker.errors[0] == "OperationalError: no such table: qframe_lines"
        outbox.create()
        put(outbox, orders, 1, key="a")
        eventually(lambda: worker.bodies["orders"] == [1])


@pytest.mark.gate
def test_a_relay_joins_again_where_its_group_was_dropped_or_redis_flushed(
    local: Engine, tmp_path: Path
) -> None:
    """It goes on by its lease at first; once that has passed it owned nothing for good."""
    outbox = Outbox(local)
    with (
        RedisServer(tmp_path / "redis") as server,
        Worker(server.url, outbox, orders, session_timeout=0.5) as worker,
    ):

        def topics() -> list[Topic]:
            return [each for each in worker.app.store.topics() if "outbox" in each.name]

        put(outbox, orders, 1, key="k")
        eventually(lambda: worker.bodies["orders"] == [1])
        worker.app.store.drop_group(topics()[0], "relay")
        put(outbox, orders, 2, key="k")
        eventually(lambda: worker.bodies["orders"] == [1, 2])
        server.call("FLUSHALL")
        eventually(topics)
        put(outbox, orders, 3, key="k")
        eventually(lambda: worker.bodies["orders"] == [1, 2, 3])


MODULE = """
from sqlalchemy import create_engine
from qframe import Outbox, QFrame
app = QFrame(store="{store}")
outbox = app.relay(Outbox(create_engine("{business}")))
"""


def test_a_module_with_nothing_but_an_outbox_is_served_and_drained(
    local: Engine, store: str, tmp_path: Path
) -> None:
    outbox = Outbox(local)
    with Session(local) as session:
        outbox.publish_many(session, orders, [Outgoing(n, key=f"k{n}") for n in range(1200)])
        session.commit()
    program = MODULE.format(store=store, business=local.url)
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "qframe", "worker", "shop", "--drain"]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    answer = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    assert outbox.pending() == 0
    with QFrame(store=store) as app:
        app.store.subscribe(orders, "g")
        assert sum(each.published for each in app.store.stats(orders, "g")) == 1200


def test_every_relay_slot_has_one_worker_and_they_are_shared(local: Engine, store: str) -> None:
    outbox = Outbox(local)
    with Worker(store, outbox) as one, Worker(store, outbox):

        def shares() -> list[int]:
            store = one.app.store
            topics = [each for each in store.topics() if "outbox" in each.name]
            if not topics or not store.groups(topics[0]):
                return []
            roster = one.app.coordinator.roster(topics[0], "relay")
            return sorted(Counter(each.member for each in roster.owners.values()).values())

        eventually(lambda: shares() == [8, 8])
        put(outbox, orders, *range(40), key="k")
        eventually(lambda: outbox.pending() == 0)


def test_the_sql_that_the_docs_show_other_languages_is_relayed(local: Engine, store: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "outbox.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    outbox = Outbox(local)
    outbox.create()
    with local.begin() as connection:
        for statement in block.split(";\n"):
            connection.exec_driver_sql(statement)
    put(outbox, orders, 8, key="order-7")
    with local.connect() as connection:
        assert len(set(connection.execute(text("SELECT line FROM qframe_outbox")))) == 1
    with Worker(store, outbox, orders) as worker:
        eventually(lambda: worker.bodies["orders"] == [{"number": 7}, 8])
