"""The store on a database: each operation is one transaction of the modules beside this one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.drivers.sql import Database
from qframe.errors import UnknownTopic
from qframe.message import Delivery
from qframe.outcomes import Moved, Outcome, Settled
from qframe.roster import Roster
from qframe.stores.base import (
    Ask,
    Capabilities,
    Entry,
    Hold,
    Pulled,
    Recalled,
    Record,
    Renewed,
    Settlement,
    Stats,
    acks,
)
from qframe.stores.sql import (
    audit,
    dead,
    groups,
    inspect,
    leases,
    publish,
    pull,
    rosters,
    settle,
    sweep,
    timers,
)
from qframe.stores.sql.bell import PolledBell
from qframe.stores.sql.heads import headers_text
from qframe.stores.sql.migrate import migrate
from qframe.stores.sql.places import Place
from qframe.topic import Topic

_CAPABILITIES: Final = Capabilities(durable=True, shared=False, bell=False, transactional=True)


class SqlStore:
    """Messages in the tables of a database.

    Args:
        url: `sqlite:///path`; see `qframe.drivers.sql.Database`.
        namespace: keeps apart what several systems keep in one database.
        clock: the store's clock; SQLite has none of its own.

    Raises:
        BadUrl: if the URL cannot be used.
        SchemaMismatch: if the tables are of a later version.
        StoreUnavailable: if the database cannot be reached.
    """

    def __init__(self, url: str, *, namespace: str = "qframe", clock: Clock = SYSTEM_CLOCK) -> None:
        self._database = Database(url)
        self.url = self._database.shown
        self.capabilities = _CAPABILITIES
        self._namespace = namespace
        self._clock = clock
        self._places: dict[str, int] = {}
        self._bells: set[PolledBell] = set()
        self._bells_guard = threading.Lock()
        self._had_work: dict[tuple[str, str], bool] = {}
        try:
            migrate(self._database)
        except BaseException:
            self._database.close()
            raise

    def now_ms(self) -> int:
        """The store's clock."""
        return self._clock.now_ms()

    def reconnect(self) -> None:
        """Lets go of connections that nobody uses now."""
        self._database.close()

    def close(self) -> None:
        """Frees connections; the store cannot be used any more."""
        for bell in list(self._bells):
            bell.close()
        self._database.close()

    # Topics

    def declare(self, topic: Topic) -> None:
        """Makes the topic known; its other options are changed to these."""
        with self._database.write() as transaction:
            place = groups.declare(transaction, self._namespace, topic)
        self._places[topic.name] = place.id

    def topic(self, name: str) -> Topic | None:
        """The topic as declared, or None."""
        with self._database.read() as transaction:
            places = groups.declared(transaction, self._namespace, name)
        return places[0].topic if places else None

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        with self._database.read() as transaction:
            return [place.topic for place in groups.declared(transaction, self._namespace)]

    def sweep(self, topic: Topic, limit: int = 500) -> int:
        """Removes up to `limit` rows that are no longer needed; answers how many it removed."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return sweep.sweep(transaction, place, limit, self.now_ms())

    # Publishing

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Stores the entries in order; answers what became of each."""
        place = self._place(topic)
        with self._database.write() as transaction:
            outcomes = publish.publish(transaction, place, entries, self.now_ms())
        for bell in list(self._bells):
            bell.ring()
        return outcomes

    # Pulling

    def pull(
        self,
        topic: Topic,
        group: str,
        asks: Sequence[Ask],
        *,
        receipt: str,
        lease_ms: int,
        max_attempts: int,
        run: int = 32,
    ) -> Pulled:
        """Hands out what is due; a read shows first whether there is anything to write."""
        place = self._place(topic)
        who = (topic.name, group)
        if not self._had_work.get(who):
            with self._database.read() as transaction:
                nothing = pull.glance(transaction, place, group, asks, self.now_ms())
            if nothing is not None:
                return nothing
        with self._database.write() as transaction:
            now_ms = self.now_ms()
            terms = pull.Terms(receipt, now_ms + lease_ms, max_attempts, run, now_ms)
            pulled = pull.pull(transaction, place, group, asks, terms)
        self._had_work[who] = bool(pulled.deliveries)
        return pulled

    def renew(self, topic: Topic, group: str, holds: Sequence[Hold], lease_ms: int) -> Renewed:
        """Makes these leases end `lease_ms` from now; answers those that are not held any more."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return leases.renew(transaction, place, group, holds, self.now_ms() + lease_ms)

    def recall(self, topic: Topic, group: str, asks: Sequence[Ask], receipt: str) -> Recalled:
        """Gives back, uncounted, all subjects handed out under a receipt whose reply was lost."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return leases.recall(transaction, place, group, asks, receipt, self.now_ms())

    # Settling

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settles each, in order; one whose epoch or receipt is not in force is `stale`."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return settle.settle(transaction, place, group, settlements, self.now_ms())

    def acknowledge(
        self,
        topic: Topic,
        group: str,
        deliveries: Sequence[Delivery],
        epochs: Mapping[int, str],
    ) -> list[Settled]:
        """Acknowledges each, in order, under its slot's epoch; answers as `settle`."""
        return self.settle(topic, group, acks(deliveries, epochs))

    # Groups

    def subscribe(
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None
    ) -> bool:
        """Makes the group collect from now on; False if it did before."""
        place = self._place(topic)
        with self._database.write() as transaction:
            expires_at_ms = None if expires_ms is None else self.now_ms() + expires_ms
            return groups.subscribe(transaction, place, group, start, expires_at_ms)

    def groups(self, topic: Topic) -> list[str]:
        """All groups of a topic, by name."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return groups.names(transaction, place)

    def drop_group(self, topic: Topic, group: str) -> bool:
        """Forgets the group and all that stands for it; False if there was none."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return groups.drop(transaction, place, group)

    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        """Moves a stream's group to an offset in each slot named (cut to what is kept)."""
        place = self._place(topic)
        with self._database.write() as transaction:
            groups.seek(transaction, place, group, positions)

    def offsets_at(self, topic: Topic, at_ms: int) -> dict[int, int]:
        """For each slot of a stream, the first kept offset published at or after that moment."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return groups.offsets_at(transaction, place, at_ms)

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot; `NO_EPOCH` where nobody has ever owned it."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return groups.epochs(transaction, place, group)

    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        """Takes slots under new epochs; answers those taken."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return groups.take(transaction, place, group, epochs, self.now_ms())

    # Rosters

    def attend(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        """Makes a member's lease end `lease_ms` from now; answers the roster's version."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return rosters.attend(transaction, place, group, member, lease_ms, self.now_ms())

    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        """Who takes part and owns what; None if the version is still `seen` and nobody is gone."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return rosters.look(transaction, place, group, seen, self.now_ms())

    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        """Makes free slots the member's; answers those that are its own now under that epoch."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return rosters.claim(transaction, place, group, member, epochs, self.now_ms())

    def let_go(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        """Frees those of the slots that are the member's."""
        place = self._place(topic)
        with self._database.write() as transaction:
            rosters.let_go(transaction, place, group, member, slots, self.now_ms())

    def depart(self, topic: Topic, group: str, member: str) -> None:
        """Takes a member out with all that it owns, whoever asks for it."""
        place = self._place(topic)
        with self._database.write() as transaction:
            rosters.depart(transaction, place, group, member, self.now_ms())

    # Timers

    def move(self, topic: Topic, subject: str, at_ms: int) -> Moved:
        """Makes a subject due at another moment, for every group."""
        place = self._place(topic)
        with self._database.write() as transaction:
            moved = timers.move(transaction, place, subject, at_ms, self.now_ms())
        for bell in list(self._bells):
            bell.ring()
        return moved

    def change(
        self, topic: Topic, subject: str, body: bytes, headers: dict[str, str] | None
    ) -> Moved:
        """Gives a subject another body and headers, for every group."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return timers.change(transaction, place, subject, body, headers_text(headers))

    def cancel(self, topic: Topic, subject: str) -> Moved:
        """Takes a subject with all its messages out, counted as cancelled."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return timers.cancel(transaction, place, subject)

    def timer(self, topic: Topic, subject: str) -> list[Record]:
        """Where the subject stands: a record for each group that has it."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return timers.timer(transaction, place, subject, self.now_ms())

    def timers(
        self, topic: Topic, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 100
    ) -> list[Record]:
        """The heads that are waiting and due in `[from_ms, until_ms)`, by due time, then seq."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return timers.timers(
                transaction, place, from_ms=from_ms, until_ms=until_ms, limit=limit,
                now_ms=self.now_ms(),
            )  # fmt: skip

    # Dead letters

    def dead(
        self, topic: Topic, group: str, *, ids: Sequence[str] | None = None, limit: int = 100
    ) -> list[Record]:
        """Dead messages, the longest dead first."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return dead.listed(transaction, place, group, ids, limit)

    def retry_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Makes dead messages due again at once, attempts from zero; answers how many."""
        place = self._place(topic)
        with self._database.write() as transaction:
            count = dead.retry(transaction, place, group, ids, limit, self.now_ms())
        for bell in list(self._bells):
            bell.ring()
        return count

    def drop_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Removes dead messages for good, counted as cancelled; answers how many."""
        place = self._place(topic)
        with self._database.write() as transaction:
            return dead.drop(transaction, place, group, ids, limit)

    # Inspecting

    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        """Counts for each group (or one) and slot."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return inspect.stats(transaction, place, group, self.now_ms())

    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        """Messages that stand in one of these states, slot by slot, next ones first."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return inspect.peek(transaction, place, group, states, limit, self.now_ms())

    def explain(self, topic: Topic, message_id: str) -> list[Record]:
        """Where a message stands now: a record for each place."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return inspect.explain(transaction, place, message_id, self.now_ms())

    def verify(self, topic: Topic) -> list[str]:
        """Audits counts and structure; answers what is wrong, in sentences, or nothing."""
        place = self._place(topic)
        with self._database.read() as transaction:
            return audit.verify(transaction, place, self.now_ms())

    # Bells

    def bell(self, topics: Sequence[Topic]) -> PolledBell:  # noqa: ARG002 - it hears all of them
        """A bell that rings when anything in the database may be new."""
        version, release = self._database.watch()

        def forget(bell: PolledBell) -> None:
            with self._bells_guard:
                self._bells.discard(bell)
            release()

        bell = PolledBell(version, forget, self._clock_of_waits())
        with self._bells_guard:
            self._bells.add(bell)
        return bell

    def roster_bell(self, topic: Topic, group: str) -> None:
        """None: who wants to know looks now and then, which is one short read."""

    @staticmethod
    def _clock_of_waits() -> Clock:
        """Waits are real, whatever the clock of the store says."""
        return SYSTEM_CLOCK

    def _place(self, topic: Topic) -> Place:
        number = self._places.get(topic.name)
        if number is None:
            with self._database.read() as transaction:
                places = groups.declared(transaction, self._namespace, topic.name)
            if not places:
                raise UnknownTopic(topic.name)
            number = self._places[topic.name] = places[0].id
        return Place(topic, number)
