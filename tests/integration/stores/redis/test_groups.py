"""Subscriptions on a server whose answers are lost, and what is noted of groups."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from servers import Proxy, RedisServer

from qframe import Message, Outgoing, QFrame, Topic
from qframe.errors import AnswerLost
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.store import RedisStore


@pytest.mark.parametrize("kind", ["ordered", "merge"])
def test_groups_whose_subscription_broke_off_half_way_share_what_was_kept_when_it_is_repeated(
    tmp_path: Path, kind: str
) -> None:
    topic = Topic("t", kind, slots=4)
    keys = [f"k{number}" for number in range(20)]
    seen: list[tuple[str, str]] = []
    with (
        RedisServer(tmp_path) as server,
        Proxy(server.port) as proxy,
        QFrame(store=proxy.url) as app,
        server.client() as client,
    ):
        app.publish_many(topic, [Outgoing(key, key=key) for key in keys])
        warm = app.declare(Topic("other", kind))
        app.store.subscribe(warm, "g")  # so that the server knows the script
        proxy.drop_replies(1)
        with pytest.raises(AnswerLost):
            app.store.subscribe(topic, "g", beside=["h"])
        known = [client.hlen(f"qf:{{qframe:t:{slot}}}:groups") for slot in range(4)]
        assert known == [2, 0, 0, 0]

        @app.consumer(topic, "g")
        def first(message: Message) -> None:
            seen.append(("g", message.body))

        @app.consumer(topic, "h")
        def second(message: Message) -> None:
            seen.append(("h", message.body))

        app.run(burst=True)
        assert sorted(seen) == sorted((group, key) for group in "gh" for key in keys)
        assert app.store.verify(topic) == []


def test_of_groups_noted_in_a_slot_that_was_split_the_first_earliest_ones_get_what_was_kept(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    with closing(RedisStore(redis_server.url, namespace=tmp_path.name)) as store:
        redis, keys = store._redis, SlotKeys(tmp_path.name, Topic("t", "ordered", slots=1))

        def noted(*groups: str, kind: str = "ordered", expires: str = "") -> list[str]:
            """What each group gets, given with its start; a `+` stands before a new one."""
            pairs = [word for each in groups for word in each.split()]
            replies = redis.one(keys.call("enlist", 0, "1000", kind, expires, *pairs))
            news, words = replies[::2], replies[1::2]
            return [f"{'+' * new}{word.decode()}" for new, word in zip(news, words, strict=True)]

        assert noted("s earliest", kind="stream") == ["+joins"]
        assert noted("a latest") == ["+joins"]
        assert noted("b earliest", "c earliest", "a earliest") == ["+claims", "+claims", "joins"]
        assert noted("d earliest", "b earliest", expires="500") == ["+joins", "claims"]
        expiries = keys.key(0, "expiries")
        assert redis.ask(expiries, "ZRANGE", 0, -1, "WITHSCORES") == [b"b", b"1500", b"d", b"1500"]
        assert noted("b earliest") == ["claims"]
        assert redis.ask(expiries, "ZRANGE", 0, -1) == [b"d"]
