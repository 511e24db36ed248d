"""A relay that has died, or hangs on a database, ends its worker as a pull loop would."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from business import engine_of
from eventually import eventually
from servers import PostgresServer
from sqlalchemy.orm import Session

from qframe import Outbox, QFrame, Topic
from qframe.errors import WorkerFailed
from qframe.outbox.rows import OutboxStatements
from qframe.runtime.process import watchdog

orders = Topic("orders", kind="ordered", slots=4)


class Running:
    """An app's worker in a thread, and how it ended."""

    def __init__(self, app: QFrame) -> None:
        self.error: BaseException | None = None
        self.events: Counter[str] = Counter()
        app.events.listen(lambda name, facts: self.events.update([name]))
        self._app = app
        self._thread = threading.Thread(target=self._main)

    def _main(self) -> None:
        try:
            self._app.run()
        except WorkerFailed as error:
            self.error = error

    def ended(self) -> bool:
        return not self._thread.is_alive()

    @contextmanager
    def started(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._app.stop()
            self._thread.join(60)
            assert self.ended()


def put(outbox: Outbox, body: object) -> None:
    with Session(outbox.engine) as session:
        outbox.publish(session, orders, body, key="a")
        session.commit()


def threads() -> list[str]:
    return [each.name for each in threading.enumerate()]


def test_a_relay_whose_thread_dies_ends_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise SystemExit

    engine = engine_of(f"sqlite:///{tmp_path}/business.db")
    outbox = Outbox(engine)
    with QFrame(store=f"sqlite:///{tmp_path}/qframe.db") as app:
        app.relay(outbox)
        running = Running(app)
        with running.started():
            put(outbox, 1)
            eventually(lambda: outbox.pending() == 0)
            monkeypatch.setattr(OutboxStatements, "read", die)
            eventually(running.ended)
        assert isinstance(running.error, WorkerFailed)
        assert running.error.part == "qframe.relay.qframe_"
    engine.dispose()


def test_a_relay_that_hangs_on_its_database_ends_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "DOUBTFUL_S", 5.0)
    monkeypatch.setattr(watchdog, "STALLED_S", 10.0)
    with PostgresServer(tmp_path) as server:
        engine = engine_of(server.new_database())
        outbox = Outbox(engine)
        with QFrame(store=f"sqlite:///{tmp_path}/qframe.db", grace=0) as app:
            app.relay(outbox)
            running = Running(app)
            with running.started():
                put(outbox, 1)
                eventually(lambda: outbox.pending() == 0)
                running.events.clear()
                server.freeze()
                eventually(running.ended)
                server.thaw()
            assert running.events["store.reconnecting"] == 1
            assert isinstance(running.error, WorkerFailed)
            assert running.error.part == "qframe.relay.qframe_"
        # What hung has connections of the engine until it is answered.
        eventually(lambda: not any("relay" in name or "outbox" in name for name in threads()))
        engine.dispose()
