"""The store on a database: each operation is one transaction of the modules beside this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qframe.clock import Clock
from qframe.drivers.sql import Database
from qframe.errors import StoreUnavailable, UnknownTopic
from qframe.message import Delivery
from qframe.outcomes import Moved, Outcome, Settled
from qframe.roster import Roster
from qframe.stores.base import Capabilities
from qframe.stores.bucket import Terms
from qframe.stores.records import DeadPlace, Record, Stats
from qframe.stores.sql import (
    audit,
    burial,
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
    sweep,
    timers,
)
from qframe.stores.sql.bell import RungBell
from qframe.stores.sql.bells import Bells
from qframe.stores.sql.heads import headers_text
from qframe.stores.sql.migrate import check, migrate
from qframe.stores.sql.places import Place
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


class SqlStore:
    """Messages in the tables of a database.

    Args:
        url: see `qframe.drivers.sql.Database`.
        namespace: keeps apart what several systems keep in one database.
        clock: None for the server's own, as it must be where more than one machine is at work;
            SQLite has none, and takes this machine's.

    Raises:
        BadUrl: if the URL cannot be used.
        SchemaMismatch: if the tables are of a later version, or of an earlier one and the URL says
            `?migrate=no`.
        StoreUnavailable: if the database cannot be reached.
    """

    def __init__(self, url: str, *, namespace: str = "qframe", clock: Clock | None = None) -> None:
        self._database = Database(url, clock=clock, heard=self._told)
        self.url = self._database.shown
        backend = self._database.backend
        self.capabilities = Capabilities(
            durable=True, shared=backend.has_clock, bell=backend.notifies, transactional=True
        )
        self._namespace = namespace
        self._places: dict[str, int] = {}
        self._bells = Bells(self._database)
        self._had_work: dict[tuple[str, str], bool] = {}
        try:
            (migrate if backend.may_migrate else check)(self._database)
        except BaseException:
            self._database.close()
            raise

    def now_ms(self) -> int:
        """The store's clock."""
        return self._database.glance(lambda it: it.now_ms())

    def reconnect(self) -> None:
        """Lets go of connections that nobody uses now."""
        self._database.close()

    def close(self) -> None:
        """Frees connections; the store cannot be used any more."""
        self._bells.close()
        self._database.close()

    # Topics

    def declare(self, topic: Topic) -> None:
        """Makes the topic known; its other options are changed to these."""
        place = self._database.write(lambda it: groups.declare(it, self._namespace, topic))
        self._places[topic.name] = place.id

    def topic(self, name: str) -> Topic | None:
        """The topic as declared, or None."""
        places = self._database.glance(lambda it: groups.declared(it, self._namespace, name))
        return places[0].topic if places else None

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        places = self._database.glance(lambda it: groups.declared(it, self._namespace))
        return [place.topic for place in places]

    def sweep(self, topic: Topic, limit: int = 500) -> int:
        """Removes up to `limit` rows that are no longer needed; answers how many it removed."""
        place = self._place(topic)
        return self._database.write(lambda it: sweep.sweep(it, place, limit))

    # Publishing

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Stores the entries in order; answers what became of each."""
        place = self._place(topic)
        try:
            return self._database.write(lambda it: publish.publish(it, place, entries))
        except StoreUnavailable:
            # Such as a server that hangs up on who sends it more than it takes.
            publish.refuse_too_large(self._database, entries)
            raise

    # Pulling

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
        """Hands out what is due; a read shows first whether there is anything to write."""
        place = self._place(topic)
        who = (topic.name, group)
        if not self._had_work.get(who):
            nothing = self._database.glance(lambda it: pull.glance(it, place, group, asks))
            if nothing is not None:
                return nothing
        terms = pull.Terms(receipt, lease_ms, max_attempts, run)
        pulled = self._database.write(lambda it: pull.pull(it, place, group, asks, terms))
        self._had_work[who] = bool(pulled.deliveries)
        if burial.unreadable(pulled.deliveries):
            burial.bury(pulled, asks, lambda ends: self.settle(topic, group, ends))
        return pulled

    def renew(
        self, topic: Topic, group: str, holds: Sequence[LeaseRef], lease_ms: int
    ) -> RenewResult:
        """Makes these leases end `lease_ms` from now; answers those that are not held any more."""
        place = self._place(topic)
        return self._database.write(lambda it: leases.renew(it, place, group, holds, lease_ms))

    def revoke(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], receipt: str
    ) -> RevokeResult:
        """Gives back, uncounted, all subjects handed out under a receipt whose reply was lost."""
        place = self._place(topic)
        return self._database.write(lambda it: leases.revoke(it, place, group, asks, receipt))

    # Settling

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settles each, in order; one whose epoch or receipt is not in force is `stale`."""
        place = self._place(topic)
        return self._database.write(lambda it: settle.settle(it, place, group, settlements))

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
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None,
        *, beside: Sequence[str] = (),
    ) -> bool:  # fmt: skip
        """Makes the group collect from now on; False if it did before."""
        place = self._place(topic)
        return self._database.write(
            lambda it: groups.subscribe(it, place, group, start, expires_ms, beside)
        )

    def groups(self, topic: Topic) -> list[str]:
        """All groups of a topic, by name."""
        place = self._place(topic)
        return self._database.read(lambda it: groups.names(it, place))

    def drop_group(self, topic: Topic, group: str) -> bool:
        """Forgets the group and all that stands for it; False if there was none."""
        place = self._place(topic)
        return self._database.write(lambda it: groups.drop(it, place, group))

    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        """Moves a stream's group to an offset in each slot named (cut to what is kept)."""
        place = self._place(topic)
        return self._database.write(lambda it: groups.seek(it, place, group, positions))

    def offsets_at(self, topic: Topic, at_ms: int) -> dict[int, int]:
        """For each slot of a stream, the first kept offset published at or after that moment."""
        place = self._place(topic)
        return self._database.read(lambda it: groups.offsets_at(it, place, at_ms))

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot; `NO_EPOCH` where nobody has ever owned it."""
        place = self._place(topic)
        return self._database.read(lambda it: groups.epochs(it, place, group))

    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        """Takes slots under new epochs; answers those taken."""
        place = self._place(topic)
        return self._database.write(lambda it: groups.take(it, place, group, epochs))

    # Rosters

    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        """Makes a member's lease end `lease_ms` from now; answers the roster's version."""
        place = self._place(topic)
        return self._database.write(
            lambda it: rosters.heartbeat(it, place, group, member, lease_ms)
        )

    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        """Who takes part and owns what; None if the version is still `seen` and nobody is gone."""
        place = self._place(topic)
        return self._database.read(lambda it: rosters.look(it, place, group, seen))

    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        """Makes free slots the member's; answers those that are its own now under that epoch."""
        place = self._place(topic)
        return self._database.write(lambda it: rosters.claim(it, place, group, member, epochs))

    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        """Frees those of the slots that are the member's."""
        place = self._place(topic)
        return self._database.write(
            lambda it: rosters.release_slots(it, place, group, member, slots)
        )

    def leave(self, topic: Topic, group: str, member: str) -> None:
        """Takes a member out with all that it owns, whoever asks for it."""
        place = self._place(topic)
        return self._database.write(lambda it: rosters.leave(it, place, group, member))

    # Controls

    def tune(self, topic: Topic, group: str, values: Mapping[str, str | None]) -> None:
        """Sets values by name, in one step; None takes one back."""
        place = self._place(topic)
        self._database.write(lambda it: controls.tune(it, place, group, values))

    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
        """What is set for each group."""
        return self._database.glance(lambda it: controls.tuned(it, self._namespace, asked))

    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        """Draws up to so many tokens from the group's bucket, as many as there are."""
        place, terms = self._place(topic), Terms(tokens, rate, per_ms, burst)
        return self._database.write(lambda it: controls.draw(it, place, group, terms))

    # Timers

    def move(self, topic: Topic, subject: str, at_ms: int) -> Moved:
        """Makes a subject due at another moment, for every group."""
        place = self._place(topic)
        return self._database.write(lambda it: timers.move(it, place, subject, at_ms))

    def change(
        self, topic: Topic, subject: str, body: bytes, headers: dict[str, str] | None
    ) -> Moved:
        """Gives a subject another body and headers, for every group."""
        place = self._place(topic)
        return self._database.write(
            lambda it: timers.change(it, place, subject, body, headers_text(headers))
        )

    def cancel(self, topic: Topic, subject: str) -> Moved:
        """Takes a subject with all its messages out, counted as cancelled."""
        place = self._place(topic)
        return self._database.write(lambda it: timers.cancel(it, place, subject))

    def timer(self, topic: Topic, subject: str) -> list[Record]:
        """Where the subject stands: a record for each group that has it."""
        place = self._place(topic)
        return self._database.read(lambda it: timers.timer(it, place, subject))

    def timers(
        self, topic: Topic, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 100
    ) -> list[Record]:
        """The heads that are waiting and due in `[from_ms, until_ms)`, by due time, then seq."""
        place = self._place(topic)
        return self._database.read(
            lambda it: timers.timers(it, place, from_ms=from_ms, until_ms=until_ms, limit=limit)
        )

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
        place = self._place(topic)
        return self._database.read(lambda it: dead.listed(it, place, group, ids, limit, after))

    def retry_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Makes dead messages due again at once, attempts from zero; answers how many."""
        place = self._place(topic)
        return self._database.write(lambda it: dead.retry(it, place, group, ids, limit))

    def drop_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Removes dead messages for good, counted as cancelled; answers how many."""
        place = self._place(topic)
        return self._database.write(lambda it: dead.drop(it, place, group, ids, limit))

    # Inspecting

    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        """Counts for each group (or one) and slot."""
        place = self._place(topic)
        return self._database.read(lambda it: inspect.stats(it, place, group))

    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        """Messages that stand in one of these states, slot by slot, next ones first."""
        place = self._place(topic)
        return self._database.read(lambda it: inspect.peek(it, place, group, states, limit))

    def explain(self, topic: Topic, message_id: str) -> list[Record]:
        """Where a message stands now: a record for each place."""
        place = self._place(topic)
        return self._database.read(lambda it: inspect.explain(it, place, message_id))

    def verify(self, topic: Topic) -> list[str]:
        """Audits counts and structure; answers what is wrong, in sentences, or nothing."""
        place = self._place(topic)
        return self._database.read(lambda it: audit.verify(it, place))

    # Logs

    def read_log(self, topic: Topic, slot: int, first: int, limit: int) -> list[Delivery]:
        """A slot's messages from an offset on, in order, at most `limit`; nothing is changed."""
        place = self._place(topic)
        return self._database.read(lambda it: logs.read_log(it, place, slot, first, limit))

    # Bells

    def bell(self, topics: Sequence[Topic]) -> RungBell:
        """A bell that rings when one of these topics may have something new."""
        return self._bells.of_topics([self._place(topic).id for topic in topics])

    def roster_bell(self, topic: Topic, group: str) -> RungBell | None:
        """A bell that rings when the roster may have changed; None where the server cannot say."""
        return self._bells.of_roster(self._place(topic).id, group)

    def _told(self, words: Sequence[str]) -> None:
        self._bells.told(words)

    def _place(self, topic: Topic) -> Place:
        number = self._places.get(topic.name)
        if number is None:
            places = self._database.glance(
                lambda it: groups.declared(it, self._namespace, topic.name)
            )
            if not places:
                raise UnknownTopic(topic.name)
            number = self._places[topic.name] = places[0].id
        return Place(topic, number)
