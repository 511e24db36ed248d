"""A primary of PostgreSQL or MariaDB that is replaced by a standby which was a moment behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from eventually import eventually
from servers import HOST, MariaDbServer, PostgresServer, Proxy
from serving import Publishing, Serving, failing_every_fifth
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from qframe import Message, QFrame, Topic, TransactionalChecker, UnknownTopic


class Pair:
    """A primary, and a standby that takes over from it.

    Args:
        url: of whichever is the primary.
        proxy: what leads to it, where the URL does not name both.
    """

    def __init__(
        self, primary: PostgresServer | MariaDbServer, standby: PostgresServer | MariaDbServer,
        url: str, proxy: Proxy | None = None,
    ) -> None:  # fmt: skip
        self.primary = primary
        self.standby = standby
        self.url = url
        self._proxy = proxy

    def stop_following(self) -> None:
        """Has the standby receive nothing more; it has what there is by now."""
        self.standby.catch_up(self.primary)
        self.standby.stop_following()

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()
        if self._proxy is not None:
            self._proxy.lead_to(self.standby.port)


@contextmanager
def pair_of_postgres(folder: Path) -> Iterator[Pair]:
    with (
        PostgresServer(folder / "primary") as primary,
        primary.standby(folder / "standby") as standby,
    ):
        url = (
            f"postgresql+psycopg://qframe@/postgres?host={HOST}:{primary.port}"
            f"&host={HOST}:{standby.port}&target_session_attrs=read-write"
        )
        yield Pair(primary, standby, url)


@contextmanager
def pair_of_mariadb(folder: Path) -> Iterator[Pair]:
    """Behind an address that moves, as a proxy or a name of the DNS is."""
    config = {"log-bin": "primary", "server-id": "1"}
    with (
        MariaDbServer(folder / "primary", config=config) as primary,
        primary.standby(folder / "standby") as standby,
        Proxy(primary.port) as proxy,
    ):
        primary.call("CREATE DATABASE shop CHARACTER SET utf8mb4")
        url = f"mysql+pymysql://root@{HOST}:{proxy.port}/shop"
        eventually(lambda: ("shop",) in standby.call("SHOW DATABASES"))
        yield Pair(primary, standby, url, proxy)


@pytest.fixture(params=[pair_of_postgres, pair_of_mariadb], ids=["postgres", "mariadb"])
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with request.param(tmp_path) as made:
        yield made


def fail_over_behind(pair: Pair, publishing: Publishing) -> set[int]:
    """Has the standby take over while it lacks some messages; returns those it may lack."""
    publishing.await_more(100)
    first = len(publishing.done)
    pair.stop_following()
    publishing.await_more(60)
    pair.fail_over()
    last = len(publishing.done)
    publishing.await_more(100)
    publishing.finish()
    # What was under way at the end may have come before it, and what was at the start.
    return set(range(first - 1, last + 2))


@pytest.mark.promise(1, 3, 10)
@pytest.mark.parametrize(
    ("kind", "options"),
    [("stream", {}), ("stream", {"keep_order": True}), ("ordered", {}), ("delay", {})],
    ids=["stream", "keep_order", "ordered", "delay"],
)
def test_what_a_standby_has_received_is_handled_and_each_key_keeps_its_order(
    pair: Pair, kind: str, options: dict[str, bool]
) -> None:
    """Its worker knows both by its URL: every fifth message is in a retry."""
    topic = Topic("t", kind=kind, slots=2)
    with Serving(
        pair.url, topic, handle=failing_every_fifth(), threads=8, lease=2, backoff="20ms", **options
    ) as serving:
        keys = 10**6 if kind == "delay" else 8  # there an equal key replaces
        with Publishing(serving.app, topic, keys=keys) as publishing:
            forgotten = fail_over_behind(pair, publishing)
        serving.await_bodies(set(publishing.done) - forgotten)
        serving.verify()
        serving.check_order()


@pytest.mark.promise(2)
def test_effects_in_the_database_that_fails_over_happen_once_or_are_forgotten(pair: Pair) -> None:
    topic = Topic("t", slots=2)
    engine = create_engine(pair.url, pool_pre_ping=True)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE done (number int)"))
    serving = Serving(pair.url, topic, lease=2)

    @serving.app.consumer(
        topic, group="effects", idempotent_checker=TransactionalChecker(engine), lease=2
    )
    def handle(message: Message, session: Session) -> None:
        session.execute(text("INSERT INTO done VALUES (:n)"), {"n": message.body})

    def done() -> Counter[object]:
        with engine.connect() as connection:
            return Counter(connection.execute(text("SELECT number FROM done")).scalars())

    with serving:
        with Publishing(serving.app, topic) as publishing:
            forgotten = fail_over_behind(pair, publishing)
        kept = set(publishing.done) - forgotten
        eventually(lambda: serving.failure or kept <= done().keys())
        assert serving.failure is None
        assert set(done().values()) == {1}
    engine.dispose()


@pytest.mark.promise(1, 10)
def test_who_knows_of_a_growth_that_the_database_has_forgotten_publishes_where_somebody_reads(
    pair: Pair,
) -> None:
    topic = Topic("t", kind="ordered", slots=2)
    with Serving(pair.url, topic, lease=2) as serving, QFrame(store=pair.url) as other:
        other.declare(topic)
        pair.stop_following()
        serving.app.admin.resize("t", slots=4)
        for number in range(16):
            other.publish("t", number, key=f"k{number}")
        serving.await_bodies(set(range(16)))
        pair.fail_over()
        later = set(range(100, 140))
        for number in later:
            other.publish("t", number, key=f"k{number}")
        serving.await_bodies(later)
        assert serving.app.store.verify(topic) == []
        assert serving.app.admin.resize("t", slots=4).slots == 4
        other.publish("t", "last", key="k1")
        serving.await_bodies({"last"})
        serving.verify()


@pytest.mark.promise(1)
def test_what_is_published_to_a_topic_that_is_forgotten_comes_into_no_other_topic(
    pair: Pair,
) -> None:
    """Who has its declaration makes it again; who knows its name alone is told that it is gone."""
    with (
        QFrame(store=pair.url) as first, QFrame(store=pair.url) as second,
        QFrame(store=pair.url) as third,
    ):  # fmt: skip
        first.declare(Topic("a", slots=2))
        pair.stop_following()
        second.publish(Topic("b", slots=2), 1)
        third.publish("b", 2)
        pair.fail_over()
        first.publish(Topic("c", slots=2), 2)
        with pytest.raises(UnknownTopic):
            third.publish("b", 3)
        second.publish("b", 3)
        third.publish("b", 4)
        assert sum(one.published for one in first.admin.stats("c")) == 1
        assert sum(one.published for one in first.admin.stats("b")) == 2
