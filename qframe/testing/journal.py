"""The journal of a harness: every publication, every handing of a message, and how each ended."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from qframe.codec import decode_body, tags_of
from qframe.message import Delivery
from qframe.outcomes import Outcome, Settled, Verdict
from qframe.retry import NeedRetry, Reject
from qframe.runtime.handler.retry_policy import summary
from qframe.stores.records import Record
from qframe.stores.types import Entry, Settlement
from qframe.tracebacks import shortened

MAX_TRACEBACK: Final = 4000
SHOWN_TRACEBACKS: Final = 3


class End(StrEnum):
    """How a handing has ended, or that it has not: `doing`.

    `released`: given back uncounted. `lost`: its worker was lost, or it was settled too late.
    """

    DOING = "doing"
    ACKED = "acked"
    RETRIED = "retried"
    DEAD = "dead"
    RELEASED = "released"
    LOST = "lost"


_ENDS: Final[Mapping[Verdict, End]] = {
    Verdict.ACK: End.ACKED,
    Verdict.RETRY: End.RETRIED,
    Verdict.DEAD: End.DEAD,
    Verdict.RELEASE: End.RELEASED,
}


class Handing(msgspec.Struct, eq=False, kw_only=True):
    """One handing of one message to one group.

    Attributes:
        topic: the topic's name.
        group: the group.
        id: the message's id.
        key: its key, or None.
        body: its body, decoded as `message.body` would be.
        attempt: the attempt's number, from 1.
        outcome: how it has ended.
        calls: how often the handler was called for it: more than once after local retries, and
            not at all where a checker knew it.
        error: what the handler has raised last, or why its end has failed; or None.
        traceback: where it has raised it: the frames in the user's own code.
    """

    topic: str
    group: str
    id: str
    key: str | None
    body: Any
    attempt: int
    outcome: End = End.DOING
    calls: int = 0
    error: BaseException | None = None
    traceback: str | None = None

    def __str__(self) -> str:
        text = f"{self.topic}/{self.group} {self.body!r} attempt {self.attempt}: {self.outcome}"
        return text if self.error is None else f"{text} ({summary(self.error)})"


class Publication(msgspec.Struct, eq=False, kw_only=True):
    """One message as it was published.

    Attributes:
        topic: the topic's name.
        id: the message's id.
        key: its key, or None.
        body: its body, decoded.
        headers: its headers, without qframe's own.
        tags: its tags.
        outcome: what became of it: stored, merged, replaced, duplicate or full.
        due_at: when it falls due, where a time was asked for.
    """

    topic: str
    id: str
    key: str | None
    body: Any
    headers: Mapping[str, str]
    tags: tuple[str, ...]
    outcome: Outcome
    due_at: datetime | None


class Standing(msgspec.Struct, eq=False, kw_only=True):
    """A message where it stands for a group now.

    Attributes:
        topic: the topic's name.
        group: the group.
        id: the message's id.
        key: its key, or None.
        body: its body, decoded.
        state: waiting, todo, doing or dead.
        attempts: how often it was handed out.
        due_at: when it falls due, or None.
        error: what its handler has raised last, in one line.
        traceback: where, of a dead one.
    """

    topic: str
    group: str
    id: str
    key: str | None
    body: Any
    state: str
    attempts: int
    due_at: datetime | None
    error: str | None
    traceback: str | None

    @classmethod
    def of(cls, record: Record) -> Self:
        """Made of a store's record; one in hand in a stream's line has no count of its own."""
        return cls(
            topic=record.topic, group=record.group or "", id=record.id, key=record.key,
            body=_decoded(record.body, record.headers), state=record.state,
            attempts=record.attempts or int(record.state == "doing"),
            due_at=_moment(record.shown_due_ms), error=record.error, traceback=record.traceback,
        )  # fmt: skip

    def __str__(self) -> str:
        text = f"{self.topic}/{self.group} {self.body!r}: {self.state}, attempts: {self.attempts}"
        return text if self.error is None else f"{text} ({self.error})"


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: how many deliveries ended in which way.

    Attributes:
        handed_out: deliveries that were handed out.
        acked: acknowledged.
        retried: to come again.
        dead: given up, those included that were never handed out again.
        released: given back uncounted.
        lost: with their worker.
    """

    handed_out: int = 0
    acked: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    lost: int = 0


Place = tuple[str, str, int, int, str]


