"""The sampler: one look at all topics a second, however many look, and none while nobody looks.

Pages ask for the numbers; if the last look is younger than its interval they get that one, and
while one page takes a new one the others wait for it, three seconds at most. The
interval is a second, or five times as long as a look takes, so that a console is never more than a
fifth of a thread's work for a store; as long as the quicker one of the last two, since one that
has waited for a store that hung is no work. A look that fails is kept too, with its error, for a
second, so that a store that is away is not asked once for each tab.

A look takes half a second at most (`Rounds`). Where topics are too many for that, the next look
goes on where this one stopped, and what is known of the others is of an earlier one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from qframe.admin.owners import GroupRoster, WorkerInfo, reports_in, workers_of
from qframe.admin.rounds import Rounds
from qframe.admin.totals import TopicTotals, Totals, totals_in, unknown_in
from qframe.clock import Clock
from qframe.errors import CoordinatorUnavailable, QFrameError, StoreDamaged, StoreUnavailable
from qframe.options.report import report_of
from qframe.producing.sweeping import OccasionalSweeper
from qframe.roster import Roster
from qframe.schedules.records import GROUP, next_due_ms
from qframe.schedules.records import TOPIC as SCHEDULES
from qframe.stores.base import Store
from qframe.stores.pair import times_of
from qframe.stores.types import WorkerReport
from qframe.topic import Topic, is_internal

INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 3.0
_SHARE: Final = 5
STEP_MS: Final = 10_000
KEPT: Final = 360
"""Points of a chart: an hour, one every ten seconds."""

MOST_CHARTS: Final = 300


class ChartPoint(NamedTuple):
    """A group at one moment, for its charts.

    Attributes:
        at_ms: the moment, by the store's clock.
        lag: how many messages were not settled.
        late_ms: how long the oldest one that was due had waited.
        published, handled: how many so far.
        dead: how many dead letters there were.
    """

    at_ms: int
    lag: int
    late_ms: int
    published: int
    handled: int
    dead: int


class GroupLook(NamedTuple):
    """A group as it was seen.

    Attributes:
        topic: its topic.
        totals: its counts.
        workers: how many workers take part; None where that is not known.
        unowned: how many slots have no owner; None where that is not known.
        late_ms: how long the oldest message that is due has waited.
        failures: after how many failures in a row a worker's circuit breaker is open; 0 for none.
        limit: the rate limit that a worker has reached, such as "100/s"; None for none.
    """

    topic: TopicTotals
    totals: Totals
    workers: int | None
    unowned: int | None
    late_ms: int
    failures: int = 0
    limit: str | None = None

    @property
    def name(self) -> tuple[str, str]:
        """The names of topic and group."""
        return self.topic.name, self.totals.group


class Look(NamedTuple):
    """All topics as they were seen.

    Attributes:
        at_ms: when, by the store's clock.
        declared: all topics, by name.
        topics: those of them that were looked at, by name.
        groups: their groups.
        workers: the workers; None where whoever knows them could not be asked.
        unled: whether schedules have ticks to come, and no worker leads.
        unknown: the topics that this version of qframe cannot read.
        error: why it could not be looked; the rest is of the last look that could.
    """

    at_ms: int = 0
    declared: tuple[Topic, ...] = ()
    topics: tuple[TopicTotals, ...] = ()
    groups: tuple[GroupLook, ...] = ()
    workers: tuple[WorkerInfo, ...] | None = None
    unled: bool = False
    unknown: tuple[TopicTotals, ...] = ()
    error: QFrameError | None = None

    @property
    def left_out(self) -> int:
        """How many topics nobody has looked at yet."""
        return len(self.declared) - len(self.topics)

    def group(self, topic: str, group: str) -> GroupLook | None:
        """One group, if it was there."""
        return next((each for each in self.groups if each.name == (topic, group)), None)


class _TopicLook(NamedTuple):
    """A topic as it was seen, with its groups; its rosters are None where nobody can tell."""

    totals: TopicTotals
    groups: tuple[GroupLook, ...]
    rosters: tuple[GroupRoster, ...] | None


class Sampler:
    """Looks at all topics.

    Args:
        store: returns the store.
        roster: returns the members of a topic's group.
        clock: tells how old a look is.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        *,
        roster: Callable[[Topic, str], Roster],
        clock: Clock,
    ) -> None:
        self._store = store
        self._roster = roster
        self._clock = clock
        self._taking = threading.Lock()
        self._guard = threading.Lock()
        self._look = Look()
        self._rounds = Rounds[_TopicLook](clock)
        self._sweeper = OccasionalSweeper(lambda topic, most: store().sweep(topic, most), clock)
        self._fresh_until_s = float("-inf")
        self._points: dict[tuple[str, str], deque[ChartPoint]] = {}
        self._took_s: float | None = None
        self._forgotten = 0
        self.looks = 0

    def look(self, topic: str | None = None) -> Look:
        """How everything is, or was up to a second ago; `topic` is looked at before others."""
        if self._clock.monotonic_s() < self._fresh_until_s and not self._lacks(topic):
            return self._look  # also while another page has a topic of its own looked at
        if not self._taking.acquire(timeout=PATIENCE_S):
            slow = StoreUnavailable("of the console", f"it has not replied for {PATIENCE_S:g} s")
            return self._look._replace(error=slow)
        try:
            began_s = self._clock.monotonic_s()
            if began_s >= self._fresh_until_s or self._lacks(topic):
                self.looks += 1
                forgotten = self._forgotten
                try:
                    self._look = self._taken(topic)
                    self._keep(self._look)
                except QFrameError as error:
                    self._look = self._look._replace(error=error)
                now_s = self._clock.monotonic_s()
                took_s = now_s - began_s
                if self._look.error is None:
                    least_s = took_s if self._took_s is None else min(took_s, self._took_s)
                    pause_s, self._took_s = least_s * _SHARE, took_s
                else:  # what has failed has waited, and not worked
                    pause_s = INTERVAL_S
                self._fresh_until_s = max(began_s + INTERVAL_S, now_s + pause_s)
                if forgotten != self._forgotten:  # it may not have seen what was changed meanwhile
                    self._fresh_until_s = float("-inf")
            return self._look
        finally:
            self._taking.release()

    def forget(self) -> None:
        """Has the next look be a new one, since something was changed."""
        self._forgotten += 1
        self._fresh_until_s = float("-inf")

    def points(self, topic: str, group: str) -> list[ChartPoint]:
        """The last hour of a group, as far as somebody looked."""
        with self._guard:
            return list(self._points.get((topic, group), ()))

    def _lacks(self, topic: str | None) -> bool:
        """Whether a topic is there, and nobody has looked at it."""
        return (
            self._look.left_out > 0
            and topic not in self._rounds.seen
            and any(each.name == topic for each in self._look.declared)
        )

    def _taken(self, first: str | None) -> Look:
        store = self._store()
        known = store.topics()
        topics = [topic for topic in known if not is_internal(topic.name)]
        now_ms = times_of(store)
        are_told = True  # once nobody can tell of rosters, the other topics do not wait for it

        def look_at(topic: Topic) -> _TopicLook:
            nonlocal are_told
            found = self._look_at(store, topic, now_ms(topic), are_told=are_told)
            are_told = found.rosters is not None
            self._sweeper.look(topic)
            return found

        seen = self._rounds.look(topics, look_at, first)
        rosters = [one for each in seen for one in each.rosters or ()]
        workers = tuple(workers_of(rosters)) if are_told else None
        unled = any(each.name == SCHEDULES.name for each in known) and self._is_unled(store)
        return Look(
            store.now_ms(), tuple(topics), tuple(each.totals for each in seen),
            tuple(group for each in seen for group in each.groups), workers, unled,
            tuple(unknown_in(known)),
        )  # fmt: skip

    def _look_at(self, store: Store, topic: Topic, now_ms: int, *, are_told: bool) -> _TopicLook:
        found = totals_in(store, topic)
        groups: list[GroupLook] = []
        rosters: list[GroupRoster] | None = [] if are_told else None
        for each in found.groups:
            roster = None
            try:
                roster = self._roster_of(topic, each.group) if rosters is not None else None
            except CoordinatorUnavailable:
                rosters = None
            reports: Sequence[WorkerReport] = ()
            if roster is not None and rosters is not None:
                reports = reports_in(store, topic, each.group) if each.group else ()
                paused = each.tuning.paused
                rosters.append(GroupRoster(topic, each.group, roster, paused, reports))
            seen = _seen(found, each, roster, len(topic.shared_slots), now_ms)
            groups.append(_held_back(seen, roster, reports))
        return _TopicLook(found, tuple(groups), None if rosters is None else tuple(rosters))

    def _is_unled(self, store: Store) -> bool:
        """Whether schedules have ticks to come, and no worker leads, as far as that is known."""
        try:
            roster = self._roster_of(SCHEDULES, GROUP)
            return roster is not None and not roster.owners and next_due_ms(store) is not None
        except (CoordinatorUnavailable, StoreDamaged):
            return False

    def _roster_of(self, topic: Topic, group: str) -> Roster | None:
        """A group's roster; None where it is damaged."""
        if not group:
            return Roster(0, [], {})
        try:
            return self._roster(topic, group)
        except StoreDamaged:
            return None

    def _keep(self, look: Look) -> None:
        """Keeps a point of each group every ten seconds; the last one is always of now."""
        with self._guard:
            self._keep_points(look)

    def _keep_points(self, look: Look) -> None:
        names = {each.name for each in look.groups}
        for gone in [name for name in self._points if name not in names]:
            del self._points[gone]
        for each in look.groups[:MOST_CHARTS]:
            kept = self._points.setdefault(each.name, deque(maxlen=KEPT))
            totals = each.totals
            point = ChartPoint(
                look.at_ms, totals.lag, each.late_ms, totals.published,
                totals.settled + totals.dead, totals.dead,
            )  # fmt: skip
            if len(kept) > 1 and point.at_ms - kept[-2].at_ms < STEP_MS:
                kept[-1] = point
            else:
                kept.append(point)


def _seen(
    topic: TopicTotals, totals: Totals, roster: Roster | None, slots: int, now_ms: int
) -> GroupLook:
    late_ms = 0 if totals.oldest_ms is None else max(0, now_ms - totals.oldest_ms)
    if roster is None:
        return GroupLook(topic, totals, None, None, late_ms)
    unowned = slots - len(roster.owners) if totals.group else 0
    return GroupLook(topic, totals, len(roster.members), unowned, late_ms)


def _held_back(
    seen: GroupLook, roster: Roster | None, reports: Sequence[WorkerReport]
) -> GroupLook:
    """A group with what its living workers say of their breakers and limits."""
    alive = {member.id for member in roster.members} if roster is not None else set()
    told = [report_of(each.text) for each in reports if each.worker in alive]
    opened = [each.failures for each in told if each is not None and each.pause_ms is not None]
    limits = [each.rate for each in told if each is not None and each.limited]
    return seen._replace(failures=max(opened, default=0), limit=next(iter(limits), None))
