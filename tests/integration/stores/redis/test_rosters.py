"""Rosters on servers that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from servers import Proxy, RedisServer
from serving import Serving

from qframe import Topic
from qframe.errors import AnswerLost
from qframe.stores.redis.store import RedisStore

LEASE_MS = 60_000
EPOCH = "0" * 15 + "1"
ROSTER = b"qf:{qframe:t:0}:g:g:documents:roster"


@pytest.mark.gate
def test_who_has_seen_what_a_server_lost_sees_what_is_done_after_it_came_back_older(
    tmp_path: Path,
) -> None:
    """A version that counts would come to the number that was seen, over other members."""
    topic = Topic("t", slots=2)
    with RedisServer(tmp_path) as server:
        store = RedisStore(server.url)
        store.declare(topic)
        store.subscribe(topic, "g")
        store.heartbeat(topic, "g", "a", LEASE_MS)
        server.call("SAVE")
        seen = store.heartbeat(topic, "g", "lost", LEASE_MS)
        server.kill()
        server.restart()
        store.reconnect()
        older = store.roster(topic, "g", seen)
        assert older is not None
        assert [member.id for member in older.members] == ["a"]
        assert store.heartbeat(topic, "g", "other", LEASE_MS) not in (seen, older.version)
        found = store.roster(topic, "g", seen)
        assert found is not None
        assert [member.id for member in found.members] == ["a", "other"]
        store.close()


@pytest.mark.gate
def test_a_claim_whose_answer_was_lost_is_repeated_and_answers_what_it_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("t", slots=4)
    with RedisServer(tmp_path) as server, Proxy(server.port) as proxy:
        store = RedisStore(proxy.url)
        store.declare(topic)
        store.subscribe(topic, "g")
        for member in ("a", "b"):
            store.heartbeat(topic, "g", member, LEASE_MS)
        assert store.claim(topic, "g", "b", {3: EPOCH}) == [3]
        epochs = dict.fromkeys(range(4), EPOCH)
        write = store.write_documents

        def write_unheard(*words: Any) -> Any:
            proxy.drop_replies(1)
            return write(*words)

        with monkeypatch.context() as patched:
            patched.setattr(store, "write_documents", write_unheard)
            with pytest.raises(AnswerLost):
                store.claim(topic, "g", "a", epochs)
        before = store.roster(topic, "g")
        assert store.claim(topic, "g", "a", epochs) == [0, 1, 2]
        assert store.roster(topic, "g") == before
        store.close()


def test_nothing_is_kept_of_members_that_are_gone_and_of_a_group_that_is_dropped(
    tmp_path: Path,
) -> None:
    """Every worker has an id of its own, so what stayed of each would grow for ever."""
    topic = Topic("t", slots=2)
    with RedisServer(tmp_path) as server:
        store = RedisStore(server.url)
        store.declare(topic)
        store.subscribe(topic, "g")
        before = server.call("KEYS", "*")
        for number in range(3):
            store.heartbeat(topic, "g", f"departs-{number}", LEASE_MS)
            store.claim(topic, "g", f"departs-{number}", {number: EPOCH})
            store.leave(topic, "g", f"departs-{number}")
        store.heartbeat(topic, "g", "is slow", LEASE_MS)
        store.claim(topic, "g", "is slow", {0: EPOCH})
        store.heartbeat(topic, "g", "is slow", 0)
        store.leave(topic, "g", "stranger")
        assert set(server.call("KEYS", "*")) - set(before) == {ROSTER, ROSTER + b":ranks"}
        [(name, owners)] = server.call("HGETALL", ROSTER).items()
        assert (name, owners.split(b" ", 3)[3]) == (b"owners", b"{}")
        store.heartbeat(topic, "g", "a", LEASE_MS)
        store.claim(topic, "g", "a", {0: EPOCH})
        store.drop_group(topic, "g")
        assert [key for key in server.call("KEYS", "*") if b":g:g:" in key] == []
        store.close()


def test_a_worker_that_was_forgotten_and_joins_again_says_when_it_started(tmp_path: Path) -> None:
    topic = Topic("orders", slots=2)
    with RedisServer(tmp_path) as server, Serving(server.url, topic) as serving:
        store, admin = serving.app.store, serving.app.admin
        eventually(lambda: admin.workers() and admin.workers()[0].told_ms)
        [before] = admin.workers()
        [worker] = store.roster(topic, "g").members  # type: ignore[union-attr]
        store.leave(topic, "g", worker.id)
        eventually(lambda: store.roster(topic, "g").members)  # type: ignore[union-attr]
        [joined] = store.roster(topic, "g").members  # type: ignore[union-attr]
        [after] = admin.workers()
        assert joined.since_ms > worker.since_ms
        assert after.since_ms == before.since_ms <= worker.since_ms
