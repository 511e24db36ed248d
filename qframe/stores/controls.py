"""What is tuned of a group, and what its workers report, as documents.

All that is tuned of a group is one document, a JSON object of texts by name; each worker's report
is a document of its own, under the worker's id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from qframe.stores.bucket import Buckets
from qframe.stores.documents import NO_VERSION, Document, Documents, Place, Space, Write
from qframe.stores.types import REPORTS_MS, WorkerReport
from qframe.topic import Topic

_TUNING: Final = "tuning"


class Controls(Documents, Buckets, Protocol):
    """Settings of a group that may change while its workers run, and what the workers share."""

    def tune(self, topic: Topic, group: str, values: Mapping[str, str | None]) -> None:
        """Sets values by name, in one step; None takes one back. The others stay."""
        written = None
        while written is None:
            listed = self.list_documents(topic, group, Space.TUNING).documents
            seen = {each.name: each for each in listed}.get(_TUNING)
            before = {} if seen is None else _values(seen)
            kept = {name: value for name, value in before.items() if name not in values}
            after = kept | {name: text for name, text in values.items() if text is not None}
            version = NO_VERSION if seen is None else seen.version
            text = msgspec.json.encode(after).decode() if after else None
            write = Write(_TUNING, text, version)
            [written] = self.write_documents(topic, group, Space.TUNING, [write])

    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
        """The settings of each group, in one round trip (on a cluster one to each node).

        It is empty also for a group that there is not; None where it cannot be known now.
        """
        return tunings_in(self, asked)

    def report(self, topic: Topic, group: str, worker: str, text: str) -> None:
        """Keeps what a worker says of its consumer, in place of what it said before.

        Reports older than a day are removed.
        """
        [written] = self.write_documents(topic, group, Space.REPORTS, [Write(worker, text)])
        if written is not None and written.is_new:
            old_ms = written.at_ms - REPORTS_MS
            removals = [
                Write(report.name, None, report.version)
                for report in self.list_documents(topic, group, Space.REPORTS).documents
                if report.at_ms <= old_ms and report.version != NO_VERSION  # which is a newer one's
            ]
            self.write_documents(topic, group, Space.REPORTS, removals)

    def reports(self, topic: Topic, group: str) -> list[WorkerReport]:
        """The last report of each worker, by worker."""
        found = self.list_documents(topic, group, Space.REPORTS).documents
        return [WorkerReport(each.name, each.at_ms, each.value) for each in found]


class _Reading(Protocol):
    def read_documents(self, places: Sequence[Place]) -> list[Document | None]:
        """As of `Documents`."""


def tunings_in(store: _Reading, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
    """The settings of each group; None where they cannot be known now."""
    found = store.read_documents([_place(topic, group) for topic, group in asked])
    return [
        None if each is None else {
            name: text for name, text in sorted(_values(each).items()) if isinstance(text, str)
        }
        for each in found
    ]  # fmt: skip


def _place(topic: Topic, group: str) -> Place:
    return Place(topic, group, Space.TUNING, _TUNING)


def _values(document: Document) -> dict[str, Any]:
    """What a document says by name; nothing where this version cannot read it."""
    try:
        return msgspec.json.decode(document.value, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
