"""Rows that somebody else has written over: each is a dead letter at once, and no worker ends."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, text

from qframe import Message, Outgoing, QFrame, StoreUnavailable, Topic
from qframe.stores.sql.cursors import known_group
from qframe.stores.sql.schema import cursors, metadata

HEADERS = {"source": "till"}


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('changed') / 'q.db'}?synchronous=normal"
    url: str = request.getfixturevalue(request.param).new_database()
    return url


def write_over(url: str, ids: list[str], headers: str) -> None:
    """What a program of somebody else's may do to the headers of messages."""
    engine = create_engine(url.partition("?")[0])
    with engine.begin() as connection:
        for table in metadata.tables.values():
            if "headers" in table.columns:
                for one in ids:
                    change = text(f"UPDATE {table.name} SET headers = :h WHERE id = :i")
                    connection.execute(change, {"h": headers, "i": one})
    engine.dispose()


@pytest.mark.gate
@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("kind", "headers"), [("stream", "{oops"), ("ordered", '["a"]'), ("delay", '{"a": 5}')]
)
def test_a_row_whose_headers_cannot_be_read_is_a_dead_letter_and_its_neighbours_are_handled(
    url: str, kind: str, headers: str
) -> None:
    name = f"t-{kind}-{abs(hash(headers))}"
    seen: list[Any] = []
    with QFrame(url, grace=5) as app:
        topic = Topic(name, kind, slots=1)

        @app.consumer(topic, "g")
        def handle(message: Message) -> None:
            seen.append(message.body)

        app.declare(topic)
        app.store.subscribe(topic, "g")
        key = (lambda _: "k") if kind == "ordered" else (lambda number: f"k{number}")
        items = [
            Outgoing(n, key=key(n), id=f"{name}-{n}", headers=HEADERS) for n in range(8)
        ]  # fmt: skip
        app.publish_many(topic, items)
        bad = [f"{name}-{number}" for number in (0, 1, 3, 4, 7)]
        write_over(url, bad, headers)
        app.admin.peek(topic, "g")
        app.admin.explain(topic, bad[0])
        app.run(burst=True)
        assert sorted(seen) == [2, 5, 6]  # keys of their own are handled side by side
        dead = app.admin.dead(topic, "g")
        assert sorted(letter.id for letter in dead) == bad
        assert all("the headers of message" in (letter.error or "") for letter in dead)
        assert app.admin.dead_show(topic, "g", bad[0]).body == b"0"
        assert app.admin.dead_retry(topic, "g", [bad[0]]) == 1
        app.run(burst=True)
        assert app.admin.dead_drop(topic, "g", "all") == len(bad)
        assert app.admin.verify(topic) == []


def test_a_publish_to_a_slot_of_which_a_group_has_no_record_is_refused(url: str) -> None:
    """Such as in a database that was restored under workers; other slots are as they were."""
    topic = Topic("halved", kind="ordered", slots=2)
    with QFrame(url) as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        place = app.store._ref(topic)
        number = app.store._database.read(lambda it: known_group(it, place, "g"))
        engine = create_engine(url.partition("?")[0])
        with engine.begin() as connection:
            lost = cursors.c.cursor == place.cursor_number(number, 0)
            connection.execute(cursors.delete().where(lost))
        engine.dispose()
        keys = {topic.slot_of(key.encode()): key for key in map(str, range(20))}
        refused = (
            "is damaged: topic halved: a group has no record of slot 0; run qframe store verify"
        )
        with pytest.raises(StoreUnavailable, match=refused):
            app.publish(topic, 1, key=keys[0])
        assert app.publish(topic, 2, key=keys[1]).outcome == "stored"
