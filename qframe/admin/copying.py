"""Copying a topic to another store: any to any, or to another namespace of the same.

Where it stands, nobody works: a worker of the topic that is alive must be paused and have nothing
in hand, and nobody publishes. That is looked at before the copy begins, and its counts are compared
after it, so what came or went meanwhile is told; the copy is then not finished, and can be made
again. The source is only read. Its workers must not go on with it afterwards, or they handle what
those of the copy handle as well: it stays paused until it is deleted.

Copied are the declaration with its options; the groups, with what is tuned and paused; each message
with id, key, headers, body, priority, due time, number or offset, time of publishing, attempts and
last error; of a stream the log, and how far each group is; dead letters with their errors and
times; what is held behind gaps, and the next number of each key; marks, so that a message that is
published again to the copy is a duplicate within `dedupe_window`; what groups have counted; records
of schedules, and of queues of SQS. A
delivery that a killed worker had in hand is one of a lost lease in the copy too.

Not copied: histories of attempts (`history=`), who owns which slots, epochs, reports of workers,
what rate limits have left. When a message joined a log is taken to be when it was published. How
long a group of a broadcast consumer lives on begins anew.

The steps, each of which may be killed and repeated:

    1  declare the topic there, which must hold nothing; leave a mark in its first slot
    2  subscribe its groups there, paused
    3  slot by slot: messages, marks, numbers     what is there already is written over;
    4  how far each group is                      a log goes on behind its last message;
       records of schedules and queues            those that are there already are removed first
    5  compare counts and records, group by group and slot by slot, and audit the copy
    6  take the mark away, and give the groups the tuning that they have here

While the mark is there a copy goes on with step 2. After it was taken away nothing is written any
more but step 6, for groups that are still paused by the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import product, zip_longest
from typing import Final

import msgspec

from qframe.admin.context import AdminRole
from qframe.errors import BadOption, UnknownGroup
from qframe.options.hold import HOLD, Hold, hold_of, text_of
from qframe.options.tuning import YES
from qframe.stores.base import Store
from qframe.stores.documents import Document, Space, Span, Write
from qframe.stores.open import open_store
from qframe.stores.positions import Position
from qframe.stores.records import Record, Section, Sought, Stats
from qframe.stores.searching import sections_of
from qframe.topic import BEYOND_MS, STORE_MARK, Topic, checked_name, span_of

_MEMORY: Final = "model://"
_MARK: Final = "!copy"
_WHY: Final = "it is being copied here"
_OTHER_PLACE: Final = "delete that topic, or copy to another namespace"
_PAGE: Final = 500
_BROADCAST_EXPIRES_MS: Final = 7 * 86_400_000
_SPACES: Final = (Space.SCHEDULES, Space.QUEUES)
_PARTS: Final = ("line", "later", "held", "heads", "behind", "dead")
_COMPARED: Final = (
    "published", "waiting or todo", "doing", "settled", "dead", "cancelled", "head", "floor",
)  # fmt: skip

Progress = Callable[[int], object]


class Copied(msgspec.Struct, kw_only=True):
    """The extent of a copy.

    Attributes:
        topic: the topic's name.
        groups: its groups.
        messages: how many messages were copied: those of a log once, others for each group.
        marks: how many ids and batches the copy recognises when they come again.
        sequences: how many keys have numbers.
        documents: how many records of schedules or of queues were copied.
        paused: groups that are paused there, since they are here.
        differences: how the copy differs from the topic, in sentences; it is finished only if
            there are none. Somebody worked on the topic meanwhile: copy again.
    """

    topic: str
    groups: list[str]
    messages: int = 0
    marks: int = 0
    sequences: int = 0
    documents: int = 0
    paused: list[str] = []
    differences: list[str] = []


class CopyAdmin(AdminRole):
    """Topics that move to another store."""

    def copy(
        self,
        topic: Topic | str,
        to: str,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        on_progress: Progress | None = None,
    ) -> Copied:
        """Copies a topic with all that it holds to another store; the topic here stays as it is.

        One that was interrupted is finished by calling it again. Nobody may publish to the topic,
        nor handle its messages, neither here nor there, until it is done; afterwards workers and
        publishers use the other store, where groups that are paused here are paused as well. See
        docs/operations.md.

        Args:
            topic: the topic.
            to: the URL of the other store; tables that it lacks are made.
            namespace: the namespace there; None for the same as here.
            dry_run: whether only to read and count, and write nothing.
            on_progress: called with the number of messages so far, after each page; it may raise
                to stop.

        Raises:
            BadOption: if the topic is not at rest, or damaged, or the other store has messages of
                a topic of this name, or has it with another kind or other slots; if `namespace`
                cannot be the name of one; if `to` is `model://`, which ends with the copy.
            NotAllowed: without the rights to see bodies and to move groups.
        """
        context = self._context
        context.require("seek")
        context.require("body")
        found = context.topic(topic)
        for group in context.store.groups(found):
            self._check_at_rest(found, group)
        there = context.store.namespace if namespace is None else namespace
        target = open_store(to, namespace=checked_name(there, "namespace"))
        if target.url == _MEMORY:
            raise BadOption(
                "to", to, "it is a memory that ends with the copy", "give a store that stays"
            )
        try:
            copied = copy_topic(
                context.store, target, found, by=context.audit.by, dry_run=dry_run,
                on_progress=on_progress,
            )  # fmt: skip
            if not dry_run and not copied.differences:
                where = f"{target.url} {target.namespace}"
                context.audit.record("copy", found, None, count=copied.messages, to=where)
        finally:
            target.close()
        return copied

    def _check_at_rest(self, topic: Topic, group: str) -> None:
        context = self._context
        alive = context.alive(topic, group)
        if not alive:
            return
        if not context.tunings(topic, [group])[0].paused:
            raise BadOption(
                "topic", topic.name, f"{alive} workers of group {group} are alive",
                "stop them, or pause the topic first: qframe groups pause",
            )  # fmt: skip
        doing = sum(one.doing for one in context.store.stats(topic, group))
        if doing:
            raise BadOption(
                "topic", topic.name, f"workers of group {group} have {doing} messages in hand",
                "wait until these are handled, and copy again",
            )  # fmt: skip


def copy_topic(
    source: Store,
    target: Store,
    topic: Topic,
    *,
    by: str,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> Copied:
    """Copies a topic that is at rest; `CopyAdmin.copy` has the rest."""
    if (source.url, source.namespace) == (
        target.url,
        target.namespace,
    ) and source.url != _MEMORY:
        raise BadOption(
            "to", target.url, "it is the store that is copied from", "give another, or a namespace"
        )
    if topic.name.startswith(STORE_MARK):
        why = "an outbox knows this store by it, and no other store may have it"
        raise BadOption("topic", topic.name, why, "move the outbox: qframe outbox bind")
    if faults := source.verify(topic):
        raise BadOption(
            "topic", topic.name, f"it is damaged, in {len(faults)} places: {faults[0]}",
            "run qframe store verify --repair first",
        )  # fmt: skip
    if topic.growth.target:
        raise BadOption("topic", topic.name, "its slots are being split", "wait until it has grown")
    if _is_marked(source, topic):
        raise BadOption(
            "topic", topic.name, "it is itself a copy that is not finished", "finish that first"
        )
    return _TopicCopy(source, target, topic, by, on_progress).run(dry_run=dry_run)


def _shape(topic: Topic) -> str:
    return f"{topic.kind}, slots {span_of(topic)}"


class _TopicCopy:
    """One copy.

    Args:
        source: where the topic is.
        target: where it is to be.
        topic: the topic.
        by: who copies it.
        on_progress: called with the number of messages so far.
    """

    def __init__(
        self, source: Store, target: Store, topic: Topic, by: str, on_progress: Progress | None
    ) -> None:
        self._source = source
        self._target = target
        self._topic = topic
        self._by = by
        self._on_progress = on_progress
        names = source.groups(topic)
        self._positions: dict[str, list[Position]] = {
            name: source.positions(topic, name) for name in names
        }
        if topic.has_subjects:
            with suppress(UnknownGroup):  # what it kept was claimed
                self._positions[""] = source.positions(topic, "")
        self._copied = Copied(topic=topic.name, groups=names)

    def run(self, *, dry_run: bool) -> Copied:
        """Copies, or only counts."""
        there = self._target.topic(self._topic.name)
        if there is not None and _shape(there) != _shape(self._topic):
            raise BadOption(
                "to", self._target.url,
                f"its topic {there.name} is {_shape(there)}, and this one {_shape(self._topic)}",
                _OTHER_PLACE,
            )  # fmt: skip
        is_going_on = there is not None and _is_marked(self._target, self._topic)
        if there is not None and not is_going_on:
            if self._is_unpaused_only():
                if not dry_run:
                    self._give_tunings()
                return self._copied
            self._check_empty()
        before = self._source.stats(self._topic)
        if not dry_run:
            self._prepare()
        for section in self._sections():
            self._copy_section(section, dry_run=dry_run)
        for slot in self._topic.all_slots:
            self._copy_memory(slot, dry_run=dry_run)
        for group, space in product(self._copied.groups, _SPACES):
            self._copy_documents(group, space, dry_run=dry_run)
        if dry_run:
            return self._copied
        heads = {one.slot: one.head for one in before}
        for slot, head in heads.items():
            self._target.remember(self._topic, slot, head=head)
        for group, positions in self._positions.items():
            self._target.restore_positions(self._topic, group, positions)
        self._copied.differences = self._compared(before)
        if not self._copied.differences:
            self._target.remember(self._topic, self._topic.all_slots[0], marks={_MARK: 1})
            self._give_tunings()
        return self._copied

    def _sections(self) -> list[Section]:
        """All sections, a head before what is behind it."""
        names = list(self._positions)
        return sorted(
            sections_of(self._topic, names), key=lambda each: (each.slot, _PARTS.index(each.part))
        )

    def _prepare(self) -> None:
        """Makes topic and groups there, with a mark that says what they are for."""
        self._target.declare(self._topic)
        self._target.remember(self._topic, self._topic.all_slots[0], marks={_MARK: BEYOND_MS})
        names = self._copied.groups
        start = "latest" if names and "" in self._positions else "earliest"
        hold = Hold(by=self._by, why=_WHY, since_ms=self._target.now_ms())
        for name in names:
            expires_ms = _BROADCAST_EXPIRES_MS if "@" in name else None
            most = self._positions[name][0].max_parked
            self._target.subscribe(self._topic, name, start, expires_ms, max_parked=most)
            self._target.tune(self._topic, name, {HOLD: text_of(hold), "paused": YES})

    def _copy_section(self, section: Section, *, dry_run: bool) -> None:
        pages = self._log(section, dry_run) if section.part == "line" else self._pages(section)
        for records in pages:
            if not dry_run:
                self._target.restore(self._topic, section, records)
            self._copied.messages += len(records)
            if self._on_progress is not None:
                self._on_progress(self._copied.messages)

    def _pages(self, section: Section) -> Iterator[list[Record]]:
        after: str | None = ""
        while after is not None:
            page = self._source.section(self._topic, section, after, _PAGE)
            after = page.after
            if page.records:
                yield page.records

    def _log(self, section: Section, dry_run: bool) -> Iterator[list[Record]]:
        """A log, from where the copy has ended."""
        there = [] if dry_run else self._target.stats(self._topic)
        offset = max((one.head for one in there if one.slot == section.slot), default=0)
        while found := self._source.read_log(self._topic, section.slot, offset, _PAGE):
            yield [
                Record(
                    topic=self._topic.name, group=None, slot=one.slot, state="todo", subject=None,
                    seq=one.seq, id=one.id, key=one.key, headers=one.headers, body=one.body,
                    published_at_ms=one.published_at_ms,
                )
                for one in found
            ]  # fmt: skip
            offset = found[-1].seq + 1

    def _copy_documents(self, group: str, space: Space, *, dry_run: bool) -> None:
        """Copies the documents of a space, in place of those that are there."""
        if not dry_run:
            for page in _documents(self._target, self._topic, group, space):
                removals = [Write(document.name, None) for document in page]
                self._target.write_documents(self._topic, group, space, removals)
        for page in _documents(self._source, self._topic, group, space):
            self._copied.documents += len(page)
            if not dry_run:
                writes = [Write(each.name, each.value, None, each.rank) for each in page]
                self._target.write_documents(self._topic, group, space, writes)

    def _copy_memory(self, slot: int, *, dry_run: bool) -> None:
        for values in self._memory(slot, "marks"):
            self._copied.marks += len(values)
            if not dry_run:
                kept = {mark: at for mark, at in values.items() if mark != _MARK}
                self._target.remember(self._topic, slot, marks=kept)
        for values in self._memory(slot, "sequences"):
            self._copied.sequences += len(values)
            if not dry_run:
                self._target.remember(self._topic, slot, sequences=values)

    def _memory(self, slot: int, what: str) -> Iterator[Mapping[str, int]]:
        after: str | None = ""
        while after is not None:
            values, after = self._source.remembered(self._topic, slot, what, after)
            yield values

    def _compared(self, before: list[Stats]) -> list[str]:
        """Sees whether anything has changed here, and whether the copy is the same."""
        wanted = _counts(before)
        now, there = self._source.stats(self._topic), self._target.stats(self._topic)
        wrong = [f"{each}, by somebody else" for each in _differences(wanted, _counts(now))]
        wrong += [f"{each} in the copy" for each in _differences(wanted, _counts(there))]
        for group, space in product(self._copied.groups, _SPACES):
            ours, theirs = (
                _texts(store, self._topic, group, space) for store in (self._source, self._target)
            )
            pairs = zip_longest(ours, theirs)
            place = next((each or other for each, other in pairs if each != other), None)
            if place is not None:
                wrong.append(f"group {group}: {place[1]} of its {space} differs")
        return wrong + self._target.verify(self._topic)

    def _give_tunings(self) -> None:
        """Gives groups there what is tuned and paused here."""
        names = self._copied.groups
        found = self._source.tunings([(self._topic, name) for name in names])
        for name, texts in zip(names, found, strict=True):
            tuned: dict[str, str | None] = {HOLD: None, "paused": None, **(texts or {})}
            self._target.tune(self._topic, name, tuned)
            if tuned["paused"] is not None:
                self._copied.paused.append(name)

    def _is_unpaused_only(self) -> bool:
        """Whether a copy is finished but for groups that are still paused by it."""
        names = self._target.groups(self._topic)
        tunings = self._target.tunings([(self._topic, name) for name in names])
        texts = [each[HOLD] for each in tunings if each and HOLD in each]
        return any(hold_of(HOLD, text).why == _WHY for text in texts)

    def _check_empty(self) -> None:
        for one in self._target.stats(self._topic):
            if one.published or one.head:
                raise BadOption(
                    "to", self._target.url,
                    f"its topic {self._topic.name} holds messages, or has held some",
                    _OTHER_PLACE,
                )  # fmt: skip
        for group, space in product(self._target.groups(self._topic), _SPACES):
            if next(_documents(self._target, self._topic, group, space), None):
                raise BadOption(
                    "to", self._target.url,
                    f"its topic {self._topic.name} has {space} already", _OTHER_PLACE,
                )  # fmt: skip


def _documents(store: Store, topic: Topic, group: str, space: Space) -> Iterator[list[Document]]:
    """The documents of a space, page by page."""
    span = Span(limit=_PAGE)
    while page := store.list_documents(topic, group, space, span).documents:
        yield page
        span = span._replace(after=page[-1].ranked_name)


def _texts(store: Store, topic: Topic, group: str, space: Space) -> Iterator[tuple[int, str, str]]:
    """What the documents of a space say, with their places."""
    for page in _documents(store, topic, group, space):
        for document in page:
            yield *document.ranked_name, document.value


def _is_marked(store: Store, topic: Topic) -> bool:
    """Whether a topic is a copy that is not finished."""
    first = topic.all_slots[0]
    page = store.find(topic, Sought(id=_MARK, slot=first))
    return any(each.slot == first for each in page.remembered)


def _counts(stats: list[Stats]) -> dict[tuple[str, int], tuple[object, ...]]:
    """The counts that do not change with time, by group and slot."""
    return {
        (one.group, one.slot): (
            one.published, one.waiting + one.todo, one.doing, one.settled, one.dead,
            one.cancelled, one.head, one.floor,
        )
        for one in stats
    }  # fmt: skip


def _differences(
    wanted: Mapping[tuple[str, int], tuple[object, ...]],
    found: Mapping[tuple[str, int], tuple[object, ...]],
) -> list[str]:
    nothing = (None,) * len(_COMPARED)
    return [
        f"group {place[0] or '(none)'} slot {place[1]}: {name} was {before}, is {after}"
        for place in sorted({*wanted, *found})
        for name, before, after in zip(
            _COMPARED, wanted.get(place, nothing), found.get(place, nothing), strict=True
        )
        if before != after
    ]
