"""A schedule as it is kept: when it ticks, what it publishes, by which rules, how far it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal
from zlib import crc32

import msgspec

from qframe.clock import moment
from qframe.errors import BadOption
from qframe.producing.outgoing import Outgoing
from qframe.schedules.timing import Timing

CatchUp = Literal["none", "latest", "all"]
Overlap = Literal["skip", "queue_one", "queue_all", "allow"]

GRACE_MS: Final = 60_000
WINDOW_MS: Final = 86_400_000
"""For how long nobody may look at a tick before it counts as late."""


class Template(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The message that each tick publishes.

    Attributes:
        topic: the name of its topic.
        key: its key, or None.
        body: its body. In its texts `{tick}` stands for the tick's local time. None is a dict of
            `schedule` and `tick`.
        headers: its headers; `schedule` and `tick` are added to them.
        tags: its tags.
        priority: its priority, in `ordered` and `priority` topics.
    """

    topic: str
    key: str | None = None
    body: Any = None
    headers: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    priority: int = 0

    def message(self, name: str, local: str, message_id: str) -> Outgoing:
        """The message of a tick.

        Args:
            name: the schedule's name.
            local: the tick's local time.
            message_id: the message's id.
        """
        body = {"schedule": name, "tick": local} if self.body is None else _filled(self.body, local)
        return Outgoing(
            body, key=self.key, id=message_id,
            headers={"schedule": name, "tick": local, **self.headers},
            tags=self.tags or None, priority=self.priority,
        )  # fmt: skip


class Rules(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The rules for ticks that are late, or come too close.

    Attributes:
        catch_up: which late ticks fire: "none", "latest" or "all".
        window_ms: late ticks that are older never fire.
        overlap: what a tick does while the message before is not settled: "skip", "queue_one",
            "queue_all" or "allow".
        jitter_ms: each tick fires later by less than this: by a hash of the name, always the same.
    """

    catch_up: CatchUp = "latest"
    window_ms: int = WINDOW_MS
    overlap: Overlap = "allow"
    jitter_ms: int = 0


class PendingTicks(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks that are being published, and the message as it was when that was decided."""

    template: Template
    ticks: list[int]


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a schedule is.

    Attributes:
        decided_ms: it is decided what becomes of all ticks up to here.
        held: ticks that wait until the message before them is settled.
        sending: those that are being published.
        last_tick_ms, last_id, last_topic, last_key: the last tick that fired, and its message.
        last_place: the slot and offset of that, in a stream, where `overlap` has to look it up.
        fired, missed, skipped, dropped: how many ticks, since it was first put.
        failures: how often in a row its topic has refused the message.
        error: why, the last time.
    """

    decided_ms: int
    held: list[int] = []
    sending: PendingTicks | None = None
    last_tick_ms: int | None = None
    last_id: str | None = None
    last_topic: str | None = None
    last_key: str | None = None
    last_place: tuple[int, int] | None = None
    fired: int = 0
    missed: int = 0
    skipped: int = 0
    dropped: int = 0
    failures: int = 0
    error: str | None = None


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule: what was put, and how far it is.

    Attributes:
        name: its name.
        timing: the moments at which it ticks.
        template: the message that each tick publishes.
        rules: those for ticks that are late, or come too close.
        progress: how far it is.
        note: a text for people.
        declared: whether code declares it, by `@app.cron`.
        paused: whether it is paused.
        version: a name of this state: another one after each change, the leader's too; 0 of one
            that is not stored.
        changed_ms: when a person or a deployment changed it last.
        changed_by: who did.
        due_ms: when it is looked at next; where it is not held back, its next tick with its jitter.
    """

    name: str
    timing: Timing
    template: Template
    rules: Rules = Rules()
    progress: Progress = Progress(decided_ms=0)
    note: str = ""
    declared: bool = False
    paused: bool = False
    version: int = 0
    changed_ms: int = 0
    changed_by: str = ""
    due_ms: int | None = None

    @property
    def offset_ms(self) -> int:
        """By how much its ticks fire later, by its jitter."""
        jitter_ms = self.rules.jitter_ms
        return crc32(self.name.encode()) % jitter_ms if jitter_ms else 0

    @property
    def next_tick_ms(self) -> int | None:
        """The first tick of which nothing is decided; None if none is to come, or it is paused."""
        if self.paused:
            return None
        return self.timing.next_after(self.progress.decided_ms)

    def message_id(self, tick_ms: int, sort: str = "cron") -> str:
        """The id of a tick's message."""
        return f"{sort}/{self.name}/{(moment(tick_ms) or '').replace('.000Z', 'Z')}"

    def with_progress(self, **facts: Any) -> Schedule:
        """The same schedule, elsewhere on its way."""
        progress = msgspec.structs.replace(self.progress, **facts)
        return msgspec.structs.replace(self, progress=progress)

    def is_as(self, other: Schedule) -> bool:
        """Whether the same was put, by code or by a person alike."""
        return (self.timing, self.template, self.rules, self.note, self.declared) == (
            other.timing, other.template, other.rules, other.note, other.declared,
        )  # fmt: skip


class ScheduleList(list[Schedule]):
    """Schedules, the next one due first.

    Attributes:
        unknown: the error of each one that this version of qframe or this machine cannot read, and
            that is left out; its `value` is the schedule's name.
    """

    def __init__(self, schedules: Iterable[Schedule], unknown: Iterable[BadOption]) -> None:
        super().__init__(schedules)
        self.unknown: list[BadOption] = list(unknown)


def _filled(body: Any, local: str) -> Any:
    """A body with the tick in the place of `{tick}`."""
    if isinstance(body, str):
        return body.replace("{tick}", local)
    if isinstance(body, list):
        return [_filled(each, local) for each in body]
    if isinstance(body, dict):
        return {name: _filled(each, local) for name, each in body.items()}
    return body
