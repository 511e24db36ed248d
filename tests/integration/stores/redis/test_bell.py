"""A subscription that breaks may have missed something, of any slot."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from eventually import eventually
from servers import Proxy, RedisServer

from qframe.stores.redis import bell as bells
from qframe.stores.redis.store import RedisStore
from qframe.topic import Topic

pytestmark = pytest.mark.gate


def test_a_bell_that_was_cut_off_rings_for_any_slot(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    store = RedisStore(redis_server.url, namespace=tmp_path.name)
    topic = Topic("t", slots=4)
    store.declare(topic)
    bell = store.bell([topic])
    while bell.wait(0):
        pass
    bell.hints()
    with redis_server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    assert bell.wait(60)
    assert bell.hints() is None
    bell.close()
    store.close()


def test_what_stood_before_a_bell_was_cut_off_is_answered_to_nobody(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """A server that has failed over may take an old pull for standing still."""
    store = RedisStore(redis_server.url, namespace=tmp_path.name)
    topic = Topic("t", slots=1)
    store.declare(topic)
    bell = store.bell([topic])
    before = bell.address
    with redis_server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        eventually(lambda: bell.wait(0) and bell.address != before)
        assert client.publish(before, b"") == 0
        assert client.publish(bell.address, b"") == 1
    bell.close()
    store.close()


@pytest.mark.promise(8)
@pytest.mark.parametrize("payload", [b"", b"hello", b"1.5", b"\xff"])
def test_a_bell_rings_for_any_slot_where_another_program_publishes_what_is_no_slot(
    redis_server: RedisServer, tmp_path: Path, payload: bytes
) -> None:
    """It ended the pull loop of each idle worker, and so the workers."""
    store = RedisStore(redis_server.url, namespace=tmp_path.name)
    topic = Topic("t", slots=4)
    store.declare(topic)
    bell = store.bell([topic])
    for channel in (f"qf:bell:{tmp_path.name}:t", bell.address):
        while bell.wait(0):
            pass
        bell.hints()
        with redis_server.client() as client:
            assert client.publish(channel, payload) == 1
        assert bell.wait(60)
        assert bell.hints() is None
        assert bell.late() == []
    bell.close()
    store.close()


def test_a_silent_cut_is_noticed_however_short_the_waits_are(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only waits of 10 s asked whether it was alive; a roster's bell never waits for so long."""
    monkeypatch.setattr(bells, "CHECK_EVERY_S", 0.2)
    with Proxy(redis_server.port) as proxy:
        store = RedisStore(f"{proxy.url}?socket_timeout=0.2", namespace=tmp_path.name)
        topic = Topic("t", slots=1)
        store.declare(topic)
        bell = store.bell([topic])
        while bell.wait(0):
            pass
        proxy.stall()
        eventually(lambda: bell.wait(0.01))
        assert bell.has_lost()
        proxy.resume()
        bell.close()
        store.close()


def test_closing_ends_the_waits_of_a_thread_that_waits_again_at_once(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Woken by the end, it began the next wait before the bell knew of it; `close` waited for that.

    Only the look for a subscription that is dead ended it then, after 10 s.
    """
    monkeypatch.setattr(bells, "CHECK_EVERY_S", 3600.0)
    store = RedisStore(redis_server.url, namespace=tmp_path.name)
    topic = Topic("t", slots=1)
    store.declare(topic)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            bell = store.bell([topic])
            closed: list[bool] = []

            def wait(bell: bells.SubscribedBell = bell, closed: list[bool] = closed) -> None:
                while not closed:
                    bell.wait(3600)

            def close(bell: bells.SubscribedBell = bell, closed: list[bool] = closed) -> None:
                bell.close()
                closed.append(True)

            threads = [threading.Thread(target=act, daemon=True) for act in (wait, close)]
            for thread in threads:
                thread.start()
            eventually(lambda threads=threads: not any(one.is_alive() for one in threads))
    finally:
        sys.setswitchinterval(before)
    store.close()
