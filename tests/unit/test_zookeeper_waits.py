"""How long a member waits beside its nodes in ZooKeeper, for what, and when it is heard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.coordination import zookeeper_session as module
from qframe.coordination.known_topic import KnownTopic
from qframe.coordination.zookeeper_session import (
    LOOK_EVERY_S,
    SIGNS_OF_LIFE,
    ZooKeeperSession,
)
from qframe.topic import Topic

pytestmark = pytest.mark.promise(4)

SESSION_S = 12.0
SIGN_S = SESSION_S / SIGNS_OF_LIFE


class Awake:
    """Lets time pass instead of waiting; it may be set, or set by somebody at a moment."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.is_set = False
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if not self.is_set:
            self._clock.advance(round(seconds * 1000))
        return self.is_set

    def set(self) -> None:
        self.is_set = True

    def clear(self) -> None:
        self.is_set = False


class Bench:
    """A member whose session lives, and which was heard a second ago."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.clock.advance(1000)
        self.zookeeper = SimpleNamespace(
            connected=True, session_id=7, session_s=SESSION_S, client=None
        )
        zookeeper: Any = self.zookeeper
        self.session: Any = ZooKeeperSession(
            zookeeper, "/ns/t/g", topic=KnownTopic(Topic("t"), lambda: None), worker="w",
            salt="t/g", latest=lambda: 0, clock=self.clock,
        )  # fmt: skip
        self.session._awake = self.awake = Awake(self.clock)
        self.session._session_id, self.session._heard_s = 7, 0.0
        self.session._was_cut = self.session._stale = False

    @property
    def waits(self) -> list[float]:
        """How long it waits now, step by step."""
        self.awake.waits.clear()
        self.session.wait(self.timeout_s)
        assert not self.awake.is_set
        return [round(each, 3) for each in self.awake.waits]

    timeout_s: float | None = None


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_who_has_lost_its_connection_is_heard_again_only_once_it_has_looked(bench: Bench) -> None:
    assert bench.session.heard
    bench.zookeeper.connected = False
    assert not bench.session.heard
    bench.session.note_state()
    bench.zookeeper.connected = True
    bench.session.note_state()
    assert not bench.session.heard
    bench.session._was_cut = False
    assert bench.session.heard
    bench.zookeeper.session_id = 8
    assert not bench.session.heard


def test_what_becomes_of_the_connection_and_of_the_topic_ends_a_wait(bench: Bench) -> None:
    for act in (bench.session.note_state, bench.session.wake):
        act()
        assert bench.waits == [SIGN_S - 1]
        assert bench.clock.monotonic_s() == 1
    assert not bench.session._stale
    topic = Topic("t")
    assert bench.session.share(topic)
    assert bench.session._stale
    bench.session._stale = False
    assert not bench.session.share(topic)
    assert not bench.session._stale


def test_a_member_is_certain_for_two_thirds_of_a_session(bench: Bench) -> None:
    assert bench.session.certain_until_s == pytest.approx(SESSION_S * 2 / 3)


def test_it_waits_for_what_is_due_first(bench: Bench) -> None:
    assert bench.waits == [SIGN_S - 1]
    assert bench.waits == []  # a sign of life is overdue
    bench.session._heard_s = bench.clock.monotonic_s()
    bench.timeout_s = 0.5
    assert bench.waits == [0.5]
    bench.session._look_at_s = bench.clock.monotonic_s() + 0.25
    assert bench.waits == [0.25]


def test_beside_neighbours_it_looks_now_and_then_whether_they_live(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead: set[str] = set()
    monkeypatch.setattr(module, "is_neighbour", lambda worker: worker == "near")
    monkeypatch.setattr(module, "is_dead", dead.__contains__)
    bench.session._seen = frozenset({"far~1", "near~2"})
    dead.add("far")
    assert bench.waits == [LOOK_EVERY_S] * round((SIGN_S - 1) / LOOK_EVERY_S)
    assert not bench.session._stale
    bench.session._heard_s = bench.clock.monotonic_s()
    dead.add("near")
    assert bench.waits == [LOOK_EVERY_S]
    assert bench.session._stale
