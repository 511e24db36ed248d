"""A worker whose handlers only write down that they were called; a few take a while."""

from __future__ import annotations

import threading
from pathlib import Path

from history import ENDED, STARTED, History

import qframe.app.assembly
import qframe.stores.redis.store  # noqa: F401 - before the fork, not in a worker's short life
from qframe import Message, QFrame, Topic

SLOW_ONE = 5
SLOW_S = 0.05
GROUP = "counters"
TOPICS = (Topic("line", kind="stream"), Topic("queues", kind="ordered"))


def work(url: str, history: str, name: str, burst: str = "") -> None:
    """Serves both topics until it is killed, or until all is done."""
    with History(Path(history), name) as facts, QFrame(store=url) as app:
        app.events.listen(facts.listen)

        def handle(message: Message) -> None:
            facts.note_of(STARTED, message)
            if message.body % 16 == SLOW_ONE:
                threading.Event().wait(SLOW_S)
            facts.note_of(ENDED, message)

        for topic in TOPICS:
            app.consumer(topic, group=GROUP)(handle)
        app.run(burst=bool(burst))
