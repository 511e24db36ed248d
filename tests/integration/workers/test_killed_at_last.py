"""`on_dead` for messages whose workers were killed: the next worker calls it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from apps import batched, handler
from checking import database_url
from eventually import eventually
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from qframe import (
    Batch,
    DatabaseChecker,
    Message,
    QFrame,
    Topic,
    TransactionalChecker,
    WorkerLost,
)
from qframe.app.pull import Pull
from qframe.stores.types import LOST_ERROR
from qframe.testing import Harness

# Handles nothing: it ends as by SIGKILL in its handler, or where it is told that a message is dead.
PROGRAM = """
import os, signal, sys
from qframe import Message, QFrame

def end(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def handle(message: Message) -> None:
    end()

url, namespace, mourns = sys.argv[1:]
app = QFrame(url, namespace=namespace)
options = {"lease": "300ms", "max_attempts": 1, "on_dead": end if mourns else None}
app.consumer("t", "g", **options)(handle)
app.run()
"""
TOPIC = Topic("t", kind="ordered", slots=1)


class Mourning:
    """An app's topic, the messages that were handled, and those of whose death it was told."""

    def __init__(self, app: QFrame, topic: Topic) -> None:
        self.topic = topic
        self.seen: list[Any] = []
        self.mourned: list[tuple[Any, int, BaseException]] = []
        self._app = app

    def see(self, message: Message) -> None:
        """Handles a message."""
        self.seen.append(message.body)

    def mourn(self, message: Message, error: BaseException) -> None:
        """Is told of a death."""
        self.mourned.append((message.body, message.attempt, error))

    def check(self) -> None:
        """One message was told of as lost, and is dead; the next one was handled."""
        [(body, attempt, error)] = self.mourned
        assert (body, attempt, type(error)) == ("deadly", 2, WorkerLost)
        [letter] = self._app.admin.dead(self.topic, "g")
        assert letter.error == f"WorkerLost: {error}"
        assert self.seen == ["next"]
        assert self._app.admin.lag(self.topic, "g") == 0
        assert self._app.store.verify(self.topic) == []


def kill_one(url: str, namespace: str = "n", *, mourns: bool = False) -> None:
    """Runs a worker until a message, or word of a dead one, has killed it."""
    command = [sys.executable, "-c", PROGRAM, url, namespace, "yes" if mourns else ""]
    path = {"PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run(command, env={**os.environ, **path}, check=False).returncode == -9


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        pytest.param("sqlite", "stream", marks=pytest.mark.gate),
        pytest.param("redis", "ordered", marks=pytest.mark.gate),
        ("postgres", "stream"),
        ("mariadb", "priority"),
    ],
)
def test_on_dead_is_called_for_a_message_whose_worker_was_killed(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, kind: str
) -> None:
    if store == "redis":
        url = request.getfixturevalue("redis_server").url
    else:
        url = database_url(request, store, tmp_path)
    namespace = uuid.uuid4().hex
    with QFrame(url, namespace=namespace) as app:
        shop = Mourning(app, Topic("t", kind=kind, slots=1))
        app.consumer(shop.topic, "g", max_attempts=1, on_dead=shop.mourn)(handler(False, shop.see))
        app.publish(shop.topic, "deadly", key="k")
        kill_one(url, namespace)
        app.publish(shop.topic, "next", key="l")
        app.run(burst=True)
        shop.check()


@pytest.mark.parametrize("way", ["async", "batch", "async batch", "pull", "checker"])
def test_however_messages_are_handled_a_killed_worker_is_told_of(tmp_path: Path, way: str) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with QFrame(url, namespace="n") as app:
        shop = Mourning(app, TOPIC)
        options: dict[str, Any] = {"max_attempts": 1, "on_dead": shop.mourn}
        if "batch" in way:
            app.consumer(TOPIC, "g", batch=Batch(8, "10ms"), **options)(
                batched("async" in way, shop.see)
            )
        elif way == "checker":
            engine = create_engine(f"sqlite:///{tmp_path / 'effects.db'}")
            options["idempotent_checker"] = DatabaseChecker(engine)
            app.consumer(TOPIC, "g", **options)(handler(False, shop.see))
        elif way == "async":
            app.consumer(TOPIC, "g", **options)(handler(True, shop.see))
        app.publish(app.declare(TOPIC), "deadly", key="k")
        kill_one(url)
        app.publish(TOPIC, "next", key="l")
        if way == "pull":
            with app.pull(TOPIC, "g", **options) as messages:
                take_all(messages, shop)
        else:
            app.run(burst=True)
        shop.check()


def take_all(messages: Pull, shop: Mourning) -> None:
    """Takes on until somebody has been told: a spent message is seen to when its turn comes."""

    def takes() -> bool:
        if (message := messages.take("10ms")) is not None:
            shop.see(message)
            message.ack()
        return bool(shop.seen and shop.mourned)

    eventually(takes)


def test_an_on_dead_that_kills_its_worker_is_called_three_times(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with QFrame(url, namespace="n") as app:
        shop = Mourning(app, TOPIC)
        app.publish(app.declare(TOPIC), "deadly", key="k")
        for mourns in (False, True, True, True):
            kill_one(url, mourns=mourns)
        app.consumer(TOPIC, "g", max_attempts=1, on_dead=shop.mourn)(handler(False, shop.see))
        app.run(burst=True)
        assert shop.mourned == []
        [letter] = app.admin.dead(TOPIC, "g")
        assert (letter.attempts, letter.error) == (4, LOST_ERROR)


def test_what_was_lost_before_it_was_settled_first_is_dead_and_told_of() -> None:
    app = QFrame()
    shop = Mourning(app, TOPIC)
    app.consumer(TOPIC, "g", at_most_once=True, max_attempts=1, on_dead=shop.mourn)(
        handler(False, shop.see)
    )
    with Harness(app) as harness:
        harness.crash_after("pull")
        harness.publish(TOPIC, "deadly", key="k")
        harness.drain()
        [letter] = harness.dead(TOPIC, "g")
        assert letter.error == f"WorkerLost: {shop.mourned[0][2]}"
        assert shop.seen == []


def test_a_message_that_was_let_go_at_its_last_attempt_is_told_of(tmp_path: Path) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        shop = Mourning(app, TOPIC)
        app.publish(app.declare(TOPIC), "deadly", key="k")
        with app.pull(TOPIC, "g", max_attempts=1, on_dead=shop.mourn) as messages:
            message = next(iter(messages))
            del message
            gc.collect()
            app.publish(TOPIC, "next", key="l")
            take_all(messages, shop)
        shop.check()


@pytest.mark.parametrize("checks", [DatabaseChecker, TransactionalChecker])
def test_a_message_whose_effect_had_happened_before_its_worker_was_lost_is_not_dead(
    tmp_path: Path, checks: type[DatabaseChecker | TransactionalChecker]
) -> None:
    app = QFrame()
    shop = Mourning(app, TOPIC)
    checker = checks(create_engine(f"sqlite:///{tmp_path / 'effects.db'}"))

    def handle(message: Message, session: Session) -> None:
        shop.see(message)

    app.consumer(
        TOPIC, "g", idempotent_checker=checker, max_attempts=1, on_dead=shop.mourn
    )(handle if checks is TransactionalChecker else shop.see)  # fmt: skip
    with Harness(app) as harness:
        harness.crash_after("commit")
        harness.publish(TOPIC, "done", key="k")
        harness.drain()
        assert (shop.seen, shop.mourned) == (["done"], [])
        assert harness.dead(TOPIC, "g") == []
