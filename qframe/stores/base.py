"""The contract of a store: one small protocol for each role, and all of them together.

`qframe.stores` is the contract that stands behind these; a store implements every role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from qframe.message import Delivery
from qframe.outcomes import Outcome, Settled
from qframe.stores.acts import (
    Copying,
    Growing,
    Repairing,
)
from qframe.stores.bell import Bell
from qframe.stores.controls import Controls
from qframe.stores.edits import Edits
from qframe.stores.records import (
    HistoryEntry,
    Stats,
)
from qframe.stores.rosters import Rosters
from qframe.stores.types import (
    Capabilities,
    Entry,
    LeaseRef,
    PullRequest,
    PullResult,
    PullTerms,
    RenewResult,
    RevokeResult,
    Settlement,
    TopicList,
)
from qframe.topic import Topic


class Declaring(Protocol):
    """Declaring topics, and keeping them tidy."""

    def declare(self, topic: Topic) -> Topic:
        """Makes the topic known; its other options are changed to these.

        Returns:
            The topic with these options, and as far grown as it is.

        Raises:
            TopicMismatch: if it has another kind, or has never had so many slots; nothing is
                changed.
            BadTopic: if it is declared, and this version cannot read how; nothing is changed.
        """

    def topics(self, names: Sequence[str] | None = None) -> TopicList:
        """All topics, as declared and grown, or those of some names, in one round trip; by name.

        Those that this version of qframe cannot read are named apart; so are those among the names
        that are known to lie elsewhere.
        """

    def birth(self, topic: Topic) -> str:
        """A name of the topic's data: another one after they were deleted or lost."""

    def sweep(self, topic: Topic, limit: int = 500) -> int:
        """Removes up to `limit` rows that are no longer needed; returns how many it removed.

        The options that the topic was declared with last say what those are, whatever is given.
        These are messages of a stream that are older than `retain` and lie below every group's
        floor (or a stream without groups), marks older than `dedupe_window`, what history is older
        than `history`, and groups that have expired, each a row with all that stands for it, as if
        `drop_group` had been called.
        """

    def delete(self, topic: Topic, limit: int = 500) -> bool:
        """Removes a part of a topic; True once nothing is left, and it is declared no more.

        Its groups go first, one at each call, then up to `limit` rows at each. Until the last step
        it stays declared, so that who was interrupted can go on. It does not see whether somebody
        publishes meanwhile.
        """


class Topics(Declaring, Protocol):
    """Declaring topics, and looking them up."""

    def topic(self, name: str) -> Topic | None:
        """The topic as declared and grown, or None; BadTopic if this version cannot read it."""
        found = self.topics([name])
        if found.unread:
            raise found.unread[0]
        return found[0] if found else None

    def latest(self, topics: Sequence[Topic]) -> list[Topic | None]:
        """Each as declared and grown, in one round trip; None also where it cannot be read."""
        names = list(dict.fromkeys(topic.name for topic in topics))
        known = {topic.name: topic for topic in self.topics(names)}
        return [known.get(topic.name) for topic in topics]


class Publishing(Protocol):
    """Taking messages in."""

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Stores the entries in order; returns what became of each.

        An entry is a `duplicate` if its mark, or where a user named its id the mark of the batch
        that the id would belong to (`codec.batch_mark_of`), was remembered before this call, or
        if its id came earlier in this call. Marks are remembered by each slot for itself. It is
        one too if a message of its series has the same place or a later one; the last place of a
        series is remembered for ever.
        From the first entry of a slot on that would make it longer than `slot_max_length`, all
        entries of that slot that would be stored are `full`.

        Raises:
            UnknownTopic: if the topic was deleted; a store may tell that by `SlotsClosed`.
            TopicMismatch: if it was declared anew with another kind; or by `SlotsClosed`.
            SlotsClosed: if slots of some entries are closed, since they are being split or were;
                nothing is stored of these, and it has the outcomes of the others.
        """


class Pulling(Protocol):
    """Handing messages out, and keeping them hidden."""

    def pull(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], terms: PullTerms
    ) -> PullResult:
        """Hands out what is due, as described above, under the receipt of the terms.

        First, in each slot: what was delayed and has come due joins the line or its queue,
        sequence gaps whose time has passed are passed, lost leases are taken back. A stream's
        delivery from the line bears the receipt of its window, which is this one if the window
        was empty.
        """

    def renew(
        self, topic: Topic, group: str, holds: Sequence[LeaseRef], lease_ms: int
    ) -> RenewResult:
        """Makes these leases end `lease_ms` from now; returns those that are not held any more."""

    def revoke(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], receipt: str
    ) -> RevokeResult:
        """Gives back, uncounted, what was handed out under a receipt whose reply was lost.

        The asks are those of the lost pull. On a stream the group's read position goes back to
        where that pull has begun, which the position of its ask says. Where that pull has parked
        something of the line, the rest of what it has read is released instead.
        """


class Settling(Protocol):
    """Ending deliveries."""

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settles each, in order; one whose epoch or receipt is not in force is `stale`."""

    def acknowledge(
        self,
        topic: Topic,
        group: str,
        deliveries: Sequence[Delivery],
        epochs: Mapping[int, str],
    ) -> list[Settled]:
        """Acknowledges each, in order, under its slot's epoch; returns as `settle`."""


