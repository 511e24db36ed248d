"""A database whose disk is full: it takes nothing half, and goes on when there is room again."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from database_servers import MariaDbServer, PostgresServer, give_to_postgres
from eventually import eventually
from serving import GROUP, Serving
from small_disk import SmallDisk

from qframe import Message, Outgoing, StoreFull, Topic

pytestmark = pytest.mark.mounts

MIB = 1 << 20
# PostgreSQL would compress a simpler body. MariaDB keeps a longer one outside its row, and may use
# for it the pages that InnoDB reserves for an undo; where none is left, the server aborts.
BODY = random.Random(1).randbytes(3500).hex()
MOST = 1000  # more than any of the disks has room for
IN_HAND = 8


class Full:
    """A store on a small disk, and the way to room on it."""

    def __init__(self, url: str, disk: SmallDisk) -> None:
        self.url = url
        self.disk = disk


@pytest.fixture
def sqlite_full(tmp_path: Path) -> Iterator[Full]:
    with SmallDisk(tmp_path / "disk", 16 * MIB, ballast=12 * MIB) as disk:
        yield Full(f"sqlite:///{disk.folder / 'queue.db'}", disk)


@pytest.fixture
def postgres_full(tmp_path: Path) -> Iterator[Full]:
    # The server's own user must come to the folder.
    folder = Path(tempfile.mkdtemp(prefix="qframe-disk-", dir="/var/tmp"))
    with (
        PostgresServer(tmp_path / "postgres") as server,
        SmallDisk(folder, 16 * MIB, ballast=8 * MIB) as disk,
    ):
        data = folder / "data"
        data.mkdir()
        give_to_postgres(data)
        server.call(f"CREATE TABLESPACE small LOCATION '{data}'")
        server.call("CREATE DATABASE small TABLESPACE small")
        yield Full(server.url_of("small"), disk)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def mariadb_full(tmp_path: Path) -> Iterator[Full]:
    with MariaDbServer(tmp_path / "mariadb") as server:
        url = server.new_database()
        folder = tmp_path / "mariadb" / "data" / url.rpartition("/")[2]
        with SmallDisk(folder, 26 * MIB, ballast=12 * MIB) as disk:
            yield Full(url, disk)
            server.stop()


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def full(request: pytest.FixtureRequest) -> Full:
    found: Full = request.getfixturevalue(f"{request.param}_full")
    return found


@pytest.mark.promise(1, 8)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_publish_is_refused_whole_and_what_is_in_hand_is_settled_when_there_is_room(
    full: Full, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    gate = threading.Event()

    def handle(_: Message) -> None:
        gate.wait(120)

    options = {"threads": IN_HAND, "lease": "120s"}
    with Serving(full.url, topic, handle=handle, **options) as serving:
        app = serving.app
        bodies = [f"held {number}" for number in range(IN_HAND)]
        for body in bodies:
            app.publish(topic, body, key=body)
        eventually(lambda: len(serving.bodies) == IN_HAND)
        refused = ""
        for number in range(MOST):
            refused = f"id-{number}"
            try:
                app.publish(topic, [number, BODY], key=f"k{number}", id=refused)
            except StoreFull:
                break
        assert 10 < number < MOST - 1
        with pytest.raises(StoreFull, match=r"has no room: .*; free space"):
            app.publish_many(topic, [Outgoing(BODY, key="k")] * 50)
        assert sum(one.published for one in app.store.stats(topic, GROUP)) == IN_HAND + number
        assert app.store.verify(topic) == []
        gate.set()
        eventually(lambda: serving.events["store.unavailable"] or serving.is_settled(IN_HAND))
        full.disk.make_room()
        app.publish(topic, [number, BODY], key=f"k{number}", id=refused)
        eventually(lambda: serving.failure or serving.is_settled(IN_HAND + number + 1))
        assert serving.failure is None
        numbers = [body[0] for body in serving.bodies if isinstance(body, list)]
        assert sorted(numbers) == list(range(number + 1))
        assert serving.attempts == {1: IN_HAND + number + 1}
        serving.verify()
