"""Looks a message up in topics, and explains what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from qframe.admin.explain.cause import Cause, Explanation
from qframe.admin.explain.circumstances import Circumstances, RosterOf
from qframe.admin.explain.nowhere import (
    ELSEWHERE,
    NOT_THERE,
    cut_off,
    more_of_key,
    not_looked_at,
    unknown,
    unread,
)
from qframe.admin.explain.past import Past, gone_after
from qframe.admin.explain.reasons import causes_of
from qframe.admin.explain.words import moment
from qframe.admin.rounds import LOOK_UP_S, Rounds
from qframe.admin.search import TOPIC_COSTS
from qframe.codec import time_of_token
from qframe.errors import BadOption
from qframe.stores.base import Store
from qframe.stores.pair import times_of
from qframe.stores.records import Found, HistoryEntry, Record, ScanPage, Sought
from qframe.topic import Kind, Topic, span_of

LOOK: Final = 20_000
"""How many messages to look at by default where no index leads to the one."""

_PAGE: Final = 2000
BEHIND: Final = 100
"""How many messages of a key are explained behind the first one."""


class Explainer:
    """Explains one message, or the messages of a key, at one moment.

    Args:
        store: where the messages are.
        roster: returns the members of a topic's group.
        sought: what to explain.
        look: how many messages a scan may look at, in all topics together.
        shown: returns a record with what may be seen of it.
        end_shown: does so for the end of an attempt.
    """

    def __init__(
        self, store: Store, *, roster: RosterOf, sought: Sought, look: int,
        shown: Callable[[Record], Record], end_shown: Callable[[HistoryEntry], HistoryEntry],
    ) -> None:  # fmt: skip
        self._store = store
        self._past = Past(store, end_shown)
        self._roster = roster
        self._sought = sought
        self._left = look
        self._shown = shown
        self._now_ms = times_of(store)
        self._around: dict[tuple[str, str], Circumstances] = {}

    def explained(self, topics: Sequence[Topic]) -> list[Explanation]:
        """Explains what topics have; where none has anything, why that may be.

        Topics that know of it are answered for first, each of their groups: only where there is
        none, it is looked for in all, one by one.
        """
        looked_up = Rounds[tuple[Topic, Found]](seconds=LOOK_UP_S).look(
            topics, lambda topic: (topic, self._store.find(topic, self._sought, BEHIND))
        )
        streams = [] if self._sought.id is not None or self._sought.key is None else [
            topic for topic in topics if not topic.has_subjects
        ]  # fmt: skip
        if len(topics) == len(streams) == 1:  # by its index it would have its dead letters alone
            return self._looked_for(topics, looked_up)
        told = [each for topic, found in looked_up for each in self._known(topic, found)]
        if len(looked_up) < len(topics):
            return [*told, cut_off(topics, len(looked_up), self._sought, has_found=bool(told))]
        if told and len(topics) > 1 and all(each.state == "absent" for each in told):
            told = [replace(each, causes=(*each.causes, ELSEWHERE)) for each in told]
        if told and streams:
            told.append(unread(streams, self._sought))
        return told or self._looked_for(topics, looked_up)

    def _known(self, topic: Topic, found: Found) -> list[Explanation]:
        """Explains it for each group of a topic that knows of it; nothing of any other topic."""
        told = [*self._of_records(topic, found)]
        told += self._past.settled(topic, self._sought.id, {each.group for each in told})
        knows = told or found.remembered or self._past.all_of(topic, self._sought.id)
        groups = self._unanswered(topic, told) if knows and self._sought.id is not None else []
        if told and not groups:
            return told
        if not knows:
            return []
        page = ScanPage([], 0, None)
        if not self._is_whole(topic, told):
            slots = [*(each.slot for each in found.remembered), *(each.slot for each in told)]
            page = self._scanned(topic, next(iter(slots), None))
        some = self._of_records(topic, found, page)
        told += [each for each in some if each.group is None or each.group in groups]
        if page.place is not None and not self._is_whole(topic, told):
            return [
                *told,
                *not_looked_at(topic, self._sought, found, page, self._unanswered(topic, told)),
            ]
        if not told:
            return [self._absent(topic, found, page) or unknown([topic], [page], self._sought)]
        return [*told, *self._without(topic, self._unanswered(topic, told), told[0])]

    def _unanswered(self, topic: Topic, told: Sequence[Explanation]) -> list[str]:
        """The groups of a topic for which nothing is told."""
        here = {each.group for each in told}
        return [] if None in here else [one for one in self._store.groups(topic) if one not in here]

    def _is_whole(self, topic: Topic, told: Sequence[Explanation]) -> bool:
        """Whether what was looked up is all that a topic has of it, for whatever group."""
        if self._sought.offset is not None:
            return True
        records = [each.record for each in told if each.record is not None]
        if not topic.has_subjects:
            return bool(records)
        is_keyed = self._sought.key is not None or any(one.key is not None for one in records)
        return is_keyed or (bool(records) and topic.subject == "id")

    def _without(
        self, topic: Topic, groups: Sequence[str], other: Explanation
    ) -> Iterator[Explanation]:
        """Explains that groups do not have a message that another has."""
        past = self._past.all_of(topic, self._sought.id) or ()
        for group in groups:
            history = tuple(entry for entry in past if entry.group == group)
            yield Explanation(
                topic=topic.name, group=group, state="absent",
                causes=(gone_after(history[-1], None) if history else NOT_THERE,),
                id=self._sought.id, key=other.key, slot=other.slot, history=history or None,
            )  # fmt: skip

    def _looked_for(
        self, topics: Sequence[Topic], looked_up: Sequence[tuple[Topic, Found]]
    ) -> list[Explanation]:
        """Looks for it in topics that do not know of it, as far as is allowed."""
        pages = []
        for number, (topic, found) in enumerate(looked_up, start=1):
            page = ScanPage([], 0, None)
            if not self._is_whole(topic, ()):
                page = self._scanned(topic, None)
            if page.records and self._sought.id is None:
                return [*self._of_records(topic, found, page), *self._more(topics, number, page)]
            if page.records:
                told = self._of_records(topic, found, page)
                groups = self._unanswered(topic, told)
                if not groups or self._is_whole(topic, told) or page.place is None:
                    return [*told, *self._without(topic, groups, told[0])]
                return [*told, *not_looked_at(topic, self._sought, found, page, groups)]
            pages.append(page)
        if len(topics) > 1 and self._sought.offset is None:
            return [unknown(topics, pages, self._sought)]
        absent = [
            each for (topic, found), page in zip(looked_up, pages, strict=True)
            if page.place is None and (each := self._absent(topic, found, page)) is not None
        ]  # fmt: skip
        return absent or [unknown(topics, pages, self._sought)]

    def _more(self, topics: Sequence[Topic], number: int, page: ScanPage) -> Iterator[Explanation]:
        """Says where a key may have more: behind the place in a stream, and in those after it."""
        if page.place is not None:
            yield more_of_key(topics[number - 1], self._sought, page)
        if streams := [topic for topic in topics[number:] if not topic.has_subjects]:
            yield unread(streams, self._sought)

    def _scanned(self, topic: Topic, slot: int | None) -> ScanPage:
        """The first messages of a topic that are sought, looked for as long as is allowed.

        The place is empty where nothing could be looked at.
        """
        result = ScanPage([], 0, None if self._left > 0 else "")
        sought = msgspec.structs.replace(self._sought, first_slot=slot)
        while self._left > 0:
            page = self._store.scan(topic, result.place, min(_PAGE, self._left), sought)
            self._left -= max(TOPIC_COSTS if page.place is None else 1, page.looked)
            result.looked += page.looked
            result.place = page.place
            result.records += page.records
            enough = BEHIND if self._sought.id is None else 0
            if len(result.records) > enough or page.place is None:
                break
        return result

    def _of_records(
        self, topic: Topic, found: Found, page: ScanPage | None = None
    ) -> list[Explanation]:
        """Explains what was looked up, or what a scan has come upon."""
        records, looked = (found.records, 0) if page is None else (page.records, page.looked)
        key = records[0].key if records else None
        is_met = page is not None and records and self._sought.id is not None
        if is_met and not topic.has_subjects and records[0].seq is not None:
            # Now that its offset is known, it is found for all groups.
            at = Sought(offset=records[0].seq, slot=records[0].slot)
            records = self._store.find(topic, at).records
        if topic.has_subjects and self._sought.key is None and key is not None:
            # Now that its key is known, it is found for all groups.
            keyed = self._store.find(topic, Sought(id=self._sought.id, key=key)).records
            records = [*keyed, *(each for each in records if each.key != key)] if keyed else records
        until_ms = {one.slot: one.at_ms + topic.dedupe_window_ms for one in found.remembered}
        return [
            self._explained(topic, self._shown(record), looked, until_ms.get(record.slot))
            for record in records
        ]

    def _explained(
        self, topic: Topic, record: Record, looked: int, until_ms: int | None
    ) -> Explanation:
        around = None if record.group is None else self._circumstances(topic, record.group)
        head = self._head_of(topic, record)
        has_groups = around is not None or bool(self._store.groups(topic))
        history = self._past.of_record(topic, record)
        causes = causes_of(
            record, around, head, now_ms=self._now_ms(topic), has_groups=has_groups,
            last=history[-1] if history else None,
        )  # fmt: skip
        return Explanation(
            topic=topic.name, group=record.group, state=record.state, causes=tuple(causes),
            id=record.id, key=record.key, slot=record.slot, offset=record.seq, record=record,
            duplicate_until_ms=until_ms, looked=looked, history=history,
        )  # fmt: skip

    def _head_of(self, topic: Topic, record: Record) -> Record | None:
        """The message that stands before one in its subject."""
        if record.subject is None or record.group is None:
            return None
        if record.state not in ("todo", "waiting") or record.key is None:
            return None
        if topic.has_subjects:
            found = self._store.find(topic, Sought(key=record.key, slot=record.slot), limit=1)
            records = [each for each in found.records if each.group == record.group]
        elif record.subject == str(record.seq):  # it left the line alone
            return None
        else:
            records = self._store.first_of_key(topic, record.group, record.key)
        heads = [
            each for each in records
            if each.subject == record.subject and each.state in ("doing", "todo", "waiting")
        ]  # fmt: skip
        return heads[0] if heads and heads[0].seq != record.seq else None

    def _circumstances(self, topic: Topic, group: str) -> Circumstances:
        known = self._around.get((topic.name, group))
        if known is None:
            now_ms = self._now_ms(topic)
            known = Circumstances.of(self._store, self._roster, topic, group, now_ms)
            self._around[topic.name, group] = known
        return known

    def _absent(self, topic: Topic, found: Found, page: ScanPage) -> Explanation | None:
        """Why a topic does not have it any more; None where it knows nothing of it."""
        cause = (
            self._trimmed(found) or self._replaced(topic, found) or self._forgotten(topic, found)
        )
        if cause is None:
            return None
        sought = self._sought
        until_ms = None
        if found.remembered:
            until_ms = found.remembered[0].at_ms + topic.dedupe_window_ms
        return Explanation(
            topic=topic.name, group=None, state="absent", causes=(cause,), id=sought.id,
            key=sought.key, offset=sought.offset, duplicate_until_ms=until_ms,
            slot=found.remembered[0].slot if found.remembered else sought.slot,
            looked=page.looked, history=self._past.all_of(topic, sought.id),
        )  # fmt: skip

    def _trimmed(self, found: Found) -> Cause | None:
        """It is older than what a stream keeps."""
        sought = self._sought
        kept = {slot: span for slot, span in found.kept.items() if span.head}
        if sought.offset is not None:
            firsts = [
                span.first for slot, span in kept.items()
                if sought.slot in (None, slot) and sought.offset < span.first
            ]  # fmt: skip
            if not firsts:
                return None
            text = (
                f"offset {sought.offset} is trimmed: every group has settled it, and the oldest "
                f"that is kept is {min(firsts)}"
            )
            return Cause("trimmed", text, {"first": min(firsts)})
        published = {one.slot: one.at_ms for one in found.remembered}
        made_ms = time_of_token(sought.id)
        if not published and made_ms is not None:
            published = dict.fromkeys(kept, made_ms)
        if not published or not kept.keys() >= published.keys():
            return None
        for slot, at_ms in published.items():
            since_ms = kept[slot].since_ms
            if since_ms is not None and since_ms <= at_ms:
                return None
        at_ms = min(published.values())
        text = f"it was published at {moment(at_ms)} and is trimmed: all that is kept is newer"
        return Cause("trimmed", text, {"published_ms": at_ms})

    def _replaced(self, topic: Topic, found: Found) -> Cause | None:
        """A newer message of its key stands where it stood."""
        key = self._sought.key
        if not found.remembered or key is None or topic.kind in (Kind.STREAM, Kind.ORDERED):
            return None
        at_ms = found.remembered[0].at_ms
        newer = [
            record for record in self._store.find(topic, Sought(key=key)).records
            if record.state != "dead" and record.published_at_ms >= at_ms
        ]  # fmt: skip
        if not newer:
            return None
        by = newer[0]
        facts = {"by": by.id, "since_ms": by.published_at_ms, "published_ms": at_ms}
        text = (
            f"{by.id}, published with the same key at {moment(by.published_at_ms)}, stands in its "
            "place, unless it was settled before that"
        )
        if topic.kind is Kind.MERGE:
            return Cause("merged", f"it is merged into another: {text}", facts)
        return Cause("replaced", f"it is replaced: {text}", facts)

    def _forgotten(self, topic: Topic, found: Found) -> Cause | None:
        """It was published, and the store has nothing else of it."""
        published_ms = found.remembered[0].at_ms if found.remembered else None
        if history := self._past.all_of(topic, self._sought.id):
            return gone_after(history[-1], published_ms)
        if published_ms is None:
            return None
        may = "settled or dropped" if topic.kind is Kind.ORDERED else "settled, replaced or dropped"
        when = moment(published_ms)
        text = f"it was published at {when} and is {may} since; the store keeps no more"
        return Cause("forgotten", text, {"published_ms": published_ms})


def checked_sought(
    topics: Sequence[Topic], message_id: str | None, key: str | None, offset: int | None,
    slot: int | None, *, named: bool,
) -> Sought:  # fmt: skip
    """The message to explain, if it can be looked for in these topics.

    Raises:
        BadOption: otherwise.
    """
    if message_id is None and key is None and offset is None:
        raise BadOption("message", None, "nothing names it", "give its id, its key or its offset")
    if offset is not None and named and topics[0].has_subjects:
        raise BadOption(
            "offset", offset, f"topic {topics[0].name} is no stream, so it has no offsets",
            "give the message's id or key",
        )  # fmt: skip
    if slot is not None and not any(slot in topic.all_slots for topic in topics):
        spans = "; ".join(f"those of {topic.name} are {span_of(topic)}" for topic in topics[:3])
        raise BadOption("slot", slot, "there is no such slot", spans or "declare a topic first")
    return Sought(id=message_id, key=key, offset=offset, slot=slot)
