"""Where handlers are in their code is known to other processes, for a minute, if they ask."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from apps import running
from eventually import eventually

from qframe import Batch, Message, QFrame, Topic
from qframe.admin.stacks import WorkerStacks
from qframe.errors import NotAllowed
from qframe.options.report import MOST_STACKS, ConsumerReport, HandlerStack

TOPIC = Topic("files", slots=2)


def told(app: QFrame) -> list[WorkerStacks]:
    """What the worker of the group says, once it says that something runs."""
    eventually(lambda: any(each.stacks for each in app.admin.stacks(TOPIC, "g")), within=30)
    return app.admin.stacks(TOPIC, "g")


@pytest.mark.gate
@pytest.mark.parametrize("manner", ["thread", "async", "blocking", "batch", "async batch"])
def test_a_handler_is_shown_with_its_message_and_the_lines_in_which_it_waits(
    manner: str, tmp_path: Path
) -> None:
    gate, begun = threading.Event(), threading.Event()

    def wait_inside() -> None:
        begun.set()
        gate.wait(60)

    async def await_inside() -> None:
        begun.set()
        while not gate.is_set():
            await asyncio.sleep(0.01)

    with QFrame(f"sqlite:///{tmp_path / 'q.db'}", grace=5) as app:

        def plain(_message: Message) -> None:
            wait_inside()

        async def awaiting(_message: Message) -> None:
            await await_inside()

        async def blocking(_message: Message) -> None:
            wait_inside()

        def many(_messages: list[Message]) -> None:
            wait_inside()

        async def many_awaiting(_messages: list[Message]) -> None:
            await await_inside()

        handlers: dict[str, Any] = {
            "thread": plain, "async": awaiting, "blocking": blocking, "batch": many,
            "async batch": many_awaiting,
        }  # fmt: skip
        batch = Batch(10, "1ms") if "batch" in manner else None
        app.consumer(TOPIC, group="g", threads=2, batch=batch)(handlers[manner])
        app.publish(TOPIC, "one", id="the-file")
        with running(app, gate):
            assert begun.wait(30)
            assert app.admin.stacks(TOPIC, "g") == []
            app.admin.ask_stacks(TOPIC, "g")
            [one] = told(app)
            [stack] = one.stacks
            assert one.worker == app.admin.workers(TOPIC)[0].id
            assert stack.id == "the-file"
            inner = "await_inside" if "a" in manner[:1] else "wait_inside"
            places = [line.rpartition(" in ")[2] for line in stack.lines]
            assert places[:2] == [handlers[manner].__name__, inner], stack.lines
            assert "test_stacks.py:" in stack.lines[0]
            assert not any("worker_threads" in line for line in stack.lines)


def test_a_report_is_bounded_and_ends_when_its_time_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qframe.admin.stacks.STACKS_S", 3.0)
    gate = threading.Event()
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}", grace=5) as app:

        @app.consumer(TOPIC, group="g", threads=MOST_STACKS + 8)
        def deep(message: Message, left: int = 40) -> None:
            if left:
                deep(message, left - 1)
            else:
                gate.wait(60)

        app.publish_many(TOPIC, range(MOST_STACKS + 8))
        with running(app, gate):
            app.admin.ask_stacks(TOPIC, "g")
            eventually(
                lambda: [len(each.stacks) for each in app.admin.stacks(TOPIC, "g")]
                == [MOST_STACKS], within=30,
            )  # fmt: skip
            [one] = app.admin.stacks(TOPIC, "g")
            assert {len(each.lines) for each in one.stacks} == {12}
            assert one.stacks[0].lines[1] == "…"
            [report] = app.store.reports(TOPIC, "g")
            assert len(report.text) < 60_000
            eventually(lambda: "stacks" not in app.store.reports(TOPIC, "g")[0].text, within=30)


def test_who_may_not_tune_cannot_ask_and_who_sees_no_bodies_sees_no_code(tmp_path: Path) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, "g")
        with pytest.raises(NotAllowed):
            app.admin.acting(rights="reader").ask_stacks(TOPIC, "g")
        stack = HandlerStack(id="m", lines=("shop.py:1 in bill",))
        report = ConsumerReport(max_attempts=1, stacks=(stack,))
        app.store.report(TOPIC, "g", "worker", report.to_json())
        for role, seen in (("viewer", ()), ("reader", (stack,))):
            [one] = app.admin.acting(rights=role).stacks(TOPIC, "g")
            assert one.stacks == seen
