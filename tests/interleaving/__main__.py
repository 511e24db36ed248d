"""Runs pairs of operations, one inside the other: `python -m interleaving --stores redis`."""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from database_servers import MariaDbServer, PostgresServer
from redis_servers import RedisServer

from interleaving.operations import BY_NAME
from interleaving.pairs import Counted, Fault, Pair, pairs_of, run
from interleaving.places import Place, RedisPlace, ServerPlace, SqlitePlace
from interleaving.scenes import Scene
from qframe.topic import Kind

STORES = ("sqlite", "redis", "postgresql", "mariadb")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - for people


def main(words: list[str] | None = None) -> int:
    """Returns 1 if the model does not allow how a run has ended."""
    parser = argparse.ArgumentParser(prog="python -m interleaving", description=__doc__)
    parser.add_argument("--stores", default=",".join(STORES), help="some of them, with commas")
    parser.add_argument("--kinds", default=",".join(Kind), help="kinds of topics, with commas")
    parser.add_argument("--seeds", metavar="A:B", default="0:1", help="the scenes from A to B")
    parser.add_argument("--slots", type=int, choices=(1, 2), help="of topics; both without")
    parser.add_argument("--idle", action="store_true", help="only scenes with idle workers")
    parser.add_argument("--first", choices=BY_NAME, help="the operation that is interrupted")
    parser.add_argument("--second", choices=BY_NAME, help="the one that comes between")
    parser.add_argument("--share", type=float, default=1.0, help="how many of the pairs, at random")
    parser.add_argument("--once", action="store_true", help="each pair in one scene, at random")
    parser.add_argument("--minutes", type=float, help="of each store, with pairs in a drawn order")
    asked = parser.parse_args(words)
    stores = asked.stores.split(",")
    if unknown := set(stores).difference(STORES):
        parser.error(f"there is no store {min(unknown)!r}: choose of {', '.join(STORES)}")
    failed = 0
    for store in stores:
        with ExitStack() as stack:
            place = _opened(stack, store)
            started, counted = time.monotonic(), Counted()
            pairs = list(_pairs(asked))
            if asked.once:
                pairs = _once(pairs, asked.seeds)
            if asked.minutes is not None:
                random.Random(asked.seeds).shuffle(pairs)
            for pair in pairs:
                if time.monotonic() - started > 60 * (asked.minutes or math.inf):
                    break
                try:
                    counted = counted.plus(run(place, pair))
                except Fault as fault:
                    failed += 1
                    say(f"{fault}\n")
            took_s = time.monotonic() - started
            say(f"{store}, of {len(pairs):,} pairs: {counted}, {took_s:.0f} s")
    say("all is well" if not failed else f"{failed} pairs end otherwise than on the model")
    return int(bool(failed))


def _pairs(asked: argparse.Namespace) -> Iterator[Pair]:
    first, _, last = asked.seeds.partition(":")
    draw = random.Random(asked.seeds)
    for seed in range(int(first), int(last or int(first) + 1)):
        for kind in map(Kind, asked.kinds.split(",")):
            for slots in (asked.slots,) if asked.slots else (1, 2):
                for idle in (True,) if asked.idle else (False, True):
                    for pair in pairs_of(Scene(kind, seed, slots=slots, idle=idle)):
                        is_asked = asked.first in (None, pair.first.name)
                        is_asked = is_asked and asked.second in (None, pair.second.name)
                        if is_asked and draw.random() < asked.share:
                            yield pair


def _once(pairs: list[Pair], seeds: str) -> list[Pair]:
    """Of the pairs of the same two operations one, whatever the topic is."""
    by_names: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        by_names.setdefault((pair.first.name, pair.second.name), []).append(pair)
    draw = random.Random(seeds)
    return [draw.choice(each) for each in by_names.values()]


def _opened(stack: ExitStack, store: str) -> Place:
    """A store of its own, with its server."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interleaving-")))
    place: Place
    if store == "sqlite":
        place = SqlitePlace(f"sqlite:///{folder}/store.db?synchronous=normal", "i")
    elif store == "redis":
        place = RedisPlace(stack.enter_context(RedisServer(folder)).url, "i")
    elif store == "postgresql":
        place = ServerPlace(stack.enter_context(PostgresServer(folder)).new_database(), "i")
    else:
        server = stack.enter_context(MariaDbServer(folder))
        place = ServerPlace(f"{server.new_database()}?ssl_disabled=true", "i")
    stack.callback(place.close)
    return place


if __name__ == "__main__":
    sys.exit(main())
