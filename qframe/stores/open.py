"""Chooses the store that a URL names, and loads no other."""

from __future__ import annotations

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.errors import BadUrl
from qframe.redaction import shown_url
from qframe.stores.base import Store


def open_store(url: str, *, namespace: str = "qframe", clock: Clock = SYSTEM_CLOCK) -> Store:
    """The store at a URL.

    `redis://host`, `sqlite:///file.db`, `postgresql+psycopg://user@host/name`,
    `mysql+pymysql://user@host/name`, or `model://` in this process's memory.

    Raises:
        BadUrl: for anything that names no store.
    """
    scheme = url.partition(":")[0].partition("+")[0].lower()
    own_clock = None if clock is SYSTEM_CLOCK else clock
    if scheme in ("sqlite", "postgresql", "postgres", "mysql", "mariadb"):
        from qframe.stores.sql.store import SqlStore

        return SqlStore(url, namespace=namespace, clock=own_clock)
    if scheme in ("redis", "rediss"):
        from qframe.stores.redis.store import RedisStore

        return RedisStore(url, namespace=namespace, clock=own_clock)
    if scheme == "model":
        from qframe.stores.model.store import ModelStore

        return ModelStore(namespace=namespace, clock=clock)
    raise BadUrl(
        "store", shown_url(url), "it names no store",
        "use redis://host:6379, sqlite:///file.db, postgresql+psycopg://user@host/name, "
        "or mysql+pymysql://user@host/name",
    )  # fmt: skip
