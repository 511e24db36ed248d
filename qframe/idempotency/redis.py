"""Marks of finished effects in Redis."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

from qframe.drivers.redis import Call, Missing, Redis
from qframe.drivers.scripts import script
from qframe.errors import BadOption, BadUrl, CheckerUnavailable, StoreUnavailable
from qframe.idempotency.base import Claim, Scope, State, Terms, check_memory
from qframe.idempotency.keys import Key, KeyOption, key_of
from qframe.topic import duration_ms

SHARDS: Final = 16
_CLAIMED: Final = -1
_DONE: Final = -2


class RedisChecker:
    """Remembers in Redis what was done, for `ttl`.

    An effect is a key of Redis: absent, `p<token>` while one is at work on it, which ends with its
    lease, `d<token>` once it is done, which ends with the ttl. So nothing has to be swept.

    A handler's own changes are not part of the mark: if the worker dies between them, they are
    done again. If Redis loses a mark (a failover, a power loss), its message is handled again.

    Args:
        url: of a Redis as a store's URL may be: `redis://`, `rediss://`, `redis+sentinel://`,
            `redis+cluster://`, `unix://`.
        ttl: how long what is done is remembered: seconds, or a text such as "24h".
        key: by what an effect is recognised: a field of the body, several, or a function of the
            message; by default the message's id.

    Raises:
        BadUrl: if the URL cannot be used.
        BadOption: if `ttl` or `key` is not as described.
    """

    is_transactional: Final = False

    def __init__(self, url: str, *, ttl: float | str = "24h", key: KeyOption = None) -> None:
        self.key: Key = key_of(key)
        self._ttl_ms = duration_ms(ttl, "ttl")
        if not self._ttl_ms:
            raise BadOption("ttl", ttl, "no mark would be kept", 'use "24h"')
        self._url = url
        # A cluster is to spread what one group remembers.
        self._shards = SHARDS if "+cluster:" in url else 1
        self._guard = threading.Lock()
        self._opened: Redis | None = Redis(url)
        self.shown: str = f"RedisChecker({self._opened.shown})"

    def check(self, terms: Terms) -> None:
        """Raises `BadOption` where it would forget too soon."""
        check_memory("ttl", self._ttl_ms, terms)

    def open(self) -> None:
        """Asks the server whether it will do.

        Raises:
            BadUrl: if it drops keys where it has no room.
            CheckerUnavailable: if it cannot be asked, or refuses the user.
        """
        try:
            self._redis.check(self._check_server)
        except StoreUnavailable as error:
            raise CheckerUnavailable(self.shown, str(error)) from error

    def claim_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> None:
        """Asks for effects; sets the state of each claim, where its server replies."""
        replies = self._run("claim", scope, claims, (lease_ms,))
        for claim, reply in zip(claims, replies, strict=True):
            if reply is None:
                claim.state = None
            elif reply == _CLAIMED:
                claim.state = State.CLAIMED
            elif reply == _DONE:
                claim.state = State.DONE
            else:
                claim.state, claim.wait_ms = State.RUNNING, reply
        self._require(replies)

    def finish_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Marks claimed effects as done; false for those whose claim has passed to another one."""
        replies = self._run("finish", scope, claims, (self._ttl_ms,))
        self._require(replies)
        return [reply == 1 for reply in replies]

    def release_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Makes claimed effects absent again; false where the claim has passed, or will."""
        return [reply == 1 for reply in self._run("release", scope, claims, ())]

    def renew_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> list[bool]:
        """Makes claims last longer; false where the claim has passed.

        One whose server is away may be there still, and is asked for again before its lease ends.
        """
        return [reply != 0 for reply in self._run("renew", scope, claims, (lease_ms,))]

    def passing(self, error: BaseException) -> CheckerUnavailable | None:
        """None: it gives nothing to handlers, so their errors are not its own."""
        del error
        return None

    def sweep(self, limit: int) -> int:
        """Does nothing: Redis forgets by itself."""
        del limit
        return 0

    def close(self) -> None:
        """Closes its connections; it opens them again when it is used."""
        with self._guard:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _check_server(self, facts: dict[str, Any]) -> None:
        policy = str(facts.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            raise BadUrl(
                "checker", self.shown, f"its maxmemory-policy is {policy}, which evicts marks",
                "set maxmemory-policy to noeviction, or use another server for marks",
            )  # fmt: skip

    @property
    def _redis(self) -> Redis:
        with self._guard:
            if self._opened is None:
                self._opened = Redis(self._url)
            return self._opened

    def _run(
        self, name: str, scope: Scope, claims: list[Claim], fixed: tuple[int, ...]
    ) -> list[int | None]:
        """A script's reply for each claim: one call for each shard, all in one round trip.

        None stands for those shards of a cluster whose node is away, if others answer: nobody
        waits for it.
        """
        shards: dict[int, list[int]] = {}
        for number, claim in enumerate(claims):
            shard = crc32(claim.key.encode()) % self._shards
            shards.setdefault(shard, []).append(number)
        calls = [
            call(name, scope, shard, fixed, [claims[number] for number in numbers])
            for shard, numbers in shards.items()
        ]
        found: list[int | None] = [None] * len(claims)
        replies = self._asked(lambda: self._redis.run(calls, partly=self._shards > 1))
        for numbers, part in zip(shards.values(), replies, strict=True):
            if isinstance(part, Missing):
                continue
            for number, reply in zip(numbers, part, strict=True):
                found[number] = reply
        return found

    def _require(self, replies: Sequence[int | None]) -> None:
        """Raises `CheckerUnavailable` where a reply is missing; to ask again is safe."""
        if None in replies:
            raise CheckerUnavailable(self.shown, "a node of the cluster is down")

    def _asked(self, question: Any) -> Any:
        try:
            return question()
        except StoreUnavailable as error:
            raise CheckerUnavailable(self.shown, str(error)) from error


def call(
    name: str, scope: Scope, shard: int, fixed: tuple[int, ...], claims: Sequence[Claim]
) -> Call:
    """A script's call for some effects of one shard."""
    prefix = f"qf:{{{scope.namespace}:{scope.topic}:{scope.group}:effects:{shard}}}:".encode()
    items = [word for claim in claims for word in (claim.key, claim.token)]
    return Call(script("qframe.idempotency", name), prefix, (*fixed, *items))
