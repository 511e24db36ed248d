"""Changes of timers, one by one: checked here, done by the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from qframe.codec import encode_body, encode_headers
from qframe.errors import BadOption
from qframe.outcomes import Moved
from qframe.retry import checked_times
from qframe.stores.base import Store
from qframe.stores.edits import Becomes, Edit
from qframe.stores.records import Record
from qframe.topic import Topic, checked_key, duration_ms


class Content(NamedTuple):
    """A new body with its headers, as they are stored."""

    body: bytes
    headers: dict[str, str] | None


def checked_content(
    body: Any, headers: Mapping[str, str] | None, tags: Iterable[str] | None, max_body: int
) -> Content | None:
    """The content that a body makes; None without one.

    Raises:
        BadBody: if the body cannot be encoded, or is too large.
        BadOption: if headers or tags are given without a body, or are none.
    """
    if body is msgspec.UNSET:
        if headers is not None or tags is not None:
            name, value = ("headers", headers) if headers is not None else ("tags", tags)
            raise BadOption(name, value, "they are replaced with the body", "give body= as well")
        return None
    encoded, raw = encode_body(body, max_body)
    return Content(encoded, encode_headers(headers, tags, raw, max_body))


def edit_timer(
    store: Store,
    topic: Topic,
    key: str,
    *,
    by: str,
    at: datetime | float | None,
    delay: float | str | timedelta | None,
    content: Content | None,
) -> Moved:
    """Replaces a timer's time, or content, or both in one step.

    Raises:
        BadOption: if neither is given.
    """
    delay_ms, at_ms = checked_times(delay, at)
    if delay_ms is not None:
        at_ms = store.now_ms(topic) + delay_ms
    if at_ms is None and content is None:
        raise no_time()
    body, headers = content if content is not None else (None, None)
    edit = Edit(Becomes.EDITED, checked_key(key), due_ms=at_ms, body=body, headers=headers)
    return store.rewrite(topic, [edit], by=by)[0]


def cancel_timer(store: Store, topic: Topic, key: str, *, by: str) -> Moved:
    """Takes a timer out."""
    return store.rewrite(topic, [Edit(Becomes.CANCELLED, checked_key(key))], by=by)[0]


def moved_to(
    at: datetime | float | None, shift: float | str | timedelta | None
) -> Callable[[Record], Edit]:
    """The change that moves a timer, if it is still due as it was seen.

    Raises:
        BadOption: unless one of `at` and `shift` is given.
    """
    _, at_ms = checked_times(None, at)
    if (at_ms is None) == (shift is None):
        raise BadOption("at", at, "timers are moved to a time, or by one", "give at= or shift=")
    by_ms = 0 if shift is None else _shift_ms(shift)

    def edit_of(record: Record) -> Edit:
        due_ms = at_ms if at_ms is not None else (record.due_ms or 0) + by_ms
        return _seen(record, Becomes.EDITED)._replace(due_ms=due_ms)

    return edit_of


def cancelled(record: Record) -> Edit:
    """The change that cancels a timer, if it is still due as it was seen."""
    return _seen(record, Becomes.CANCELLED)


def _seen(record: Record, becomes: Becomes) -> Edit:
    return Edit(becomes, record.subject or "", if_due_ms=record.due_ms, slot=record.slot)


def _shift_ms(shift: float | str | timedelta) -> int:
    """Milliseconds, below 0 for what is to be earlier."""
    seconds = shift.total_seconds() if isinstance(shift, timedelta) else shift
    if isinstance(seconds, str) and seconds.strip().startswith("-"):
        return -duration_ms(seconds.strip()[1:], "shift")
    if isinstance(seconds, int | float) and seconds < 0:
        return -duration_ms(-seconds, "shift")
    return duration_ms(seconds, "shift")


def no_time() -> BadOption:
    """The error of a timer without a time."""
    return BadOption("at", None, "a timer needs a time", 'give at=, or delay=30 or delay="2h"')
