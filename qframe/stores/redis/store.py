"""The store on Redis: each operation is one script for each slot that it touches."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from qframe.clock import Clock
from qframe.drivers.redis import Redis
from qframe.errors import BadUrl, UnknownTopic
from qframe.forks import Forks
from qframe.message import Delivery
from qframe.outcomes import Moved, Outcome, Settled
from qframe.roster import Roster
from qframe.stores.base import Capabilities
from qframe.stores.bucket import Terms
from qframe.stores.records import DeadPlace, Record, Stats
from qframe.stores.redis import (
    audit,
    controls,
    dead,
    groups,
    inspect,
    leases,
    logs,
    publish,
    pull,
    rosters,
    settle,
    timers,
)
from qframe.stores.redis.bell import HeardBell
from qframe.stores.redis.keys import Place, topics_key
from qframe.stores.redis.tails import Tails
from qframe.stores.types import (
    DrawResult,
    Entry,
    LeaseRef,
    PullRequest,
    PullResult,
    RenewResult,
    RevokeResult,
    Settlement,
)
from qframe.topic import Topic

OLDEST: Final = 7
_CAPABILITIES: Final = Capabilities(durable=False, shared=True, bell=True, transactional=False)


class RedisStore:
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
        self._redis = Redis(url)
        self.url = self._redis.shown
        self.capabilities = _CAPABILITIES
        self._namespace = namespace
        self._clock = clock
        self._tails = Tails(self._redis)
        self._places: dict[str, Place] = {}
        self._bells: set[HeardBell] = set()
        self._bells_guard = threading.Lock()
        Forks.add(self._begin_anew)
        try:
            self._redis.check(self._check)
        except BaseException:
            self._redis.close()
            raise

    def now_ms(self) -> int:
        """The store's clock."""
        if self._clock is not None:
            return self._clock.now_ms()
        seconds, micros = self._redis.time(topics_key(self._namespace))
        return seconds * 1000 + micros // 1000

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

    # Topics

    def declare(self, topic: Topic) -> None:
        """Makes the topic known; its other options are changed to these."""
        groups.declare(self._redis, self._namespace, topic)
        self._places[topic.name] = Place(self._namespace, topic)

    def topic(self, name: str) -> Topic | None:
        """The topic as declared, or None."""
        return groups.declared(self._redis, self._namespace, name)

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return groups.all_declared(self._redis, self._namespace)

    def sweep(self, topic: Topic, limit: int = 500) -> int:
        """Removes up to `limit` rows that are no longer needed; answers how many it removed."""
        return groups.sweep(self._redis, self._place(topic), limit, self._now())

    # Publishing, pulling, settling

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Stores the entries in order; answers what became of each."""
        return publish.publish(self._redis, self._place(topic), entries, self._now())

    def pull(
        self,
        topic: Topic,
        group: str,
        asks: Sequence[PullRequest],
        *,
        receipt: str,
        lease_ms: int,
        max_attempts: int,
        run: int = 32,
    ) -> PullResult:
        """Hands out what is due."""
        terms = pull.Terms(receipt, lease_ms, max_attempts, run, self._now())
        return pull.pull(self._redis, self._tails, self._place(topic), group, asks, terms)

    def renew(
        self, topic: Topic, group: str, holds: Sequence[LeaseRef], lease_ms: int
    ) -> RenewResult:
        """Makes these leases end `lease_ms` from now; answers those that are not held any more."""
        place = self._place(topic)
        return leases.renew(self._redis, place, group, holds, lease_ms, self._now())

    def revoke(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], receipt: str
    ) -> RevokeResult:
        """Gives back, uncounted, all subjects handed out under a receipt whose reply was lost."""
        place = self._place(topic)
        return leases.revoke(self._redis, place, group, asks, receipt, self._now())

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settles each, in order; one whose epoch or receipt is not in force is `stale`."""
        place = self._place(topic)
        return settle.settle(self._redis, place, group, settlements, self._now())

    def acknowledge(
        self,
        topic: Topic,
        group: str,
        deliveries: Sequence[Delivery],
        epochs: Mapping[int, str],
    ) -> list[Settled]:
        """Acknowledges each, in order, under its slot's epoch; answers as `settle`."""
        place = self._place(topic)
        return settle.acknowledge(self._redis, place, group, deliveries, epochs, self._now())

    # Groups

    def subscribe(
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None,
        *, beside: Sequence[str] = (),
    ) -> bool:  # fmt: skip
        """Makes the group collect from now on; False if it did before."""
        place = self._place(topic)
        names = (group, *beside)
        new = groups.subscribe(self._redis, place, names, start, expires_ms, self._now())
        for name in new:
            self._tails.forget(topic.name, name)  # one of that name may have been dropped
        return group in new

    def groups(self, topic: Topic) -> list[str]:
        """All groups of a topic, by name."""
        return groups.names(self._redis, self._place(topic))

    def drop_group(self, topic: Topic, group: str) -> bool:
        """Forgets the group and all that stands for it; False if there was none."""
        return groups.drop(self._redis, self._place(topic), group)

    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        """Moves a stream's group to an offset in each slot named (cut to what is kept)."""
        groups.seek(self._redis, self._place(topic), group, positions)
        self._tails.forget(topic.name, group)

    def offsets_at(self, topic: Topic, at_ms: int) -> dict[int, int]:
        """For each slot of a stream, the first kept offset that joined the log then or later."""
        return groups.offsets_at(self._redis, self._place(topic), at_ms)

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot; `NO_EPOCH` where nobody has ever owned it."""
        return groups.epochs(self._redis, self._place(topic), group)

    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        """Takes slots under new epochs; answers those taken."""
        return groups.take(self._redis, self._place(topic), group, epochs, self._now())

    # Rosters

    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        """Makes a member's lease end `lease_ms` from now; answers the roster's version."""
        place = self._place(topic)
        return rosters.heartbeat(self._redis, place, group, member, lease_ms, self._now())

    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        """Who takes part and owns what; None if the version is still `seen` and nobody is gone."""
        return rosters.look(self._redis, self._place(topic), group, seen, self._now())

    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        """Makes free slots the member's; answers those that are its own now under that epoch."""
        return rosters.claim(self._redis, self._place(topic), group, member, epochs, self._now())

    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        """Frees those of the slots that are the member's."""
        rosters.release_slots(self._redis, self._place(topic), group, member, slots, self._now())

    def leave(self, topic: Topic, group: str, member: str) -> None:
        """Takes a member out with all that it owns, whoever asks for it."""
        rosters.leave(self._redis, self._place(topic), group, member, self._now())

    # Controls

    def tune(self, topic: Topic, group: str, values: Mapping[str, str | None]) -> None:
        """Sets values by name, in one step; None takes one back."""
        controls.tune(self._redis, self._place(topic), group, values)

    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
        """What is set for each group; None where its server cannot answer now."""
        places = [(self._place(topic), group) for topic, group in asked]
        return controls.tunings(self._redis, places)

    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        """Draws up to so many tokens from the group's bucket, as many as there are."""
        terms = Terms(tokens, rate, per_ms, burst)
        return controls.draw(self._redis, self._place(topic), group, terms, self._now())

    # Timers

    def move(self, topic: Topic, subject: str, at_ms: int) -> Moved:
        """Makes a subject due at another moment, for every group."""
        return timers.move(self._redis, self._place(topic), subject, at_ms, self._now())

    def change(
        self, topic: Topic, subject: str, body: bytes, headers: dict[str, str] | None
    ) -> Moved:
        """Gives a subject another body and headers, for every group."""
        return timers.change(self._redis, self._place(topic), subject, body, headers)

    def cancel(self, topic: Topic, subject: str) -> Moved:
        """Takes a subject with all its messages out, counted as cancelled."""
        return timers.cancel(self._redis, self._place(topic), subject)

    def timer(self, topic: Topic, subject: str) -> list[Record]:
        """Where the subject stands: a record for each group that has it."""
        return timers.timer(self._redis, self._place(topic), subject, self.now_ms())

    def timers(
        self, topic: Topic, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 100
    ) -> list[Record]:
        """The heads that are waiting and due in `[from_ms, until_ms)`, by due time, then seq."""
        return timers.timers(
            self._redis, self._place(topic), from_ms=from_ms, until_ms=until_ms, limit=limit,
            now_ms=self.now_ms(),
        )  # fmt: skip

    # Dead letters

    def dead(
        self,
        topic: Topic,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        limit: int = 100,
        after: DeadPlace | None = None,
    ) -> list[Record]:
        """Dead messages, the longest dead first."""
        return dead.listed(self._redis, self._place(topic), group, ids, limit, after)

    def retry_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Makes dead messages due again at once, attempts from zero; answers how many."""
        return dead.retry(self._redis, self._place(topic), group, ids, limit, self._now())

    def drop_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Removes dead messages for good, counted as cancelled; answers how many."""
        return dead.drop(self._redis, self._place(topic), group, ids, limit)

    # Inspecting

    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        """Counts for each group (or one) and slot."""
        return inspect.stats(self._redis, self._place(topic), group, self._now())

    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        """Messages that stand in one of these states, slot by slot, next ones first."""
        return inspect.peek(
            self._redis, self._place(topic), group, states, limit, self._now(), self.now_ms()
        )

    def explain(self, topic: Topic, message_id: str) -> list[Record]:
        """Where a message stands now: a record for each place."""
        return inspect.explain(self._redis, self._place(topic), message_id, self.now_ms())

    def verify(self, topic: Topic) -> list[str]:
        """Audits counts and structure; answers what is wrong, in sentences, or nothing."""
        return audit.verify(self._redis, self._place(topic), self._now())

    # Logs

    def read_log(self, topic: Topic, slot: int, first: int, limit: int) -> list[Delivery]:
        """A slot's messages from an offset on, in order, at most `limit`; nothing is changed."""
        return logs.read_log(self._redis, self._place(topic), slot, first, limit)

    # Bells

    def bell(self, topics: Sequence[Topic]) -> HeardBell:
        """A bell that rings when one of these topics may have something new."""
        return self._heard([self._place(topic).channel for topic in topics])

    def roster_bell(self, topic: Topic, group: str) -> HeardBell:
        """A bell that rings when the roster has changed, but for a lease that passes."""
        return self._heard([self._place(topic).roster_channel(group)])

    def _heard(self, channels: Sequence[str]) -> HeardBell:
        def forget(bell: HeardBell) -> None:
            with self._bells_guard:
                self._bells.discard(bell)

        bell = HeardBell(self._redis, channels, forget)
        with self._bells_guard:
            self._bells.add(bell)
        return bell

    def _now(self) -> str:
        """The time for scripts: empty, so that they ask their server, unless a clock is given."""
        return "" if self._clock is None else str(self._clock.now_ms())

    def _place(self, topic: Topic) -> Place:
        place = self._places.get(topic.name)
        if place is None:
            if groups.declared(self._redis, self._namespace, topic.name) is None:
                raise UnknownTopic(topic.name)
            place = self._places[topic.name] = Place(self._namespace, topic)
        elif place.topic is not topic:
            place = Place(self._namespace, topic)
        return place

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
