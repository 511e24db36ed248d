"""An outbox belongs to one store and namespace: its rows go there until it is moved."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from apps import Shop
from eventually import eventually
from servers import RedisServer
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from qframe import BadOption, Message, Outbox, QFrame, Topic, WrongStore
from qframe.errors import StoreUnavailable
from qframe.outbox.binding import Home, OutboxBinding
from qframe.telemetry.facts import facts_shown
from qframe.topic import STORE_MARK

orders = Topic("orders", kind="ordered", slots=4)
own = Topic("own", kind="ordered", slots=1)


class Relaying(Shop):
    """A worker in a thread that relays, handles orders, and handles a topic of its own."""

    def __init__(self, store: str, outbox: Outbox, **options: Any) -> None:
        super().__init__(store, **options)
        self.own: list[Any] = []

        @self.app.consumer(orders, group="g")
        def note(message: Message) -> None:
            self.seen.append(message.body)

        @self.app.consumer(own, group="g")
        def note_own(message: Message) -> None:
            self.own.append(message.body)

        self.app.relay(outbox)

    @property
    def refusals(self) -> list[WrongStore]:
        return [error for error in self.errors if isinstance(error, WrongStore)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Callable[..., Relaying]]:
    """Starts workers; stops those that are left, of which none may have failed."""
    shops: list[Relaying] = []

    def start(store: str, outbox: Outbox, **options: Any) -> Relaying:
        shops.append(Relaying(store, outbox, **options))
        shops[-1].start()
        return shops[-1]

    yield start
    for each in shops:
        each.stop()
        each.app.close()
        assert each.failure is None


@pytest.fixture(params=["redis", "sqlite"])
def second(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """Another store: its URL, and options of an app."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return server.url, {"namespace": f"n{uuid.uuid4().hex[:12]}"}
    return f"sqlite:///{tmp_path}/stray.db", {}


def put(outbox: Outbox, *bodies: int) -> None:
    for body in bodies:
        with Session(outbox.engine) as session:
            outbox.publish(session, orders, body, key="k")
            session.commit()


def marks_in(app: QFrame) -> list[str]:
    return [topic.name for topic in app.store.topics() if topic.name.startswith(STORE_MARK)]


def home_of(outbox: Outbox, app: QFrame) -> Home:
    return OutboxBinding(outbox, app.store).home()


@pytest.mark.gate
def test_of_two_stores_with_one_outbox_the_first_gets_all_in_order_until_it_is_moved(
    engine: Engine, store: str, second: tuple[str, dict[str, Any]], shop: Callable[..., Relaying]
) -> None:
    outbox = Outbox(engine)
    first = shop(store, outbox)
    put(outbox, 0)
    eventually(lambda: first.seen == [0])
    stray = shop(second[0], Outbox(engine), **second[1])
    eventually(lambda: stray.refusals)
    put(outbox, *range(1, 30))
    eventually(lambda: first.seen == list(range(30)))
    stray.app.publish(own, "its own", key="k")
    eventually(lambda: stray.own == ["its own"])
    assert stray.seen == []
    assert first.refusals == []

    eventually(lambda: outbox.pending() == 0)  # nothing is in hand, which could go to both
    stray.app.admin.outbox_bind(outbox)
    put(outbox, *range(30, 40))
    eventually(lambda: stray.seen == list(range(30, 40)))
    eventually(lambda: first.refusals)
    assert first.seen == list(range(30))


@pytest.mark.gate
def test_the_refusal_names_both_and_the_remedy(
    local: Engine, store: str, tmp_path: Path, shop: Callable[..., Relaying]
) -> None:
    first = shop(store, Outbox(local))
    eventually(lambda: first.app.store.topics() and marks_in(first.app))
    stray = shop(f"sqlite:///{tmp_path}/stray.db", Outbox(local), namespace="other")
    eventually(lambda: stray.refusals)
    said = str(stray.refusals[0])
    assert f"sqlite:///{tmp_path}/stray.db, namespace other" in stray.refusals[0].store
    for part in (f"outbox qframe_ in {local.url}", marks_in(first.app)[0], "qframe outbox bind"):
        assert part in said
    assert facts_shown({"error": stray.refusals[0]}) == {"error": said}  # in words in the log
    eventually(lambda: stray.events["outbox.elsewhere"] > 1)


def test_another_namespace_of_the_same_store_is_another_one(
    local: Engine, store: str, shop: Callable[..., Relaying]
) -> None:
    first = shop(store, Outbox(local))
    eventually(lambda: marks_in(first.app))
    stray = shop(store, Outbox(local), namespace="other")
    eventually(lambda: stray.refusals)
    put(Outbox(local), 1)
    eventually(lambda: first.seen == [1])
    assert stray.seen == []


def test_a_restart_a_second_worker_and_another_name_of_the_store_keep_the_binding(
    local: Engine, store: str, tmp_path: Path, shop: Callable[..., Relaying]
) -> None:
    outbox = Outbox(local)
    first = shop(store, outbox)
    eventually(lambda: marks_in(first.app))
    [mark] = marks_in(first.app)
    first.stop()
    (tmp_path / "link.db").symlink_to(tmp_path / "qframe.db")
    again = shop(f"sqlite:///{tmp_path}/link.db", outbox)
    beside = shop(f"sqlite:///{tmp_path}/link.db", outbox)
    put(outbox, 1, 2)
    eventually(lambda: sorted(again.seen + beside.seen) == [1, 2])
    assert marks_in(again.app) == [mark]
    assert again.refusals == beside.refusals == []


