"""A worker that shares the slots of one topic with others, and writes down what it was told.

Its store is watched: what it took, and which settlements were accepted and which refused, goes into
the history with the moment at which it was asked for.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from desk import PLAIN, Desk, Ways
from history import STOOD_STILL, History
from looks import Looks
from manners import serve
from watched import Watched

import qframe.app.assembly
import qframe.stores.redis.store
import qframe.stores.sql.store
from qframe import QFrame, Topic, identity

with suppress(ImportError):
    import qframe.coordination.zookeeper  # noqa: F401 - before the fork, not in a worker's life

GROUP = "sharers"
SLOTS = 16
PULSE_S = 0.1


class Job(msgspec.Struct, kw_only=True):
    """What a worker is to do.

    Attributes:
        name: its name in the history.
        store, coordinator: URLs.
        kind: the topic's.
        history: the file.
        session_s, lease_s: a session, and a delivery's lease.
        ways: how its handler is called, and what it does.
        is_far: whether the others cannot see its process, as if it ran on another machine.
        slots: how many the topic is declared with.
    """

    name: str
    store: str
    coordinator: str
    kind: str
    history: str
    session_s: float
    lease_s: float
    ways: Ways
    is_far: bool = False
    slots: int = SLOTS


def topic_of(kind: str, slots: int = SLOTS) -> Topic:
    """The one topic."""
    return Topic(f"shared-{kind}", kind=kind, slots=slots)


def note_standstills(facts: History, limit_s: float) -> None:
    """Writes down each time for which this process got no processor, or was frozen.

    One that was busy for most of that time has kept its own threads waiting, which is no excuse.
    """
    while True:
        since_ns, worked_s = time.monotonic_ns(), time.process_time()
        time.sleep(PULSE_S)
        gap_s = (time.monotonic_ns() - since_ns) / 1e9
        if gap_s >= limit_s and time.process_time() - worked_s < gap_s / 2:
            facts.note(STOOD_STILL, since_ns=since_ns)


def work(text: str) -> None:
    """Serves the topic until it is told to stop."""
    job = msgspec.json.decode(text, type=Job)
    if job.is_far:
        elsewhere = secrets.token_hex(3)
        identity._machine = lambda: elsewhere  # type: ignore[assignment]
    with (
        History(Path(job.history), job.name) as facts,
        QFrame(
            store=job.store, coordinator=job.coordinator, session_timeout=job.session_s, grace=20
        ) as app,
    ):
        threading.Thread(
            target=note_standstills, args=(facts, job.session_s / 4), daemon=True
        ).start()
        app.events.listen(facts.listen)
        app.parts.opened.store = Watched(app.store, facts)  # type: ignore[assignment]
        began_ns = time.monotonic_ns
        if job.ways.manner == PLAIN and not job.ways.business:  # its thread looks, and then calls
            app.parts.opened.clock = looks = Looks()  # type: ignore[assignment]
            began_ns = looks.taken_ns
        keeps_order = job.kind == "ordered" or job.ways.keeps_order
        desk = Desk(job.ways, facts, keeps_order_when_delayed=keeps_order, began_ns=began_ns)
        serve(app, topic_of(job.kind, job.slots), GROUP, desk, lease_s=job.lease_s)
