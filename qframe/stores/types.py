"""Request and response types of the store protocol.

`qframe.stores` describes the operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from qframe.codec import KEYLESS
from qframe.errors import AnswerLost, BadInput, BadOption, StoreUnavailable
from qframe.message import Delivery
from qframe.outcomes import Outcome, Verdict
from qframe.topic import Kind, Topic, span_of

NO_EPOCH = "0" * 16
QUIET = 4
"""The most that a pull may find in a quiet slot, so that the bell rings for what comes next."""
LARGEST_REPLY = 65536
"""The largest message that publishing hands out to a pull that stands, in bytes."""
LOST_ERROR = "its worker ended without settling it"
REPORTS_MS = 86_400_000
"""For how long the reports of workers are kept."""


class Capabilities(msgspec.Struct, frozen=True):
    """The abilities of a store by which a pull loop goes.

    Attributes:
        bell: whether it tells of new messages by itself, so that an idle worker need not ask.
        pull_at_most: for how many messages a pull should ask at most, of kinds whose messages cost
            the server the same in a larger one, while handlers would wait for it.
    """

    bell: bool
    pull_at_most: dict[Kind, int] = {}


class Entry(msgspec.Struct, gc=False, eq=False):
    """A message on its way into a topic, checked and encoded by the producer.

    Attributes:
        slot: where it goes.
        subject: what it is queued under; None in a stream.
        id: its id.
        mark: what is remembered for `dedupe_window` to recognise it: its id where a user named
            it, else the mark of its batch (`codec.batch_mark`), the same for the whole batch.
        key: its key, or None.
        headers: its headers, or None.
        body: its body.
        hash: the `crc32` of the basis that has led to the slot; None where the slot was chosen.
        delay_ms: due so long after the store's now; None where no delay was asked.
        at_ms: due at that moment; None where none was asked. At most one of the two is given.
        priority: higher goes first, in `priority` and `ordered`.
        within_ms: in `merge`, due so long after now where neither delay nor moment is given.
        sequence: its number among its key's messages, from 1; None where it has none.
        series: a name and a place, 0 or more: a duplicate unless its place is larger than those of
            all messages of the series that this slot has ever stored. Its id is a named one.
    """

    slot: int
    subject: str | None
    id: str
    mark: str
    key: str | None
    headers: dict[str, str] | None
    body: bytes
    hash: int | None = None
    delay_ms: int | None = None
    at_ms: int | None = None
    priority: int = 0
    within_ms: int = 0
    sequence: int | None = None
    series: tuple[str, int] | None = None

    def name(self, message_id: str, mark: str) -> None:
        """Gives it its id, and the subject that follows from it."""
        self.id, self.mark = message_id, mark
        if self.key is None and self.subject == KEYLESS:
            self.subject = KEYLESS + message_id


class TopicList(list[Topic]):
    """The topics of a store, by name.

    Attributes:
        unread: the error of each topic that this version of qframe cannot read, and that is left
            out; its `value` is the topic's name. Of a topic that lies elsewhere it says so.
    """

    def __init__(self, topics: Iterable[Topic] = (), unread: Iterable[BadInput] = ()) -> None:
        super().__init__(topics)
        self.unread: list[BadInput] = list(unread)

    @contextmanager
    def passing_by(self) -> Iterator[None]:
        """Reads one topic; if that cannot be read here, notes its error."""
        try:
            yield
        except BadInput as error:
            self.unread.append(error)


class LiesHere(BadOption):
    """Raised when a topic that is to lie in a database lies in Redis."""


class SlotsClosed(StoreUnavailable):
    """Raised when slots are closed, since they are split or being split; nothing of them changed.

    Attributes:
        outcomes: of a publish, the outcome of each entry; None for those of closed slots.
    """

    _what = "has closed slots"
    _remedy = "they are being split in two: try again"

    def __init__(self, store: str, topic: str, outcomes: Sequence[Outcome | None] = ()) -> None:
        super().__init__(store, f"topic {topic!r} is growing")
        self.outcomes: Sequence[Outcome | None] = outcomes


class SlotsAway(AnswerLost):
    """Raised when slots are away, or damaged in some way, while others could be taken."""

    def __init__(self, store: str, taken: Sequence[int], away: Mapping[int, str | None]) -> None:
        super().__init__(store, f"slots {', '.join(map(str, away))} are away")
        self.taken, self.away = taken, away


class SlotSplit(BadOption):
    """Raised when a slot is named that was split in two: its offsets are not those of the two."""

    def __init__(self, topic: Topic, slot: int) -> None:
        super().__init__(
            "slot", slot, f"topic {topic.name!r} has grown, and its slots are {span_of(topic)}",
            "ask for the offsets again",
        )  # fmt: skip

    @classmethod
    def check(cls, topic: Topic, slots: Iterable[int]) -> None:
        """Refuses slots that were split."""
        for slot in slots:
            if slot in topic.past_slots:
                raise cls(topic, slot)


class PullRequest(NamedTuple):
    """The request of a pull to one slot; a pull names each slot once.

    Attributes:
        slot: the slot.
        epoch: the epoch under which the caller owns it.
        limit: how many deliveries at most.
        position: in a stream, the offset behind the last one of the line that the caller has
            received under this epoch, 0 before the first. The messages between it, or the floor if
            that is higher, and the group's read position were handed out in a reply that was lost,
            and are handed out again, uncounted. None asks for nothing again.
        in_hand: in a stream, how many messages of the line the caller has received under this
            epoch and not settled yet; None where it does not say.
    """

    slot: int
    epoch: str
    limit: int
    position: int | None = None
    in_hand: int | None = None

    def is_ahead_of(self, read: int, in_window: int) -> bool:
        """Whether the caller has received, or settled, what the store does not know of.

        The store has failed over then to a server that is behind, and its window is lost: what it
        hands out next gets offsets that the caller has in hand, and what it takes for handed out
        may be in nobody's. A caller that is behind the store has lost a reply, and is not ahead.

        Redis asks the same in `pull_stream.lua`.

        Args:
            read: the group's read position.
            in_window: how many messages before it are handed out, and not settled.
        """
        if self.position is None or self.position < read:
            return False
        if self.position > read:  # it has received more
            return True
        return self.in_hand is not None and self.in_hand < in_window  # it has settled more


class StandingTerms(NamedTuple):
    """Has a pull stand in the slots that it leaves quiet.

    The first message that comes into such a slot, alone, is handed out as it is published, and the
    reply goes to the address. A later pull, and a revocation, end that.

    Attributes:
        address: of the bell of who pulls.
        receipt: of what is handed out in that way.
    """

    address: str
    receipt: str


NOT_STANDING = StandingTerms("", "")


class PullTerms(NamedTuple):
    """The terms of a whole pull.

    Attributes:
        receipt: the receipt of what is handed out; from an `@` on it names the worker.
        lease_ms: how long it stays hidden.
        max_attempts: how often a message is handed out before it is dead.
        run: how many messages of an ordered subject are handed out together at most.
        standing: whether it stands where it leaves slots quiet, if the store can do that, and where
            to.
        ahead_bytes: how large the bodies may be together that the store keeps of what it has read
            beyond this pull.
    """

    receipt: str
    lease_ms: int
    max_attempts: int
    run: int = 32
    standing: StandingTerms = NOT_STANDING
    ahead_bytes: int = 2**24


class LateReply(NamedTuple):
    """The reply to a pull that stood.

    Attributes:
        slot: where it stood.
        epoch: under which epoch.
        receipt: that of its `StandingTerms`.
        delivery: what is handed out; None where it cannot be read.
    """

    slot: int
    epoch: str
    receipt: str
    delivery: Delivery | None


class PullResult(msgspec.Struct):
    """The answer to a pull.

    Attributes:
        deliveries: slot by slot as asked, in the order in which they are to be handled.
        fenced: the slots whose epoch is another now.
        next_due_ms: milliseconds until the next message of these slots falls due or loses its
            lease; None where none will. 0 where a limit was reached, since more may be due.
        dead: how many went to dead, their attempts spent.
        lost: how many deliveries were found to have lost their lease.
        gaps: how many gaps in sequences were passed.
        unreachable: the slots that could not be asked now; nothing of them was handed out.
        in_doubt: the slots whose answer was lost: they are to be revoked before the next pull.
        faults: of those slots, why one will be so until somebody mends it: it is damaged.
        malformed: how many messages could not be read, and are dead.
        missing: how many offsets of streams had no message any more, and were passed.
        stops: for streams' slots of which the last ones are not among the deliveries, since they
            were malformed, missing or parked, the offset behind them: the position of the next
            pull; and the read position, where the caller's is beyond it and nothing is read.
        full: the slots of which the group has parked so much that their line is not read.
        ahead_bytes: how large the bodies are that are kept for the group's next pulls.
    """

    deliveries: list[Delivery] = []
    fenced: list[int] = []
    next_due_ms: int | None = None
    dead: int = 0
    lost: int = 0
    gaps: int = 0
    unreachable: list[int] = []
    in_doubt: list[int] = []
    faults: dict[int, str] = {}
    malformed: int = 0
    missing: int = 0
    stops: dict[int, int] = {}
    full: list[int] = []
    ahead_bytes: int = 0


class Settlement(msgspec.Struct, gc=False, eq=False):
    """How one delivery ends.

    Attributes:
        slot, subject, seq, receipt, attempt: the delivery's own.
        epoch: the epoch under which its slot was owned when it was pulled.
        verdict: ack, retry, dead, or release (given back uncounted).
        delay_ms: for a retry, due so long after the store's now.
        at_ms: for a retry, due at that moment instead.
        error: for retry and dead, what went wrong, in one line that is `codec.legible`.
        traceback: for retry and dead, where; legible as well.
        id: the message's id, by which a history is kept; nothing is kept without it.
        took_ms: for a history, how long its worker had it; None where that is not known.
    """

    slot: int
    subject: str | None
    seq: int
    receipt: str
    attempt: int
    epoch: str
    verdict: Verdict
    delay_ms: int = 0
    at_ms: int | None = None
    error: str | None = None
    traceback: str | None = None
    id: str = ""
    took_ms: int | None = None

    @property
    def last_words(self) -> str | None:
        """The error and, from the second line on, its traceback, as one text."""
        return f"{self.error}\n{self.traceback}" if self.traceback else self.error


class LeaseRef(NamedTuple):
    """A delivery that is to be kept hidden: one of a slot's window stands for all of it."""

    slot: int
    epoch: str
    subject: str | None
    receipt: str


