"""Taking messages in: one script for each slot that a call touches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from typing_extensions import override

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.codec import batch_mark_of, series_mark
from qframe.drivers.redis import Call, Redis
from qframe.drivers.scripts import Refused
from qframe.errors import AnswerLost, BadTopic, StoreUnavailable
from qframe.outcomes import Outcome
from qframe.stores.base import Publishing
from qframe.stores.redis.envelopes import envelope, envelopes, pack
from qframe.stores.redis.keys import Argument, SlotKeys, declared
from qframe.stores.redis.role import RedisRole
from qframe.stores.types import Entry, SlotsClosed
from qframe.topic import Kind, Topic

OUTCOMES: Final = {
    ord("s"): Outcome.STORED, ord("m"): Outcome.MERGED, ord("r"): Outcome.REPLACED,
    ord("d"): Outcome.DUPLICATE, ord("f"): Outcome.FULL,
}  # fmt: skip
LOOK_EVERY_S: Final = 1.0


class RedisPublishing(RedisRole, Publishing):
    """A script for each slot that a call touches."""

    def __init__(self, redis: Redis, namespace: str, clock: Clock | None) -> None:
        super().__init__(redis, namespace, clock)
        self._seen_at: dict[str, tuple[int, float]] = {}

    @override
    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        keys = self._keys(topic)
        if entries:
            self._check_rights("producer", keys, entries[0].slot)
        try:
            outcomes = publish(self._redis, keys, entries, self._now())
        except SlotsClosed as error:  # other slots have theirs
            outcomes = self._published_again(keys, entries, error, topic)
        self._await_replicas(keys, entries)
        if topic.growth.step:
            self._check_growth(topic, entries, outcomes)
        return outcomes

    def _published_again(
        self, keys: SlotKeys, entries: Sequence[Entry], error: SlotsClosed, topic: Topic
    ) -> list[Outcome]:
        """Publishes what closed slots have refused, if their topic was deleted and declared anew.

        Raises:
            SlotsClosed: if some are closed still.
        """
        outcomes = [*error.outcomes]
        refused = [entry for entry, one in zip(entries, outcomes, strict=True) if one is None]
        if self._reopen(topic, {entry.slot for entry in refused}):
            try:
                found: Sequence[Outcome | None] = publish(self._redis, keys, refused, self._now())
            except SlotsClosed as again:
                found = again.outcomes
            rest = iter(found)
            outcomes = [next(rest) if one is None else one for one in outcomes]
        known = [one for one in outcomes if one is not None]
        if len(known) < len(outcomes):
            self._await_replicas(keys, entries)
            raise SlotsClosed(self._redis.shown, topic.name, outcomes) from error
        return known

    def _await_replicas(self, keys: SlotKeys, entries: Sequence[Entry]) -> None:
        if self._redis.replicas is not None and entries:
            self._redis.await_replicas({keys.slots[entry.slot] for entry in entries})

    def _check_growth(
        self, topic: Topic, entries: Sequence[Entry], outcomes: Sequence[Outcome]
    ) -> None:
        """Refuses what has come into slots that the topic does not have, where nobody reads.

        It is so where the server has failed over to one that is behind, or was restored, and does
        not know of the growth; so this looks once for each time that a connection has broken. It
        is so, too, where the server was flushed, which breaks none: so it looks each second. Where
        it cannot, since the topics are on a node that is away, the next publish looks.

        Raises:
            SlotsClosed: if there is any.
        """
        breaks, now_s = self._redis.breaks, SYSTEM_CLOCK.monotonic_s()
        seen_breaks, seen_s = self._seen_at.get(topic.name, (-1, 0.0))
        if seen_breaks == breaks and now_s < seen_s + LOOK_EVERY_S:
            return
        try:
            found = declared(self._redis, self.namespace, topic.name)
        except (StoreUnavailable, BadTopic):
            return  # what was published is stored
        if found is not None and found.growth.step < topic.growth.step:
            slots = set(found.all_slots)
            if any(entry.slot not in slots for entry in entries):
                raise SlotsClosed(self._redis.shown, topic.name, [
                    outcome if entry.slot in slots else None
                    for entry, outcome in zip(entries, outcomes, strict=True)
                ])  # fmt: skip
        self._seen_at[topic.name] = breaks, now_s


def publish(redis: Redis, keys: SlotKeys, entries: Sequence[Entry], now: str) -> list[Outcome]:
    """Stores the entries in order; returns what became of each.

    Raises:
        SlotsClosed: if slots of some are closed.
    """
    if len(entries) == 1:
        [entry] = entries
        try:
            reply = redis.one(_call_of(keys, entry.slot, [entry], now)[0])
        except Refused as refused:
            raise SlotsClosed(redis.shown, keys.topic.name, [None]) from refused
        return [OUTCOMES[reply[0]]]
    is_one_batch = _is_one_batch(keys.topic, entries)
    repeated = set() if is_one_batch else _repeated(entries)
    kept = entries
    if repeated:
        kept = [entry for number, entry in enumerate(entries) if number not in repeated]
    shares: defaultdict[int, list[Entry]] = defaultdict(list)
    for entry in kept:
        shares[entry.slot].append(entry)
    counts: list[list[int]] = []

    def calls() -> Iterator[Call]:
        for slot, share in shares.items():
            call, sizes = (_batch_call if is_one_batch else _call_of)(keys, slot, share, now)
            counts.append(sizes)
            yield call

    outcomes: list[Any] = [Outcome.STORED] * len(entries)
    for number in repeated:
        outcomes[number] = Outcome.DUPLICATE
    cause: Refused | None = None
    try:
        replies = redis.run(calls())
    except Refused as refused:
        replies, cause = refused.replies, refused
    for slot, reply, sizes in zip(shares, replies, counts, strict=True):
        if reply is not None and reply.isdigit():
            reply, cause = _in_parts(redis, keys, slot, shares[slot], int(reply), now, cause)
        if reply is not None and reply.count(b"s") == len(reply):
            continue
        numbers = [number for number, entry in enumerate(entries) if entry.slot == slot]
        if reply is None:
            for number in numbers:
                outcomes[number] = None
            continue
        following = iter([number for number in numbers if number not in repeated])
        for letter, count in zip(reply, sizes or [1] * len(reply), strict=True):
            for number in islice(following, count):
                outcomes[number] = OUTCOMES.get(letter)
    if cause is not None:
        raise SlotsClosed(redis.shown, keys.topic.name, outcomes) from cause
    return outcomes


def _in_parts(
    redis: Redis, keys: SlotKeys, slot: int, share: list[Entry], most: int, now: str,
    cause: Refused | None,
) -> tuple[bytes, Refused | None]:  # fmt: skip
    """Sends a share that is too much for one step, so many at a time; returns its letters.

    From now on each of these messages has its id as its mark, since a part may be all that is
    stored. A part that is refused has `-` in place of letters.

    Raises:
        AnswerLost: if a part cannot be sent: others, and other slots, have theirs.
    """
    for entry in share:
        entry.mark = entry.id
    letters = b""
    for start in range(0, len(share), most):
        part = share[start : start + most]
        try:
            letters += redis.one(_subjects_call(keys, slot, part, now))
        except Refused as refused:
            letters += b"-" * len(part)
            cause = refused
        except StoreUnavailable as error:
            raise AnswerLost(redis.shown, str(error)) from error
    return letters, cause


def _repeated(entries: Sequence[Entry]) -> set[int]:
    """Where an id comes again that came earlier in this call; only named ids can."""
    if not [1 for entry in entries if entry.mark == entry.id]:
        return set()
    seen: set[tuple[int, str]] = set()
    again = set()
    for number, entry in enumerate(entries):
        if (entry.slot, entry.id) in seen:
            again.add(number)
        seen.add((entry.slot, entry.id))
    return again


def _call_of(keys: SlotKeys, slot: int, share: list[Entry], now: str) -> tuple[Call, list[int]]:
    """The call for a slot's share, and how many messages each item of it has (none: one each)."""
    topic = keys.topic
    if topic.has_subjects:
        return _subjects_call(keys, slot, share, now), []
    if _is_one_batch(topic, share):
        return _batch_call(keys, slot, share, now)
    return _stream_call(keys, slot, share, now)


