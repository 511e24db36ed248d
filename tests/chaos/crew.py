"""Workers that share a topic's slots, and what can be done to each of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec
from desk import Ways
from eventually import eventually
from history import (
    CUT,
    DIED,
    ENDED,
    FROZEN,
    KILLED,
    LEAVING,
    MENDED,
    NEMESIS,
    STARTING,
    STOOD_STILL,
    THAWED,
    Fact,
    History,
    Tail,
    read,
)
from nursery import Child, Nursery
from servers import Proxy, ZooKeeperServer
from sharer import SLOTS, Job, topic_of
from tenures import Tenures

from qframe.coordination.base import CERTAIN
from qframe.coordination.lease import LONGER

PAUSE_S = 0.02
# One handler of sixteen takes so long that the crew's threads are busy for 20 s with all of these.
BUSY_S, THREADS = 20.0 * 16, 32
RARE = 200
READY = "worker.ready"


class Place:
    """Where one worker after the other lives; its way to ZooKeeper is its own."""

    def __init__(self, number: int, crew: Crew) -> None:
        self.number = number
        self.name = ""
        self.child: Child | None = None
        self.is_leaving = False
        self._crew = crew
        self._starts = 0
        zookeeper = crew.zookeeper
        self._proxy = None if zookeeper is None else Proxy(zookeeper.port)

    @property
    def is_free(self) -> bool:
        """Whether nobody lives here."""
        return self.child is None

    @property
    def is_ready(self) -> bool:
        """Whether a worker lives here, and hears signals."""
        return self.child is not None and self.name in self._crew.ready

    def start(self) -> None:
        """A worker joins; of two places, one is on another machine as far as the others see."""
        self._starts += 1
        self.name = f"w{self.number}.{self._starts}"
        crew = self._crew
        coordinator = "" if self._proxy is None else f"zookeeper://127.0.0.1:{self._proxy.port}"
        job = Job(
            name=self.name, store=crew.store, coordinator=coordinator, kind=crew.kind,
            history=str(crew.path), session_s=crew.session_s / crew.longer, lease_s=crew.lease_s,
            ways=crew.ways, is_far=self.number % 2 == 1, slots=crew.topic.slots,
        )  # fmt: skip
        self._note(STARTING)
        self.child = crew.nursery.start(msgspec.json.encode(job).decode())

    def kill(self) -> None:
        """It ends as by a crash."""
        self._note(KILLED)
        self._its_child().kill()
        self._gone()

    def leave(self) -> None:
        """It is asked to end."""
        self._note(LEAVING)
        self.is_leaving = True
        self._its_child().terminate()

    def has_left(self) -> bool:
        """Whether it has ended, as it was asked to; then the place is free."""
        code = self._its_child().code()
        if code is None:
            return False
        assert code == 0, f"{self.name} ended with {code}"
        self._gone()
        return True

    def freeze(self) -> None:
        """It does nothing any more, and does not know it."""
        since_ns = time.monotonic_ns()
        self._its_child().freeze()
        self._note(FROZEN, since_ns)

    def thaw(self) -> None:
        """It goes on."""
        self._its_child().thaw()
        self._note(THAWED)

    def stall(self) -> None:
        """Nothing comes from ZooKeeper any more, nor goes there; connections stay."""
        assert self._proxy is not None
        since_ns = time.monotonic_ns()
        self._proxy.stall()
        self._note(CUT, since_ns)

    def cut(self) -> None:
        """Its connection to ZooKeeper is reset, and no other is accepted."""
        assert self._proxy is not None
        since_ns = time.monotonic_ns()
        self._proxy.refuse()
        self._proxy.reset_all()
        self._note(CUT, since_ns)

    def mend(self) -> None:
        """It reaches ZooKeeper again."""
        assert self._proxy is not None
        self._proxy.accept()
        self._proxy.resume()
        self._note(MENDED)

    def stop_proxy(self) -> None:
        if self._proxy is not None:
            self._proxy.resume()
            self._proxy.stop()

    def _its_child(self) -> Child:
        assert self.child is not None
        return self.child

    def _gone(self) -> None:
        self._note(DIED)
        self.child = None
        self.is_leaving = False

    def _note(self, what: str, since_ns: int = 0) -> None:
        self._crew.history.note(what, by=self.name, since_ns=since_ns)
        self._crew.counts[what] += 1


class Crew:
    """All places, and the history.

    Args:
        folder: for the history and the workers' errors.
        store: its URL.
        zookeeper: the coordinator; leases in the store if there is none.
        kind: the topic's.
        places: how many.
        session_s: for how long a worker may be unheard before its slots are given to others.
        messages: how many they will handle.
        lease_s: a delivery's lease.
        slots: how many the topic is declared with.
        most_slots: how many it may grow to meanwhile.
        ways: how their handlers are called, and how long they take; by default one by one, and as
            long as keeps the crew busy for a while.
    """

    def __init__(
        self,
        folder: Path,
        *,
        store: str,
        zookeeper: ZooKeeperServer | None,
        kind: str,
        places: int = 5,
        session_s: float,
        messages: int,
        lease_s: float = 5.0,
        ways: Ways | None = None,
        slots: int = SLOTS,
        most_slots: int = 0,
    ) -> None:
        self.path = folder / "history"
        self.log = folder / "workers.log"
        self.store = store
        self.zookeeper = zookeeper
        self.kind = kind
        self.topic = topic_of(kind, slots)
        self.most_slots = max(slots, most_slots)
        self.session_s = session_s
        self.longer = LONGER if zookeeper is None else 1
        self.lease_s = lease_s
        self.messages = messages
        self.ways = ways or Ways(slow_s=BUSY_S * THREADS / messages, rare=max(2, messages // RARE))
        self.counts: Counter[str] = Counter()
        self.ready: set[str] = set()
        self.history = History(self.path, NEMESIS)
        self.nursery = Nursery("sharer", self.log)
        self.places = [Place(number, self) for number in range(places)]
        self._tail = Tail(self.path)
        self._done: set[str] = set()
        self._pause = threading.Event()
        self._check_s = 0.0

    @property
    def done(self) -> int:
        """How many messages were handled to their end, at the last look."""
        return len(self._done)

    def look(self) -> None:
        """Counts what is done; workers that ended by themselves are an error."""
        for fact in self._tail.new():
            if fact.what == ENDED:
                self._done.add(fact.id)
            elif fact.what == READY:
                self.ready.add(fact.by)

    def check(self) -> None:
        """Fails if a worker has ended by itself."""
        for place in self.places:
            if place.child is not None and not place.is_leaving:
                code = place.child.code()
                assert code is None, f"{place.name} ended by itself with {code}: see {self.log}"

    def wait(self, until: Callable[[], Any], within: float) -> None:
        """Waits, and looks meanwhile."""
        until_s = time.monotonic() + within
        while not until():
            assert time.monotonic() < until_s, f"not within {within} s; {self.done} are done"
            self.pause()

    def pause(self) -> None:
        """A moment; then it looks, and checks. If it was a long one, nobody has had the machine."""
        since_ns = time.monotonic_ns()
        self._pause.wait(PAUSE_S)
        if time.monotonic_ns() - since_ns >= self.limit_ns:
            self.history.note(STOOD_STILL, since_ns=since_ns)
        self.look()
        if time.monotonic() >= self._check_s:
            self._check_s = time.monotonic() + 1
            self.check()

    def start_all(self, places: int) -> None:
        """A worker for each of the first places; all slots are theirs when this returns."""
        for place in self.places[:places]:
            place.start()
        eventually(lambda: len(self.served()) == self.topic.slots)

    def leave(self, place: Place) -> None:
        """One worker ends as it is asked to."""
        self.wait(lambda: place.is_ready, 60)
        place.leave()
        self.wait(place.has_left, 60)

    def leave_all(self) -> None:
        """All workers end as they are asked to, once they hear it."""
        self.wait(lambda: all(each.is_free or each.is_ready for each in self.places), 60)
        for place in self.places:
            if not place.is_free:
                place.leave()
        eventually(lambda: all(each.is_free or each.has_left() for each in self.places))

    def served(self) -> set[int]:
        """The slots that are somebody's now."""
        tenures = self.tenures(read(self.path))
        now_ns = time.monotonic_ns()
        return {one.slot for one in tenures.all if one.lost_ns > now_ns}

    def tenures(self, facts: list[Fact]) -> Tenures:
        """Who had which slot when."""
        return Tenures(facts, self.topic.name, self.topic.slots, self.most_slots)

    @property
    def limit_ns(self) -> int:
        """How long a freeze or a cut lasts at least before it costs a worker its slots.

        A sign of life is due each sixth of a session. One that goes to the store may wait for it,
        as SQLite has one writer at a time, and that may be frozen: then a worker is sure of itself
        for two thirds of a session since its last sign, and a third is left when it is struck.
        """
        part = CERTAIN if self.zookeeper else 1 - CERTAIN
        return round(self.session_s * part * 1e9)

    def close(self) -> None:
        for place in self.places:
            place.stop_proxy()
        self.nursery.close()
        self._tail.close()
        self.history.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