class RenewResult(msgspec.Struct):
    """The answer to a renewal.

    Attributes:
        gone: the holds that are not held any more.
        unreachable: the holds that could not be renewed now.
    """

    gone: list[LeaseRef] = []
    unreachable: list[LeaseRef] = []


class RevokeResult(msgspec.Struct):
    """The answer to a revocation.

    Attributes:
        count: how many deliveries were given back.
        unreachable: the slots in which this could not be done now.
    """

    count: int = 0
    unreachable: list[int] = []


class DrawResult(NamedTuple):
    """The answer to a draw.

    Attributes:
        granted: how many tokens were drawn.
        wait_ms: 0 if all that were asked for were granted; else how long until one more is there.
    """

    granted: int
    wait_ms: int


class WorkerReport(NamedTuple):
    """A worker's word about its consumer of a group.

    Attributes:
        worker: its id.
        at_ms: when it said so, by the store's clock.
        text: what it said; it means something to workers, and nothing to the store.
    """

    worker: str
    at_ms: int
    text: str


def acks(deliveries: Sequence[Delivery], epochs: Mapping[int, str]) -> list[Settlement]:
    """The settlements that acknowledge deliveries."""
    return [
        Settlement(
            one.slot, one.subject, one.seq, one.receipt, one.attempt,
            epochs.get(one.slot, NO_EPOCH), Verdict.ACK, id=one.id,
        )
        for one in deliveries
    ]  # fmt: skip
