"""Documents: small texts by name, which a store keeps for a group and knows nothing of.

What is no message and lies off the hot path is a document: a member of a roster and its lease, the
owners of slots, what is tuned, what workers report, a schedule, a queue of SQS. What such a text
means is written once, in `stores.rosters`, `stores.controls`, `schedules.records` and the SQS
front; a store only keeps it, and does a batch of writes in one atomic step.

A document has a *version*, another one with each write: drawn at random, so it is a name and no
count, and what a server that has failed over knows is told apart from what it has forgotten. A
write may ask that the version is still the one that was read; of two who have read the same, one
is refused, and reads again. With the value the store keeps when it was written, by its own clock:
a lease is renewed by writing the same value again.

A document has a *rank* as well, 0 unless its writer gives one. Lists are in the order of ranks, and
of names where ranks are equal. Of a space with very many documents, such as schedules by the time
at which each is due next, a list can have a part: those below a rank, or a page.

Documents of one purpose stand together in a *space* of a group, are listed together, and have one
bell. It rings when one of them has come, gone, or got another value; a write of the same value
rings nobody. They go with the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from qframe.stores.bell import Bell
from qframe.topic import Topic

NO_VERSION: Final = 0
"""That of a document which is not there."""


class Space(StrEnum):
    """The spaces that each group has."""

    ROSTER = "roster"
    TUNING = "tuning"
    REPORTS = "reports"
    SCHEDULES = "schedules"
    QUEUES = "queues"


class RankedName(NamedTuple):
    """The place of a document in the lists of its space."""

    rank: int
    name: str


class Document(NamedTuple):
    """A document as it stands in the store.

    Attributes:
        name: its name in its space, at most `NAME_LENGTH` characters.
        value: its text; empty where it is not there.
        version: another one since each write; `NO_VERSION` where it is not there.
        at_ms: when it was written last, by the store's clock.
        rank: what it is listed by.
    """

    name: str
    value: str
    version: int
    at_ms: int
    rank: int = 0

    @property
    def ranked_name(self) -> RankedName:
        """Its place in a list."""
        return RankedName(self.rank, self.name)


NAME_LENGTH: Final = 300


class Write(NamedTuple):
    """A write of a document.

    Attributes:
        name: its name.
        value: its text; None removes it.
        version: the version that it must have, `NO_VERSION` if it must not be there; None if any
            will do.
        rank: its rank, from 0 to `MAX_RANK`.
    """

    name: str
    value: str | None
    version: int | None = None
    rank: int = 0


MAX_RANK: Final = 2**53 - 1


class Written(NamedTuple):
    """The answer to a write that was done.

    Attributes:
        version: the document's version now; `NO_VERSION` if it was removed.
        at_ms: when that was, by the store's clock.
        is_new: whether it was not there before.
    """

    version: int
    at_ms: int
    is_new: bool


class Span(NamedTuple):
    """A part of the documents of a space.

    Attributes:
        until: only those of this rank, or a lower one.
        after: only those behind this place.
        limit: how many at most, the first ones.
    """

    until: int = MAX_RANK
    after: RankedName = RankedName(0, "")
    limit: int = MAX_RANK


WHOLE: Final = Span()


class Listed(NamedTuple):
    """Documents of a space, as they stood at one moment.

    Attributes:
        documents: by rank, then by name.
        now_ms: that moment, by the store's clock.
    """

    documents: list[Document]
    now_ms: int


class Place(NamedTuple):
    """Where a document stands."""

    topic: Topic
    group: str
    space: Space
    name: str


class Documents(Protocol):
    """Reading, writing and listing documents of a group."""

    def read_documents(self, places: Sequence[Place]) -> list[Document | None]:
        """Each document, in one round trip (on a cluster one to each node).

        None where it cannot be known now. A group that there is not has none.
        """

    def write_documents(
        self, topic: Topic, group: str, space: Space, writes: Sequence[Write]
    ) -> list[Written | None]:
        """Writes or removes documents of a space, all in one step; no two writes have one name.

        Returns:
            For each write what was done; None, and that document is not changed, if it has another
            version.

        Raises:
            UnknownGroup: if there is no such group.
        """

    def list_documents(self, topic: Topic, group: str, space: Space, span: Span = WHOLE) -> Listed:
        """The documents of a space, or a part of them, at one moment.

        Raises:
            UnknownGroup: if there is no such group.
        """


class DocumentBells(Protocol):
    """Hearing of documents."""

    def document_bell(self, topic: Topic, group: str, space: Space) -> Bell | None:
        """A bell that rings when documents of a space may have changed.

        None where the store cannot tell; who wants to know then looks now and then.
        """
