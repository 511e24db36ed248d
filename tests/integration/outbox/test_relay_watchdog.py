"""A relay that has died, or hangs on a database, ends its worker as a pull loop would."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apps import Shop
from business import engine_of
from eventually import eventually
from servers import PostgresServer
from sqlalchemy.orm import Session

from qframe import Outbox, Topic
from qframe.errors import WorkerFailed
from qframe.outbox.rows import OutboxStatements
from qframe.runtime.process import watchdog

orders = Topic("orders", kind="ordered", slots=4)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate()]


@contextmanager
def relaying(url: str, folder: Path, grace: float = 5) -> Iterator[Shop]:
    """A worker that has relayed a message, and fails in the block."""
    engine = engine_of(url)
    outbox = Outbox(engine)
    shop = Shop(f"sqlite:///{folder}/qframe.db", grace=grace)
    with shop.app:
        shop.app.relay(outbox)
        shop.start()
        try:
            with Session(engine) as session:
                outbox.publish(session, orders, 1, key="a")
                session.commit()
            eventually(lambda: outbox.pending() == 0)
            yield shop
            eventually(lambda: shop.failure)
        finally:
            shop.stop()
        assert isinstance(shop.failure, WorkerFailed)
        assert shop.failure.part == "qframe.relay.qframe_"
    engine.dispose()


def test_a_relay_whose_thread_dies_ends_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise SystemExit

    with relaying(f"sqlite:///{tmp_path}/business.db", tmp_path):
        monkeypatch.setattr(OutboxStatements, "read", die)


def test_a_relay_that_hangs_on_its_database_ends_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "DOUBTFUL_S", 5.0)
    monkeypatch.setattr(watchdog, "STALLED_S", 10.0)
    with PostgresServer(tmp_path) as server:
        with relaying(server.new_database(), tmp_path, grace=0) as shop:
            shop.events.clear()
            server.freeze()
            try:
                eventually(lambda: shop.failure)
            finally:
                server.thaw()
            assert shop.events["store.reconnecting"] == 1
        # What hung has connections of the engine until it is answered.
        eventually(lambda: not any("relay" in name or "outbox" in name for name in threads()))
