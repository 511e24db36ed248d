"""The ends of attempts and of timers, which a store keeps for topics with `history=`.

    pull (receipt: token@worker) ──► settle ──► entry: ack, retry, dead, release
                                └──► lease passed, slot taken ──► entry: lost

An entry is written in the same step that ends the attempt, so there is one for each end that was
counted, and none for one that was stale. The receipt, which its worker made, names the worker
(`receipt_of`), so nothing more comes with a pull, and a loss names its worker too. How long it had
the message comes with the settlement (`took_ms`); when that ended is the store's own time. A
message that is revoked, since no reply has brought it, had no attempt and leaves no entry; neither
does one behind a head in a run that was lost with it: both are uncounted.

A timer that is edited or cancelled gets an entry too, in that same step, which names who asked: so
the last entry of a message that is gone says how it ended, be it handled, dead or cancelled.

Entries stand by group, slot and id, also when the message itself is gone. They are bounded: the
last `ENTRIES` of a message, errors and places shortened, and all go `history` after they ended, in
`sweep`, with their group or with their topic. A seek leaves them: they tell what has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from qframe.codec import KEYLESS, time_of_token
from qframe.outcomes import Verdict
from qframe.stores.records import HistoryEntry
from qframe.stores.types import Settlement
from qframe.topic import Topic
from qframe.tracebacks import place_in

ENTRIES: Final = 20
"""How many entries of a message are kept for each group and slot; `history.lua` says so too."""

LOST: Final = "lost"
EDITED: Final = "edited"
CANCELLED: Final = "cancelled"

LAST: Final = frozenset((str(Verdict.ACK), str(Verdict.DEAD), CANCELLED))
"""The verdicts after which a message does not come back by itself."""

_MOST: Final = 200
_MOST_OF_A_NAME: Final = 100


def receipt_of(token: str, worker: str) -> str:
    """A receipt that names the worker."""
    return f"{token}@{worker[:_MOST_OF_A_NAME]}"


def worker_of(receipt: str) -> str | None:
    """The worker that a receipt names."""
    return receipt.partition("@")[2] or None


def key_of(topic: Topic, subject: str | None) -> str | None:
    """The key by which an end is found; None of a stream, and of a message without a key."""
    return subject if topic.has_subjects and subject and not subject.startswith(KEYLESS) else None


def kept_error(one: Settlement) -> str | None:
    """As much of a settlement's error as is kept."""
    return None if not one.error else _shortened(one.error)


def kept_place(one: Settlement) -> str | None:
    """The place of a settlement's error in the code, if it is known."""
    return None if not one.traceback else _shortened(place_in(one.traceback)) or None


def entry_of(one: Settlement, now_ms: int) -> HistoryEntry:
    """The entry of a delivery that was settled now; who keeps it knows its group."""
    return HistoryEntry(
        slot=one.slot, id=one.id, attempt=one.attempt, verdict=str(one.verdict),
        ended_ms=now_ms, began_ms=None if one.took_ms is None else max(0, now_ms - one.took_ms),
        worker=worker_of(one.receipt), error=kept_error(one), place=kept_place(one),
    )  # fmt: skip


def lost_entry(
    message_id: str, attempt: int, receipt: str | None, now_ms: int, *, of_line: bool = False
) -> HistoryEntry:
    """The entry of a delivery that is lost now; who keeps it knows its place.

    `of_line` says that it was of a stream's line, whose receipt is older than most of its messages.
    """
    return HistoryEntry(
        id=message_id, attempt=attempt, verdict=LOST, ended_ms=now_ms,
        began_ms=None if of_line else time_of_token(receipt), worker=worker_of(receipt or ""),
    )  # fmt: skip


def named(by: str | None) -> str | None:
    """As much of a name as is kept."""
    return by[:_MOST_OF_A_NAME].partition("\n")[0] if by else None


def timer_entry(
    message_id: str, tries: int, now_ms: int, *, by: str | None, changes: str | None = None
) -> HistoryEntry:
    """The entry of a timer that is edited now, or cancelled where there are no `changes`."""
    return HistoryEntry(
        id=message_id, attempt=tries, verdict=CANCELLED if changes is None else EDITED,
        ended_ms=now_ms, worker=named(by), error=changes,
    )  # fmt: skip


def in_time(entries: Iterable[HistoryEntry], topic: Topic, now_ms: int) -> list[HistoryEntry]:
    """The entries that a topic still keeps, swept or not, the first that ended first."""
    since_ms = now_ms - topic.history_ms
    return [entry for entry in entries if entry.ended_ms > since_ms]


def of_last_slots(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Of each group's entries those of the last slot: a key was in others before they were split.

    Each of these knows by itself which message of the key has ended last there.
    """
    last: dict[str, int] = {}
    for entry in entries:
        last[entry.group] = max(entry.slot, last.get(entry.group, 0))
    return [entry for entry in entries if entry.slot == last[entry.group]]


def _shortened(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _MOST else line[: _MOST - 1] + "…"
