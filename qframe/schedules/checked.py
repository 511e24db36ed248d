"""Makes schedules out of what people and code write, and refuses what makes no sense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from qframe.codec import decode_body, encode_body, encode_headers
from qframe.errors import BadBody, BadOption
from qframe.options.rules import refuse_unknown
from qframe.options.settings import Settings
from qframe.producing.entry import entry_of
from qframe.retry import checked_moment
from qframe.schedules.record import (
    GRACE_MS,
    WINDOW_MS,
    CatchUp,
    Overlap,
    Progress,
    Rules,
    Schedule,
    Template,
)
from qframe.schedules.timing import DstRule, Timing, checked_timing
from qframe.topic import Kind, Topic, checked_key, checked_name, duration_ms

CATCH_UPS: Final = ("none", "latest", "all")
OVERLAPS: Final = ("skip", "queue_one", "queue_all", "allow")
MAX_WINDOW_MS: Final = 366 * 86_400_000
MAX_JITTER_MS: Final = 86_400_000
MAX_NOTE: Final = 1000


class ScheduleKeywords(TypedDict, total=False):
    """The keyword arguments of a schedule; `app.schedules.put` tells what they mean."""

    tz: str
    key: str | None
    body: Any
    headers: Mapping[str, str] | None
    tags: Iterable[str] | None
    priority: int
    catch_up: CatchUp
    window: float | str | timedelta
    overlap: Overlap
    jitter: float | str | timedelta
    start: datetime | float | None
    end: datetime | float | None
    exclude: Iterable[str]
    dst: DstRule
    note: str


class DeclaredSchedule(NamedTuple):
    """A schedule that code declares with `@app.cron`.

    Attributes:
        name: its name.
        when: when it ticks.
        topic: where its messages go.
        options: the other keyword arguments.
    """

    name: str
    when: str
    topic: Topic | str
    options: ScheduleKeywords

    @property
    def topic_name(self) -> str:
        """The name of its topic."""
        return self.topic if isinstance(self.topic, str) else self.topic.name


def leads_schedules(settings: Settings, declared: Sequence[DeclaredSchedule]) -> bool:
    """Whether an app's workers lead the schedules."""
    return settings.schedules == "on" or (settings.schedules == "auto" and bool(declared))


def new_schedule(
    name: str,
    when: str,
    topic: str,
    *,
    now_ms: int,
    max_body: int,
    declared: bool = False,
    tz: str = "UTC",
    key: str | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    tags: Iterable[str] | None = None,
    priority: int = 0,
    catch_up: CatchUp = "latest",
    window: float | str | timedelta = "1d",
    overlap: Overlap = "allow",
    jitter: float | str | timedelta = 0,
    start: datetime | float | None = None,
    end: datetime | float | None = None,
    exclude: Iterable[str] = (),
    dst: DstRule = "debian",
    note: str = "",
) -> Schedule:
    """A schedule of which nothing is decided yet, if it ever ticks; its topic is not looked at.

    Raises:
        BadInput: if it is not as `app.schedules.put` describes.
    """
    timing = Timing(
        when=when, tz=tz, dst=dst, exclude=listed(exclude),
        start_ms=None if start is None else moment_ms(start, "start"),
        end_ms=None if end is None else moment_ms(end, "end"),
    )  # fmt: skip
    return Schedule(
        name=checked_schedule_name(name), timing=checked_timing(timing),
        template=checked_template(
            topic=topic, key=key, body=body, headers=headers, tags=tags, priority=priority,
            max_body=max_body,
        ),
        rules=checked_rules(catch_up=catch_up, window=window, overlap=overlap, jitter=jitter),
        progress=Progress(decided_ms=now_ms), note=checked_note(note), declared=declared,
    )  # fmt: skip


