"""A worker stops in its time, whatever becomes of its checker's database."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

from checking import engine_of
from database_servers import PostgresServer
from eventually import eventually
from sqlalchemy.orm import Session

from qframe import Message, QFrame, Topic, TransactionalChecker

TOPIC = Topic("payments", slots=2)


def test_a_worker_stops_though_the_database_of_a_message_taken_over_answers_no_more(
    tmp_path: Path,
) -> None:
    taken: list[Message] = []

    def take_over(message: Message, session: Session) -> None:
        session.connection()
        message.auto_ack = False
        taken.append(message)

    with (
        PostgresServer(tmp_path / "postgres") as server,
        engine_of(server.new_database()) as shop,
        QFrame(
            store=f"sqlite:///{tmp_path / 'queue.db'}", namespace=f"n{uuid.uuid4().hex}", grace=0
        ) as app,
    ):
        app.consumer(TOPIC, "g", idempotent_checker=TransactionalChecker(shop))(take_over)
        app.publish(TOPIC, 1)
        worker = threading.Thread(target=app.run, daemon=True)
        worker.start()
        eventually(lambda: taken)
        eventually(lambda: app.parts.opened.worker._consumers[0]._acks)
        server.freeze()
        try:
            app.stop()
            eventually(lambda: not worker.is_alive())
            assert taken[0].cancelled
        finally:
            server.thaw()
        eventually(lambda: shop.pool.checkedout() == 0)  # type: ignore[attr-defined] # of QueuePool
