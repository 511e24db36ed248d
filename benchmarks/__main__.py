"""`python -m benchmarks [sqlite|redis]`: what qframe does a second, beside bare loops.

Without a word, SQLite's are run and then Redis's, on a server of their own. Handlers do nothing but
decode their message's body.
"""

from __future__ import annotations

import argparse

from benchmarks import redis_qframe, sqlite
from benchmarks.workload import KINDS


def main() -> None:
    """Runs what the command line asks for."""
    options = parser().parse_args()
    if options.store_kind in (None, "sqlite"):
        sqlite.main(options)
    if options.store_kind in (None, "redis"):
        redis_qframe.main(options)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = made.add_argument
    add("store_kind", nargs="?", choices=("sqlite", "redis"), metavar="sqlite|redis")
    add(
        "--count", type=int,
        help=f"messages of each kind; {sqlite.COUNT:,} on SQLite, {redis_qframe.COUNT:,} on Redis",
    )  # fmt: skip
    add("--rounds", type=int, default=3)
    add("--kinds", nargs="+", choices=KINDS, default=KINDS)
    of_sqlite = made.add_argument_group("sqlite").add_argument
    of_sqlite("--synchronous", choices=("full", "normal"), default="full")
    of_sqlite("--dir", help="where the databases are put; by default a temporary place")
    of_redis = made.add_argument_group("redis").add_argument
    of_redis(
        "--measures", nargs="*", choices=tuple(redis_qframe.MEASURES),
        default=tuple(redis_qframe.MEASURES),
    )  # fmt: skip
    of_redis("--seconds", type=float, default=20, help="how long the idle worker is watched")
    of_redis("--backlog-max", type=int, default=1_000_000, help="10,000 and ten times it, up to it")
    of_redis("--peers", action="store_true", help="other frameworks on the same server as well")
    of_redis("--peer-count", type=int, help="messages of each peer")
    of_redis("--store", help=argparse.SUPPRESS)  # another store, to try the programs themselves
    return made


if __name__ == "__main__":
    main()
