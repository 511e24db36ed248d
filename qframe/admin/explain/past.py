"""The past of messages: how their attempts have ended, as far as their topics keep that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import groupby

from qframe.admin.explain.cause import Cause, Explanation
from qframe.admin.explain.words import attempts, moment
from qframe.outcomes import Verdict
from qframe.stores.history import CANCELLED, EDITED
from qframe.stores.reads import Reads
from qframe.stores.records import HistoryEntry, Record
from qframe.topic import Topic


class Past:
    """The histories of messages, each looked up once.

    Args:
        store: where they are.
        shown: returns an entry with what may be seen of it.
    """

    def __init__(self, store: Reads, shown: Callable[[HistoryEntry], HistoryEntry]) -> None:
        self._store = store
        self._shown = shown
        self._known: dict[tuple[str, str], tuple[HistoryEntry, ...]] = {}

    def all_of(self, topic: Topic, message_id: str | None) -> tuple[HistoryEntry, ...] | None:
        """The entries of a message, of all groups; None where its topic keeps none."""
        if not topic.history_ms:
            return None
        if message_id is None:
            return ()
        place = (topic.name, message_id)
        if place not in self._known:
            found = self._store.history(topic, message_id)
            self._known[place] = tuple(map(self._shown, found))
        return self._known[place]

    def of_record(self, topic: Topic, record: Record) -> tuple[HistoryEntry, ...] | None:
        """The entries of a message for the group of its record."""
        found = self.all_of(topic, record.id)
        return found and tuple(
            each for each in found if (each.group, each.slot) == (record.group, record.slot)
        )

    def settled(
        self, topic: Topic, message_id: str | None, here: Collection[str | None]
    ) -> Iterator[Explanation]:
        """Explains a message that groups have settled, and that is not there for them any more.

        `here` are the groups for which it is still there.
        """
        found = self.all_of(topic, message_id) or ()
        for (group, slot), entries in groupby(found, lambda each: (each.group, each.slot)):
            history = tuple(entries)
            last = history[-1]
            if group not in here and last.verdict == Verdict.ACK:
                yield Explanation(
                    topic=topic.name, group=group, state="settled", causes=(settled_by(last),),
                    id=message_id, slot=slot, history=history,
                )  # fmt: skip


def settled_by(last: HistoryEntry) -> Cause:
    """A group has settled it, and who did is known."""
    by = f" by {last.worker}" if last.worker is not None else ""
    text = f"the group settled it at {moment(last.ended_ms)}{by}, attempt {last.attempt}"
    facts = {"at_ms": last.ended_ms, "worker": last.worker, "attempt": last.attempt}
    return Cause("settled", text, facts)


def gone_after(last: HistoryEntry, published_ms: int | None) -> Cause:
    """It is gone, and was not settled by the last attempt that is known."""
    if last.verdict == CANCELLED:
        by = f" by {last.worker}" if last.worker is not None else ""
        text = f"it was cancelled at {moment(last.ended_ms)}{by}"
        return Cause("forgotten", text, {"published_ms": published_ms})
    if last.verdict == EDITED:
        by = f" by {last.worker}" if last.worker is not None else ""
        text = f"it is gone: dropped, cancelled or replaced since it was edited{by} at "
        return Cause("forgotten", text + moment(last.ended_ms), {"published_ms": published_ms})
    by = f" of {last.worker}" if last.worker is not None else ""
    text = (
        f"it is gone: dropped, cancelled or replaced after {attempts(last.attempt)}, of which the "
        f"last one, in the hands{by}, ended with {last.verdict} at {moment(last.ended_ms)}"
    )
    return Cause("forgotten", text, {"published_ms": published_ms})
