"""Chooses the store that a URL names, and loads no other."""

from __future__ import annotations

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.errors import BadUrl, NotSupported
from qframe.stores.base import Store

_LATER = ("postgresql", "mysql", "mariadb")


def open_store(url: str, *, namespace: str = "qframe", clock: Clock = SYSTEM_CLOCK) -> Store:
    """The store at a URL: `redis://host`, `sqlite:///file.db`, `model://` in this process's memory.

    Raises:
        NotSupported: for a store that this version does not serve.
        BadUrl: for anything that names no store.
    """
    scheme = url.partition(":")[0].partition("+")[0].lower()
    if scheme == "sqlite":
        from qframe.stores.sql.store import SqlStore

        return SqlStore(url, namespace=namespace, clock=clock)
    if scheme in ("redis", "rediss"):
        from qframe.stores.redis.store import RedisStore

        return RedisStore(url, namespace=namespace, clock=None if clock is SYSTEM_CLOCK else clock)
    if scheme == "model":
        from qframe.stores.model.store import ModelStore

        return ModelStore(namespace=namespace, clock=clock)
    if scheme in _LATER:
        raise NotSupported(f"store {scheme}://", "use redis://host, or sqlite:///file.db")
    raise BadUrl("store", url, "it names no store", "use redis://host:6379, or sqlite:///file.db")
