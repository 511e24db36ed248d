"""The watchdog: a part that stands still is given new connections, then ends the worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.errors import WorkerFailed
from qframe.events import Events
from qframe.runtime.process.stop_request import StopRequest
from qframe.runtime.process.watchdog import ASLEEP_S, DOUBTFUL_S, STALLED_S
from qframe.runtime.process.worker import Worker, WorkerParts


class Standing:
    """A part that has been at one thing for `seconds`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.seconds = 0.0
        self.reconnected = 0

    def busy_s(self) -> float:
        return self.seconds

    def reconnect(self) -> None:
        self.reconnected += 1


class Watching:
    """A worker with a consumer and a relay, and its clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.parts = [Standing("qframe.pull.orders.billing"), Standing("qframe.relay.qframe_")]
        consumer = SimpleNamespace(pull_loop=self.parts[0], loops=lambda: [self.parts[0]])
        nothing: Any = SimpleNamespace()
        events = Events()
        self.worker = Worker(
            "host-1-abc", StopRequest(events),
            WorkerParts(nothing, [consumer], nothing, [self.parts[1]]),
            grace_s=1, events=events, clock=self.clock,
        )  # fmt: skip

    def stand(self, part: Standing, seconds: float, *, every_s: float = 1.0) -> None:
        """Time passes in which a part does not get on, with a look now and then."""
        until_s = part.seconds + seconds
        while part.seconds < until_s:
            self.clock.advance(round(every_s * 1000))
            part.seconds += every_s
            self.worker._watchdog.look()

    def get_on(self, part: Standing) -> None:
        part.seconds = 0.0
        self.worker._watchdog.look()


@pytest.fixture
def watching() -> Watching:
    return Watching()


@pytest.fixture(params=[0, 1], ids=["pull loop", "relay"])
def part(watching: Watching, request: pytest.FixtureRequest) -> Standing:
    return watching.parts[request.param]


def test_a_part_that_waits_or_works_is_left_alone(watching: Watching, part: Standing) -> None:
    watching.get_on(part)
    watching.stand(part, DOUBTFUL_S - 1)
    assert part.reconnected == 0
    assert watching.worker._stop_request.failure is None


def test_one_that_stands_still_is_given_new_connections_once(
    watching: Watching, part: Standing
) -> None:
    told: list[tuple[str, str]] = []
    watching.worker._events.listen(lambda name, facts: told.append((name, facts["part"])))
    watching.stand(part, DOUBTFUL_S + 5)
    assert part.reconnected == 1
    assert told == [("store.reconnecting", part.name)]
    watching.get_on(part)
    watching.stand(part, DOUBTFUL_S + 5)
    assert part.reconnected == 2


def test_one_that_stands_still_for_too_long_ends_the_worker(
    watching: Watching, part: Standing
) -> None:
    watching.stand(part, STALLED_S + 1)
    failure = watching.worker._stop_request.failure
    assert isinstance(failure, WorkerFailed)
    assert failure.part == part.name
    assert watching.worker._stop_request.is_made


def test_one_that_has_ended_is_nobodys_concern(watching: Watching, part: Standing) -> None:
    part.alive = False
    watching.stand(part, STALLED_S + 1)
    assert watching.worker._stop_request.failure is None


def test_while_the_whole_process_stood_still_nobody_could_get_on(
    watching: Watching, part: Standing
) -> None:
    watching.stand(part, 2 * STALLED_S, every_s=2 * STALLED_S)
    watching.stand(part, ASLEEP_S)
    assert part.reconnected == 0
    assert watching.worker._stop_request.failure is None
    watching.stand(part, STALLED_S)
    assert watching.worker._stop_request.failure is not None
