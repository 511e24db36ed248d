"""What becomes of slots when ZooKeeper, or the way to it, fails."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from servers import Proxy
from sharing import Shop, counting
from zookeeper_servers import ZooKeeperEnsemble3, ZooKeeperServer

from qframe import Message, Topic
from qframe.clock import SYSTEM_CLOCK
from qframe.coordination.member import MembershipService
from qframe.coordination.zookeeper import ZooKeeperCoordinator
from qframe.events import Events
from qframe.stores.model.store import ModelStore

pytestmark = pytest.mark.promise(4)

SLOTS = 4
SESSION_S = 2.0
LONG_S = 30.0  # where no session is to end by itself, also while the machine stands still
WITHIN_S = 60.0


class Ground:
    """A store, and workers beside it that come to ZooKeeper by ways of their own."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder / 'q.db'}"
        self.topic = Topic("t", kind="ordered", slots=SLOTS)
        self.seen: list[int] = []

    def shop(self, coordinator: str, number: int = 1, session_s: float = LONG_S) -> Shop:
        handle = counting(self.seen, number)
        return Shop(self.store, coordinator, "qframe", self.topic, handle, session_s)

    def publish(self, shop: Shop, count: int = 20) -> None:
        for number in range(count):
            shop.app.publish(self.topic, number, key=f"k{number}")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy(zookeeper.port) as proxy:
        yield proxy


def by_way_of(proxy: Proxy, url: str) -> str:
    """The URL, with the proxy in place of the server."""
    return f"zookeeper://127.0.0.1:{proxy.port}/{url.rpartition('/')[2]}"


def owns_all(shop: Shop) -> bool:
    return len(shop.epochs) == SLOTS


def test_a_connection_that_is_soon_back_costs_no_slot(
    ground: Ground, proxy: Proxy, zookeeper_url: str
) -> None:
    with ground.shop(by_way_of(proxy, zookeeper_url)) as shop:
        eventually(lambda: owns_all(shop))
        epochs = shop.epochs
        for _ in range(3):
            proxy.reset_all()
            eventually(lambda: owns_all(shop), within=WITHIN_S)
            assert shop.epochs == epochs
        ground.publish(shop)
        eventually(lambda: len(ground.seen) == 20)
        assert shop.events["slot.lost"] == shop.events["delivery.stale"] == 0


