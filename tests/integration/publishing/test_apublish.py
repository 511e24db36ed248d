"""`apublish` publishes from a coroutine, and can be repeated when it was cancelled."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually

import qframe
from qframe import Message, Outgoing, QFrame, Topic, UnknownTopic


def test_what_was_awaited_is_stored_under_its_options(each_app: QFrame) -> None:
    topic = Topic("t", kind="ordered", slots=4)
    seen: list[Any] = []

    @each_app.consumer(topic, group="g")
    async def handle(message: Message) -> None:
        seen.append((message.key, message.body, message.headers))
        if message.body < 3:
            await each_app.apublish(topic, message.body + 3, key=message.key)

    async def publish() -> None:
        stored = await each_app.apublish(topic, 0, key="k", id="m", headers={"a": "b"})
        again = await each_app.apublish(topic, 0, key="k", id="m")
        assert (stored.id, stored.outcome, again.outcome) == ("m", "stored", "duplicate")
        await asyncio.gather(*(each_app.apublish(topic, n, key=f"k{n}") for n in (1, 2)))
        with pytest.raises(UnknownTopic):
            await each_app.apublish("unknown", 1)

    asyncio.run(publish())
    each_app.run(burst=True)
    assert min(seen) == ("k", 0, {"a": "b"})
    assert sorted(body for _, body, _ in seen) == [0, 1, 2, 3, 4, 5]


def test_the_default_apps_apublish_is_awaited_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with qframe.default_app() as app:
        app.consumer(Topic("t"), group="g")(lambda: None)
        published = asyncio.run(qframe.apublish("t", 1))
        assert (published.outcome, app.admin.lag("t", "g")) == ("stored", 1)


@pytest.mark.gate
def test_one_that_is_cancelled_may_be_published_and_can_be_repeated_under_its_id(
    tmp_path: Path,
) -> None:
    topic = Topic("t", slots=1)
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.consumer(topic, group="g")(lambda: None)
        app.declare(topic)
        begun, gate = threading.Event(), threading.Event()
        publish_batch = app.store.publish

        def slowly(*args: Any, **options: Any) -> Any:
            begun.set()
            assert gate.wait(60)
            return publish_batch(*args, **options)

        app.store.publish = slowly  # type: ignore[method-assign]

        async def cancelled() -> None:
            task = asyncio.create_task(app.apublish(topic, 1, id="m"))
            await asyncio.to_thread(begun.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.set()

        asyncio.run(cancelled())
        eventually(lambda: app.admin.lag(topic, "g") == 1)
        assert asyncio.run(app.apublish(topic, 1, id="m")).outcome == "duplicate"
        assert [each.outcome for each in app.publish_many(topic, [Outgoing(2)])] == ["stored"]