class Groups(Protocol):
    """Groups, and which epoch owns their slots."""

    def subscribe(
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None,
        *, beside: Sequence[str] = (), max_parked: int = 0,
    ) -> bool:  # fmt: skip
        """Makes the group collect from now on; False if it did before (`start` is then ignored).

        `start` is `earliest` (a stream: all that is kept; else: what no group has seen yet) or
        `latest`. With `expires_ms` the group expires: `sweep` drops it once so long has passed
        since it was last subscribed. The last subscription counts, and None is for ever.

        With `max_parked` above 0 the group of a stream keeps order, and while so many messages
        stand behind heads in a slot, its line is not read. The last subscription counts here too.

        The groups `beside` subscribe together with it, in the same way: each of them that is new
        gets all that no group has seen yet.

        Raises:
            SlotsClosed: if a group is new while a slot is closed; on Redis also if its terms are.
        """

    def groups(self, topic: Topic) -> list[str]:
        """All groups of a topic, by name."""

    def drop_group(self, topic: Topic, group: str) -> bool:
        """Forgets the group and all that stands for it; False if there was none."""

    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        """Moves a stream's group to an offset in each slot named (cut to what is kept).

        Messages that were handed out are fenced off; those that left the line (retries) are
        dropped. Dead letters below the offset stay; the others are dropped, as the line hands them
        out again. The offsets for a time are found with `offsets_at`. A slot that was split in two
        is refused with `SlotSplit`.
        """

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot; `NO_EPOCH` where nobody has ever owned it.

        A slot that lies where the store cannot be reached is left out, if others answer.
        """

    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        """Takes slots under new epochs; returns those taken: an epoch below the slot's is refused.

        With a larger epoch than the slot's, all that is in doing comes back, counted and lost.
        With the same nothing changes.

        Raises:
            SlotsAway: if some lie where the store cannot be reached; it names those taken.
        """


class SubscribingStore(Topics, Groups, Protocol):
    """The roles of a store that declare topics and subscribe groups."""


class Inspecting(Protocol):
    """Looking, and changing nothing."""

    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        """Counts for each group (or one) and slot, groups by name, slots in order.

        While a topic with subjects has no group, what is kept for the first is shown under the
        group `""`.
        """

    def verify(self, topic: Topic) -> list[str]:
        """Audits counts and structure; returns what is wrong, in sentences, or nothing.

        Conservation as in `Stats`, no subject in two places, no doing without lease and receipt,
        nothing behind a subject without a head, floors below read positions below heads.
        """

    def now_ms(self, topic: Topic | None = None) -> int:
        """The store's clock: the one by which a topic's times are judged, if one is named."""


class History(Protocol):
    """How attempts have ended, in topics with `history=`."""

    def ends(
        self, topic: Topic, slots: Sequence[int], message_id: str = "", key: str = ""
    ) -> list[HistoryEntry]:
        """The entries that slots have of a message, by group and slot, the first first.

        With a key those of its message that was handled, cancelled, or died last in each slot and
        group. There may be some that are older than the topic keeps.
        """


class Logs(Protocol):
    """Reading streams by offsets, beside all groups."""

    def read_log(self, topic: Topic, slot: int, first: int, limit: int) -> list[Delivery]:
        """A slot's messages from an offset on, in order, at most `limit`; nothing is changed.

        Offsets are dense but for what was removed, so the first may lie behind `first`. Fewer than
        `limit` are all there are. They are no deliveries to settle: they bear no receipt. Only a
        stream has a log.
        """


class Store(
    Topics, Publishing, Pulling, Settling, Groups, Edits, Repairing, Copying, Growing, Inspecting,
    History, Logs, Rosters, Controls, Protocol,
):  # fmt: skip
    """All of them, in one place."""

    url: str
    namespace: str
    capabilities: Capabilities

    def bell(self, topics: Sequence[Topic]) -> Bell:
        """A bell that rings when one of these topics may have something new."""

    def reconnect(self) -> None:
        """Lets go of connections that may be broken; they are made anew when they are needed."""

    def close(self) -> None:
        """Frees connections; the store cannot be used any more."""
