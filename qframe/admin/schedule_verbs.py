"""Schedules for a person on call: put, paused, run, deleted, with rights and an audit."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Unpack

import msgspec

from qframe.admin.context import AdminRole
from qframe.admin.schedule_search import LOOK, ScheduleHits, found_schedules
from qframe.outcomes import Outcome, Published
from qframe.schedules.checked import ScheduleKeywords
from qframe.schedules.preview import Backfilled
from qframe.schedules.record import Schedule
from qframe.topic import Topic


class ScheduleAdmin(AdminRole):
    """Schedules; `app.schedules` is the same for programs."""

    def schedules(
        self, *, prefix: str = "", limit: int = 100, look: int = LOOK, place: str | None = None
    ) -> ScheduleHits:
        """Schedules, the next one due first; without the right to see bodies without theirs.

        One that has the whole name is looked up. All others are looked for one by one, no more than
        `look` of them; `place` of the result says where to go on.

        Args:
            prefix: only those whose name begins so.
            limit: how many are enough.
            look: how many to look at, at most.
            place: where an earlier search has ended, with the same prefix.

        Raises:
            BadOption: if no name begins so, `place` is not as described, or `limit` is below 1.
        """
        context = self._context
        context.require("view")
        hits = found_schedules(
            context.schedules(), prefix, limit=limit, look=max(1, look), place=place
        )
        if "body" in context.rights:
            return hits
        return replace(hits, schedules=[_without_body(each) for each in hits.schedules])

    def put_schedule(
        self, name: str, when: str, *, topic: Topic | str, **options: Unpack[ScheduleKeywords]
    ) -> Schedule:
        """Makes a schedule, or changes it to this, as `app.schedules.put`.

        Raises:
            BadInput, UnknownTopic: as there.
            NotAllowed: without the right to tune.
        """
        context = self._context
        context.require("tune")
        before = context.schedules().get(name)
        after = context.schedules().put(name, when, topic=topic, by=context.audit.by, **options)
        if before is not None and before.version == after.version:
            return after
        return self._told("put_schedule", after)

    def pause_schedule(self, name: str) -> Schedule:
        """Lets no tick fire until it is resumed; what is held back is skipped.

        Raises:
            BadOption: if there is none of this name.
            NotAllowed: without the right to pause.
        """
        context = self._context
        context.require("pause")
        return self._told("pause_schedule", context.schedules().pause(name, by=context.audit.by))

    def resume_schedule(self, name: str) -> Schedule:
        """Lets ticks fire from now on; those of the pause are left out.

        Raises:
            BadOption: if there is none of this name.
            NotAllowed: without the right to pause.
        """
        context = self._context
        context.require("pause")
        return self._told("resume_schedule", context.schedules().resume(name, by=context.audit.by))

    def run_schedule(self, name: str) -> Published:
        """Publishes its message once, now, whether it is paused or not; its ticks stay as they are.

        Raises:
            BadOption: if there is none of this name.
            NotAllowed: without the right to retry.
            QFrameError: as `publish`.
        """
        context = self._context
        context.require("retry")
        topic = self._topic_of(name)
        published = context.schedules().run_now(name, by=context.audit.by)
        context.audit.record(
            "run_schedule", topic, None, count=1, schedule=name, ids=[published.id]
        )
        return published

    def backfill_schedule(
        self, name: str, since: datetime | float, until: datetime | float
    ) -> Backfilled:
        """Publishes the messages of ticks that are over, as `app.schedules.backfill` does.

        Raises:
            BadOption: as there.
            NotAllowed: without the right to retry.
            QFrameError: as `publish_many`.
        """
        context = self._context
        context.require("retry")
        topic = self._topic_of(name)
        made = context.schedules().backfill(name, since, until, by=context.audit.by)
        stored = sum(each.outcome is not Outcome.DUPLICATE for each in made.published)
        context.audit.record("backfill_schedule", topic, None, count=stored, schedule=name)
        return made

    def delete_schedule(self, name: str, *, force: bool = False) -> Schedule | None:
        """Removes a schedule; messages that it has published stay.

        Args:
            name: its name.
            force: also one that cannot be read here.

        Returns:
            What it was; None if it could not be read.

        Raises:
            BadOption: if there is none of this name, or it cannot be read here.
            NotAllowed: without the right to drop.
        """
        context = self._context
        context.require("drop")
        gone = context.schedules().delete(name, by=context.audit.by, force=force)
        topic = "" if gone is None else gone.template.topic
        context.audit.record("delete_schedule", topic, None, count=1, schedule=name)
        return gone

    def _told(self, verb: str, schedule: Schedule) -> Schedule:
        topic = schedule.template.topic
        self._context.audit.record(verb, topic, None, count=1, schedule=schedule.name)
        return schedule

    def _topic_of(self, name: str) -> str:
        """The topic of a schedule; empty if there is no such schedule, which the verb then says."""
        found = self._context.schedules().get(name)
        return "" if found is None else found.template.topic


def _without_body(schedule: Schedule) -> Schedule:
    template = msgspec.structs.replace(schedule.template, body=None, headers=None)
    return msgspec.structs.replace(schedule.with_progress(error=None), template=template)
