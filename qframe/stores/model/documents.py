"""Documents of groups."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from typing_extensions import override

from qframe.roster import fresh_version
from qframe.stores.documents import (
    NO_VERSION,
    WHOLE,
    Document,
    Documents,
    Listed,
    Place,
    Space,
    Span,
    Write,
    Written,
)
from qframe.stores.model.role import ModelRole
from qframe.topic import Topic


class ModelDocuments(ModelRole, Documents):
    """Documents by group, space and name."""

    @override
    def read_documents(self, places: Sequence[Place]) -> list[Document | None]:
        with self._lock:
            return [
                self._space(*place[:3]).get(place.name, Document(place.name, "", NO_VERSION, 0))
                for place in places
            ]

    @override
    def write_documents(
        self, topic: Topic, group: str, space: Space, writes: Sequence[Write]
    ) -> list[Written | None]:
        with self._lock:
            self._group(topic, group)  # there must be one
            documents, now_ms = self._space(topic, group, space), self._now_ms()
            before = [documents.get(write.name) for write in writes]
            written = [_written(documents, write, now_ms) for write in writes]
        if any(
            done is not None and write.value != (None if old is None else old.value)
            for write, old, done in zip(writes, before, written, strict=True)
        ):
            self._ring_spaces()
        return written

    @override
    def list_documents(self, topic: Topic, group: str, space: Space, span: Span = WHOLE) -> Listed:
        with self._lock:
            self._group(topic, group)
            listed = sorted(
                (
                    document for document in self._space(topic, group, space).values()
                    if document.rank <= span.until and document.ranked_name > span.after
                ),
                key=attrgetter("ranked_name"),
            )  # fmt: skip
            return Listed(listed[: span.limit], self._now_ms())

    def _space(self, topic: Topic, group: str, space: Space) -> dict[str, Document]:
        return self._state(topic).documents.setdefault(group, {}).setdefault(space, {})


def _written(documents: dict[str, Document], write: Write, now_ms: int) -> Written | None:
    """Does one write; None if the document has another version."""
    before = documents.get(write.name)
    known = NO_VERSION if before is None else before.version
    if write.version is not None and write.version != known:
        return None
    fresh = NO_VERSION if write.value is None else fresh_version()
    if write.value is None:
        documents.pop(write.name, None)
    else:
        documents[write.name] = Document(write.name, write.value, fresh, now_ms, write.rank)
    return Written(fresh, now_ms, before is None)
