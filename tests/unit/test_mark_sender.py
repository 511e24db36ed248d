"""Marks of effects leave while handlers go on, many in a call, and none waits for a handler."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from contexts import context_of
from eventually import eventually
from sqlalchemy import Engine, create_engine, text

from qframe import Breaker, DatabaseChecker, Message, QFrame, Topic
from qframe.errors import CheckerUnavailable
from qframe.idempotency.base import Claim, Scope
from qframe.runtime.consume.mark_sender import MarkSender

TOPIC = Topic("orders", slots=1)
MESSAGES = 60


class Counting(DatabaseChecker):
    """A checker that notes how many are marked in a call, and may be held up."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.sizes: list[int] = []
        self.problems: list[Exception] = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def finish_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        assert self.goes_on.wait(60)
        if self.problems:
            raise self.problems.pop()
        self.sizes.append(len(claims))
        return super().finish_many(scope, claims)


class Work:
    """A worker whose handler can be held up at one of its calls."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.engine = create_engine(f"sqlite:///{folder}/effects.db")
        self.checker = Counting(self.engine)
        self.app = QFrame("model://")
        self.handled: list[object] = []
        self.holds_at = -1
        self.held = threading.Event()
        self.goes_on = threading.Event()
        self.app.consumer(TOPIC, "g", idempotent_checker=self.checker, **options)(self.handle)
        self.app.publish_many(TOPIC, range(MESSAGES))
        self.thread = threading.Thread(target=self.app.run, kwargs={"burst": True})

    def handle(self, message: Message) -> None:
        self.handled.append(message.body)
        if len(self.handled) == self.holds_at:
            self.held.set()
            assert self.goes_on.wait(60)

    def marks(self) -> int:
        with self.engine.connect() as connection:
            count = text("SELECT count(*) FROM qframe_effects WHERE state = 2")
            return int(connection.execute(count).scalar_one())

    def ends(self) -> None:
        self.goes_on.set()
        self.checker.goes_on.set()
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert sorted(self.handled) == list(range(MESSAGES))  # type: ignore[type-var]
        assert self.marks() == MESSAGES
        self.app.close()
        self.engine.dispose()


@pytest.mark.promise(2)
def test_a_mark_waits_for_no_other_handler(tmp_path: Path) -> None:
    work = Work(tmp_path, threads=1)
    work.holds_at = MESSAGES // 2
    work.thread.start()
    assert work.held.wait(60)
    eventually(lambda: work.marks() == MESSAGES // 2 - 1)
    work.ends()


def test_messages_that_return_while_marks_are_written_share_the_next_call(tmp_path: Path) -> None:
    work = Work(tmp_path, threads=2)
    work.checker.goes_on.clear()
    work.thread.start()
    eventually(lambda: len(work.handled) > 2)  # the first calls are held up
    work.ends()
    assert sum(work.checker.sizes) == MESSAGES
    assert max(work.checker.sizes) > 1


def test_marks_that_cannot_be_written_are_tried_again_and_their_handlers_not(
    tmp_path: Path,
) -> None:
    work = Work(tmp_path, threads=2)
    work.checker.problems = [CheckerUnavailable("checker", "away")] * 3
    work.thread.start()
    work.ends()


def test_a_breaker_hears_of_each_end_in_its_turn(tmp_path: Path) -> None:
    work = Work(tmp_path, threads=1, breaker=Breaker(2))
    work.thread.start()
    work.ends()
    assert set(work.checker.sizes) == {1}


def test_an_attempt_that_comes_after_the_end_is_marked_by_whoever_brings_it() -> None:
    finished: list[Any] = []
    sender = MarkSender(context_of(TOPIC, "g"), finished.extend)
    sender.put("first")  # type: ignore[arg-type] # it looks into none
    eventually(lambda: finished == ["first"])
    assert sender.stop(60)
    sender.put("second")  # type: ignore[arg-type]
    assert finished == ["first", "second"]
