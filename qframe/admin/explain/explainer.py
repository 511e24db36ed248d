"""Looks a message up in topics, and explains what it finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from qframe.admin.explain.cause import Cause, Explanation
from qframe.admin.explain.circumstances import Circumstances, RosterOf
from qframe.admin.explain.past import Past, gone_after
from qframe.admin.explain.reasons import causes_of
from qframe.admin.explain.words import moment
from qframe.admin.rounds import LOOK_UP_S, Rounds
from qframe.admin.search import TOPIC_COSTS, place_behind
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
_NOT_THERE: Final = Cause(
    "forgotten",
    "the group does not have it: it is settled, replaced or dropped there, or was published before "
    "the group had subscribed",
    {"published_ms": None},
)


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
        """Explains what topics have; where none has anything, why that may be."""
        looked_up = Rounds[tuple[Topic, Found]](seconds=LOOK_UP_S).look(
            topics, lambda topic: (topic, self._store.find(topic, self._sought, BEHIND))
        )
        told = [each for topic, found in looked_up for each in self._told(topic, found)]
        if len(looked_up) < len(topics):
            return [*told, _cut(topics, len(looked_up), self._sought, has_found=bool(told))]
        if told:
            return told
        pages = []
        for topic, found in looked_up:
            page = self._scanned(topic)
            if page.records:
                return self._told(topic, found, page)
            pages.append((topic, found, page))
        absent = [
            each for topic, found, page in pages
            if (each := self._absent(topic, found, page, certain=len(topics) == 1)) is not None
        ]  # fmt: skip
        return absent or [_unknown(topics, [page for _, _, page in pages], self._sought)]

    def _told(self, topic: Topic, found: Found, page: ScanPage | None = None) -> list[Explanation]:
        """Explains what was found, and what groups have settled as far as that is kept."""
        told = self._of_records(topic, found, page)
        settled = self._past.settled(topic, self._sought.id, {each.group for each in told})
        told += settled
        return [*told, *self._without(topic, told)]

    def _without(self, topic: Topic, told: Sequence[Explanation]) -> Iterator[Explanation]:
        """Explains that groups of a queue do not have a message that others have."""
        record = told[0].record if told else None
        if not topic.has_subjects or self._sought.id is None or record is None:
            return
        here = {each.group for each in told}
        if None in here or (record.key is None and topic.subject != "id"):
            return
        groups = [group for group in self._store.groups(topic) if group not in here]
        of_key: Counter[str | None] = Counter()
        if groups and record.key is not None:
            line = self._store.find(topic, Sought(key=record.key, slot=record.slot), _PAGE)
            of_key.update(each.group for each in line.records)
        for group in groups:
            if of_key[group] < _PAGE:  # else it may stand behind these
                yield Explanation(
                    topic=topic.name, group=group, state="absent", causes=(_NOT_THERE,),
                    id=self._sought.id, key=record.key, slot=record.slot,
                )  # fmt: skip

    def _scanned(self, topic: Topic) -> ScanPage:
        """The first messages of a topic that are sought, looked for as long as is allowed.

        The place is empty where nothing could be looked at.
        """
        result = ScanPage([], 0, None if self._left > 0 else "")
        while self._left > 0:
            page = self._store.scan(topic, result.place, min(_PAGE, self._left), self._sought)
            self._left -= max(TOPIC_COSTS if page.place is None else 1, page.looked)
            result.looked += page.looked
            result.place = page.place
            result.records += page.records
            if result.records or page.place is None:
                break
        return result

    def _of_records(
        self, topic: Topic, found: Found, page: ScanPage | None = None
    ) -> list[Explanation]:
        """Explains what was looked up, or what a scan has come upon."""
        records, looked = (found.records, 0) if page is None else (page.records, page.looked)
        key = records[0].key if records else None
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

    def _absent(
        self, topic: Topic, found: Found, page: ScanPage, *, certain: bool
    ) -> Explanation | None:
        """Why a topic does not have it any more; None where it knows nothing of it.

        `certain` says that it is this topic which is meant.
        """
        cause = (
            self._trimmed(found, certain=certain)
            or self._replaced(topic, found)
            or self._forgotten(topic, found)
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
            looked=page.looked, place=page.place, history=self._past.all_of(topic, sought.id),
        )  # fmt: skip

    def _trimmed(self, found: Found, *, certain: bool) -> Cause | None:
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
        if not published and made_ms is not None and certain:
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


def _cut(
    topics: Sequence[Topic], looked_up: int, sought: Sought, *, has_found: bool
) -> Explanation:
    """Says that it was not looked up in all topics."""
    last = topics[looked_up - 1].name
    text = (
        f"it was looked up in {looked_up} of {len(topics)} topics, up to {last}: name its topic, "
        "or search on from the place"
    )
    return Explanation(
        topic="", group=None, state="absent",
        causes=(Cause("unknown", text, {"looked": 0, "complete": False}),),
        id=sought.id, key=sought.key, slot=sought.slot, offset=sought.offset, looked=0,
        place=place_behind(last, has_found=has_found),
    )  # fmt: skip


def _unknown(topics: Sequence[Topic], pages: Sequence[ScanPage], sought: Sought) -> Explanation:
    looked = sum(page.looked for page in pages)
    where = f"topic {topics[0].name}" if len(topics) == 1 else f"{len(topics)} topics"
    nowhere = f"{where} has no such" if len(topics) == 1 else f"none of {where} has such a"
    whole = all(page.place is None for page in pages)
    text = (
        f"{nowhere} message: it was never published there, or is settled and forgotten"
        if whole
        else f"it is not among the {looked} messages looked at in {where}; there are more: give "
        "--key, which finds it at once, or search on from the place"
    )
    return Explanation(
        topic=topics[0].name if len(topics) == 1 else "", group=None, state="absent",
        causes=(Cause("unknown", text, {"looked": looked, "complete": whole}),),
        id=sought.id, key=sought.key, slot=sought.slot, offset=sought.offset, looked=looked,
        place=pages[0].place or None if len(topics) == 1 else None,
    )  # fmt: skip


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
