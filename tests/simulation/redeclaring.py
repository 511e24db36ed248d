"""A topic that operators delete and declare anew, while users publish to it.

The topic is beside the run's own: it has no workers, and the ledger is not told of it. One user
gives a `Topic`, the other its name; each has a producer and a catalog of its own. Operators delete
the topic by `Admin`, declare it anew with the same kind and slots or with others, and act at the
same time if their plans say so.

What a publish reports holds: a message whose publish began after the last deletion, and that is
`stored` or a `duplicate`, is in the topic at the end. No id is there twice. A publish that is
refused has stored nothing. After a declaration the topic is there. Publishing and declaring raise
errors of qframe that their docstrings name, and no others.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from qframe.errors import PublishUnknown, StoreUnavailable, TopicMismatch, UnknownTopic
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.stores.model.pages import records_of
from qframe.stores.model.state import UNCLAIMED, TopicState
from qframe.stores.records import Section
from qframe.topic import Topic
from simulation.ledger import Broken
from simulation.operating import SimulatedOperators
from simulation.plan import TopicChange
from simulation.scheduler import Process
from simulation.store import REDECLARED, Connection, standing

if TYPE_CHECKING:
    from simulation.world import World

AGAIN_S: Final = 0.2
"""After so long a user tries again."""
GROUP: Final = "readers"


class SimulatedRedeclaring(SimulatedOperators[TopicChange]):
    """The operators of a run who delete a topic and declare it anew, and its users.

    Args:
        world: the run.

    Attributes:
        connections: those of the operators and of the users.
    """

    def __init__(self, world: World) -> None:
        plan = world.plan.redeclared
        assert plan is not None
        super().__init__(world, "redeclarer", "redeclared", plan.changes)
        self._plan = plan
        self._topic = _topic(plan.kind, plan.slots)
        self.connections = [self.connection]
        store: Any = self.connection
        self._catalog = TopicCatalog(store)
        self._deletions = 0
        self._stored_after: dict[str, int] = {}
        world.server.closes = plan.closes
        world.server.on_deleted = self._deleted

    def begin(self) -> None:
        """Has each operator act, and each user publish, at their times."""
        self.world.server.declare(self._topic)
        super().begin()
        self.open += len(self._plan.published_at_s)
        topics: tuple[Topic | str, ...] = self._topic, REDECLARED
        for topic, times in zip(topics, self._plan.published_at_s, strict=True):
            name = "named" if isinstance(topic, str) else "given"
            process = Process(f"{name} user", self.world.scheduler)
            use = partial(self._use, process, name, topic, times)
            self.world.scheduler.spawn(process, use, name)

    def failed_over(self) -> None:
        """The store has failed over: what was published before may be gone, as by a deletion."""
        self._deletions += 1

    # The operators.

    def act(self, plan: TopicChange) -> None:
        """Deletes the topic, and declares it anew."""
        self.ask(self._delete)
        if plan.after_s is not None:
            self.world.scheduler.sleep(plan.after_s)
            self.ask(partial(self._declare, plan))

    def _delete(self) -> None:
        try:
            self.admin.delete_topic(REDECLARED, confirm=REDECLARED)
        except UnknownTopic as error:
            self._log(f"needs no deletion: {error}")

    def _deleted(self, topic: Topic) -> None:
        if topic.name == REDECLARED:
            self._deletions += 1
            self._log("is deleted")

    def _declare(self, plan: TopicChange) -> None:
        topic, deletions = _topic(plan.kind, plan.slots), self._deletions
        try:
            found = self._catalog.declare(topic)
        except TopicMismatch as error:
            self._log(f"is not declared: {error}")
            return
        self._log(f"is declared: {found}")
        state = self._state
        if deletions == self._deletions and (state is None or state.topic.kind is not found.kind):
            self._break(f"{found} was declared, and is not there")
        if plan.has_group:
            try:
                self.world.server.subscribe(found, GROUP)
            except UnknownTopic as error:
                self._log(f"gets no group: {error}")

    # The users.

    def _use(
        self, process: Process, name: str, topic: Topic | str, times: tuple[float, ...]
    ) -> None:
        connection = Connection(self.world.server, process, f"{self.world.plan.seed}/redeclared")
        connection.log = self.world.log
        self.connections.append(connection)
        store: Any = connection
        producer = Producer(
            store, catalog=TopicCatalog(store), max_body=1_000_000, batch=500, clock=process,
            pause=self.world.scheduler.sleep,
        )  # fmt: skip
        for number, at_s in enumerate(times):
            self.world.scheduler.sleep(max(0.0, at_s - self.world.scheduler.now))
            topic = self._send(producer, topic, f"{name}{number}")
        self.open -= 1

    def _send(self, producer: Producer, topic: Topic | str, name: str) -> Topic | str:
        """Publishes a message until its fate is known; returns the topic to publish to next."""
        is_unknown = False
        while True:
            deletions = self._deletions
            try:
                published = producer.publish(topic, name, key=name, id=name)
            except PublishUnknown:
                is_unknown = True
            except (StoreUnavailable, UnknownTopic, TopicMismatch) as error:
                self._log(f"refuses {name}: {error}")
                if not is_unknown and self._ids()[name]:
                    self._break(f"{name} is stored, and its publish was refused: {error}")
                if isinstance(error, UnknownTopic) and isinstance(topic, str):
                    return topic  # nobody has declared it since
                if isinstance(error, TopicMismatch) and isinstance(topic, Topic):
                    topic = self._current(topic)
            else:
                self._log(f"has {name}, {published.outcome}")
                self._stored_after[name] = deletions
                return topic
            self.world.scheduler.sleep(AGAIN_S)

    def _current(self, topic: Topic) -> Topic:
        """The topic as it is declared now, as the next release of its user's program has it."""
        state = self._state
        return topic if state is None else _topic(state.topic.kind, state.topic.slots)

    # The promises.

    def check(self) -> None:
        """Checks that the topic has what it should have.

        Raises:
            Broken: if it does not.
        """
        ids, state = self._ids(), self._state
        if state is not None and (wrong := self.world.server.verify(state.topic)):
            raise Broken(f"the topic that was declared anew is not sound: {wrong}")
        if twice := sorted(name for name, count in ids.items() if count > 1):
            raise Broken(f"these are twice in the topic that was declared anew: {twice}")
        missing = [
            name for name, deletions in self._stored_after.items()
            if deletions == self._deletions and not ids[name]
        ]  # fmt: skip
        if missing:
            raise Broken(f"these were stored after the last deletion, and are gone: {missing}")

    @property
    def _state(self) -> TopicState | None:
        return self.world.server._states.get(REDECLARED)

    def _ids(self) -> Counter[str]:
        """How often each id is in the topic."""
        state = self._state
        if state is None:
            return Counter()
        if not state.topic.has_subjects:
            slots = state.slots.values()
            return Counter(one.id for slot in slots for one in (*slot.log.values(), *slot.later))
        group = GROUP if GROUP in state.groups else UNCLAIMED
        now_ms = self.world.server.now_ms()
        return Counter(
            one.id for number in state.groups.get(group, ())
            for one in (
                *standing(state, group, number, now_ms),
                *records_of(state, Section(number, "held", ""), now_ms),
            )
        )  # fmt: skip

    def _log(self, what: str) -> None:
        self.world.log(REDECLARED, what)

    def _break(self, what: str) -> None:
        self.world.fail(Broken(what))


def _topic(kind: str, slots: int) -> Topic:
    return Topic(REDECLARED, kind, slots)  # type: ignore[arg-type] # a kind's name
