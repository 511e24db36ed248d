"""`app.schedules`: schedules put, looked up, paused, run, made up for, and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Final, Unpack

import msgspec

from qframe.clock import Clock
from qframe.codec import new_token
from qframe.errors import AnswerLost, BadOption
from qframe.events import Events
from qframe.options.rules import checked_limit
from qframe.outcomes import Outcome, Published
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.schedules.checked import (
    DeclaredSchedule,
    ScheduleKeywords,
    checked_schedule_name,
    fitted,
    listed,
    moment_ms,
    new_schedule,
    refuse_unknown_options,
)
from qframe.schedules.decision import with_due, without_pending
from qframe.schedules.preview import Backfilled, Preview, preview_of, tick_of, warnings_of
from qframe.schedules.record import Schedule, ScheduleList
from qframe.schedules.records import TOPIC, TRIES, RecordStore, ScheduleRecords, UnreadableSchedule
from qframe.schedules.timing import ENDS_MS, DstRule, Timing, checked_timing
from qframe.stores.documents import WHOLE, RankedName
from qframe.topic import Topic

MOST_BACKFILLED: Final = 10_000
MOST_PREVIEWED: Final = 1000


class Schedules:
    """Puts, finds and changes schedules: `app.schedules`.

    Times are datetimes with a time zone, or seconds since 1970; durations are seconds, a text such
    as "10m", or a timedelta. `by` is who does it, for the log: any text.

    Args:
        store: where schedules are kept.
        producer: publishes.
        catalog: finds topics.
        events: told of what is changed.
        clock: for ids.
        max_body: the largest body, in bytes.
    """

    def __init__(
        self, *, store: RecordStore, producer: Producer, catalog: TopicCatalog, events: Events,
        clock: Clock, max_body: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._producer = producer
        self._catalog = catalog
        self._events = events
        self._clock = clock
        self._max_body = max_body
        self._records = ScheduleRecords(store)

    def put(
        self, name: str, when: str, *, topic: Topic | str, by: str = "",
        **options: Unpack[ScheduleKeywords],
    ) -> Schedule:  # fmt: skip
        """Makes a schedule, or changes it to this; putting the same again changes nothing.

        With another timing, ticks count from now on. A paused schedule stays paused.

        Args:
            name: its name: 1 to 64 of the characters A-Z a-z 0-9 _ . -
            when: five or six fields of cron, a nickname such as "@daily", or "every 15m".
            topic: where its messages go.
            by: who does it.
            options: any of these.

                - `tz`: the time zone of cron fields and excluded dates, such as "Europe/Berlin";
                  UTC without.
                - `key`, `body`, `headers`, `tags`, `priority`: of each message. In texts of the
                  body `{tick}` is the tick's local time; without a body it is a dict of `schedule`
                  and `tick`. In an `ordered` topic the key is the schedule's name without one.
                - `catch_up`: which ticks fire that nobody looked at for a minute or more: "none",
                  the "latest", or "all"; and `window`, how old they may be, from "1m" to "366d".
                - `overlap`: what a tick does while the message before is not settled: "allow",
                  "skip", "queue_one" or "queue_all". A message is settled once each group that
                  there is has settled it.
                - `jitter`: ticks fire later by less than this, always by the same.
                - `start`, `end`: no tick comes before the one, nor at the other or later.
                - `exclude`: dates, ranges of dates and cron texts whose ticks are left out.
                - `dst`: "debian", or "literal", for the nights when clocks change.
                - `note`: a text for people.

        Raises:
            BadInput: if one of these is not as described, or its timing is new and no tick is to
                come.
            UnknownTopic: if the topic is a name that nobody has declared.
        """
        return self._put(name, when, topic, by=by, declared=False, options=options)

    def declare(self, declared: Iterable[DeclaredSchedule]) -> None:
        """Makes the system topic known, and puts what code declares with `@app.cron`.

        One that a newer version has put, and this one cannot read, stays as it is.

        Raises:
            BadInput: as `put`.
        """
        self._records.open()
        for name, when, topic, options in declared:
            with suppress(UnreadableSchedule):  # its leader tells of it
                self._put(name, when, topic, by="", declared=True, options=options)

    def get(self, name: str) -> Schedule | None:
        """A schedule, and how far it is; None if there is none of this name."""
        return self._records.read(checked_schedule_name(name))

    def find(
        self, *, prefix: str = "", topic: Topic | str | None = None, paused: bool | None = None,
        limit: int = 1000,
    ) -> ScheduleList:  # fmt: skip
        """Schedules, the next one due first; those that cannot be read here are named apart.

        Args:
            prefix: only those whose name begins so.
            topic: only those that publish there.
            paused: only those that are paused, or only those that are not.
            limit: how many at most.
        """
        wanted = topic.name if isinstance(topic, Topic) else topic
        unknown: list[BadOption] = []
        fitting = (
            each for each, _ in self.each(unknown=unknown)
            if each.name.startswith(prefix)
            and wanted in (None, each.template.topic)
            and paused in (None, each.paused)
        )  # fmt: skip
        found = list(islice(fitting, checked_limit(limit)))
        return ScheduleList(found, [each for each in unknown if str(each.value).startswith(prefix)])

    def each(
        self, after: RankedName = WHOLE.after, size: int | None = None,
        unknown: list[BadOption] | None = None,
    ) -> Iterator[tuple[Schedule, RankedName]]:  # fmt: skip
        """Schedules and places, as `find` has them, `size` at a time; `unknown` gets errors."""
        return self._records.each(after, size, unknown)

    def pause(self, name: str, *, by: str = "") -> Schedule:
        """Lets no tick fire until it is resumed; what is held back or refused is skipped.

        Raises:
            BadOption: if there is none of this name.
        """

        def paused(schedule: Schedule) -> Schedule:
            return msgspec.structs.replace(without_pending(schedule), paused=True)

        return self._change("pause", name, by, paused)

    def resume(self, name: str, *, by: str = "") -> Schedule:
        """Lets ticks fire from now on; those of the pause are left out.

        Raises:
            BadOption: if there is none of this name.
        """

        def resumed(schedule: Schedule) -> Schedule:
            if not schedule.paused:
                return schedule
            decided_ms = max(schedule.progress.decided_ms, self._store.now_ms(TOPIC))
            after = schedule.with_progress(decided_ms=decided_ms)
            return msgspec.structs.replace(after, paused=False)

        return self._change("resume", name, by, resumed)

    def delete(self, name: str, *, by: str = "", force: bool = False) -> Schedule | None:
        """Removes a schedule; messages that it has published stay.

        Args:
            name: its name.
            by: who does it.
            force: also one that cannot be read here.

        Returns:
            What it was; None if it could not be read.

        Raises:
            BadOption: if there is none of this name, or it cannot be read here.
        """
        schedule = None
        try:
            schedule = self._known(name)
        except UnreadableSchedule:
            if not force:
                raise
        self._records.remove(name)
        if schedule is not None:
            self._told("delete", schedule, by)
        elif self._events:
            self._events.emit("schedule.changed", verb="delete", schedule=name, by=by, topic="")
        return schedule

    def run_now(self, name: str, *, by: str = "") -> Published:
        """Publishes its message once, now, whether it is paused or not; its ticks stay as they are.

        Raises:
            BadOption: if there is none of this name.
            QFrameError: as `publish`.
        """
        schedule = self._known(name)
        local = schedule.timing.local(self._store.now_ms(TOPIC) // 1000 * 1000).isoformat()
        message_id = f"cron-now/{schedule.name}/{new_token(self._clock)}"
        item = schedule.template.message(schedule.name, local, message_id)
        topic, entry = self._producer.prepared(schedule.template.topic, item)
        [published] = self._producer.send(topic, [entry])
        self._told("run_now", schedule, by, id=published.id)
        return published

    def backfill(
        self, name: str, since: datetime | float, until: datetime | float, *,
        dry_run: bool = False, by: str = "",
    ) -> Backfilled:  # fmt: skip
        """Publishes the messages of ticks that are over, from `since` up to but not with `until`.

        They go out at once, in order, whatever `overlap` says, and whether or not those ticks have
        fired. The same range again within the topic's `dedupe_window` publishes nothing twice.

        Raises:
            BadOption: if there is none of this name, these are no times, `since` is after `until`,
                `until` is to come, or there are over 10,000 ticks.
            QFrameError: as `publish_many`.
        """
        schedule = self._known(name)
        since_ms, until_ms = moment_ms(since, "since"), moment_ms(until, "until")
        if until_ms > self._store.now_ms(TOPIC) + 1000:
            raise BadOption("until", str(until), "it is to come", "give a time that is over")
        if since_ms > until_ms:
            raise BadOption("since", str(since), f"it is after until, {until}", "exchange them")
        timing = schedule.timing
        found = timing.ticks(since_ms - 1, until_ms - 1)
        ticks = list(islice(found, MOST_BACKFILLED + 1))
        if len(ticks) > MOST_BACKFILLED:
            raise BadOption("since", since, f"there are more than {MOST_BACKFILLED} ticks until",
                            "backfill a shorter range at a time")  # fmt: skip
        shown = [tick_of(timing, each) for each in ticks]
        if dry_run:
            return Backfilled(ticks=shown, published=[])
        items = [
            schedule.template.message(schedule.name, tick.local,
                                      schedule.message_id(tick.at_ms, "cron-backfill"))
            for tick in shown
        ]  # fmt: skip
        published = self._producer.publish_many(schedule.template.topic, items)
        stored = sum(each.outcome is not Outcome.DUPLICATE for each in published)
        self._told("backfill", schedule, by, count=stored)
        return Backfilled(ticks=shown, published=published)

    def preview(
        self, name: str | None = None, *, when: str | None = None, tz: str = "UTC",
        exclude: Iterable[str] = (), dst: DstRule = "debian", count: int = 10,
        after: datetime | float | None = None,
    ) -> Preview:  # fmt: skip
        """The next ticks of a schedule, or of a timing that nobody has put yet; nothing is changed.

        Args:
            name: the schedule; or
            when: the timing, with `tz`, `exclude` and `dst` as in `put`.
            tz: as in `put`.
            exclude: as in `put`.
            dst: as in `put`.
            count: how many ticks, up to 1,000.
            after: those after this moment; without it those after now.

        Raises:
            BadOption: if there is none of this name, neither or both of `name` and `when` are
                given, or one is wrong, or `after` is beyond the year 2200, the last of all
                schedules.
        """
        if (name is None) == (when is None):
            raise BadOption("name", name, f"when={when!r} is given", "give one of the two")
        if not isinstance(count, int) or not 1 <= count <= MOST_PREVIEWED:
            raise BadOption("count", count, f"it must be from 1 to {MOST_PREVIEWED}", "use 10")
        now_ms = self._store.now_ms(TOPIC)
        after_ms = now_ms if after is None else moment_ms(after, "after")
        if after_ms >= ENDS_MS:
            raise BadOption(
                "after", str(after), "no schedule ticks after 2200", "name an earlier time"
            )
        if name is not None:
            timing = self._known(name).timing
        else:
            timing = checked_timing(
                Timing(when=when or "", tz=tz, dst=dst, exclude=listed(exclude)), now_ms
            )
        return preview_of(timing, after_ms, count)

    # Inside.

    def _put(
        self, name: str, when: str, topic: Topic | str, *, by: str, declared: bool,
        options: ScheduleKeywords,
    ) -> Schedule:  # fmt: skip
        wanted = self._checked(name, when, topic, declared=declared, options=options)
        self._records.open()

        def put(old: Schedule | None) -> Schedule:
            is_new = old is None or old.timing != wanted.timing
            if is_new and not declared:  # code stays as it is when its end has come
                checked_timing(wanted.timing, wanted.progress.decided_ms)
            if old is None:
                return wanted
            progress = old.progress
            if is_new:
                decided_ms = max(progress.decided_ms, wanted.progress.decided_ms)
                progress = msgspec.structs.replace(progress, decided_ms=decided_ms)
            if progress.failures and progress.sending is not None:
                # Nothing of it was taken as it was.
                sending = msgspec.structs.replace(progress.sending, template=wanted.template)
                progress = msgspec.structs.replace(progress, sending=sending, failures=0)
            return msgspec.structs.replace(
                wanted, progress=progress, version=old.version, paused=old.paused
            )

        return self._changed("put", wanted.name, by, put)

    def _checked(
        self, name: str, when: str, topic: Topic | str, *, declared: bool,
        options: ScheduleKeywords,
    ) -> Schedule:  # fmt: skip
        """A schedule as it was asked for, with nothing decided yet.

        Raises:
            BadInput: if it is not as `put` describes.
        """
        refuse_unknown_options(options)
        now_ms = self._store.now_ms(TOPIC)
        found = self._catalog.resolve(topic)
        schedule = new_schedule(
            name, when, found.name, now_ms=now_ms, max_body=self._max_body, declared=declared,
            **options,
        )  # fmt: skip
        return fitted(schedule, found, now_ms=now_ms, max_body=self._max_body)

    def _known(self, name: str) -> Schedule:
        found = self.get(name)
        if found is None:
            raise _unknown(name)
        return found

    def _change(
        self, verb: str, name: str, by: str, how: Callable[[Schedule], Schedule]
    ) -> Schedule:
        def change(old: Schedule | None) -> Schedule:
            if old is None:
                raise _unknown(name)
            return how(old)

        return self._changed(verb, checked_schedule_name(name), by, change)

    def _changed(
        self, verb: str, name: str, by: str, how: Callable[[Schedule | None], Schedule]
    ) -> Schedule:
        """Changes what is there, again if somebody else is faster, or a reply is lost."""
        lost = 0
        while True:
            old = self._records.read(name)
            wanted = how(old)
            if old is not None and _same(old, wanted):
                if lost:
                    self._told(verb, old, by)
                return old
            now_ms = self._store.now_ms(TOPIC)
            wanted = msgspec.structs.replace(wanted, changed_ms=now_ms, changed_by=by)
            try:
                [written] = self._records.write([with_due(wanted, now_ms)])
            except AnswerLost:
                lost += 1
                if lost == TRIES:
                    raise
                continue
            if written is not None:
                self._told(verb, written, by)
                return written

    def _told(self, verb: str, schedule: Schedule, by: str, **facts: object) -> None:
        if self._events:
            self._events.emit(
                "schedule.changed", verb=verb, schedule=schedule.name, by=by,
                topic=schedule.template.topic,
                **({"warnings": odd} if (odd := warnings_of(schedule.timing)) else {}), **facts,
            )  # fmt: skip


def _same(old: Schedule, wanted: Schedule) -> bool:
    return (
        old.is_as(wanted)
        and old.paused == wanted.paused
        and old.progress.failures == wanted.progress.failures
    )


def _unknown(name: str) -> BadOption:
    return BadOption(
        "schedule", name, "there is none of this name",
        "list them: app.schedules.find(), or qframe schedules list",
    )  # fmt: skip
