"""A worker whose handlers only write down that they were called."""

from __future__ import annotations

from pathlib import Path

from history import ENDED, STARTED, History

from qframe import Message, QFrame, Topic

GROUP = "counters"
TOPICS = (Topic("line", kind="stream"), Topic("queues", kind="ordered"))


def work(url: str, history: str, name: str, burst: str = "") -> None:
    """Serves both topics until it is killed, or until all is done."""
    with History(Path(history), name) as facts, QFrame(store=url) as app:
        app.events.listen(facts.listen)

        def handle(message: Message) -> None:
            facts.note_of(STARTED, message)
            facts.note_of(ENDED, message)

        for topic in TOPICS:
            app.consumer(topic, group=GROUP)(handle)
        app.run(burst=bool(burst))
