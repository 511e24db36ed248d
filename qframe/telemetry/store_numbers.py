"""The numbers of a store: true though no worker lives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from qframe.admin.rounds import Rounds
from qframe.admin.totals import Totals, totals_in
from qframe.clock import Clock
from qframe.errors import StoreDamaged, StoreUnavailable
from qframe.roster import Roster
from qframe.schedules.records import TOPIC as SCHEDULES
from qframe.schedules.records import next_due_ms
from qframe.stores.base import Store
from qframe.stores.pair import times_of
from qframe.stores.records import TimerSpan
from qframe.telemetry.families import Family
from qframe.topic import Topic

FRESH_S: Final = 5.0
MOST_GROUPS: Final = 1000
MOST_TIMERS: Final = 1000
WITHIN_MS: Final = {"1m": 60_000, "1h": 3_600_000, "1d": 86_400_000}
_WHERE: Final = ("topic", "group")
_STATES: Final = ("waiting", "todo", "doing", "dead")


class OutboxNumbers(Protocol):
    """How much waits in an outbox."""

    @property
    def name(self) -> str:
        """The outbox's name, for its label."""

    def numbers(self) -> tuple[int, int]:
        """How many messages wait, and how many of them are refused."""


class _GroupNumbers(NamedTuple):
    topic: str
    totals: Totals
    workers: int
    unowned: int
    now_ms: int


class _TopicNumbers(NamedTuple):
    """A topic at one look.

    Attributes:
        at_s: when it was looked at, by the clock that only moves forward.
        groups: the numbers of its groups.
        damaged: the groups that cannot be counted.
        timers: how many timers fall due within each time; empty where it has none.
    """

    at_s: float
    groups: list[_GroupNumbers]
    damaged: list[tuple[str, str]]
    timers: list[tuple[tuple[str, str], float]]