def test_a_store_that_was_flushed_while_no_worker_ran_is_refused_until_it_is_bound(
    local: Engine, tmp_path: Path, shop: Callable[..., Relaying]
) -> None:
    outbox = Outbox(local)
    with RedisServer(tmp_path / "redis") as server:
        before = shop(server.url, outbox)
        put(outbox, 1)
        eventually(lambda: before.seen == [1])
        before.stop()
        put(outbox, 2)
        server.call("FLUSHALL")
        after = shop(server.url, outbox)
        eventually(lambda: after.refusals)
        assert "or this one was flushed since" in str(after.refusals[0])
        assert (outbox.pending(), after.seen) == (1, [])
        after.app.admin.outbox_bind(outbox)
        eventually(lambda: after.seen == [2])
        after.stop()
        before.app.close()
        after.app.close()


def test_a_store_that_was_flushed_under_a_worker_gets_its_mark_again_and_that_is_told(
    local: Engine, tmp_path: Path, shop: Callable[..., Relaying]
) -> None:
    outbox = Outbox(local)
    with RedisServer(tmp_path / "redis") as server:
        running = shop(server.url, outbox, session_timeout=0.5)
        put(outbox, 1)
        eventually(lambda: running.seen == [1])
        marks, told = marks_in(running.app), []
        running.app.events.listen(
            lambda name, facts: told.append(facts) if name == "store.forgot" else None
        )
        server.call("FLUSHALL")
        eventually(lambda: {"outbox": "qframe_"} in told)
        assert marks_in(running.app) == marks
        put(outbox, 2)
        eventually(lambda: running.seen == [1, 2])
        running.stop()
        running.app.close()


@pytest.mark.gate
def test_a_burst_of_another_stores_worker_ends_and_takes_nothing(
    local: Engine, store: str, tmp_path: Path
) -> None:
    outbox = Outbox(local)
    with QFrame(store=store) as app:
        app.admin.outbox_bind(outbox)
    put(outbox, 1)
    with QFrame(store=f"sqlite:///{tmp_path}/stray.db") as stray:
        stray.relay(Outbox(local))
        done = threading.Thread(target=lambda: stray.run(burst=True), daemon=True)
        done.start()
        done.join(60)
        assert not done.is_alive()
        assert outbox.pending() == 1


def test_a_backup_of_the_store_is_the_store(local: Engine, store: str, tmp_path: Path) -> None:
    outbox = Outbox(local)
    with QFrame(store=store) as app:
        app.admin.outbox_bind(outbox)
    with (
        closing(sqlite3.connect(tmp_path / "qframe.db")) as live,
        closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
    ):
        live.backup(copy)
    with QFrame(store=f"sqlite:///{tmp_path}/copy.db") as restored:
        assert home_of(outbox, restored).is_here


def test_a_copy_of_the_topics_to_another_store_does_not_make_it_the_outboxs(
    local: Engine, store: str, tmp_path: Path
) -> None:
    outbox, there = Outbox(local), f"sqlite:///{tmp_path}/other.db"
    with QFrame(store=store) as app:
        app.declare(orders)
        app.admin.outbox_bind(outbox)
        app.admin.copy("orders", there)
        with pytest.raises(BadOption, match="no other store may have it"):
            app.admin.copy(marks_in(app)[0], there)
    with QFrame(store=there) as other:
        assert not home_of(outbox, other).is_here


def test_a_store_in_memory_binds_nothing_and_takes_nothing_that_is_bound(
    local: Engine, store: str
) -> None:
    outbox = Outbox(local)
    outbox.create()
    with QFrame(store="model://") as passing:
        OutboxBinding(outbox, passing.store).confirm(local, anew=True)
        assert home_of(outbox, passing).mark is None
        with pytest.raises(BadOption, match="it ends with its process"):
            passing.admin.outbox_bind(outbox)
        with QFrame(store=store) as app:
            app.admin.outbox_bind(outbox)
        with pytest.raises(WrongStore):
            OutboxBinding(outbox, passing.store).confirm(local, anew=True)


def test_of_two_stores_that_bind_an_outbox_at_once_one_has_it_and_the_other_no_mark(
    engine: Engine, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(engine)
    outbox.create()
    with QFrame(store=store) as one, QFrame(store=f"sqlite:///{tmp_path}/two.db") as two:
        declare = two.store.declare

        def declare_late(topic: Topic) -> Topic:
            """Between its mark in the store and that in the outbox the other store is quicker."""
            declared = declare(topic)
            OutboxBinding(outbox, one.store).confirm(engine, anew=True)
            return declared

        monkeypatch.setattr(two.store, "declare", declare_late)
        with pytest.raises(WrongStore):
            OutboxBinding(outbox, two.store).confirm(engine, anew=True)
        assert home_of(outbox, one).is_here
        assert (len(marks_in(one)), marks_in(two)) == (1, [])


def test_a_store_that_is_away_while_an_outbox_is_bound_leaves_it_as_it_was(
    local: Engine, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(local)
    outbox.create()
    with QFrame(store=store) as app:

        def refuse(topic: Topic) -> Topic:
            raise StoreUnavailable(store, topic.name)

        monkeypatch.setattr(app.store, "declare", refuse)
        for bind in (
            lambda: OutboxBinding(outbox, app.store).confirm(local, anew=True),
            lambda: OutboxBinding(outbox, app.store).move(),
        ):
            with pytest.raises(StoreUnavailable):
                bind()
        assert home_of(outbox, app) == Home(None, is_here=False)
