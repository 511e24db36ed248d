"""Looking, and changing nothing."""

from __future__ import annotations

from typing_extensions import override

from qframe.stores import rules
from qframe.stores.base import Inspecting
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import UNCLAIMED, GroupCursor, TopicState
from qframe.stores.records import Stats, unclaimed
from qframe.topic import Topic


class ModelInspecting(ModelRole, Inspecting):
    """Counts, records and the audit."""

    @override
    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        with self._lock:
            if group is not None:
                self._group(topic, group)
            return stats(self._state(topic), group, self._now_ms())

    @override
    def verify(self, topic: Topic) -> list[str]:
        with self._lock:
            return verify(self._state(topic), self._now_ms())

    @override
    def now_ms(self, topic: Topic | None = None) -> int:
        return self._now_ms()


def stats(state: TopicState, group: str | None, now_ms: int) -> list[Stats]:
    """Counts for each group and slot."""
    if group is None and not state.groups and not state.topic.has_subjects:
        return [
            unclaimed(
                number, head=slot.head, first=slot.head - len(slot.log), waiting=len(slot.later)
            )
            for number, slot in state.in_use.items()
        ]
    names = [name for name in sorted(state.groups) if name != UNCLAIMED] or sorted(state.groups)
    return [
        _stats_of(state, name, number, cursor, now_ms)
        for name in (names if group is None else [group])
        for number, cursor in state.cursors(name).items()
    ]


def _stats_of(state: TopicState, name: str, number: int, cursor: GroupCursor, now_ms: int) -> Stats:
    slot = state.slots[number]
    waiting = len(slot.later)
    if slot.held:
        waiting += sum(len(held) for held in slot.held.values())
    one = Stats(
        slot=number, group=name, epoch=cursor.epoch, waiting=waiting, settled=cursor.acked,
        published=cursor.published + waiting, dead=len(cursor.dead), cancelled=cursor.cancelled,
        head=slot.head,
    )  # fmt: skip
    since = [each.due_ms for each in slot.later if each.due_ms <= now_ms] if slot.later else []
    if not state.topic.has_subjects:
        one.floor = cursor.floor
        one.published += slot.head - cursor.base
        one.todo = slot.head - cursor.read
        one.doing = cursor.in_window
        since += [slot.log[cursor.read].joined_at_ms] if one.todo else []
    for head in cursor.heads.values():
        if head.in_doing:
            one.doing += head.given
            one.todo += 1 + len(head.behind) - head.given
        elif head.due_ms <= now_ms:
            one.todo += 1 + len(head.behind)
            since.append(head.due_ms or head.message.published_at_ms)
        else:
            one.waiting += 1 + len(head.behind)
            one.retrying += head.tries > 0
    one.next_ms = min(since, default=None)
    return one


def verify(state: TopicState, now_ms: int) -> list[str]:
    """The faults, in sentences; nothing if there is none."""
    wrong = []
    for one in stats(state, None, now_ms) if state.groups else []:
        where = f"{state.topic.name}/{one.group} slot {one.slot}"
        parts = one.waiting + one.todo + one.doing + one.settled + one.dead + one.cancelled
        if one.published != parts:
            wrong.append(f"{where}: {one.published} published, {parts} accounted for")
        cursor = state.groups[one.group][one.slot]
        if not state.topic.has_subjects and not cursor.floor <= cursor.read <= one.head:
            wrong.append(f"{where}: floor {cursor.floor}, read {cursor.read}, head {one.head}")
        if cursor.floor < cursor.read and not (cursor.receipt and cursor.lease_until_ms):
            wrong.append(f"{where}: a window without a receipt or lease")
        for subject, head in cursor.heads.items():
            if head.in_doing and not head.lease_until_ms:
                wrong.append(f"{where} subject {subject}: in doing without a lease")
            seqs = [head.seq, *(message.seq for message in head.behind)]
            if not state.topic.has_subjects and any(_stands_in_line(cursor, seq) for seq in seqs):
                wrong.append(f"{where} subject {subject}: it is also in the line")
            if head.in_doing != bool(head.given) or head.given > 1 + len(head.behind):
                wrong.append(f"{where} subject {subject}: a run of {head.given}")
            if head.behind and not head.in_doing and state.topic.kind not in rules.BACKLOGGED:
                wrong.append(f"{where} subject {subject}: a next round behind a free head")
    return wrong


def _stands_in_line(cursor: GroupCursor, offset: int) -> bool:
    return offset >= cursor.floor and offset not in cursor.settled
