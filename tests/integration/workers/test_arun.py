"""A worker inside an event loop: `await app.arun()`, which stops when it is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from qframe import BadOption, QFrame, Topic
from qframe.stores.base import Store

JOBS = Topic("jobs", slots=1)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        yield app


@pytest.mark.gate
def test_it_serves_until_it_is_cancelled_and_the_loop_goes_on_meanwhile(app: QFrame) -> None:
    threads: set[threading.Thread] = set()

    async def serve() -> None:
        handled = asyncio.Event()
        loop = asyncio.get_running_loop()

        @app.consumer(JOBS, group="g")
        def handle(body: int) -> None:
            threads.add(threading.current_thread())
            loop.call_soon_threadsafe(handled.set)

        await app.apublish(JOBS, 1)
        worker = asyncio.create_task(app.arun())
        await asyncio.wait_for(handled.wait(), 30)
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker

    asyncio.run(serve())
    for thread in threads:  # each has been told to end, and has nothing in hand
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert app.admin.lag(JOBS, "g") == 0
    app.run(burst=True)  # the app is free again


@pytest.mark.parametrize("end", [QFrame.stop, QFrame.close])
def test_a_run_that_is_still_opening_its_store_is_stopped(
    app: QFrame, end: Callable[[QFrame], None]
) -> None:
    app.consumer(JOBS, group="g")(lambda: None)
    opens, goes_on = threading.Event(), threading.Event()
    open_store = app.parts.opened.open_store

    def open_slowly(*args: Any, **options: Any) -> Store:
        opens.set()
        goes_on.wait(30)
        return open_store(*args, **options)

    app.parts.opened.open_store = open_slowly
    runner, ender = threading.Thread(target=app.run), threading.Thread(target=end, args=[app])
    runner.start()
    assert opens.wait(30)
    ender.start()
    if end is QFrame.stop:  # closing waits until all is open
        ender.join(30)
    goes_on.set()
    for thread in (ender, runner):
        thread.join(30)
    assert not runner.is_alive()
    app.run(burst=True)  # a stop ends one run, and none that comes later


def test_it_hears_a_stop_that_comes_before_its_thread_has_begun(app: QFrame) -> None:
    app.consumer(JOBS, group="g")(lambda: None)

    async def serve() -> None:
        loop, goes_on = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, goes_on.wait, 30)
        worker = asyncio.create_task(app.arun())
        await asyncio.sleep(0)
        app.stop()
        goes_on.set()
        await asyncio.wait_for(worker, 30)
        await busy

    asyncio.run(serve())


def test_cancelled_before_it_has_begun_it_stops_too(app: QFrame) -> None:
    app.consumer(JOBS, group="g")(lambda: None)

    async def serve() -> None:
        worker = asyncio.create_task(app.arun())
        await asyncio.sleep(0)
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker

    asyncio.run(serve())
    app.run(burst=True)


@pytest.mark.gate
def test_a_burst_returns_when_all_is_done(app: QFrame) -> None:
    seen: list[int] = []

    @app.consumer(JOBS, group="g")
    async def handle(body: int) -> None:
        seen.append(body)

    app.publish_many(JOBS, [1, 2, 3])
    asyncio.run(app.arun(burst=True))
    assert sorted(seen) == [1, 2, 3]


def test_a_run_in_a_coroutine_is_refused_and_names_what_to_await(app: QFrame) -> None:
    app.consumer(JOBS, group="g")(lambda: None)

    async def serve() -> None:
        app.run()

    with pytest.raises(BadOption, match=r"await app.arun\(\)"):
        asyncio.run(serve())


def test_its_errors_are_those_of_a_run(app: QFrame) -> None:
    with pytest.raises(BadOption, match=r"use @app.consumer, app.relay or @app.cron"):
        asyncio.run(app.arun())
