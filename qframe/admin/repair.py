"""Mending what an audit finds."""

from __future__ import annotations

from qframe.admin.context import AdminRole
from qframe.topic import Topic


class RepairAdmin(AdminRole):
    """Places that somebody or something has damaged."""

    def repair(self, topic: Topic | str | None = None) -> list[str]:
        """Mends what `verify` finds and can be mended without a guess, while workers run.

        No message is removed, and none is called settled. One that is missing already is counted as
        cancelled. `verify` returns afterwards what is left, with the reason.

        Args:
            topic: the topic; None for all.

        Returns:
            What was done, in sentences; empty if nothing was to be mended.

        Raises:
            NotAllowed: without the right to retry.
        """
        context = self._context
        context.require("retry")
        done = []
        for each in context.topics() if topic is None else [context.topic(topic)]:
            mended = context.store.repair(each)
            if mended:
                context.audit.record("repair", each, None, count=len(mended))
            done += [f"topic {each.name}: {what}" for what in mended]
        return done
