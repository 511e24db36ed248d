"""Subscriptions on a server whose answers are lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import Proxy, RedisServer

from qframe import Message, Outgoing, QFrame, Topic
from qframe.errors import AnswerLost


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
