"""Chooses the store that a URL names, and loads no other.

A scheme that is not qframe's own may be another distribution's (`registered.py`).
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - redis-py needs it, and at exit it is too late
from typing import Final, cast

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.drivers.schemes import EXAMPLES, SCHEMES, is_database, scheme_of
from qframe.errors import BadOption, BadUrl
from qframe.redaction import shown_url
from qframe.stores.base import Store

_MODELS: Final = ("model://", "memory://")
REDIS: Final = ("redis", "rediss", "unix")
MODEL: Final = ("model", "memory")
OWN: Final = (*SCHEMES, *REDIS, *MODEL)


def open_store(
    url: str, *, namespace: str = "qframe", clock: Clock = SYSTEM_CLOCK, timers_db: str = ""
) -> Store:
    """The store at a URL.

    `redis://host`, `unix:///redis.sock`, `sqlite:///file.db`,
    `postgresql+psycopg://user@host/name`, `mysql+pymysql://user@host/name`, or `model://` in this
    process's memory, which `memory://` names too; or what another distribution has registered.

    Args:
        url: the URL.
        namespace: keeps apart what several systems keep in one store.
        clock: the clock, of a test.
        timers_db: beside Redis, the URL of the database in which topics of kind `delay` lie.

    Raises:
        BadUrl: for anything that names no store, or one whose distribution cannot open it.
        BadOption: for a `timers_db` beside a store that needs none.
    """
    if timers_db:
        return _split(url, timers_db, namespace, clock)
    scheme = scheme_of(url)
    own_clock = None if clock is SYSTEM_CLOCK else clock
    if scheme in SCHEMES:
        from qframe.stores.sql.store import SqlStore

        return SqlStore(url, namespace=namespace, clock=own_clock)
    if scheme in REDIS:
        from qframe.stores.redis.store import RedisStore

        return RedisStore(url, namespace=namespace, clock=own_clock)
    if scheme in MODEL:
        if url not in _MODELS:
            why = "it is in this process's memory, and has neither a name nor options"
            raise BadUrl("store", shown_url(url), why, "use model://")
        from qframe.stores.model.store import ModelStore

        return ModelStore(namespace=namespace, clock=clock)
    from qframe.stores.registered import open_registered, registered

    if entries := registered(scheme):
        return open_registered(url, entries, namespace=namespace, clock=clock)
    raise BadUrl(
        "store", shown_url(url), "it names no store",
        f"use redis://host:6379, unix:///run/redis.sock, {EXAMPLES}; or install the package that "
        "registers the scheme",
    )  # fmt: skip


def _split(url: str, timers_db: str, namespace: str, clock: Clock) -> Store:
    if scheme_of(url) not in REDIS:
        raise BadOption(
            "timers_db", shown_url(timers_db),
            f"the store {shown_url(url)} is not Redis, and keeps its timers itself",
            "leave it out, or name a redis:// URL as the store",
        )  # fmt: skip
    if not is_database(timers_db):
        raise BadUrl("timers_db", shown_url(timers_db), "it names no database", f"use {EXAMPLES}")
    from qframe.stores.pair import StorePair
    from qframe.stores.redis.store import RedisStore

    own_clock = None if clock is SYSTEM_CLOCK else clock
    main = RedisStore(url, namespace=namespace, clock=own_clock)
    try:
        timers = open_store(timers_db, namespace=namespace, clock=clock)
    except BadUrl as error:
        main.close()
        raise BadUrl("timers_db", error.value, error.why, error.remedy) from error
    except BaseException:
        main.close()
        raise
    return cast("Store", StorePair(main, timers))