class StoreNumbers:
    """Reads the numbers of a store, at most every 5 s, however often somebody asks.

    Of more than 1,000 groups the first 1,000 are shown, by topic and name; and of timers up to
    1,000 for each topic are counted. Of a group that is damaged only that is told. A look takes
    half a second: where that is too short for all topics, the next one goes on, and the numbers of
    the others are those of an earlier look (`qframe_oldest_look_seconds`).

    Args:
        store: the store.
        roster: returns the members of a topic's group.
        outboxes: the outboxes that are counted too.
        clock: tells how fresh they are, and the time beside that of the store.
    """

    def __init__(
        self,
        store: Store,
        *,
        roster: Callable[[Topic, str], Roster],
        outboxes: Sequence[OutboxNumbers] = (),
        clock: Clock,
    ) -> None:
        self._store = store
        self._roster = roster
        self._outboxes = outboxes
        self._clock = clock
        self._guard = threading.Lock()
        self._read_at_s: float | None = None
        self._families: list[Family] = []
        self._rounds = Rounds[_TopicNumbers](clock)

    def families(self) -> list[Family]:
        """All numbers; where the store is away, only that it is."""
        with self._guard:
            now_s = self._clock.monotonic_s()
            if self._read_at_s is None or now_s - self._read_at_s >= FRESH_S:
                self._families = self._read()
                self._read_at_s = self._clock.monotonic_s()
            return self._families

    def _read(self) -> list[Family]:
        try:
            found = [*self._of_store(), *self._of_outboxes()]
        except StoreUnavailable:
            return [_gauge("qframe_store_up", "1 while the store can be reached.", (), [((), 0)])]
        up = _gauge("qframe_store_up", "1 while the store can be reached.", (), [((), 1)])
        return [up, *found]

    def _of_store(self) -> list[Family]:
        time_of = times_of(self._store)
        seen, left_out = self._looked(time_of)
        groups = [one for each in seen for one in each.groups][:MOST_GROUPS]
        damaged = [where for each in seen for where in each.damaged]
        oldest_s = min((each.at_s for each in seen), default=self._clock.monotonic_s())
        now_ms = self._store.now_ms()
        skew_s = (self._clock.now_ms() - now_ms) / 1000

        def each(name: str, text: str, read: Callable[[_GroupNumbers], float]) -> Family:
            values = [((one.topic, one.totals.group), read(one)) for one in groups]
            return _gauge(name, text, _WHERE, values)

        states = [
            ((one.topic, one.totals.group, state), float(getattr(one.totals, state)))
            for one in groups
            for state in _STATES
        ]
        settled = [((one.topic, one.totals.group), float(one.totals.settled)) for one in groups]
        return [
            _gauge("qframe_messages", "Messages by state.", (*_WHERE, "state"), states),
            each(
                "qframe_oldest_due_seconds",
                "How late the oldest message is that may be handed out now; 0 if none is.",
                lambda one: _age_s(one.totals.oldest_ms, one.now_ms),
            ),
            Family(
                "qframe_settled", "counter", "Messages that a group has settled.", _WHERE, settled
            ),
            each("qframe_dead", "Dead letters.", lambda one: one.totals.dead),
            each("qframe_slots_unowned", "Slots that no worker owns.", lambda one: one.unowned),
            each("qframe_workers", "Workers that take part.", lambda one: one.workers),
            each(
                "qframe_paused", "1 while the group is paused.",
                lambda one: float(one.totals.tuning.paused or False),
            ),
            each(
                "qframe_spark", "1 for a group that follows a Spark query, and has no worker.",
                lambda one: float(one.totals.tuning.reader is not None),
            ),
            _gauge(
                "qframe_damaged",
                "1 for a group whose keys hold what qframe did not write; it has no other numbers.",
                _WHERE,
                [*(((one.topic, one.totals.group), 0) for one in groups),
                 *((where, 1) for where in damaged)],
            ),
            _gauge(
                "qframe_timers_due_within",
                "Timers and retries that fall due within that time; 1,000 stands for more too.",
                ("topic", "within"), [value for each in seen for value in each.timers],
            ),
            _gauge(
                "qframe_schedule_overdue_seconds",
                "How late the latest schedule is that nobody has looked at; 0 if none is.", (),
                self._overdue(time_of),
            ),
            _gauge(
                "qframe_clock_skew_seconds", "This process's clock less that of the store.", (),
                [((), skew_s)],
            ),
            _gauge(
                "qframe_groups_left_out",
                "Groups that are not shown, since there are too many or nobody has looked yet; a "
                "topic that was not looked at counts as one.",
                (), [((), left_out)],
            ),
            _gauge(
                "qframe_oldest_look_seconds",
                "How old the oldest numbers of a topic are: a look takes half a second, and the "
                "next one goes on.",
                (), [((), self._clock.monotonic_s() - oldest_s)],
            ),
        ]  # fmt: skip

    def _looked(self, time_of: Callable[[Topic], int]) -> tuple[list[_TopicNumbers], int]:
        """The numbers of topics by name, and how many groups are left out."""
        topics = self._store.topics()
        seen = self._rounds.look(self._shown(topics), partial(self._look_at, time_of))
        too_many = max(0, sum(len(each.groups) for each in seen) - MOST_GROUPS)
        return seen, too_many + len(topics) + len(topics.unread) - len(seen)

    def _shown(self, topics: Sequence[Topic]) -> Sequence[Topic]:
        """The first topics, as far as is known which of them have the first groups."""
        count = 0
        for place, topic in enumerate(topics):
            if count >= MOST_GROUPS:
                return topics[:place]
            seen = self._rounds.seen.get(topic.name)
            count += 1 if seen is None else len(seen.groups)
        return topics

    def _look_at(self, time_of: Callable[[Topic], int], topic: Topic) -> _TopicNumbers:
        now_ms = time_of(topic)
        found = totals_in(self._store, topic)
        damaged = [(topic.name, group) for group in found.damaged]
        groups: list[_GroupNumbers] = []
        for totals in found.groups:
            workers = unowned = 0
            if totals.group:
                try:
                    roster = self._roster(topic, totals.group)
                except StoreDamaged:
                    damaged.append((topic.name, totals.group))
                    continue
                workers = len(roster.members)
                unowned = len(topic.shared_slots) - len(roster.owners)
            groups.append(_GroupNumbers(topic.name, totals, workers, unowned, now_ms))
        timers = self._timers(topic, now_ms)
        return _TopicNumbers(self._clock.monotonic_s(), groups, damaged, timers)

    def _overdue(self, time_of: Callable[[Topic], int]) -> list[tuple[tuple[()], float]]:
        try:
            due_ms = next_due_ms(self._store)
        except StoreDamaged:
            return []
        return [((), _age_s(due_ms, time_of(SCHEDULES)))]

    def _timers(self, topic: Topic, now_ms: int) -> list[tuple[tuple[str, str], float]]:
        if not topic.has_subjects:
            return []
        span = TimerSpan(
            from_ms=now_ms, until_ms=now_ms + max(WITHIN_MS.values()), limit=MOST_TIMERS
        )
        try:
            found = self._store.timers(topic, span)
        except StoreDamaged:
            return []
        return [
            (
                (topic.name, name),
                float(sum((each.due_ms or 0) < now_ms + within_ms for each in found)),
            )
            for name, within_ms in WITHIN_MS.items()
        ]

    def _of_outboxes(self) -> list[Family]:
        if not self._outboxes:
            return []
        counts: dict[str, tuple[int, int]] = {}
        for outbox in self._outboxes:
            try:
                counts[outbox.name] = outbox.numbers()
            except Exception:  # noqa: S112 - of its database or driver; its relay tells of it
                continue
        return [
            _gauge(
                f"qframe_outbox_{name}", text, ("outbox",),
                [((outbox,), float(numbers[place])) for outbox, numbers in counts.items()],
            )
            for place, name, text in (
                (0, "pending", "Messages that wait in an outbox; 1,000 stands for more too."),
                (1, "refused", "Messages in an outbox that their topic refuses."),
            )
        ]  # fmt: skip


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Any) -> Family:
    return Family(name, "gauge", text, labels, values)


def _age_s(since_ms: int | None, now_ms: int) -> float:
    return 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000
