"""Choosing timers by key, id, due time, state, tag and headers: page by page, and for bulk acts."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple, TypedDict, TypeVar

import msgspec

from qframe.admin.search import Hits, Query, searched
from qframe.errors import BadOption, BadTopic
from qframe.options.rules import checked_limit, refuse_unknown
from qframe.outcomes import Moved
from qframe.retry import checked_moment
from qframe.stores.base import Store
from qframe.stores.edits import Edit
from qframe.stores.records import FOREVER_MS, Record, TimerPlace, TimerSpan
from qframe.topic import Kind, Topic

TIMER_STATES: Final = ("waiting", "todo", "retrying", "doing", "dead")
STEP: Final = 500

AnyPlace = TypeVar("AnyPlace", bound=tuple[int | str, ...])


class TimerChoice(TypedDict, total=False):
    """The timers that are meant: all that is given must fit.

    Attributes:
        id: the id of its message.
        key: its key.
        state: waiting; todo (due, and not handed out); retrying (waiting after a failed attempt);
            and, where nothing is changed, doing or dead.
        tag: one of its tags.
        headers: headers by name; None for any value.
        since, until: when it is due: from `since` up to but not including `until`, as datetimes
            with a time zone or seconds since 1970.
        published_until: only what was published up to that moment, in milliseconds since 1970, so
            that what was set after somebody looked is left alone.
    """

    id: str | None
    key: str | None
    state: str | None
    tag: str | None
    headers: Mapping[str, str | None] | None
    since: datetime | float | None
    until: datetime | float | None
    published_until: int | None


class TimerChanges(msgspec.Struct):
    """How far a change of many timers has come.

    Attributes:
        looked: how many were looked at, one for each group that has it.
        done: how many were changed, or would be.
        doing: how many were left alone because a handler has them.
        gone: how many had been handed out, moved or cancelled since they were seen.
    """

    looked: int = 0
    done: int = 0
    doing: int = 0
    gone: int = 0


class CheckedChoice(NamedTuple):
    """A choice that was checked."""

    query: Query
    span: TimerSpan
    retrying: bool
    published_until_ms: int | None

    def fits(self, record: Record) -> bool:
        """Whether a timer is meant."""
        if self.retrying and not (record.state == "waiting" and record.attempts):
            return False
        published_until_ms = self.published_until_ms
        if published_until_ms is not None and record.published_at_ms > published_until_ms:
            return False
        return self.span.covers(record.due_ms) and self.query.fits(record)


def checked_choice(which: TimerChoice) -> CheckedChoice:
    """The choice, checked.

    Raises:
        BadOption: if an option is unknown, a time is none, there is no such state, or one that has
            no due time is to be due in a span.
    """
    for name in which:
        if name not in TimerChoice.__annotations__:
            refuse_unknown("option", name, TimerChoice.__annotations__)
    state = which.get("state")
    if state is not None and state not in TIMER_STATES:
        raise BadOption("state", state, "there is no such state", f"use {', '.join(TIMER_STATES)}")
    from_ms = checked_moment(which.get("since"), "since")
    until_ms = checked_moment(which.get("until"), "until")
    if state == "dead" and (from_ms is not None or until_ms is not None):
        raise BadOption("state", state, "a dead one is due no more", "leave since and until out")
    query = Query(
        id=which.get("id"), key=which.get("key"), tag=which.get("tag"),
        headers=which.get("headers") or {}, state="waiting" if state == "retrying" else state,
    )  # fmt: skip
    span = TimerSpan(from_ms or 0, FOREVER_MS if until_ms is None else until_ms)
    return CheckedChoice(query, span, state == "retrying", which.get("published_until"))


def found_timers(
    store: Store, topic: Topic, which: TimerChoice, *, limit: int, look: int, place: str | None
) -> Hits:
    """The timers that are meant, the next one first, and where to go on."""
    chosen, most = checked_choice(which), checked_limit(limit)
    query = chosen.query
    if query.state in ("doing", "dead"):
        hits = searched(store, [topic], query, place=place, limit=most, look=max(1, look))
        return replace(hits, records=[each for each in hits.records if chosen.fits(each)])
    if query.key is not None and topic.has_subjects:
        found = [each for each in store.timer(topic, query.key) if chosen.fits(each)]
        return Hits(found[:most], len(found), None, has_more=len(found) > most)
    records: list[Record] = []
    looked = 0
    after = None if place is None else read_place(place, TimerPlace)
    pages = _each_page(store, topic, chosen, after, most)
    for record in chain.from_iterable(pages):
        looked += 1
        if chosen.fits(record):
            records.append(record)
        if len(records) >= most or looked >= look:
            return Hits(records, looked, place_text(record.timer_place))
    return Hits(records, looked, None)


def each_timer(
    store: Store, topic: Topic, which: TimerChoice, on_progress: Callable[[int], object] | None
) -> Iterator[Record]:
    """All timers that are meant, page by page as they are asked for."""
    looked, place, is_end = 0, None, False
    while not is_end:
        hits = found_timers(store, topic, which, limit=STEP, look=STEP, place=place)
        place, is_end = hits.place, hits.place is None
        looked += hits.looked
        if on_progress is not None:
            on_progress(looked)
        yield from hits.records


def change_all(
    store: Store,
    topic: Topic,
    which: TimerChoice,
    edit_of: Callable[[Record], Edit],
    *,
    by: str,
    dry_run: bool,
    counts: TimerChanges,
    on_progress: Callable[[TimerChanges], object] | None,
) -> None:
    """Changes the timers that are meant, page by page, and counts them.

    A timer that was published after it began is left alone, and none is changed twice.
    """
    refuse_stream(topic)
    chosen = checked_choice(which)
    if chosen.query.state in ("doing", "dead"):
        raise BadOption(
            "state", chosen.query.state, "it is changed by other means",
            "see: qframe dead, or wait until its handler is done",
        )  # fmt: skip
    until_ms = store.now_ms(topic)
    if chosen.published_until_ms is not None:
        until_ms = min(until_ms, chosen.published_until_ms)
    chosen = chosen._replace(published_until_ms=None)
    seen: set[int] = set()  # moved to a later time, a timer is met again
    for page in _pages(store, topic, chosen):
        now_ms = store.now_ms(topic)  # what is later was published before the clock was set back
        edits: list[Edit] = []
        for record in page:
            if not chosen.fits(record) or until_ms < record.published_at_ms <= now_ms:
                continue
            name = hash((record.slot, record.subject))
            if name in seen:
                continue
            seen.add(name)
            if record.state == "doing":
                counts.doing += 1
            else:
                edits.append(edit_of(record))
        counts.looked += len(page)
        outcomes = Counter([Moved.DONE] * len(edits))
        if edits and not dry_run:
            outcomes = Counter(store.rewrite(topic, edits, by=by))
        counts.done += outcomes[Moved.DONE]
        counts.doing += outcomes[Moved.DOING]
        counts.gone += outcomes[Moved.ABSENT]
        if len(page) == STEP and on_progress is not None:
            on_progress(counts)


def refuse_stream(topic: Topic) -> None:
    """Refuses a stream.

    Raises:
        BadTopic: if it is one.
    """
    if topic.kind is Kind.STREAM:
        raise BadTopic(
            "topic", topic.name,
            "a stream's messages cannot be moved or cancelled: they have no name of their own",
            'declare a topic of kind="delay"; app.timers.find shows what waits for a stream',
        )  # fmt: skip


def place_text(place: tuple[int | str, ...]) -> str:
    """The place at which a page ends as a text."""
    return urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_place(text: str, kind: type[AnyPlace]) -> AnyPlace:
    """The place that a text tells.

    Raises:
        BadOption: if it is none.
    """
    try:
        packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(packed, type=kind)
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadOption(
            "place", text, "it is not where a page has ended", "give the place as it was printed"
        ) from error


def _pages(store: Store, topic: Topic, chosen: CheckedChoice) -> Iterator[list[Record]]:
    """The timers to look at: those of a key, or all that are due in the span."""
    key = chosen.query.key
    if key is not None and topic.has_subjects:
        yield store.timer(topic, key)
    else:
        yield from _each_page(store, topic, chosen, None, STEP)


def _each_page(
    store: Store, topic: Topic, chosen: CheckedChoice, after: TimerPlace | None, wanted: int
) -> Iterator[list[Record]]:
    """Where all of them are meant, one page is enough; where few are, pages grow."""
    span = chosen.span._replace(limit=min(STEP, wanted), after=after)
    while page := store.timers(topic, span):
        yield page
        span = span._replace(limit=min(STEP, 4 * span.limit), after=page[-1].timer_place)
