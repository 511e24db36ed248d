"""Threads for what blocks: they do what they are given, and keep no process alive."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qframe.runtime.executors.daemon_threads import DaemonThreadExecutor

STOPPED = """
import asyncio, threading
from qframe import Message, QFrame, Topic
app = QFrame("model://", grace=0.1)
topic = app.declare(Topic("t", slots=1))
@app.consumer(topic, "g")
async def handle(message: Message) -> None:
    threading.Timer(0.1, app.stop).start()
    await asyncio.to_thread(threading.Event().wait)
app.store.subscribe(topic, "g")
app.publish(topic, 1)
app.run()
print("stopped")
"""


def test_a_call_that_never_returns_keeps_no_stopped_worker_alive() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", STOPPED], cwd=root, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert done.stdout == "stopped\n"


def test_calls_are_answered_with_what_they_return_or_raise() -> None:
    threads = DaemonThreadExecutor(2, "qframe.test")
    assert sorted(threads.map(abs, range(-50, 0))) == list(range(1, 51))
    assert isinstance(threads.submit(int, "x").exception(60), ValueError)
    threads.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        threads.submit(int)


def test_as_many_run_at_once_as_there_may_be_and_the_rest_waits_or_is_cancelled() -> None:
    threads, go_on = DaemonThreadExecutor(3, "qframe.test"), threading.Event()
    both = threading.Barrier(4)
    running = [threads.submit(lambda: (both.wait(60), go_on.wait(60))) for _ in range(3)]
    both.wait(60)
    waiting = [threads.submit(int) for _ in range(5)]
    threads.shutdown(wait=False, cancel_futures=True)
    assert all(each.cancelled() for each in waiting)
    go_on.set()
    assert [each.result(60)[1] for each in running] == [True] * 3
    threads.shutdown()
