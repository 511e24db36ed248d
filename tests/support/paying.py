"""A worker that pays, as a process of its own: it can be killed at a named moment.

Its one argument is a JSON object: store, namespace, checker (its name and the URL that it is for),
business (a database's URL), batch (how many messages a handler gets at once, 0 for one by one),
moment (of its death) and events (a file to which it adds a line for each event, in one write).
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import whole_lines
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert
from sqlalchemy.orm import Session

from qframe import (
    Backoff,
    Batch,
    DatabaseChecker,
    Message,
    QFrame,
    RedisChecker,
    Topic,
    TransactionalChecker,
)

TOPIC = Topic("payments", slots=2)
GROUP = "g"
META = MetaData()
# No unique constraint: what is done twice is seen twice.
PAID = Table("paid", META, Column("number", Integer, primary_key=True),
             Column("payment", String(64)))  # fmt: skip

MOMENTS = ("pulled", "delivery.claimed", "handled", "effect.committing", "effect.committed")


def work(argument: str) -> None:
    told: dict[str, Any] = json.loads(argument)
    log = os.open(told["events"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    engine = create_engine(told["business"])
    passed = threading.Event()
    lived = [0]

    def reach(moment: str) -> None:
        lived[0] += moment == told["moment"]
        if lived[0] == told["after"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def key(message: Message) -> str:
        reach("pulled")
        return message.id

    def listen(name: str, facts: dict[str, Any]) -> None:
        line = {"event": name, "id": facts.get("id"), "pid": os.getpid()}
        whole_lines.append(log, json.dumps(line).encode())
        reach(name)

    def transactional(message: Message, session: Session) -> None:
        session.execute(insert(PAID).values(payment=message.id))
        reach("handled")
        wait(message)

    def marking(message: Message) -> None:
        with engine.begin() as connection:
            connection.execute(insert(PAID).values(payment=message.id))
        listen("handled", {"id": message.id})
        wait(message)

    def transactional_batch(messages: list[Message], session: Session) -> None:
        for message in messages:
            transactional(message, session)

    def marking_batch(messages: list[Message]) -> None:
        for message in messages:
            marking(message)

    def wait(message: Message) -> None:
        if message.body == "wait" and message.attempt == 1:
            listen("waiting", {"id": message.id})
            until = Path(told["gate"])
            while not until.exists():
                passed.wait(0.01)

    checkers: dict[str, Any] = {
        "redis": lambda: RedisChecker(told["redis"], key=key),
        "database": lambda: DatabaseChecker(engine, key=key),
        "transactional": lambda: TransactionalChecker(engine, key=key),
    }
    handlers: dict[tuple[bool, bool], Any] = {
        (True, False): transactional, (False, False): marking,
        (True, True): transactional_batch, (False, True): marking_batch,
    }  # fmt: skip
    app = QFrame(
        store=told["store"], namespace=told["namespace"], session_timeout=told["session_s"], grace=5
    )
    app.events.listen(listen)
    app.consumer(
        TOPIC, GROUP, idempotent_checker=checkers[told["checker"]](), threads=4, lease="500ms",
        backoff=Backoff(first=0.01, cap=0.1), max_attempts=100,
        batch=Batch(told["batch"], "20ms") if told["batch"] else None,
    )(handlers[told["checker"] == "transactional", told["batch"] > 0])  # fmt: skip
    app.run()
