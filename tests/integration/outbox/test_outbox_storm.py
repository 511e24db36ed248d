"""Published is what was committed, once, in the order of the commits of each key; also when relays
are killed.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from business import Reader, Writers, check
from eventually import eventually
from nursery import Child, Nursery
from processes import state_of
from relaying import PLACES
from sqlalchemy import Engine

from qframe import Outbox, QFrame

pytestmark = pytest.mark.promise(1, 3)

Relay = Callable[..., Child]


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery("relaying", tmp_path_factory.mktemp("nursery") / "log") as nursery:
        yield nursery


@pytest.fixture
def relay(nursery: Nursery, url: str, store: str) -> Iterator[Relay]:
    """Starts a relay that sends itself a signal when it comes to a step for the nth time."""
    started: list[Child] = []

    def relay(step: str, count: int, how: int = signal.SIGKILL) -> Child:
        started.append(nursery.start(url, store, step, str(count), str(int(how))))
        return started[-1]

    yield relay
    for each in started:
        each.kill()


def test_what_8_writers_commit_is_published_once_and_in_order_by_two_relays(
    engine: Engine, store: str
) -> None:
    apps = [QFrame(store=store) for _ in range(2)]
    outboxes = [app.relay(Outbox(engine)) for app in apps]
    threads = [threading.Thread(target=app.run) for app in apps]
    writers = Writers(outboxes[0], engine, writers=8, each=25)
    for app in apps:
        app.store.now_ms()  # SQLite changes a new file's mode for one at a time
    for thread in threads:
        thread.start()
    try:
        writers.run()
        eventually(lambda: outboxes[0].pending() == 0)
    finally:
        for app, thread in zip(apps, threads, strict=True):
            app.stop()
            thread.join()
            app.close()
    reader = Reader(store)
    reader.read_all()
    check(writers, reader)


def test_relays_that_are_killed_at_every_step_lose_nothing_and_send_nothing_twice(
    engine: Engine, store: str, relay: Relay
) -> None:
    outbox = Outbox(engine)
    writers = Writers(outbox, engine, writers=8, each=15)
    writers.start()
    steps = itertools.cycle([(step, count) for count in (1, 2) for step in PLACES])
    two = [relay(*next(steps)) for _ in range(2)]
    killed = 0
    while killed < 10 and (writers.alive or outbox.pending()):
        eventually(lambda: any(each.code() is not None for each in two) or not outbox.pending())
        for number, each in enumerate(two):
            if each.code() is not None:
                assert each.code() == -signal.SIGKILL
                killed += 1
                two[number] = relay(*next(steps))
    writers.join()
    for each in two:
        each.kill()
    assert killed
    assert relay("none", 0).join(within=60) == 0
    assert outbox.pending() == 0
    reader = Reader(store)
    reader.read_all()
    check(writers, reader)


@pytest.mark.parametrize("step", ["marked", "published"])
def test_a_relay_that_was_frozen_while_another_went_on_sends_nothing_twice(
    engine: Engine, store: str, relay: Relay, step: str
) -> None:
    outbox = Outbox(engine)
    writers = Writers(outbox, engine, writers=4, each=20)
    writers.run()
    frozen = relay(step, 1, signal.SIGSTOP)
    eventually(lambda: state_of(frozen.pid) == "T")
    assert outbox.pending()
    assert relay("none", 0).join(within=60) == 0
    assert outbox.pending() == 0
    more = Writers(outbox, engine, writers=4, each=20)
    more.run()
    frozen.thaw()
    eventually(lambda: outbox.pending() == 0)
    frozen.terminate()
    assert frozen.join(within=60) == 0
    writers.committed += more.committed
    writers.rolled_back |= more.rolled_back
    reader = Reader(store)
    reader.read_all()
    check(writers, reader)
