"""The watchdog: a pull loop that stands still is given new connections, then ends the worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.errors import WorkerFailed
from qframe.events import Events
from qframe.runtime.worker import DOUBTFUL_S, STALLED_S, Worker


class StandingLine:
    """A line whose pull loop has been at one thing for `busy_s`."""

    topic, group = "orders", "billing"

    def __init__(self) -> None:
        self.busy_s = 0.0
        self.reconnected = 0
        self.pull_loop = SimpleNamespace(
            name="qframe.pull.orders.billing", alive=True, busy_s=lambda: self.busy_s
        )

    def reconnect(self) -> None:
        self.reconnected += 1


@pytest.fixture
def line() -> StandingLine:
    return StandingLine()


@pytest.fixture
def worker(line: StandingLine) -> Worker:
    return Worker(
        "host-1-abc",
        make_lines=lambda fail: [line],  # type: ignore[list-item]
        make_sweeper=lambda fail: SimpleNamespace(),  # type: ignore[arg-type,return-value]
        grace_s=1, events=Events(), clock=VirtualClock(),
    )  # fmt: skip


def look(worker: Worker, line: Any) -> None:
    worker._look_after(line)


def test_a_loop_that_waits_or_works_is_left_alone(worker: Worker, line: StandingLine) -> None:
    for busy_s in (0.0, DOUBTFUL_S - 1):
        line.busy_s = busy_s
        look(worker, line)
    assert line.reconnected == 0
    assert worker._failure is None


def test_one_that_stands_still_is_given_new_connections_once(
    worker: Worker, line: StandingLine
) -> None:
    told: list[str] = []
    worker._events.listen(lambda name, facts: told.append(name))
    line.busy_s = DOUBTFUL_S + 1
    look(worker, line)
    look(worker, line)
    assert line.reconnected == 1
    assert told == ["store.reconnecting"]
    line.busy_s = 0
    look(worker, line)
    line.busy_s = DOUBTFUL_S + 1
    look(worker, line)
    assert line.reconnected == 2


def test_one_that_stands_still_for_too_long_ends_the_worker(
    worker: Worker, line: StandingLine
) -> None:
    line.busy_s = STALLED_S + 1
    look(worker, line)
    assert isinstance(worker._failure, WorkerFailed)
    assert worker._stopping


def test_one_that_has_ended_is_nobodys_concern(worker: Worker, line: StandingLine) -> None:
    line.busy_s = STALLED_S + 1
    line.pull_loop.alive = False
    look(worker, line)
    assert worker._failure is None
