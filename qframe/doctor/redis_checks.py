"""Checks of a store in Redis: of each server by its INFO, and of the user's rights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from qframe.doctor.findings import Finding
from qframe.drivers.redis import Redis
from qframe.drivers.redis_servers import Replicas
from qframe.stores.redis.rights import missing

Facts = Mapping[str, Any]

OLDEST: Final = 7
FULL_AT: Final = 0.9


def version(facts: Facts) -> Finding | None:
    """The server's version is one that qframe serves."""
    found = version_of(facts)
    if int(found.split(".")[0]) >= OLDEST:
        return None
    return Finding(
        check="version", level="error", what=f"the server runs version {found}",
        remedy="use Redis 7, Valkey 7 or newer",
    )  # fmt: skip


def eviction(facts: Facts) -> Finding | None:
    """Nothing is evicted."""
    policy = str(facts.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return None
    return Finding(
        check="eviction", level="error",
        what=f"maxmemory-policy is {policy}: the server drops messages when its memory is full",
        remedy="set maxmemory-policy to noeviction",
    )  # fmt: skip


def memory(facts: Facts) -> Finding | None:
    """There is room, and a limit that the operating system does not have to set."""
    limit = int(facts.get("maxmemory", 0))
    # The server compares without its buffers for replicas and for the AOF.
    used = int(facts.get("used_memory", 0)) - int(facts.get("mem_not_counted_for_evict", 0))
    if not limit:
        return Finding(
            check="memory", level="note",
            what="maxmemory is not set: a server that outgrows the machine is killed",
            remedy="set maxmemory below the machine's memory; publishing is then refused in time",
        )  # fmt: skip
    if used < FULL_AT * limit:
        return None
    refuses = not str(facts.get("maxmemory_policy", "noeviction")).startswith("allkeys")
    is_full = used >= limit and refuses
    return Finding(
        check="memory", level="error" if is_full else "warning",
        what=f"{used / limit:.0%} of maxmemory ({limit} bytes) is used: publishing "
        f"{'fails' if is_full else 'soon fails'}",
        remedy="raise maxmemory, drop groups that nobody serves, or lower retain of streams",
    )  # fmt: skip


def persistence(facts: Facts) -> Finding | None:
    """Messages survive the server's end."""
    if facts.get("role") == "slave" or int(facts.get("aof_enabled", 0)):
        return None
    return Finding(
        check="persistence", level="warning",
        what="appendonly is off: a restart loses what came since the last snapshot",
        remedy="set appendonly to yes, and appendfsync to everysec or always",
    )  # fmt: skip


def writing(facts: Facts) -> Finding | None:
    """The last files that the server has written reached its disk."""
    failed = [
        name
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
        if facts.get(name, "ok") != "ok"
    ]
    if not failed:
        return None
    return Finding(
        check="writing", level="error", what=f"the server cannot write its files: {failed[0]}",
        remedy="see its log: the disk may be full, or the folder not writable",
    )  # fmt: skip


def replicas(facts: Facts) -> Finding | None:
    """Another server has the messages too."""
    if facts.get("role") == "slave" or int(facts.get("connected_slaves", 0)):
        return None
    return Finding(
        check="replicas", level="note",
        what="the server has no replica: a lost machine loses its messages",
        remedy="add two, with Sentinels or as a cluster, and set min-replicas-to-write to 1",
    )  # fmt: skip


def awaited(facts: Facts, wanted: Replicas | None) -> Finding | None:
    """There are the replicas that the URL has a publish wait for."""
    found = int(facts.get("connected_slaves", 0))
    if wanted is None or found >= wanted.needed or facts.get("role") == "slave":
        return None
    return Finding(
        check="wait_replicas", level="error",
        what=f"a publish waits for {wanted.needed} replicas, and {found} are connected: it raises "
        "PublishUnknown",
        remedy="connect replicas, or lower wait_replicas= in the URL",
    )  # fmt: skip


SERVER_CHECKS: Final[tuple[Callable[[Facts], Finding | None], ...]] = (
    version, eviction, memory, persistence, writing, replicas,
)  # fmt: skip


def rights(redis: Redis, namespace: str) -> Finding | None:
    """The user may run what workers run."""
    key = f"qf:{{{namespace}:doctor:0}}:".encode()
    names = missing(redis, key, f"qf:bell:{namespace}:doctor", "consumer")
    if not names:
        return None
    return Finding(
        check="rights", level="error", what=f"the user may not run: {', '.join(names)}",
        remedy="give the rights in docs/wire.md by ACL SETUSER, and rename no command",
    )  # fmt: skip


def version_of(facts: Facts) -> str:
    """The server's version, as it tells it."""
    return str(facts.get("valkey_version") or facts.get("redis_version") or "0")
