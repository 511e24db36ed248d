"""Stacks on request: where the handlers of a group's workers are in their code."""

from __future__ import annotations

import msgspec

from qframe.admin.context import AdminRole
from qframe.options.report import HandlerStack, report_of
from qframe.options.tuning import STACKS, STACKS_S
from qframe.topic import Topic


class WorkerStacks(msgspec.Struct, kw_only=True, frozen=True):
    """Where the handlers of one worker are in their code, as it said last.

    Attributes:
        topic: the topic's name.
        group: the group.
        worker: the worker's id.
        at_ms: when it said so, in milliseconds since 1970.
        stacks: one for each handler that runs, 32 at most; no values of variables.
    """

    topic: str
    group: str
    worker: str
    at_ms: int
    stacks: tuple[HandlerStack, ...]


class StackAdmin(AdminRole):
    """The stacks of handlers."""

    def ask_stacks(self, topic: Topic | str, group: str) -> None:
        """Has a group's workers report their stacks, from within 2 s on, for a minute.

        Args:
            topic: the topic.
            group: the group.

        Raises:
            NotAllowed: without the right to tune.
        """
        context = self._context
        context.require("tune")
        found = context.topic(topic)
        name = context.group(found, group)
        until_ms = context.store.now_ms() + round(STACKS_S * 1000)
        context.store.tune(found, name, {STACKS: str(until_ms)})
        context.audit.record("ask_stacks", found, name, count=1)

    def stacks(self, topic: Topic | str, group: str) -> list[WorkerStacks]:
        """The stacks that a group's workers report while they are asked to, by worker.

        Somebody without the right to see bodies sees no tracebacks, and no lines of code either.
        """
        context = self._context
        sees_code = "body" in context.rights
        found = context.topic(topic)
        name = context.group(found, group)
        oldest_ms = context.store.now_ms(found) - round(STACKS_S * 1000)
        return [
            WorkerStacks(
                topic=found.name, group=name, worker=one.worker, at_ms=one.at_ms,
                stacks=report.stacks if sees_code else (),
            )
            for one in context.store.reports(found, name)
            if one.at_ms > oldest_ms
            and (report := report_of(one.text)) is not None
            and report.stacks is not None
        ]  # fmt: skip
