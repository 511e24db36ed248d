"""The store on Redis: the sum of its roles, each of them in the module of its name."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from qframe.clock import Clock
from qframe.drivers.redis import Redis
from qframe.errors import BadUrl
from qframe.forks import Forks
from qframe.stores.base import Topics
from qframe.stores.controls import Controls
from qframe.stores.documents import Space
from qframe.stores.edits import Edits
from qframe.stores.redis.bell import SubscribedBell
from qframe.stores.redis.buckets import RedisBuckets
from qframe.stores.redis.copying import RedisCopying
from qframe.stores.redis.documents import RedisDocuments
from qframe.stores.redis.edits import RedisRewriting
from qframe.stores.redis.groups import RedisGroups
from qframe.stores.redis.growing import RedisGrowing
from qframe.stores.redis.history import RedisHistory
from qframe.stores.redis.inspect import RedisInspecting
from qframe.stores.redis.logs import RedisLogs
from qframe.stores.redis.pages import RedisPages
from qframe.stores.redis.publish import RedisPublishing
from qframe.stores.redis.pull import RedisPulling
from qframe.stores.redis.repair import RedisRepairing
from qframe.stores.redis.settle import RedisSettling
from qframe.stores.redis.topics import RedisTopics
from qframe.stores.rosters import Rosters
from qframe.stores.types import Capabilities
from qframe.topic import Kind, Topic

OLDEST: Final = 7
_CAPABILITIES: Final = Capabilities(
    bell=True,
    pull_at_most={Kind.ORDERED: 1024, Kind.DELAY: 512, Kind.PRIORITY: 512, Kind.MERGE: 512},
)  # fmt: skip


class RedisStore(
    RedisTopics, RedisPublishing, RedisPulling, RedisSettling, RedisGroups, RedisDocuments,
    RedisBuckets, RedisPages, RedisRewriting, RedisRepairing, RedisInspecting, RedisHistory,
    RedisLogs, RedisCopying, RedisGrowing, Topics, Rosters, Controls, Edits,
):  # fmt: skip
    """Messages in Redis 7 or newer, or Valkey: one server, behind Sentinels, or a cluster.

    Args:
        url: see `qframe.drivers.redis.Redis`.
        namespace: keeps apart what several systems keep in one place.
        clock: None for the servers' own, as it must be where more than one process is at work.

    Raises:
        BadUrl: if the URL cannot be used, or a server is too old or would evict messages.
        StoreUnavailable: if a server cannot be reached.
    """

    def __init__(self, url: str, *, namespace: str = "qframe", clock: Clock | None = None) -> None:
        super().__init__(Redis(url), namespace, clock)
        self.url: str = self._redis.shown
        self.capabilities: Capabilities = _CAPABILITIES
        self._bells: set[SubscribedBell] = set()
        self._bells_guard = threading.Lock()
        Forks.add(self._begin_anew)
        try:
            self._redis.check(self._check)
        except BaseException:
            self._redis.close()
            raise

    def bell(self, topics: Sequence[Topic]) -> SubscribedBell:
        """A bell that rings when one of these topics may have something new."""
        channels = [self._keys(topic).channel for topic in topics]
        return self._subscribed(channels, hears_replies=bool(channels) and self._redis.is_one)

    def document_bell(self, topic: Topic, group: str, space: Space) -> SubscribedBell:
        """A bell that rings when documents of a space have changed."""
        return self._subscribed([self._keys(topic).document_channel(group, space)])

    def reconnect(self) -> None:
        """Closes connections that nobody uses now, and finds servers anew."""
        self._redis.reconnect()

    def close(self) -> None:
        """Frees connections; the store cannot be used any more."""
        for bell in list(self._bells):
            bell.close()
        self._redis.close()

    def _begin_anew(self) -> None:
        """Has no bells in the child of a fork, where nobody waits for those of the parent."""
        Forks.keep(self._bells)
        self._bells = set()
        self._bells_guard = threading.Lock()

    def _subscribed(
        self, channels: Sequence[str], *, hears_replies: bool = False
    ) -> SubscribedBell:
        def forget(bell: SubscribedBell) -> None:
            with self._bells_guard:
                self._bells.discard(bell)

        bell = SubscribedBell(self._redis, channels, forget, hears_replies=hears_replies)
        with self._bells_guard:
            self._bells.add(bell)
        return bell

    def _check(self, facts: dict[str, Any]) -> None:
        """Refuses a server that is too old, or that drops what it was given."""
        version = str(facts.get("valkey_version") or facts.get("redis_version") or "0")
        if int(version.split(".")[0]) < OLDEST:
            raise BadUrl(
                "store", self.url, f"it runs version {version}", "use Redis 7, Valkey 7 or newer"
            )
        policy = str(facts.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            raise BadUrl(
                "store", self.url, f"its maxmemory-policy is {policy}, which evicts messages",
                "set maxmemory-policy to noeviction, or use another server for messages",
            )  # fmt: skip
