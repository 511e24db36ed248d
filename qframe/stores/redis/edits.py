"""Edits of heads and of dead letters, a script for those of a slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.drivers.scripts import Refused
from qframe.errors import UnknownGroup
from qframe.outcomes import Moved
from qframe.stores.edits import Becomes, Edit, Rewriting
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.groups import lacks_group, names
from qframe.stores.redis.histories import lines_of
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic

AT_ONCE: Final = 200
"""How many edits one script makes at most: others wait meanwhile."""

_FIRST: Final = (Moved.DOING, Moved.DONE, Moved.ABSENT)
_Answers = dict[tuple[int, int], Moved]
"""What came of each edit, by its number, in each slot."""


class RedisRewriting(RedisRole, Rewriting):
    """Heads and dead letters, slot by slot."""

    @override
    def rewrite(self, topic: Topic, edits: Sequence[Edit], *, by: str | None = None) -> list[Moved]:
        answers: _Answers = {}
        self._call(topic, rewrite, edits, by, self._now(), answers)
        found: list[set[Moved]] = [set() for _ in edits]
        for (number, _), moved in answers.items():
            found[number].add(moved)
        return [next((each for each in _FIRST if each in some), Moved.ABSENT) for some in found]


def rewrite(
    redis: Redis, keys: SlotKeys, edits: Sequence[Edit], by: str | None, now: str,
    answers: _Answers,
) -> None:  # fmt: skip
    """Makes edits in each slot in which their messages may stand, but where that was answered."""
    asked = list(_by_slot(keys, edits, answers))
    calls = [
        keys.call(
            "rewrite", slot, now, str(keys.topic.kind),
            *(word for number in numbers for word in _packed(keys, edits[number], by)),
        )
        for slot, numbers in asked
    ]  # fmt: skip
    try:
        replies = redis.run(calls)
    except Refused as refused:
        _note(asked, refused.replies, answers)
        raise
    for (_, numbers), reply in zip(asked, replies, strict=True):
        if lacks_group(reply):
            raise _unknown(redis, keys, [edits[number].group for number in numbers])
    _note(asked, replies, answers)


def _note(asked: Sequence[tuple[int, list[int]]], replies: list[Any], answers: _Answers) -> None:
    """Notes what came of edits, but for those whose slot has not answered."""
    for (slot, numbers), reply in zip(asked, replies, strict=True):
        if isinstance(reply, list):
            for number, word in zip(numbers, reply, strict=True):
                answers[number, slot] = Moved(word.decode())


def _unknown(redis: Redis, keys: SlotKeys, groups: Sequence[str | None]) -> UnknownGroup:
    """The error for edits of which one is for a group that there is not."""
    named = [group for group in groups if group is not None]
    there = names(redis, keys)
    missing = next((group for group in named if group not in there), named[0])
    return UnknownGroup(keys.topic.name, missing, there)


def _by_slot(
    keys: SlotKeys, edits: Sequence[Edit], answers: _Answers
) -> Iterator[tuple[int, list[int]]]:
    """The numbers of the edits for each slot, some at a time, in order."""
    slots: dict[int, list[int]] = {}
    for number, edit in enumerate(edits):
        for slot in edit.slots_in(keys.topic):
            if (number, slot) not in answers:
                slots.setdefault(slot, []).append(number)
    for slot, numbers in slots.items():
        for start in range(0, len(numbers), AT_ONCE):
            yield slot, numbers[start : start + AT_ONCE]


def _packed(keys: SlotKeys, edit: Edit, by: str | None) -> tuple[bytes, bytes, bytes]:
    """An edit as `rewrite.lua` takes it."""
    is_kept = edit.becomes in (Becomes.EDITED, Becomes.CANCELLED)
    due_ms = None if edit.due_ms is None else max(0, edit.due_ms)
    known = (edit.group, edit.seq, edit.if_due_ms, due_ms)
    facts = pack((
        edit.becomes, edit.subject, *(False if each is None else each for each in known),
        edit.error, edit.force, lines_of(keys, by, edit.changes) if is_kept else "",
    ))  # fmt: skip
    body = b"" if edit.body is None else pack(edit.body)
    return facts, body, pack(edit.headers)
