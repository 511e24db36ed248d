"""`python -m benchmarks [sqlite|redis|postgres|checkers|spark]`: what qframe does a second.

Without a word, SQLite's are run and then Redis's, on a server of their own, beside bare loops;
PostgreSQL's are run by its name. Handlers do nothing but decode their message's body. `checkers`:
handlers that write a row into a database, with idempotent checkers and without. `spark`: DataFrames
into Redis and back. `--brokers`: RabbitMQ, NATS and beanstalkd beside qframe, and nothing else.
"""

from __future__ import annotations

import argparse

from benchmarks import checkers, postgres, redis_qframe, report, spark_qframe, sqlite
from benchmarks.brokers import run as brokers
from benchmarks.workload import KINDS


def main() -> None:
    """Runs what the command line asks for."""
    options = parser().parse_args()
    if options.brokers:
        found = brokers.main(options.rounds, options.count)
        path = report.dump({"machine": report.machine(), "brokers": found}, "brokers.json")
        print(f"written: {path}")
        return
    if options.benchmark in (None, "sqlite"):
        sqlite.main(options)
    if options.benchmark in (None, "redis"):
        redis_qframe.main(options)
    if options.benchmark == "postgres":
        postgres.main(options)
    if options.benchmark == "checkers":
        checkers.main(options)
    if options.benchmark == "spark":
        spark_qframe.main(options)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = made.add_argument
    add(
        "benchmark", nargs="?", choices=("sqlite", "redis", "postgres", "checkers", "spark"),
        metavar="sqlite|redis|postgres|checkers|spark",
    )  # fmt: skip
    add(
        "--count", type=int,
        help=f"messages of each kind; {sqlite.COUNT:,} on SQLite, {redis_qframe.COUNT:,} on Redis, "
        f"{checkers.COUNT:,} for each way of checking, {spark_qframe.COUNT:,} by Spark",
    )  # fmt: skip
    add("--rounds", type=int, default=3)
    add("--brokers", action="store_true", help="brokers of Debian's packages beside qframe")
    add("--kinds", nargs="+", choices=KINDS, default=KINDS)
    of_sqlite = made.add_argument_group("sqlite, and what checkers write to").add_argument
    of_sqlite("--synchronous", choices=("full", "normal"), default="full")
    of_sqlite("--dir", help="where the databases are put; by default a temporary place")
    of_checkers = made.add_argument_group("checkers").add_argument
    of_checkers(
        "--databases", nargs="+", choices=checkers.DATABASES, default=checkers.DATABASES
    )  # fmt: skip
    of_checkers("--fsync", choices=("on", "off"), default="on", help="of PostgreSQL")
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