class Journal:
    """A record of the store's calls and the handlers' results; any thread may write it.

    Attributes:
        handings: in the order in which they were handed out.
        publications: in the order in which they were published.
        hands_out_twice: whether first acknowledgements are to be lost.
        noted: how much was noted: it grows with all that goes on.
        interruption: what a handler has raised that is meant for the test.
        raises_errors: whether errors of handlers are meant for the test too.
        loop: the test's event loop, for handlers that are awaited; None where none is running.
    """

    def __init__(self) -> None:
        self.handings: list[Handing] = []
        self.publications: list[Publication] = []
        self.noted: int = 0
        self._guard = threading.RLock()
        self._open: dict[Place, Handing] = {}
        self._counts: Counter[str] = Counter()
        self._once: set[tuple[str, str]] = set()
        self._begun: dict[Place, Handing] = {}
        self._handed_again: set[tuple[str, str, str]] = set()
        self.hands_out_twice = False
        self.interruption: BaseException | None = None
        self.raises_errors = False
        self.loop: asyncio.AbstractEventLoop | None = None

    def settles_first(self, topic: str, group: str) -> None:
        """Notes that a group's messages are settled before they are handled.

        Such a message is never handed out twice: its handler is never called twice.
        """
        self._once.add((topic, group))

    # What the store tells.

    def published(self, topic: str, entry: Entry, outcome: Outcome, now_ms: int) -> None:
        """Notes a message on its way in."""
        due_ms = entry.at_ms
        if due_ms is None and (entry.delay_ms or entry.within_ms):
            due_ms = now_ms + (entry.delay_ms or entry.within_ms)
        headers = entry.headers or {}
        publication = Publication(
            topic=topic, id=entry.id, key=entry.key, body=_decoded(entry.body, headers),
            headers={name: text for name, text in headers.items() if not name.startswith("qf-")},
            tags=tags_of(headers), outcome=outcome, due_at=_moment(due_ms),
        )  # fmt: skip
        with self._guard:
            self.publications.append(publication)
            self.noted += 1

    def handed_out(self, topic: str, group: str, delivery: Delivery) -> None:
        """Notes that a message was handed out."""
        handing = Handing(
            topic=topic, group=group, id=delivery.id, key=delivery.key,
            body=_decoded(delivery.body, delivery.headers), attempt=delivery.attempt,
        )  # fmt: skip
        with self._guard:
            self.handings.append(handing)
            self._open[_place(topic, group, delivery)] = handing
            self._counts["handed_out"] += 1
            self.noted += 1

    def died_in_pull(self, count: int) -> None:
        """Notes messages that were given up since their last worker was lost."""
        with self._guard:
            self._counts[End.DEAD] += count
            self.noted += count

    def instead_of(self, topic: str, group: str, one: Settlement) -> Settlement:
        """The settlement to send: a first acknowledgement may be one that never arrived."""
        with self._guard:
            handing = self._open.get(_place(topic, group, one))
            if not self.hands_out_twice or one.verdict is not Verdict.ACK or handing is None:
                return one
            if (topic, group) in self._once:
                return one
            message = (topic, group, handing.id)
            if message in self._handed_again:
                return one
            self._handed_again.add(message)
        return msgspec.structs.replace(one, verdict=Verdict.RELEASE)

    def settled(self, topic: str, group: str, one: Settlement, result: Settled) -> None:
        """Notes how a delivery has ended."""
        with self._guard:
            handing = self._open.pop(_place(topic, group, one), None)
            if handing is not None:
                if (topic, group) in self._once:
                    self._begun[_place(topic, group, one)] = handing
                end = _ENDS[one.verdict] if result is Settled.SETTLED else End.LOST
                self._end(handing, end)

    # What the worker tells.

    def called(self, topic: str, group: str, delivery: Delivery) -> Handing | None:
        """Notes that a handler is called; returns for which handing."""
        with self._guard:
            place = _place(topic, group, delivery)
            handing = self._open.get(place) or self._begun.pop(place, None)
            if handing is not None:
                handing.calls += 1
                self.noted += 1
            return handing

    def worker_lost(self) -> None:
        """Notes that nobody has in hand any more what was handed out."""
        with self._guard:
            for handing in self._open.values():
                self._end(handing, End.LOST)
            self._open.clear()

    def failed(self, handings: Sequence[Handing], error: BaseException, *, batch: bool) -> None:
        """Notes what a handler has raised, for all messages that it was given."""
        signal = isinstance(error, NeedRetry | Reject)
        traced = None if signal else shortened(error, MAX_TRACEBACK)
        noted = without_traceback(error) if batch else error
        for handing in handings:
            handing.error, handing.traceback = noted, traced
        own = not isinstance(error, Exception | SystemExit)  # the test's: Ctrl-C, pytest.fail
        if own or (self.raises_errors and not signal):
            self.interruption = error

    def heard(self, event: str, facts: Mapping[str, Any]) -> None:
        """Notes the error of a delivery that has failed though its handler has raised nothing."""
        if event not in ("delivery.retried", "delivery.dead", "delivery.failed"):
            return
        which = facts["topic"], facts["group"], facts["id"], facts["attempt"]
        with self._guard:
            for each in reversed(self.handings):
                if (each.topic, each.group, each.id, each.attempt) == which:
                    if each.error is None:
                        each.error = without_traceback(facts["error"])
                    return

    # What the test asks.

    def tracebacks(self, topic: str | None = None, group: str | None = None) -> list[str]:
        """Where handlers have raised errors that were not signals: the last of each place."""
        found = {
            (each.topic, each.group, each.traceback): f"{each.topic}/{each.group} raised:"
            for each in self.handings
            if each.traceback and topic in (None, each.topic) and group in (None, each.group)
        }
        return [f"{head}\n{key[2]}" for key, head in found.items()][-SHOWN_TRACEBACKS:]

    def raise_interruption(self) -> None:
        """Raises, once, what a handler has raised that is no error of its own."""
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            raise interruption

    def tally(self) -> Tally:
        """The tally so far."""
        with self._guard:
            return Tally(**{field: self._counts[field] for field in Tally.__struct_fields__})

    def _end(self, handing: Handing, end: End) -> None:
        handing.outcome = end
        self._counts[end] += 1
        self.noted += 1


def without_traceback(error: BaseException) -> BaseException:
    """An error that keeps no messages: one of a batch may be let go unsettled, and must be heard.

    Returns the error itself if it cannot be copied.
    """
    try:
        twin = copy.copy(error)
    except Exception:
        return error
    return twin.with_traceback(None)


def difference(later: Tally, earlier: Tally) -> Tally:
    """The difference of two tallies."""
    fields = Tally.__struct_fields__
    return Tally(**{each: getattr(later, each) - getattr(earlier, each) for each in fields})


def _place(topic: str, group: str, one: Delivery | Settlement) -> Place:
    return topic, group, one.slot, one.seq, one.receipt


def _decoded(body: bytes, headers: Mapping[str, str] | None) -> Any:
    """A body as its handler would see it; the bytes themselves where they are no JSON."""
    try:
        return decode_body(body, headers)
    except msgspec.DecodeError:
        return body


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
