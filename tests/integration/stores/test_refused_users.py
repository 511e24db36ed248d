"""A server that refuses the user for a while is as one that is away: workers go on afterwards.

Somebody changes a password on the server first, or revokes a right by mistake. That ended workers,
had relays take messages for refused, and gateways tell clients that their requests were wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from business import engine_of
from eventually import eventually
from servers import MariaDbServer, PostgresServer, RedisServer
from serving import Serving, failing_every_fifth
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from qframe import Outbox, QFrame, StoreForbidden, Topic
from qframe.clock import SYSTEM_CLOCK
from qframe.web.gateway import Gateway
from qframe.web.gateway.callers import Callers
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.routes import GatewayRoutes

TOPIC = Topic("orders", "ordered", slots=2)


class Guarded(NamedTuple):
    """A store whose server can refuse its user.

    Attributes:
        url: with the user's password.
        by_another: the same store, as another user.
        refuse: changes the password, or closes the account, and ends the user's connections.
        admit: lets the user in again.
        call: runs a command, or a statement, as an administrator.
    """

    url: str
    by_another: str
    refuse: Callable[[], None]
    admit: Callable[[], None]
    call: Callable[..., object]


@pytest.fixture
def of_redis(tmp_path: Path) -> Iterator[Guarded]:
    with RedisServer(tmp_path / "redis") as server:

        def refuse() -> None:
            server.call("ACL", "SETUSER", "shop", "resetpass", ">hunter3")
            server.call("CLIENT", "KILL", "USER", "shop")

        def admit() -> None:
            server.call(
                "ACL", "SETUSER", "shop", "on", "resetpass", ">hunter2", "~*", "&*", "+@all"
            )

        admit()
        url = f"redis://shop:hunter2@127.0.0.1:{server.port}"
        yield Guarded(url, server.url, refuse, admit, server.call)


@pytest.fixture
def of_postgres(postgres: PostgresServer) -> Guarded:
    by_another, user = postgres.new_database(), f"shop{uuid.uuid4().hex}"
    with QFrame(by_another) as app:
        app.declare(TOPIC)
    postgres.call(f"CREATE ROLE {user} LOGIN PASSWORD 'hunter2'")
    grants = (
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO",
    )
    for grant in grants:
        postgres.call(f"{grant} {user}", by_another.rpartition("/")[2])

    def refuse() -> None:
        postgres.call(f"ALTER ROLE {user} NOLOGIN")
        postgres.call(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'"
        )

    def admit() -> None:
        postgres.call(f"ALTER ROLE {user} LOGIN")

    return Guarded(
        by_another.replace("qframe@", f"{user}:hunter2@"), by_another, refuse, admit, postgres.call
    )


@pytest.fixture
def of_mariadb(mariadb: MariaDbServer) -> Guarded:
    by_another, user = mariadb.new_database(), f"shop{uuid.uuid4().hex[:12]}"
    mariadb.call(f"CREATE USER {user} IDENTIFIED BY 'hunter2'")
    mariadb.call(f"GRANT ALL ON {by_another.rpartition('/')[2]}.* TO {user}")

    def refuse() -> None:
        mariadb.call(f"ALTER USER {user} ACCOUNT LOCK")
        mariadb.call(f"KILL USER {user}")

    def admit() -> None:
        mariadb.call(f"ALTER USER {user} ACCOUNT UNLOCK")

    return Guarded(
        by_another.replace("root@", f"{user}:hunter2@"), by_another, refuse, admit, mariadb.call
    )


@pytest.mark.promise(1)
@pytest.mark.parametrize("server", ["of_redis", "of_postgres", "of_mariadb"])
def test_a_worker_whose_password_is_refused_goes_on_once_it_is_right(
    server: str, request: pytest.FixtureRequest
) -> None:
    guarded: Guarded = request.getfixturevalue(server)
    said: list[str] = []
    with Serving(guarded.url, TOPIC) as serving, QFrame(guarded.by_another) as producer:
        serving.app.events.listen(
            lambda name, facts: said.append(facts["error"]) if name == "store.unavailable" else None
        )
        producer.publish(TOPIC, 0, key="a")
        serving.await_bodies({0})

        def is_told() -> bool:
            guarded.refuse()  # again: a connection that was being let in has outlived it
            return serving.failure is not None or any("refuses" in text for text in said)

        eventually(is_told)
        producer.publish(TOPIC, 1, key="a")
        with pytest.raises(StoreForbidden):
            serving.app.publish(TOPIC, 2, key="a")
        guarded.admit()
        serving.await_bodies({0, 1})
    assert "hunter" not in str(said)


@pytest.mark.gate
@pytest.mark.promise(1, 3)
@pytest.mark.parametrize("right", ["hdel", "hincrby", "hset", "lpop", "publish", "@sortedset"])
def test_a_right_that_is_taken_for_a_moment_loses_and_stops_nothing(
    of_redis: Guarded, right: str
) -> None:
    """A script was cut in its midst, and what it had begun then was never ended."""
    topic = Topic("steps", "ordered", slots=2)
    said: list[str] = []
    with (
        Serving(of_redis.url, topic, handle=failing_every_fifth(), backoff="20ms") as serving,
        QFrame(of_redis.by_another) as producer,
    ):
        serving.app.events.listen(
            lambda name, facts: said.append(facts["error"]) if name == "store.unavailable" else None
        )
        of_redis.call("ACL", "SETUSER", "shop", f"-{right}")
        for number in range(60):
            producer.publish(topic, number, key=f"k{number % 4}")
        eventually(lambda: serving.failure or any("may not run" in text for text in said))
        with pytest.raises(StoreForbidden, match="may not run"):
            serving.app.publish(topic, 60, key="k0", id="refused")
        of_redis.call("ACL", "SETUSER", "shop", f"+{right}")
        serving.await_bodies(set(range(60)))
        serving.check_order()
        assert serving.app.publish(topic, 60, key="k0", id="refused").outcome == "stored"
        serving.await_bodies(set(range(61)))
        serving.verify()
    assert sorted(serving.bodies) == sorted([*range(61), *range(0, 61, 5)])


@pytest.mark.promise(1)
def test_a_bell_that_may_not_ring_is_told_before_anything_is_stored_and_rings_next(
    of_redis: Guarded,
) -> None:
    """A message was stored and told as refused, and nobody was woken after that."""
    with Serving(of_redis.by_another, TOPIC) as serving, QFrame(of_redis.url) as producer:
        producer.publish(TOPIC, 0, key="a")
        serving.await_bodies({0})
        sleeps = f"qf:{{qframe:orders:{TOPIC.slot_of(b'a')}}}:asleep"
        eventually(lambda: of_redis.call("EXISTS", sleeps))
        of_redis.call("ACL", "SETUSER", "shop", "resetchannels")
        with pytest.raises(StoreForbidden, match=r"may not run PUBLISH.*grant the permission"):
            producer.publish(TOPIC, 1, key="a", id="one")
        assert of_redis.call("EXISTS", sleeps)
        of_redis.call("ACL", "SETUSER", "shop", "&*")
        assert producer.publish(TOPIC, 1, key="a", id="one").outcome == "stored"
        serving.await_bodies({0, 1})


def test_a_relay_whose_user_is_refused_takes_no_message_for_refused(
    of_redis: Guarded, tmp_path: Path
) -> None:
    engine = engine_of(f"sqlite:///{tmp_path}/business.db")
    outbox, said = Outbox(engine), list[str]()
    serving = Serving(of_redis.url, TOPIC)
    serving.app.relay(outbox)
    serving.app.events.listen(lambda name, facts: said.append(f"{name} {facts.get('part')}"))
    with serving:
        eventually(lambda: said.count("slot.taken None") == 2)  # the relay's own, too
        of_redis.refuse()
        with Session(engine) as session:
            outbox.publish(session, TOPIC, 1, key="a")
            session.commit()
        eventually(lambda: serving.failure or any("able qframe.relay" in text for text in said))
        of_redis.admit()
        serving.await_bodies({1})
    assert not any("blocked" in text for text in said)
    engine.dispose()


def test_a_gateway_whose_user_is_refused_does_not_call_requests_wrong(of_redis: Guarded) -> None:
    with QFrame(of_redis.url) as app:
        app.declare(TOPIC)
        gateway = Gateway(app)
        callers = Callers(None, clock=SYSTEM_CLOCK, events=app.events)
        routes = GatewayRoutes(gateway, callers, Forwarder(gateway.receipts))
        here = "http://127.0.0.1"
        with TestClient(routes.starlette(), here, client=("127.0.0.1", 1)) as client:
            of_redis.refuse()
            place, asked = "/v1/topics/orders/messages", {"key": "a", "body": 1}
            reply = client.post(place, json=asked)
            assert (reply.status_code, reply.json()["type"]) == (
                503, "urn:qframe:problem:store-forbidden",
            )  # fmt: skip
            of_redis.admit()
            assert client.post(place, json=asked).status_code == 200
