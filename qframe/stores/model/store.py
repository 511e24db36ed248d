"""The store in memory: each operation is one call of the modules beside this one, under a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.errors import UnknownGroup, UnknownTopic
from qframe.message import Delivery
from qframe.outcomes import Moved, Outcome, Settled
from qframe.roster import Roster
from qframe.stores.base import Capabilities
from qframe.stores.bucket import Terms
from qframe.stores.model import (
    controls,
    dead,
    groups,
    inspect,
    logs,
    publish,
    pull,
    rosters,
    settle,
    timers,
)
from qframe.stores.model.bell import EventBell
from qframe.stores.model.state import UNCLAIMED, Cursor, RosterState, TopicState
from qframe.stores.records import DeadPlace, Record, Stats
from qframe.stores.types import (
    DrawResult,
    Entry,
    LeaseRef,
    PullRequest,
    PullResult,
    RenewResult,
    RevokeResult,
    Settlement,
    acks,
)
from qframe.topic import Topic

T = TypeVar("T")

_CAPABILITIES: Final = Capabilities(durable=False, shared=False, bell=True, transactional=False)


class ModelStore:
    """Messages in this process's memory.

    Args:
        namespace: as for every store; there is nobody else here.
        clock: the store's clock.
    """

    url = "model://"
    capabilities = _CAPABILITIES

    def __init__(self, *, namespace: str = "qframe", clock: Clock = SYSTEM_CLOCK) -> None:
        self.namespace = namespace
        self._clock = clock
        self._lock = threading.RLock()
        self._states: dict[str, TopicState] = {}
        self._bells: set[EventBell] = set()
        self._roster_bells: set[EventBell] = set()

    def now_ms(self) -> int:
        """The store's clock."""
        return self._clock.now_ms()

    def reconnect(self) -> None:
        """Has no connections."""

    def close(self) -> None:
        """Ends all waits."""
        for bell in [*self._bells, *self._roster_bells]:
            bell.close()

    def bell(self, topics: Sequence[Topic]) -> EventBell:  # noqa: ARG002 - it hears all of them
        """A bell that rings when one of these topics may have something new."""
        bell = EventBell(self._bells.discard)
        self._bells.add(bell)
        return bell

    def roster_bell(self, topic: Topic, group: str) -> EventBell:  # noqa: ARG002 - hears all of them
        """A bell that rings when the roster may have changed."""
        bell = EventBell(self._roster_bells.discard)
        self._roster_bells.add(bell)
        return bell

    # Topics

    def declare(self, topic: Topic) -> None:
        """Makes the topic known; its other options are changed to these."""
        with self._lock:
            groups.declare(self._states, topic)

    def topic(self, name: str) -> Topic | None:
        """The topic as declared, or None."""
        with self._lock:
            state = self._states.get(name)
            return state.topic if state else None

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        with self._lock:
            return [state.topic for _, state in sorted(self._states.items())]

    def sweep(self, topic: Topic, limit: int = 500) -> int:
        """Removes up to `limit` rows that are no longer needed; answers how many it removed."""
        with self._lock:
            return groups.sweep(self._state(topic), limit, self.now_ms())

    # Publishing, pulling, settling

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Stores the entries in order; answers what became of each."""
        with self._lock:
            outcomes = publish.publish(self._state(topic), entries, self.now_ms())
        self._ring()
        return outcomes

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
        with self._lock:
            now_ms = self.now_ms()
            terms = pull.Terms(receipt, now_ms + lease_ms, max_attempts, run, now_ms)
            return pull.pull(self._state(topic), self._group(topic, group), asks, terms)

    def renew(
        self, topic: Topic, group: str, holds: Sequence[LeaseRef], lease_ms: int
    ) -> RenewResult:
        """Makes these leases end `lease_ms` from now; answers those that are not held any more."""
        with self._lock:
            return pull.renew(self._group(topic, group), holds, self.now_ms() + lease_ms)

    def revoke(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], receipt: str
    ) -> RevokeResult:
        """Gives back, uncounted, all subjects handed out under a receipt whose reply was lost."""
        with self._lock:
            cursors = self._group(topic, group)
            revoked = pull.revoke(self._state(topic), cursors, asks, receipt, self.now_ms())
        self._ring()
        return revoked

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settles each, in order; one whose epoch or receipt is not in force is `stale`."""
        with self._lock:
            cursors = self._group(topic, group)
            answers = settle.settle(self._state(topic), cursors, settlements, self.now_ms())
        self._ring()
        return answers

    def acknowledge(
        self, topic: Topic, group: str, deliveries: Sequence[Delivery], epochs: Mapping[int, str]
    ) -> list[Settled]:
        """Acknowledges each, in order, under its slot's epoch; answers as `settle`."""
        return self.settle(topic, group, acks(deliveries, epochs))

    # Groups

    def subscribe(
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None,
        *, beside: Sequence[str] = (),
    ) -> bool:  # fmt: skip
        """Makes the group collect from now on; False if it did before."""
        with self._lock:
            expires_at_ms = None if expires_ms is None else self.now_ms() + expires_ms
            return groups.subscribe(self._state(topic), group, start, expires_at_ms, beside)

    def groups(self, topic: Topic) -> list[str]:
        """All groups of a topic, by name."""
        with self._lock:
            return [name for name in sorted(self._state(topic).groups) if name != UNCLAIMED]

    def drop_group(self, topic: Topic, group: str) -> bool:
        """Forgets the group and all that stands for it; False if there was none."""
        with self._lock:
            dropped = groups.drop(self._state(topic), group)
        self._ring(self._roster_bells)
        return dropped

    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        """Moves a stream's group to an offset in each slot named (cut to what is kept)."""
        with self._lock:
            groups.seek(self._state(topic), self._group(topic, group), positions)
        self._ring()

    def offsets_at(self, topic: Topic, at_ms: int) -> dict[int, int]:
        """For each slot of a stream, the first kept offset published at or after that moment."""
        with self._lock:
            return groups.offsets_at(self._state(topic), at_ms)

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot; `NO_EPOCH` where nobody has ever owned it."""
        with self._lock:
            cursors = self._group(topic, group)
            return {number: cursor.epoch for number, cursor in enumerate(cursors)}

    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        """Takes slots under new epochs; answers those taken."""
        with self._lock:
            cursors = self._group(topic, group)
            taken = groups.take(self._state(topic), cursors, epochs, self.now_ms())
        self._ring()
        return taken

    # Rosters

    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        """Makes a member's lease end `lease_ms` from now; answers the roster's version."""

        def step(roster: RosterState, now_ms: int) -> int:
            rosters.heartbeat(roster, member, lease_ms, now_ms)
            return roster.version

        return self._on_roster(topic, group, step)

    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        """Who takes part and owns what; None if the version is still `seen` and nobody is gone."""
        return self._on_roster(topic, group, lambda roster, now: rosters.look(roster, seen, now))

    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        """Makes free slots the member's; answers those that are its own now under that epoch."""
        return self._on_roster(
            topic, group, lambda roster, now: rosters.claim(roster, member, epochs, now)
        )

    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        """Frees those of the slots that are the member's."""
        self._on_roster(
            topic, group, lambda roster, now: rosters.release_slots(roster, member, slots, now)
        )

    def leave(self, topic: Topic, group: str, member: str) -> None:
        """Takes a member out with all that it owns, whoever asks for it."""
        self._on_roster(topic, group, lambda roster, now: rosters.leave(roster, member, now))

    def tune(self, topic: Topic, group: str, values: Mapping[str, str | None]) -> None:
        """Sets values by name, in one step; None takes one back."""
        with self._lock:
            self._group(topic, group)
            controls.tune(self._state(topic), group, values)

    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
        """What is set for each group."""
        with self._lock:
            return [dict(self._state(topic).tunings.get(group, {})) for topic, group in asked]

    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        """Draws up to so many tokens from the group's bucket, as many as there are."""
        with self._lock:
            self._group(topic, group)
            terms = Terms(tokens, rate, per_ms, burst)
            return controls.draw(self._state(topic), group, terms, self.now_ms())

    # Timers

    def move(self, topic: Topic, subject: str, at_ms: int) -> Moved:
        """Makes a subject due at another moment, for every group."""
        with self._lock:
            moved = timers.move(self._state(topic), subject, at_ms)
        self._ring()
        return moved

    def change(
        self, topic: Topic, subject: str, body: bytes, headers: dict[str, str] | None
    ) -> Moved:
        """Gives a subject another body and headers, for every group."""
        with self._lock:
            return timers.change(self._state(topic), subject, body, headers)

    def cancel(self, topic: Topic, subject: str) -> Moved:
        """Takes a subject with all its messages out, counted as cancelled."""
        with self._lock:
            return timers.cancel(self._state(topic), subject)

    def timer(self, topic: Topic, subject: str) -> list[Record]:
        """Where the subject stands: a record for each group that has it."""
        with self._lock:
            state = self._state(topic)
            return [
                inspect.record_of_head(
                    state, name, state.groups[name].index(cursor), subject, head, self.now_ms()
                )
                for name, cursor, head in timers.find(state, subject)
            ]

    def timers(
        self, topic: Topic, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 100
    ) -> list[Record]:
        """The heads that are waiting and due in `[from_ms, until_ms)`, by due time, then seq."""
        with self._lock:
            found = inspect.waiting(self._state(topic), from_ms, until_ms, self.now_ms())
        return found[:limit]

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
        with self._lock:
            self._group(topic, group)
            everything = inspect.peek(self._state(topic), group, ("dead",), 2**62, self.now_ms())
        return dead.listed(everything, ids, limit, after)

    def retry_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Makes dead messages due again at once, attempts from zero; answers how many."""
        with self._lock:
            cursors = self._group(topic, group)
            count = dead.retry(self._state(topic), cursors, ids, limit, self.now_ms())
        self._ring()
        return count

    def drop_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Removes dead messages for good, counted as cancelled; answers how many."""
        with self._lock:
            return dead.drop(self._group(topic, group), ids, limit)

    # Inspecting, and reading logs

    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        """Counts for each group (or one) and slot."""
        with self._lock:
            if group is not None:
                self._group(topic, group)
            return inspect.stats(self._state(topic), group, self.now_ms())

    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        """Messages that stand in one of these states, slot by slot, next ones first."""
        with self._lock:
            self._group(topic, group)
            return inspect.peek(self._state(topic), group, states, limit, self.now_ms())

    def explain(self, topic: Topic, message_id: str) -> list[Record]:
        """Where a message stands now: a record for each place."""
        with self._lock:
            return inspect.explain(self._state(topic), message_id, self.now_ms())

    def verify(self, topic: Topic) -> list[str]:
        """Audits counts and structure; answers what is wrong, in sentences, or nothing."""
        with self._lock:
            return inspect.verify(self._state(topic), self.now_ms())

    def read_log(self, topic: Topic, slot: int, first: int, limit: int) -> list[Delivery]:
        """A slot's messages from an offset on, in order, at most `limit`; nothing is changed."""
        with self._lock:
            return logs.read_log(self._state(topic), slot, first, limit)

    def _state(self, topic: Topic) -> TopicState:
        if (state := self._states.get(topic.name)) is None:
            raise UnknownTopic(topic.name)
        return state

    def _group(self, topic: Topic, group: str) -> list[Cursor]:
        if (cursors := self._state(topic).groups.get(group)) is None:
            raise UnknownGroup(topic.name, group, self.groups(topic))
        return cursors

    def _on_roster(self, topic: Topic, group: str, step: Callable[[RosterState, int], T]) -> T:
        with self._lock:
            self._group(topic, group)  # there must be one
            roster = self._state(topic).rosters.setdefault(group, RosterState())
            before = roster.version
            answer = step(roster, self.now_ms())
        if roster.version != before:
            self._ring(self._roster_bells)
        return answer

    def _ring(self, bells: Iterable[EventBell] | None = None) -> None:
        for bell in list(self._bells if bells is None else bells):
            bell.ring()
