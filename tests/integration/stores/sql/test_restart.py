"""A database server that is killed and comes back: nothing is lost, and a worker goes on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from databases import begun, entry, pulled
from eventually import eventually
from servers import MariaDbServer, PostgresServer, Proxy
from serving import Publishing, Serving
from sqlalchemy import func, select

from qframe import StoreUnavailable, Topic
from qframe.drivers.sql import Statement, Transaction
from qframe.errors import AnswerLost
from qframe.outcomes import Outcome
from qframe.stores.sql.store import SqlStore

Server = PostgresServer | MariaDbServer
SORTS: dict[str, type[Server]] = {"postgres": PostgresServer, "mariadb": MariaDbServer}
MESSAGES = 600


@pytest.fixture(params=SORTS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, which it may kill."""
    with SORTS[request.param](tmp_path / request.param) as server:
        yield server


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_worker_survives_the_death_of_the_server_twice_and_nothing_is_lost(
    server: Server, kind: str
) -> None:
    topic = Topic("orders", kind=kind, slots=4)
    with (
        Serving(server.new_database(), topic, lease="1s") as serving,
        Publishing(serving.app, topic, most=MESSAGES) as publishing_them,
    ):
        for _ in range(2):
            publishing_them.await_more(MESSAGES // 4)
            server.kill()
            server.restart()
        publishing_them.finish()
        serving.await_bodies(set(range(MESSAGES)))
        serving.verify()
        if kind == "ordered":
            for bodies in serving.by_key.values():
                assert list(dict.fromkeys(bodies)) == sorted(set(bodies))


def test_a_store_that_was_idle_while_its_server_was_away_does_not_notice(server: Server) -> None:
    store = SqlStore(server.new_database())
    topic = begun(store, "stream")
    server.kill()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.stats(topic)
    server.restart()
    assert store.publish(topic, [entry(topic, 1, "k", "a")]) == [Outcome.STORED]
    server.kill()
    server.restart()
    # Its connections are broken, and nothing that was asked on them was done.
    assert store.publish(topic, [entry(topic, 2, "k", "b")]) == [Outcome.STORED]
    assert [one.body for one in pulled(store, topic, "r").deliveries] == [b"1", b"2"]
    store.close()


@pytest.mark.gate
@pytest.mark.promise(1)
def test_a_commit_whose_answer_is_lost_is_told_as_such_and_can_be_repeated(
    server: Server,
) -> None:
    url = server.new_database()
    with Proxy(server.port) as proxy:
        url = url.replace(f":{server.port}/", f":{proxy.port}/")
        # Preparing a statement has an answer of its own.
        store = SqlStore(url + ("?prepare_threshold=0" if "postgres" in url else ""))
        topic = begun(store, "stream")
        one = entry(topic, 1, "k", "a")
        backend = store._database.backend

        def drop_answers(cursor: object, words: object) -> None:
            proxy.drop_replies(1)

        notify, backend.notify = backend.notify, drop_answers
        with pytest.raises(AnswerLost):
            store.publish(topic, [one])
        backend.notify = notify
        assert eventually(lambda: published(store, topic)) == 1
        assert store.publish(topic, [one]) == [Outcome.DUPLICATE]
        store.close()


def published(store: SqlStore, topic: Topic) -> int:
    with suppress(StoreUnavailable):
        return sum(one.published for one in store.stats(topic))
    return 0


def test_a_server_that_is_silent_is_unavailable_until_it_speaks_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen server keeps its connections, so that the system notices nothing."""
    monkeypatch.setattr("qframe.drivers.sql.SILENT_S", 1.0)
    monkeypatch.setattr("qframe.drivers.sql_mariadb.CONNECT_S", 1.0)
    store = SqlStore(f"{server.new_database()}?connect_timeout=2")
    topic = begun(store, "ordered")
    server.freeze()
    with ThreadPoolExecutor(1) as pool:
        try:
            for _ in range(2):  # on a connection that there is, and on one that is to be made
                asked = pool.submit(store.publish, topic, [entry(topic, 1, "k", "a")])
                eventually(asked.done)
                assert isinstance(asked.exception(), StoreUnavailable)
        finally:
            server.thaw()
    assert store.publish(topic, [entry(topic, 1, "k", "a")]) == [Outcome.STORED]
    store.close()


def test_a_transaction_that_takes_its_time_is_not_taken_for_a_silent_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qframe.drivers.sql.SILENT_S", 0.2)
    store = SqlStore(server.new_database())
    slept = func.pg_sleep(2) if isinstance(server, PostgresServer) else func.sleep(2)
    pause = Statement(select(slept), "")
    with pytest.raises(StoreUnavailable):
        store._database.write(lambda it: it.rows(pause))

    def patient(it: Transaction) -> int:
        it.take_time()
        return len(it.rows(pause))

    assert store._database.write(patient) == 1
    store.close()
