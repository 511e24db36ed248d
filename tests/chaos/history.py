"""What happened, one line for each fact, written by many processes that may be killed at any time.

The lines are `whole_lines`. The times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import whole_lines

from qframe import Message

PUBLISHED = "published"
DUPLICATE = "duplicate"
UNKNOWN = "unknown"
UNAVAILABLE = "unavailable"
STARTED = "started"
ENDED = "ended"
FAILED = "failed"
CANCELLED = "cancelled"
HANDED = "handed"
UNWANTED = "unwanted"
PAUSED = "paused"
RESUMING = "resuming"
TUNED = "tuned"
DIED = "died"
STORE_KILLED = "store killed"
STORE_BACK = "store back"
STARTING = "starting"
LEAVING = "leaving"
KILLED = "killed"
FROZEN = "frozen"
THAWED = "thawed"
CUT = "cut"
MENDED = "mended"
STOOD_STILL = "stood still"
TOOK = "took"
ATTENDED = "attended"
ACCEPTED = "accepted"
REFUSED = "refused"
NEMESIS = "nemesis"
"""Writes what is done to workers, and what all of them suffer."""


class Fact(msgspec.Struct, array_like=True, frozen=True):
    """One line of a history.

    Attributes:
        what: one of the words above, or the name of an event of qframe.
        at_ns: when.
        by: who wrote it; of DIED, who has died.
        topic, key, number, id, attempt: the message that it is about; `number` counts the messages
            of a key from 0. Of an event, `number` is its count.
        since_ns: of a question to the store and its answer, when it was sent; of what was done to a
            worker, or to all of them, since when it may have been.
        slots: the slots that it is about.
        call: of what a handler says, the number of its call in this worker, from 1; 0 where each
            call is about one message only.
        texts: of TOOK, the slots' epochs; of ACCEPTED and REFUSED, the places of the messages.
    """

    what: str
    at_ns: int
    by: str
    topic: str = ""
    key: str = ""
    number: int = 0
    id: str = ""
    attempt: int = 0
    since_ns: int = 0
    slots: list[int] = []
    texts: list[str] = []
    call: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Fact).decode


class History:
    """Appends to a file that others append to as well; safe to use from many threads."""

    def __init__(self, path: Path, by: str) -> None:
        self._by = by
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(
        self,
        what: str,
        topic: str = "",
        key: str = "",
        number: int = 0,
        id: str = "",  # noqa: A002 - as a message calls it
        attempt: int = 0,
        by: str = "",
        at_ns: int = 0,
        **more: Any,
    ) -> None:
        """Appends one fact, as of now or of an earlier moment."""
        at_ns = at_ns or time.monotonic_ns()
        fact = Fact(what, at_ns, by or self._by, topic, key, number, id, attempt, **more)
        whole_lines.append(self._file, _encode(fact))

    def note_of(self, what: str, message: Message, call: int = 0, at_ns: int = 0) -> None:
        """Appends a fact about a message whose body is its number."""
        key, number = message.key or "", message.body
        self.note(
            what, message.topic, key, number, message.id, message.attempt, at_ns=at_ns, call=call
        )

    def listen(self, name: str, facts: dict[str, object]) -> None:
        """Appends an event of an app: `app.events.listen(history.listen)`."""
        count = facts.get("count", 1)
        number = count if isinstance(count, int) else 1
        self.note(name, str(facts.get("topic", "")), number=number, slots=facts.get("slots", []))

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


class Tail:
    """Reads a history while it grows."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""

    def new(self) -> list[Fact]:
        """The facts that were added since the last call."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [_decode(line) for line in whole_lines.whole(lines)]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def read(path: Path) -> list[Fact]:
    """All facts of a history, by time."""
    return sorted(map(_decode, whole_lines.read(path)), key=lambda fact: fact.at_ns)