def _is_one_batch(topic: Topic, entries: Sequence[Entry]) -> bool:
    """Whether these, of a stream, are due now under the mark of one batch, as nearly always."""
    if not entries or topic.has_subjects or topic.max_length is not None:
        return False
    mark = entries[0].mark
    # No named id is the mark of a batch; so if one is unnamed, all under its mark are.
    return mark != entries[0].id and not [
        1 for entry in entries
        if entry.mark != mark or entry.at_ms is not None or entry.delay_ms is not None
    ]  # fmt: skip


def _batch_call(keys: SlotKeys, slot: int, share: list[Entry], now: str) -> tuple[Call, list[int]]:
    """The call that appends what is of one batch."""
    call = keys.call(
        "publish_stream", slot, now, keys.declared, keys.topic.dedupe_window_ms, 0, share[0].mark,
        "", len(share), envelopes(share),
    )  # fmt: skip
    return call, [len(share)]


def _stream_call(keys: SlotKeys, slot: int, share: list[Entry], now: str) -> tuple[Call, list[int]]:
    """The call that appends, and how many messages each of its items has."""
    topic = keys.topic
    limit = topic.slot_max_length or 0
    mark = next((entry.mark for entry in share if entry.mark != entry.id), "")
    arguments: list[Argument] = [now, keys.declared, topic.dedupe_window_ms, limit, mark]
    counts: list[int] = []
    run: list[Entry] = []

    def end_run() -> None:
        if run:
            arguments.extend(("", len(run), envelopes(run)))
            counts.append(len(run))
            run.clear()

    for entry in share:
        if entry.mark == mark and not limit and entry.at_ms is None and entry.delay_ms is None:
            run.append(entry)
            continue
        end_run()
        how = pack((entry.mark, _other_mark(entry), _time(entry.at_ms), _time(entry.delay_ms),
                    entry.id, *_series(entry)))  # fmt: skip
        arguments.extend((how, 1, envelope(entry)))
        counts.append(1)
    end_run()
    return keys.call("publish_stream", slot, *arguments), counts


