"""A worker whose handlers hold on to their messages."""

from __future__ import annotations

import threading
from pathlib import Path

from eventually import eventually
from history import CANCELLED, ENDED, STARTED, History

from qframe import Message, QFrame, Topic

GROUP = "holders"
SLOW = Topic("slow", kind="ordered", slots=4)
SLOW_S = 60.0
SLOW_LEASE_S = 5.0
HELD_LEASE_S = 3.0
# Who is frozen is to lose its slots soon; who handles slowly keeps them though it stands still.
SESSION_S = {"slow": 20, "hold": 1, "keep": 1}


def held(kind: str) -> Topic:
    """The topic of a kind whose handler holds its first message until that is another worker's."""
    return Topic(f"held-{kind}", kind=kind, slots=4)


def kept(kind: str) -> Topic:
    """The topic of a kind whose handler takes a second, whatever becomes of its message."""
    return Topic(f"kept-{kind}", kind=kind, slots=4)


def work(role: str, url: str, history: str, name: str) -> None:
    """Does what its role says: `slow`, `hold` or `keep`, the latter two with a kind of topic."""
    words = role.split()
    with (
        History(Path(history), name) as facts,
        QFrame(store=url, grace=20, session_timeout=SESSION_S[words[0]]) as app,
    ):
        app.events.listen(facts.listen)
        match words:
            case ["slow"]:
                handle_slowly(app, facts)
            case ["hold", kind]:
                hold(app, facts, held(kind))
            case ["keep", kind]:
                keep(app, facts, kept(kind))
        app.run(burst=role == "slow")


def handle_slowly(app: QFrame, facts: History) -> None:
    """A handler that takes many leases."""

    @app.consumer(SLOW, group=GROUP, lease=SLOW_LEASE_S)
    def handle(message: Message) -> None:
        facts.note_of(STARTED, message)
        threading.Event().wait(SLOW_S)
        facts.note_of(CANCELLED if message.cancelled else ENDED, message)


def hold(app: QFrame, facts: History, topic: Topic) -> None:
    """A handler that keeps a message's first delivery until it is cancelled, then lets it be."""

    @app.consumer(topic, group=GROUP, lease=HELD_LEASE_S)
    def handle(message: Message) -> None:
        facts.note_of(STARTED, message)
        if message.attempt == 1:
            eventually(lambda: message.cancelled, within=60)
            facts.note_of(CANCELLED, message)
        facts.note_of(ENDED, message)


def keep(app: QFrame, facts: History, topic: Topic) -> None:
    """A handler that is not interested in whether its message is cancelled."""

    @app.consumer(topic, group=GROUP, lease=HELD_LEASE_S)
    def handle(message: Message) -> None:
        facts.note_of(STARTED, message)
        threading.Event().wait(1)
        facts.note_of(ENDED, message)
