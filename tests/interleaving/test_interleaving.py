"""Two operations of which one is run in the middle of the other end as on the model.

`tests/interleaving/__init__.py` says what a run is, and `make interleave` runs all of them.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from itertools import count

import pytest
from servers import MariaDbServer, PostgresServer, RedisServer

from interleaving.operations import BY_NAME
from interleaving.pairs import Counted, Fault, Pair, pairs_of, run
from interleaving.places import Place, RedisPlace, ServerPlace, SqlitePlace
from interleaving.scenes import Scene
from qframe.topic import Kind

pytestmark = pytest.mark.promise(1, 3, 4)

DRAWN = 3
KINDS = tuple(Kind)
# Where two wait for each other's locks on a server; each of them has every second pair.
LOCKED = (
    ("publish", "drop_group"), ("publish", "subscribe"), ("drop_dead", "drop_dead"),
    ("retry_dead", "retry_dead"), ("hasten", "drop_group"), ("settle", "take"),
    ("take", "drop_group"), ("subscribe", "publish"), ("sweep", "subscribe again"),
    ("rewrite edited", "pull"), ("pull", "take"), ("drop_dead", "retry_dead"),
    ("skip", "settle"),
    ("claim", "claim"), ("draw", "draw"), ("seek", "settle"), ("declare", "delete"),
)  # fmt: skip
# Where each writes what the other has read.
CONTENDED = (
    *LOCKED, ("publish", "sweep"), ("pull", "publish"), ("pull", "drop_group"),
    ("settle", "settle"), ("acknowledge", "pull"), ("renew", "take"), ("revoke", "drop_group"),
    ("subscribe", "subscribe"), ("subscribe", "sweep"), ("drop_group", "publish"),
    ("drop_group", "subscribe again"), ("sweep", "subscribe"), ("seek", "take"),
    ("retry_dead", "drop_group"), ("rewrite edited", "settle"),
    ("rewrite cancelled", "publish"),
    ("heartbeat", "leave"), ("tune", "tune"), ("declare", "publish"),
    ("admin.dead_retry", "drop_dead"), ("admin.seek", "publish"), ("timers.move", "settle"),
    ("skip", "skip"), ("hasten", "pull"), ("admin.unblock", "settle"),
)  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Both actors' store objects, where a run costs little."""
    opened: Place
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        opened = RedisPlace(redis.url, f"i-{uuid.uuid4().hex}")
    else:
        file = tmp_path_factory.mktemp("interleaving") / "store.db"
        opened = SqlitePlace(f"sqlite:///{file}?synchronous=normal", "i")
    yield opened
    opened.close()


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Both actors' store objects, where they wait for each other."""
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        opened = ServerPlace(postgres.new_database(), "i")
    else:
        mariadb: MariaDbServer = request.getfixturevalue("mariadb")
        opened = ServerPlace(f"{mariadb.new_database()}?ssl_disabled=true", "i")
    yield opened
    opened.close()


def run_all(place: Place, pairs: list[Pair]) -> Counted:
    """Runs pairs; those that end otherwise than on the model are told together."""
    counted, faults = Counted(), []
    for pair in pairs:
        try:
            counted = counted.plus(run(place, pair))
        except Fault as fault:
            faults.append(str(fault))
    assert not faults, "\n\n".join(faults)
    return counted


def scene_of(number: int, kind: Kind) -> Scene:
    """A scene for a pair; those that wait for locks are about one group, with a dead letter."""
    for seed in count(10 * number):
        scene = Scene(kind, seed, slots=1 + number % 2, idle=number % 3 == 0)
        if number >= len(LOCKED) or (len(scene.groups) == 1 and scene.has_dead):
            return scene
    raise AssertionError("there is always one")


def contended(number: int, kind: Kind) -> Pair | None:
    """A contended pair in a scene of its own; None where topics of the kind have not both."""
    first, second = (BY_NAME[name] for name in CONTENDED[number])
    if kind not in first.kinds or kind not in second.kinds:
        return None
    return Pair(scene_of(number, kind), first, second)


@pytest.mark.parametrize("kind", KINDS)
def test_two_that_contend_end_as_on_the_model(place: Place, kind: Kind) -> None:
    half = range(KINDS.index(kind) % 2, len(CONTENDED), 2)
    pairs = [pair for number in half if (pair := contended(number, kind))]
    assert run_all(place, pairs).points > len(pairs) // 3


@pytest.mark.parametrize("kind", KINDS)
def test_any_two_end_as_on_the_model(place: Place, kind: Kind) -> None:
    draw = random.Random(f"{kind}")
    scenes = [Scene(kind, seed, slots=1 + seed % 2, idle=seed % 3 == 0) for seed in range(3)]
    pairs = [pair for scene in scenes for pair in draw.sample(list(pairs_of(scene)), DRAWN)]
    assert run_all(place, pairs).points > len(pairs) // 3


def test_two_that_wait_for_each_other_end_as_on_the_model(server: Place) -> None:
    """Each pair in one kind of topic, the next pair in the next kind."""
    pairs = []
    for number in range(int(server.store == "mysql"), len(LOCKED), 2):
        fitting = [pair for kind in KINDS if (pair := contended(number, kind))]
        pairs.append(fitting[(number // 2 + 1) % len(fitting)])
    assert run_all(server, pairs).waits > 0