def _subjects_call(keys: SlotKeys, slot: int, share: list[Entry], now: str) -> Call:
    """The call that queues."""
    topic = keys.topic
    mark = next((entry.mark for entry in share if entry.mark != entry.id), "")
    arguments: list[Argument] = [
        now, keys.declared, topic.dedupe_window_ms, topic.slot_max_length or 0,
        topic.gap_timeout_ms, mark,
    ]  # fmt: skip
    merges = topic.kind is Kind.MERGE
    for entry in share:
        how: Argument = ""
        if (
            entry.mark != mark
            or entry.at_ms is not None
            or entry.delay_ms is not None
            or entry.priority
            or entry.sequence is not None
            or (merges and entry.within_ms)
        ):
            delay = entry.delay_ms
            if delay is None:
                delay = entry.within_ms if merges else 0
            how = pack((entry.mark, _other_mark(entry), _time(entry.at_ms), delay, entry.priority,
                        entry.sequence or False, *_series(entry)))  # fmt: skip
        arguments += (how, entry.subject or "", envelope(entry))
    return keys.call("publish_subjects", slot, *arguments)


def _time(ms: int | None) -> int | bool:
    """A time that Lua can tell from none, and that is not before 1970."""
    return False if ms is None else max(0, ms)


def _series(entry: Entry) -> tuple[str | bool, int | bool]:
    """The mark of its series, and the time of it."""
    return (False, False) if entry.series is None else series_mark(*entry.series)


def _other_mark(entry: Entry) -> str | bool:
    """The mark of the batch to which a named id would belong."""
    if entry.mark != entry.id:
        return False
    return batch_mark_of(entry.id) or False
