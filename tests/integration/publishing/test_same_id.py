"""The same id again is a duplicate: with the same key, or without one, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from qframe import Outbox, Outgoing, QFrame, Topic

STORES = ("sqlite", "postgres", "mariadb", "redis_server", "redis_cluster")


@pytest.fixture(params=STORES, scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Each store, one place for all tests."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('same') / 'q.db'}?synchronous=normal"
    server = request.getfixturevalue(request.param)
    url: str = server.url if request.param.startswith("redis") else server.new_database()
    return url


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(url, namespace=tmp_path.name) as app:
        yield app


@pytest.mark.parametrize("kind", ["stream", "delay", "priority"])
def test_without_a_key_an_id_is_recognised_whatever_its_body_is(app: QFrame, kind: str) -> None:
    topic = Topic("orders", kind, slots=16)
    outcomes = [
        str(app.publish(topic, {"order": 7, "at": second}, id="order-7").outcome)
        for second in range(8)
    ]
    assert outcomes == ["stored", *["duplicate"] * 7]
    many = app.publish_many(topic, [Outgoing(n, id=f"order-{n % 3}") for n in range(20, 32)])
    stored = [each for each in many if each.outcome == "stored"]
    assert len(stored) == 3


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "merge"])
def test_with_a_key_an_id_is_recognised_under_that_key(app: QFrame, kind: str) -> None:
    topic = Topic("orders", kind, slots=16)
    outcomes = [
        str(app.publish(topic, number, key=key, id="order-7").outcome)
        for number, key in enumerate(["ann", "ann", "bob", "bob"])
    ]
    assert outcomes[1] == outcomes[3] == "duplicate"


@pytest.mark.parametrize(("kind", "subject"), [("merge", None), ("delay", "body")])
def test_where_equal_bodies_are_one_subject_the_body_decides_the_slot(
    app: QFrame, kind: str, subject: str | None
) -> None:
    topic = Topic("orders", kind, slots=16, subject=subject)
    app.publish(topic, "equal", id="a", delay=60)
    again = app.publish(topic, "equal", id="b", delay=60)
    assert again.outcome in ("merged", "replaced")
    assert app.publish(topic, "equal", id="a", delay=60).outcome == "duplicate"


def test_an_id_that_was_made_up_is_recognised_when_it_is_published_again(app: QFrame) -> None:
    """As after `PublishUnknown`: it lies where the body has led it."""
    topic = Topic("orders", slots=16)
    for number in range(10):
        made_up = app.publish(topic, number).id
        assert app.publish(topic, number, id=made_up).outcome == "duplicate"


def test_an_id_in_an_outbox_meets_the_one_that_was_published(tmp_path: Path) -> None:
    topic = Topic("orders", slots=16)
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    outbox = Outbox(engine)
    outbox.create()
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.declare(topic)
        app.relay(outbox)
        with Session(engine) as session:
            outbox.publish(session, topic, {"at": 1}, id="order-7")
            session.commit()
        app.run(burst=True)
        assert app.publish(topic, {"at": 2}, id="order-7").outcome == "duplicate"
    engine.dispose()
