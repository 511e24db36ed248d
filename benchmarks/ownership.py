"""`python -m benchmarks.ownership`: the cost of sharing a topic's slots among many workers.

In one process, members of one group, each with its thread as in a worker, share the slots of a
topic in the model store, which answers in constant time; none of them handles anything. For each
number of members it measures their start, then what one more that joins costs all of them together,
and one that leaves: the CPU, the calls to the store, the bytes of the rosters that it has to give,
and how long it takes until every slot has the owner that it is to have. Then what they cost in a
second in which nothing changes. CPU is shared by all members here; each of many machines would have
its own.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from benchmarks.report import machine
from qframe import QFrame, Topic
from qframe.clock import SYSTEM_CLOCK
from qframe.coordination.base import LeaseStore, Membership
from qframe.coordination.lease import LeaseCoordinator
from qframe.events import Events

GROUP: Final = "g"
SESSION_S: Final = 20.0
CALLS: Final = ("heartbeat", "roster", "claim", "release_slots", "epochs", "latest", "leave")
AWAY_S: Final = 600.0
CALMS_S: Final = 3.0
"""By then everybody has seen the last change."""


class CountingStore:
    """The part of a store that keeps sessions; counts calls, and the bytes of rosters.

    Args:
        store: does the work.
    """

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.roster_bytes = 0

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._store, name)
        if name not in CALLS:
            return act

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            found = act(*arguments, **named)
            if name == "roster" and found is not None:
                self.roster_bytes += len(msgspec.json.encode(found))
            return found

        return call


class Worker:
    """A member that hands over each slot at once: nothing of it is in flight.

    Args:
        coordinator: its own.
        topic: what it joins.
        settled: told when its slots have changed.
    """

    def __init__(
        self, coordinator: LeaseCoordinator, topic: Topic, settled: Callable[[], None]
    ) -> None:
        self._settled = settled
        self._coordinator = coordinator
        self._membership: Membership | None = None
        self._membership = coordinator.join(topic, GROUP, on_change=self._changed)

    @property
    def owned(self) -> int:
        """How many slots it has for good."""
        if self._membership is None:
            return 0
        assignment = self._membership.assignment()
        return len(assignment.owned) - len(assignment.leaving)

    def leave(self) -> None:
        """Ends it."""
        assert self._membership is not None
        self._membership.leave()
        self._coordinator.close()

    def _changed(self) -> None:
        if self._membership is not None and (leaving := self._membership.assignment().leaving):
            self._membership.drained(leaving)
        self._settled()


class Fleet:
    """Workers that share a topic in the model store.

    Args:
        slots: how many slots the topic has.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._app = QFrame("model://", log_level="error")
        self._topic = self._app.declare(Topic("shared", slots=slots))
        self._app.store.subscribe(self._topic, GROUP)
        self.store = CountingStore(self._app.store)
        self._workers: list[Worker] = []
        self._changed = threading.Condition()
        self._started = 0

    def join(self, count: int) -> None:
        """Starts so many more."""
        for _ in range(count):
            self._started += 1
            coordinator = LeaseCoordinator(
                self.store, worker=f"machine-{self._started}-1-{self._started:012x}",
                session_s=SESSION_S, events=Events(), clock=SYSTEM_CLOCK, on_failure=_fail,
            )  # fmt: skip
            self._workers.append(Worker(coordinator, self._topic, self._notify))

    def leave(self, count: int) -> None:
        """Ends so many of them, one after the other."""
        for _ in range(count):
            self._workers.pop().leave()

    def is_shared(self) -> bool:
        """Whether each worker has as many slots as it is to have."""
        least, odd = divmod(self._slots, len(self._workers))
        owned = Counter(worker.owned for worker in self._workers)
        return owned == +Counter({least: len(self._workers) - odd, least + 1: odd})

    def wait(self) -> None:
        """Waits until the slots are shared."""
        until_s = time.monotonic() + AWAY_S
        while not self.is_shared():
            if time.monotonic() > until_s:
                raise SystemExit(f"{len(self._workers)} have not shared {self._slots} slots")
            with self._changed:
                self._changed.wait(0.05)

    def close(self) -> None:
        """Ends all of them."""
        self.leave(len(self._workers))
        self._app.close()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _fail(part: str, error: BaseException) -> None:
    raise SystemExit(f"{part}: {error}")


def main() -> None:
    """Measures what the command line asks for, and prints one JSON object for each."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.ownership", description=__doc__)
    made.add_argument("--members", type=int, nargs="*", default=[2, 8, 32, 128, 512, 1000])
    made.add_argument("--slots", type=int, default=2048)
    made.add_argument("--rest", type=float, default=20.0, help="seconds in which nothing changes")
    options = made.parse_args()
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}), flush=True)
    for members in options.members:
        fleet = Fleet(options.slots)
        try:
            for what, found in of_fleet(fleet, members, options.rest):
                print(json.dumps({"members": members, "what": what, **found}), flush=True)
        finally:
            fleet.close()


def of_fleet(fleet: Fleet, members: int, rest_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each change costs a fleet of so many members, and then what rest costs."""
    changes: dict[str, Callable[[], None]] = {
        "start": lambda: fleet.join(members), "join": lambda: fleet.join(1),
        "leave": lambda: fleet.leave(1),
    }  # fmt: skip
    for what, change in changes.items():
        with spent(fleet) as found:
            change()
            fleet.wait()
        yield what, found
    time.sleep(CALMS_S)
    with spent(fleet) as found:
        time.sleep(rest_s)
    yield "rest", {name: round(value / rest_s, 3) for name, value in found.items()}


@contextmanager
def spent(fleet: Fleet) -> Iterator[dict[str, float]]:
    """What all do meanwhile: seconds, CPU, calls and the kilobytes of rosters."""
    found: dict[str, float] = {}
    calls, given = fleet.store.calls.total(), fleet.store.roster_bytes
    began_s, cpu_s = time.monotonic(), time.process_time()
    yield found
    found["seconds"] = round(time.monotonic() - began_s, 3)
    found["cpu_s"] = round(time.process_time() - cpu_s, 3)
    found["calls"] = fleet.store.calls.total() - calls
    found["roster_kb"] = round((fleet.store.roster_bytes - given) / 1000, 1)


if __name__ == "__main__":
    main()
