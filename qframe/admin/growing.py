"""Doubling the slots of topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from qframe.admin.context import AdminRole
from qframe.errors import BadOption, QFrameError
from qframe.stores.doubling import MAX_PAUSE_S, Doubling
from qframe.topic import Topic, duration_ms, is_internal


class GrowthAdmin(AdminRole):
    """Topics that get more slots."""

    def resize(
        self,
        topic: Topic | str,
        slots: int,
        *,
        max_pause: float | str | None = MAX_PAUSE_S,
        on_progress: Callable[[Topic], object] | None = None,
    ) -> Topic:
        """Doubles a topic's slots, once or several times, while it is used.

        Its slots are split one after the other. Each is handed over by its worker, copied into two
        new ones, and these go on with the same keys in the same order; meanwhile the keys of that
        slot wait. Producers and workers need no restart, and code that declares the topic with the
        slots that it had goes on to work. A growth that was interrupted is finished by calling it
        again, or by any worker of the topic. See docs/scaling.md.

        Args:
            topic: the topic.
            slots: how many slots it is to have: twice as many as now, or four times, and so on.
            max_pause: for how long the keys of a slot may wait: seconds, or such as "30s"; None for
                as long as it takes. A slot in which so much is queued that it would take longer is
                not begun.
            on_progress: called with the topic after each slot; it may raise to stop.

        Returns:
            The topic as it is then.

        Raises:
            BadOption: if it cannot grow to so many slots, somebody sees to its growth now, or it is
                a topic of qframe's own; and a `SlotTooDeep` if too much is queued in a slot. Then
                it has grown up to there, and goes on when it is called again, or by a worker.
            NotAllowed: without the right to move groups.
        """
        context = self._context
        context.require("seek")
        found = context.topic(topic)
        if is_internal(found.name):
            raise BadOption("topic", found.name, "it is one of qframe's own", "name one of yours")
        doubling = Doubling(
            context.store, found.name, pause=time.sleep, on_progress=on_progress,
            max_pause_s=None if max_pause is None else duration_ms(max_pause, "max_pause") / 1000,
            owned=lambda topic, group: context.roster(topic, group).owners,
        )  # fmt: skip
        begun = doubling.begin(slots)
        try:
            grown = doubling.finish(begun)
        except BaseException:  # also one of `on_progress`, or an interrupt: a worker may go on
            with suppress(QFrameError):
                doubling.leave()
            raise
        context.audit.record("resize", found, None, count=grown.slots, before=found.slots)
        return grown
