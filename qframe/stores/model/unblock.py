"""Messages that stand first for a key: looked up, made due, given up."""

from __future__ import annotations

from typing_extensions import override

from qframe.outcomes import Moved
from qframe.stores import rules
from qframe.stores.acts import Unblocking
from qframe.stores.model.queues import add_dead_letter, advance
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import GroupCursor, QueuedHead
from qframe.stores.records import HeadPlace
from qframe.topic import Topic


class ModelUnblocking(ModelRole, Unblocking):
    """Heads of a group."""

    @override
    def hasten(self, topic: Topic, group: str, place: HeadPlace) -> Moved:
        with self._lock:
            self._changing(topic)
            moved, head = find(self._group(topic, group), place)
            if head is not None and moved is Moved.DONE:
                head.due_ms = min(head.due_ms, self._now_ms())
        self._ring(topic)
        return moved

    @override
    def skip(
        self, topic: Topic, group: str, place: HeadPlace, error: str, *, force: bool = False
    ) -> Moved:
        with self._lock:
            self._changing(topic)
            cursors = self._group(topic, group)
            moved, head = find(cursors, place)
            if head is not None and (force or moved is Moved.DONE):
                moved = Moved.DONE
                rules.end_lease(head)
                cursor = cursors[place.slot]
                add_dead_letter(cursor, head, self._now_ms(), error, head.error)
                advance(cursor, topic.kind, head, self._now_ms())
        self._ring(topic)
        return moved


def find(cursors: dict[int, GroupCursor], place: HeadPlace) -> tuple[Moved, QueuedHead | None]:
    """The head of that number, if it is there, and whether it may be changed."""
    head = cursors[place.slot].heads.get(place.subject)
    if head is None or head.seq != place.seq:
        return Moved.ABSENT, None
    return Moved.DOING if head.in_doing else Moved.DONE, head