def checked_template(
    *,
    topic: str,
    key: str | None,
    body: Any,
    headers: Mapping[str, str] | None,
    tags: Iterable[str] | None,
    priority: int,
    max_body: int,
) -> Template:
    """The message, if it can be one.

    Raises:
        BadInput: otherwise.
    """
    encoded, raw = encode_body(body, max_body)
    if raw:
        raise BadBody("body", body, "a schedule keeps JSON, and these are bytes",
                      "use a text, or what JSON can hold")  # fmt: skip
    tags = tuple(tags or ())
    encode_headers(headers, tags, raw=False, max_body=max_body)
    return Template(
        topic=topic, key=None if key is None else checked_key(key),
        body=None if body is None else decode_body(encoded, None),
        headers=dict(headers or {}), tags=tags, priority=priority,
    )  # fmt: skip


def fitted(schedule: Schedule, topic: Topic, *, now_ms: int, max_body: int) -> Schedule:
    """The schedule for its topic: in an `ordered` one its name is its key, if it has none.

    Raises:
        BadInput: what the topic would refuse at the first tick.
    """
    if schedule.template.key is None and topic.kind is Kind.ORDERED:
        template = msgspec.structs.replace(schedule.template, key=schedule.name)
        schedule = msgspec.structs.replace(schedule, template=template)
    local = schedule.timing.local(now_ms).isoformat()
    message = schedule.template.message(schedule.name, local, schedule.message_id(now_ms))
    entry_of(topic, message, "", "", max_body)
    return schedule


def refuse_unknown_options(options: Iterable[str]) -> None:
    """Refuses what is no option of a schedule, with the one that may be meant.

    Raises:
        BadOption: if there is such a one.
    """
    for name in options:
        if name not in ScheduleKeywords.__annotations__:
            refuse_unknown("schedule option", name, ScheduleKeywords.__annotations__, "schedule")


def checked_rules(
    *, catch_up: str, window: float | str | timedelta, overlap: str, jitter: float | str | timedelta
) -> Rules:
    """The rules, if there are such.

    Raises:
        BadOption: otherwise.
    """
    if catch_up not in CATCH_UPS:
        raise _none_such("catch_up", catch_up, CATCH_UPS)
    if overlap not in OVERLAPS:
        raise _none_such("overlap", overlap, OVERLAPS)
    window_ms, jitter_ms = _span_ms(window, "window"), _span_ms(jitter, "jitter")
    if not GRACE_MS <= window_ms <= MAX_WINDOW_MS:
        raise BadOption("window", window, "it must be from 1m to 366d", 'use "1d"')
    if catch_up == "none" and window_ms != WINDOW_MS:
        raise BadOption("window", window, 'with catch_up="none" no late tick fires',
                        'leave it out, or use catch_up="latest" or "all"')  # fmt: skip
    if jitter_ms > MAX_JITTER_MS:
        raise BadOption("jitter", jitter, "it may be 24h at most", 'use "5m"')
    return Rules(catch_up=catch_up, window_ms=window_ms, overlap=overlap, jitter_ms=jitter_ms)  # type: ignore[arg-type]


def checked_note(note: object) -> str:
    """The note, if it is one.

    Raises:
        BadOption: otherwise.
    """
    if isinstance(note, str) and len(note) <= MAX_NOTE:
        return note
    raise BadOption("note", note, f"it must be a text of at most {MAX_NOTE} characters", "cut it")


def checked_schedule_name(name: object) -> str:
    """The name, if a schedule may have it.

    Raises:
        BadOption: otherwise.
    """
    return checked_name(name, "schedule")


def _span_ms(span: float | str | timedelta, what: str) -> int:
    return duration_ms(span.total_seconds() if isinstance(span, timedelta) else span, what)


def _none_such(what: str, value: object, known: tuple[str, ...]) -> BadOption:
    return BadOption(what, value, "there is no such rule", f"use one of {', '.join(known)}")


def moment_ms(value: datetime | float, what: str) -> int:
    """A moment in milliseconds.

    Raises:
        BadOption: if it is none.
    """
    at_ms = checked_moment(value, what)
    if at_ms is None:
        raise BadOption(what, value, "it is no moment", "use a datetime with a time zone")
    return at_ms


def listed(values: Iterable[str]) -> tuple[str, ...]:
    """The texts, or the one that was given alone."""
    return (values,) if isinstance(values, str) else tuple(values)