@pytest.mark.gate
def test_a_session_that_has_expired_owns_nothing_and_the_worker_joins_anew(
    ground: Ground, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    with ground.shop(zookeeper_url) as shop:
        eventually(lambda: owns_all(shop))
        before = shop.epochs
        coordinator = shop.app.parts.opened.coordinator
        assert isinstance(coordinator, ZooKeeperCoordinator)
        zookeeper.expire(*coordinator._zookeeper.client.client_id)
        eventually(lambda: owns_all(shop) and shop.epochs != before, within=WITHIN_S)
        assert all(epoch > before[slot] for slot, epoch in shop.epochs.items())
        assert shop.events["slot.lost"] == SLOTS
        ground.publish(shop)
        eventually(lambda: len(ground.seen) == 20)


@pytest.mark.gate
def test_who_is_cut_off_cancels_in_time_and_another_takes_over(
    ground: Ground, proxy: Proxy, zookeeper_url: str
) -> None:
    """It keeps the store, and hears nothing: it must end by its own clock before the session."""
    begun, gate = threading.Event(), threading.Event()
    cancelled: list[bool] = []

    def hold(message: Message) -> None:
        begun.set()
        eventually(lambda: message.cancelled, within=2 * WITHIN_S)
        cancelled.append(True)
        gate.wait(2 * WITHIN_S)

    way = by_way_of(proxy, zookeeper_url)
    with Shop(ground.store, way, "qframe", ground.topic, hold, 3 * SESSION_S) as first:
        eventually(lambda: owns_all(first))
        first.app.publish(ground.topic, "held", key="k")
        assert begun.wait(60)
        with ground.shop(zookeeper_url, 2) as second:
            eventually(lambda: sum(len(each.epochs) for each in (first, second)) >= SLOTS - 1)
            proxy.stall()
            eventually(lambda: cancelled, within=WITHIN_S)
            assert len(second.epochs) < SLOTS  # the session has not passed yet
            eventually(lambda: owns_all(second), within=WITHIN_S)
            eventually(lambda: ground.seen == [2], within=WITHIN_S)
            assert first.epochs == {}
            assert first.events["session.doubtful"] > 0
            gate.set()
            # Its late settlement was refused, and when it is heard again it takes its part again.
            eventually(lambda: first.events["delivery.stale"] == 1)
            proxy.resume()
            eventually(lambda: len(first.epochs) == SLOTS // 2, within=WITHIN_S)
    assert ground.seen == [2]


@pytest.mark.gate
def test_zookeeper_that_is_killed_and_restarted_loses_nothing(
    ground: Ground, tmp_path: Path
) -> None:
    with (
        ZooKeeperServer(tmp_path / "zk") as zookeeper,
        ground.shop(zookeeper.url, 1, SESSION_S) as first,
        ground.shop(zookeeper.url, 2, SESSION_S) as second,
    ):
        eventually(lambda: len(first.epochs) == len(second.epochs) == SLOTS // 2, within=WITHIN_S)
        for _ in range(2):
            zookeeper.kill()
            ground.publish(first)
            # Longer than a session: both are in doubt.
            eventually(lambda: not first.epochs and not second.epochs, within=WITHIN_S)
            zookeeper.restart()
            eventually(
                lambda: len(first.epochs) == len(second.epochs) == SLOTS // 2, within=WITHIN_S
            )
        eventually(lambda: len(ground.seen) >= 40, within=WITHIN_S)
        eventually(lambda: first.app.admin.lag("t", "g") == 0, within=WITHIN_S)
        assert first.app.store.verify(ground.topic) == []
        assert first.failure is second.failure is None


def test_workers_go_on_by_themselves_when_zookeeper_has_lost_its_data(
    ground: Ground, tmp_path: Path
) -> None:
    with (
        ZooKeeperServer(tmp_path / "zk") as zookeeper,
        ground.shop(f"{zookeeper.url}/shop", 1, SESSION_S) as first,
        ground.shop(f"{zookeeper.url}/shop", 2, SESSION_S) as second,
    ):
        eventually(lambda: len(first.epochs) == len(second.epochs) == SLOTS // 2, within=WITHIN_S)
        zookeeper.kill()
        shutil.rmtree(str(zookeeper.config["dataDir"]))
        zookeeper.restart()
        ground.publish(first)
        eventually(lambda: len(ground.seen) >= 20, within=WITHIN_S)
        eventually(lambda: first.app.admin.lag("t", "g") == 0, within=WITHIN_S)
        eventually(lambda: len(first.epochs) == len(second.epochs) == SLOTS // 2, within=WITHIN_S)
        assert first.app.store.verify(ground.topic) == []
        assert first.failure is second.failure is None


def test_epochs_go_on_above_those_of_another_coordinator(
    ground: Ground, zookeeper_url: str
) -> None:
    with ground.shop("") as shop:
        eventually(lambda: owns_all(shop))
        latest = max(shop.epochs.values())
        # As after years of taking over.
        far = {slot: f"{int(latest, 16) + 2**60:016x}" for slot in range(SLOTS)}
        assert len(shop.app.store.take(ground.topic, "g", far)) == SLOTS
    with ground.shop(zookeeper_url, 2) as shop:
        eventually(lambda: owns_all(shop), within=WITHIN_S)
        assert min(shop.epochs.values()) > max(far.values())
        ground.publish(shop)
        eventually(lambda: ground.seen == [2] * 20)
        owners = shop.roster.owners.values()
        assert {owner.slot: owner.epoch for owner in owners} == shop.epochs
    with ground.shop("", 3) as shop:
        eventually(lambda: owns_all(shop), within=WITHIN_S)
        ground.publish(shop)
        eventually(lambda: len(ground.seen) == 40)


def test_an_ensemble_that_loses_its_leader_costs_no_slot(ground: Ground, tmp_path: Path) -> None:
    with ZooKeeperEnsemble3(tmp_path) as ensemble, ground.shop(ensemble.url) as shop:
        eventually(lambda: owns_all(shop), within=WITHIN_S)
        ensemble.servers[ensemble.leader()].kill()
        ground.publish(shop)
        eventually(lambda: len(ground.seen) == 20, within=WITHIN_S)
        eventually(lambda: owns_all(shop), within=WITHIN_S)
        assert Counter(ground.seen) == {1: 20}
        assert shop.app.store.verify(ground.topic) == []


@pytest.mark.parametrize(("slots", "members"), [(1024, 50), (256, 50), (1024, 10)])
def test_what_sharing_costs_grows_with_slots_plus_members(
    zookeeper: ZooKeeperServer, zookeeper_url: str, slots: int, members: int
) -> None:
    topic = Topic("t", slots=slots)
    failures: list[BaseException] = []
    coordinators = [
        ZooKeeperCoordinator(
            zookeeper_url, ModelStore(), namespace="n", worker=f"w-{number}", session_s=60,
            events=Events(), clock=SYSTEM_CLOCK,
            on_failure=lambda part, error: failures.append(error),
        )
        for number in range(members)
    ]  # fmt: skip
    for coordinator in coordinators:
        coordinator.check()
    joined: list[MembershipService] = []

    def is_balanced() -> bool:
        """Whether all is shared out; whoever is to let go has nothing in hand, and says so."""
        for member in joined:
            if member.assignment().leaving:
                member.drained(member.assignment().leaving)
        counts = [len(member.assignment().owned) for member in joined]
        return sum(counts) == slots and max(counts) - min(counts) <= 1

    before = zookeeper.packets()
    try:
        joined += [c.join(topic, "g", on_change=lambda: None) for c in coordinators]
        eventually(is_balanced, within=60)
        requests = zookeeper.packets() - before
        assert requests <= 4 * slots + 60 * members
        joined.pop().leave()
        eventually(is_balanced, within=60)
    finally:
        for coordinator in coordinators:
            coordinator.close()
    assert failures == []
