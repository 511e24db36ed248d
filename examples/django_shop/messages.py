"""The app and its topics, and the outbox, whose connections are made by Django."""

from __future__ import annotations

from typing import Any

from django.db import connections
from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

from qframe import Outbox, QFrame, Topic


def connect() -> Any:
    """A connection as the settings have it; in Django's tests, to the test's database."""
    database = connections["default"].copy()
    database.settings_dict["OPTIONS"].pop("pool", None)  # SQLAlchemy gives it none back
    return database.get_new_connection(database.get_connection_params())


dialects = {"postgresql": "postgresql+psycopg://", "sqlite": "sqlite://"}
dialect = dialects[connections["default"].vendor]
engine = create_engine(dialect, creator=connect, poolclass=QueuePool)

app = QFrame()  # QFRAME_STORE says where messages are, and QFRAME_NAMESPACE and so on the rest
orders: Topic[dict[str, int]] = Topic("orders")
cleaning = Topic("cleaning", slots=1)
outbox = app.relay(Outbox(engine))
