"""Documents of groups."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from qframe.roster import fresh_version
from qframe.stores.documents import (
    NO_VERSION,
    Document,
    Documents,
    Listed,
    Place,
    Space,
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
    def write_document(
        self, topic: Topic, group: str, space: Space, name: str, value: str | None,
        version: int | None = None,
    ) -> Written | None:  # fmt: skip
        with self._lock:
            self._group(topic, group)  # there must be one
            documents, now_ms = self._space(topic, group, space), self._now_ms()
            before, fresh = documents.get(name), NO_VERSION
            known = NO_VERSION if before is None else before.version
            if version is not None and version != known:
                return None
            if value is None:
                documents.pop(name, None)
            else:
                fresh = fresh_version()
                documents[name] = Document(name, value, fresh, now_ms)
        if value != (None if before is None else before.value):
            self._ring_spaces()
        return Written(fresh, now_ms, before is None)

    @override
    def list_documents(self, topic: Topic, group: str, space: Space) -> Listed:
        with self._lock:
            self._group(topic, group)
            return Listed(sorted(self._space(topic, group, space).values()), self._now_ms())

    def _space(self, topic: Topic, group: str, space: Space) -> dict[str, Document]:
        return self._state(topic).documents.setdefault(group, {}).setdefault(space, {})
