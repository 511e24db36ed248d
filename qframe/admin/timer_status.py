"""How a timer stands with each group, or how it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby

import msgspec

from qframe.admin.search import Hits
from qframe.admin.timer_search import TimerChoice, found_timers
from qframe.clock import as_datetime
from qframe.errors import BadOption
from qframe.outcomes import Verdict
from qframe.stores.base import Store
from qframe.stores.history import CANCELLED
from qframe.stores.records import HistoryEntry, Record, Sought
from qframe.topic import Topic


class TimerStatus(msgspec.Struct, kw_only=True, frozen=True):
    """How a timer stands with a group.

    Attributes:
        group: the group; None if no group has seen it yet.
        state: waiting; due (not handed out yet); doing; retrying (it waits after a failed attempt);
            dead (among the dead letters); handled; cancelled; unknown (not all timers were looked
            at, and it may be among the others).
        id: the id of its message.
        key: its key; None also where it is gone and was looked up by its id alone.
        due_ms: when it is due; None where it is gone.
        ended_ms: when it was handled, cancelled, or died.
        attempts: how many attempts it has had.
        by: the worker that has handled it, or who has cancelled it, where the topic keeps that.
        error: of the last failed attempt.
        history: the ends of its attempts and what was done to it, where the topic keeps that.
        looked: how many timers were looked at, one by one; 0 where an index led to it.
        place: of an unknown one, the place from which `find` goes on with the same id.
    """

    group: str | None
    state: str
    id: str
    key: str | None = None
    due_ms: int | None = None
    ended_ms: int | None = None
    attempts: int = 0
    by: str | None = None
    error: str | None = None
    history: tuple[HistoryEntry, ...] = ()
    looked: int = 0
    place: str | None = None

    @property
    def due_at(self) -> datetime | None:
        """When it is due, in UTC; None where it is gone, or beyond the year 9999."""
        return as_datetime(self.due_ms)

    @property
    def ended_at(self) -> datetime | None:
        """When it was handled, cancelled, or died, in UTC; None where it is there still."""
        return as_datetime(self.ended_ms)


def status_of(
    store: Store, topic: Topic, *, key: str | None, message_id: str | None, look: int
) -> list[TimerStatus]:
    """How a timer stands with each group that knows it.

    Raises:
        BadOption: if neither key nor id is given.
    """
    if key is None and message_id is None:
        raise BadOption("key", None, "no timer is named", "give its key, or id=")
    sought = Sought(id=message_id, key=key)
    records = [each for each in store.find(topic, sought).records if each.state != "settled"]
    hits = Hits([], 0, None)
    if message_id is not None and all(each.state == "dead" for each in records):
        # What was delayed is in no index by its id.
        which: TimerChoice = {"id": message_id, "key": key}
        hits = found_timers(store, topic, which, limit=1, look=look, place=None)
        records += [each for first in hits.records for each in _of_all_groups(store, topic, first)]
    found = [_standing(store, topic, each) for each in records]
    if topic.history_ms:
        entries = (
            store.last_ended(topic, key or "") if message_id is None
            else store.history(topic, message_id)
        )  # fmt: skip
        found += _ended(entries, {each.group for each in found}, key)
    if not hits.records and hits.place is not None:
        here = {each.group for each in found}
        groups: list[str | None] = [*store.groups(topic)] or [None]
        found += [
            TimerStatus(group=group, state="unknown", id=message_id or "", key=key,
                        looked=hits.looked, place=hits.place)
            for group in groups
            if group not in here
        ]  # fmt: skip
    return sorted(found, key=lambda each: each.group or "")


def _of_all_groups(store: Store, topic: Topic, first: Record) -> list[Record]:
    """A timer as each group has it, once it was met for one."""
    if first.subject is None:
        return [first]
    return [each for each in store.timer(topic, first.subject) if each.id == first.id]


def _standing(store: Store, topic: Topic, record: Record) -> TimerStatus:
    """A timer that is there still, if among the dead."""
    state = record.state
    if record.state == "todo":  # behind another of its key it may not be due yet
        state = "due" if (record.due_ms or 0) <= store.now_ms(topic) else "waiting"
    elif record.state == "waiting" and record.attempts:
        state = "retrying"
    history: tuple[HistoryEntry, ...] = ()
    if topic.history_ms:
        entries = store.history(topic, record.id, record.slot)
        history = tuple(each for each in entries if each.group == record.group)
    return TimerStatus(
        group=record.group, state=state, id=record.id, key=record.key, due_ms=record.due_ms,
        ended_ms=record.died_at_ms, attempts=record.attempts, error=record.error, history=history,
        by=history[-1].worker if history and state == "dead" else None,
    )  # fmt: skip


def _ended(
    entries: list[HistoryEntry], here: set[str | None], key: str | None
) -> Iterator[TimerStatus]:
    """The groups for which it is gone, if its history says why."""
    for group, those in groupby(entries, lambda each: each.group):
        history = tuple(those)
        last = history[-1]
        state = {str(Verdict.ACK): "handled", CANCELLED: "cancelled", str(Verdict.DEAD): "dead"}
        if (group or None) not in here and last.verdict in state:
            yield TimerStatus(
                group=group or None, state=state[last.verdict], id=last.id, key=key,
                ended_ms=last.ended_ms,
                attempts=last.attempt, by=last.worker, error=last.error, history=history,
            )  # fmt: skip
