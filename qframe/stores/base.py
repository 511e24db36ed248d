"""The contract of a store: what every store does, and what each operation promises.

`stores/model` is this page as the shortest program; `tests/conformance` holds every store to it.

Every operation takes and returns batches and names the slots that it touches; what it does to one
slot is one atomic step, what it does to several need not be. Times are the store's: `delay_ms` is
counted from the store's clock, `at_ms` compared with it. An operation whose reply was lost can be
repeated: publishing is idempotent by id, settling by receipt, pulling by position and receipt.

The life of a message, for one group:

    publish ──► waiting ──due──► todo ──pull──► doing ──ack──► settled
                   ▲              ▲               │
                   └──── retry ───┴── release ────┼──dead──► dead ──retry_dead──► todo
                                  ▲               │            └───drop_dead───► cancelled
                                  └── lease lost ─┘

**Streams.** A slot is a log of messages at offsets 0, 1, 2 …; a group has a *read* position (the
next offset to hand out), a *floor* (all below is settled) and the set of offsets settled above it.
What lies between floor and read is its *window*, under one receipt and one lease, since a slot has
one owner; when the lease passes, or a new epoch is taken, what is unsettled in the window leaves
the line. What left the line (a retry, a release, a loss) is queued for itself, under the text of
its offset as its subject: those that were released or lost at the front, by offset, the retried by
due time. Nothing new is handed out from the line while one of the front waits, so keys keep order.

**Subjects.** The other kinds queue subjects. A subject's *head* is the message to hand out, and
stands in one place: waiting, todo or doing. Behind it wait the others (`ordered`), or at most one
next round (the other kinds), and those only while the head is in doing.

    order among due subjects      equal subject published again, head not in doing
    ordered   -priority, due, seq   appended behind the others
    priority  -priority, due, seq   replaces: priority; due: the new one's if that is to come,
                                    else the earlier of both
    delay     due, seq              replaces: due
    merge     due, seq              merges: the due time stays

A replaced or merged head keeps its `seq`, takes the new id, key, headers, body and published_at,
and its attempts start over. While the head is in doing, the new message becomes the next round
(outcome `stored`), and a further one replaces or merges into that by the same rules. When the head
is settled (ack, dead) the next round takes its place. When the head comes back instead (retry,
release, lost lease), the next round is applied to it as if it were published then, onto the head
with its new due time: two have become one, and `published` falls by one.

For `ordered`, when the head is settled the next message becomes head, due at `max(now, its own
due)`, so that its subject goes to the end of the queue; a message with a delay holds back what is
behind it. A pull may hand out a *run*: the head and up to `run - 1` messages behind it that are
due, under one receipt. They are settled in order: acknowledging the head makes the next one the
head, still in doing while it belongs to the run. Retrying the head, or losing the lease, gives the
rest of the run back uncounted. Releasing one behind the head cuts the run off before it. A head
with `lost > 0` is handed out alone.

The priority of an `ordered` subject is its head's. `due` of a head that is retried is its retry
time; of one released or lost it is what it was.

**Sequences** (`ordered`, with a key): a slot remembers for each key the next number, from 1. A
message with that number is stored, and so are those behind it that were held; one with a larger
number is held, before any group sees it, until the gap is filled or its own `gap_timeout` has
passed (looked at in every pull from the slot and when another would be held); then the gap is
passed: the lowest held number is stored and becomes the count. One with a smaller number (a late
one), or with that of one that is held already, is stored at once. Held messages count as waiting
for every group.

Messages of a stream that were delayed join the log in the order of their due times, then ids. How
old a message of the log is counts from when it joined, so that the oldest are the first.

**Groups.** Messages of subjects fan out per group at publish. What is published before there is a
group is kept for the first that subscribes with `start="earliest"`. Where groups differ, an
outcome is `stored` if the message is one of its own for any of them.

**Attempts** count when a message is handed out, and are taken back by a release. A message that
was handed out `max_attempts` times goes to dead in the pull that would hand it out again, with the
error of its last retry, or `LOST_ERROR` where it never had one; what follows it is handed out in
that same pull.

**Epochs** are texts of 16 hexadecimal digits that only grow; a pull or settlement with another
epoch than the slot's own changes nothing. Any epoch may be given to `take`, and it is refused if
it is smaller than the slot's. Under `NO_EPOCH`, which is nobody's, nothing can be settled.

**Rosters.** For each topic and group the store can keep who takes part, each *member* under a lease
on the store's clock, and which slots are whose. A roster only says who is to own what; what fences
is the epoch in the slot itself (`take`). Each operation on it is one atomic step, and each that
changes it drops first those members whose lease has passed, with what they owned.

    absent ──attend──► member ──claim──► member and owner ──let_go──► member
       ▲                 │ attend: the lease begins anew       │
       └──── depart, or the lease has passed: with all it owns ┘

A roster's *version* is its name, not a count: 0 while nobody has ever attended, else drawn at
random by whoever changed it (`fresh_version`). So equal versions mean equal members and owners,
also when a server comes back with an older state, or a group was dropped and has subscribed again:
what is done then is called otherwise than what was done before, whereas a count would come to the
number that was seen already. Which of two versions is the later one cannot be told. A renewed lease
is no change.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from qframe.message import Delivery
from qframe.outcomes import Moved, Outcome, Settled, Verdict
from qframe.roster import Roster
from qframe.topic import Topic

NO_EPOCH = "0" * 16
QUIET = 4
LOST_ERROR = "its worker ended without settling it"
NO_VERSION: Final = 0
LARGEST_VERSION: Final = 2**53 - 1


class Capabilities(msgspec.Struct, frozen=True):
    """What a store can do beyond the contract, and where it is weaker.

    Attributes:
        durable: whether a publish that returned survives the loss of power.
        shared: whether processes on other machines can use it.
        bell: whether it tells of new messages by itself, so that an idle worker need not ask.
        transactional: whether it can be written in the transaction of a user's own tables.
    """

    durable: bool
    shared: bool
    bell: bool
    transactional: bool


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
        delay_ms: due so long after the store's now; None where no delay was asked.
        at_ms: due at that moment; None where none was asked. At most one of the two is given.
        priority: higher goes first, in `priority` and `ordered`.
        within_ms: in `merge`, due so long after now where neither delay nor moment is given.
        sequence: its number among its key's messages, from 1; None where it has none.
    """

    slot: int
    subject: str | None
    id: str
    mark: str
    key: str | None
    headers: dict[str, str] | None
    body: bytes
    delay_ms: int | None = None
    at_ms: int | None = None
    priority: int = 0
    within_ms: int = 0
    sequence: int | None = None


class Ask(NamedTuple):
    """What a pull wants of one slot.

    Attributes:
        slot: the slot.
        epoch: the epoch under which the caller owns it.
        limit: how many deliveries at most.
        position: in a stream, the offset behind the last one of the line that the caller has
            received under this epoch, 0 before the first. What lies between it, or the floor if
            that is higher, and the group's read position was handed out in a reply that was lost,
            and is handed out again, uncounted. None asks for nothing again.
    """

    slot: int
    epoch: str
    limit: int
    position: int | None = None


class Pulled(msgspec.Struct):
    """The answer to a pull.

    Attributes:
        deliveries: slot by slot as asked, in the order in which they are to be handled.
        fenced: the slots whose epoch is another now.
        next_due_ms: milliseconds until the next message of these slots falls due or loses its
            lease; None where none will. 0 where a limit was reached, since more may be due.
        dead: how many went to dead, their attempts spent.
        lost: how many deliveries were found to have lost their lease.
        gaps: how many gaps in sequences were passed.
        away: the slots that could not be asked now; nothing of them was handed out.
        doubted: the slots whose answer was lost: they are to be recalled before the next pull.
    """

    deliveries: list[Delivery] = []
    fenced: list[int] = []
    next_due_ms: int | None = None
    dead: int = 0
    lost: int = 0
    gaps: int = 0
    away: list[int] = []
    doubted: list[int] = []


class Settlement(msgspec.Struct, gc=False, eq=False):
    """How one delivery ends.

    Attributes:
        slot, subject, seq, receipt, attempt: the delivery's own.
        epoch: the epoch under which its slot was owned when it was pulled.
        verdict: ack, retry, dead, or release (given back uncounted).
        delay_ms: for a retry, due so long after the store's now.
        at_ms: for a retry, due at that moment instead.
        error: for retry and dead, what went wrong, in one line.
        traceback: for dead, where.
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


class Hold(NamedTuple):
    """A delivery that is to be kept hidden: one of a slot's window stands for all of it."""

    slot: int
    epoch: str
    subject: str | None
    receipt: str


class Renewed(msgspec.Struct):
    """The answer to a renewal.

    Attributes:
        gone: the holds that are not held any more.
        away: the holds that could not be renewed now.
    """

    gone: list[Hold] = []
    away: list[Hold] = []


class Recalled(msgspec.Struct):
    """The answer to a recall.

    Attributes:
        count: how many deliveries were given back.
        away: the slots in which this could not be done now.
    """

    count: int = 0
    away: list[int] = []


class Record(msgspec.Struct, kw_only=True):
    """A message where it stands, for people: peek, dead letters, timers, explain.

    `group` is None for a message that no group has seen yet; `state` is one of waiting, todo,
    doing, settled, dead, held (behind a gap in its sequence).
    """

    topic: str
    group: str | None
    slot: int
    state: str
    subject: str | None
    seq: int | None
    id: str
    key: str | None
    headers: dict[str, str] | None
    body: bytes
    published_at_ms: int
    due_ms: int | None = None
    priority: int = 0
    attempts: int = 0
    lost: int = 0
    lease_until_ms: int | None = None
    error: str | None = None
    traceback: str | None = None
    died_at_ms: int | None = None


class Stats(msgspec.Struct, kw_only=True):
    """Where the messages of one slot stand for one group; counts of messages, not of subjects.

    What stands behind a head counts as the head does; behind a head in doing, what belongs to its
    run is doing too and the rest is todo. What is held behind a gap, or delayed before it joins a
    stream, is waiting.

    `published = waiting + todo + doing + settled + dead + cancelled`, always. For a stream,
    `published` counts from where the group started or was last moved to. `retrying` are those of
    the waiting that were handed out before: they wait for a retry. `next_ms` is when that
    message was published which is next to be handed out: of the heads that are todo, else of the
    line.
    """

    slot: int
    group: str
    epoch: str = NO_EPOCH
    published: int = 0
    waiting: int = 0
    retrying: int = 0
    todo: int = 0
    doing: int = 0
    settled: int = 0
    dead: int = 0
    cancelled: int = 0
    head: int = 0
    floor: int | None = None
    next_ms: int | None = None


class Topics(Protocol):
    """Declaring topics, and keeping them tidy."""

    def declare(self, topic: Topic) -> None:
        """Makes the topic known; its other options are changed to these.

        Raises:
            TopicMismatch: if it has another kind or slot count; nothing is changed.
        """

    def topic(self, name: str) -> Topic | None:
        """The topic as declared, or None."""

    def topics(self) -> list[Topic]:
        """All topics, by name."""

    def sweep(self, topic: Topic, limit: int = 500) -> int:
        """Removes up to `limit` rows that are no longer needed; answers how many it removed.

        These are messages of a stream that are older than `retain` and lie below every group's
        floor (or a stream without groups), marks older than `dedupe_window`, and groups that have
        expired, each a row with all that stands for it, as if `drop_group` had been called.
        """


class Publishing(Protocol):
    """Taking messages in."""

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Stores the entries in order; answers what became of each.

        An entry is a `duplicate` if its mark, or where a user named its id the mark of the batch
        that the id would belong to (`codec.batch_mark_of`), was remembered before this call, or
        if its id came earlier in this call. Marks are remembered by each slot for itself.
        From the first entry of a slot on that would make it longer than `slot_max_length`, all
        entries of that slot that would be stored are `full`.
        """


class Pulling(Protocol):
    """Handing messages out, and keeping them hidden."""

    def pull(
        self,
        topic: Topic,
        group: str,
        asks: Sequence[Ask],
        *,
        receipt: str,
        lease_ms: int,
        max_attempts: int,
        run: int = 32,
    ) -> Pulled:
        """Hands out what is due, as described above, under `receipt`.

        First, in each slot: what was delayed and has come due joins the line or its queue,
        sequence gaps whose time has passed are passed, lost leases are taken back. A stream's
        delivery from the line bears the receipt of its window, which is this one if the window
        was empty.
        """

    def renew(self, topic: Topic, group: str, holds: Sequence[Hold], lease_ms: int) -> Renewed:
        """Makes these leases end `lease_ms` from now; answers those that are not held any more."""

    def recall(self, topic: Topic, group: str, asks: Sequence[Ask], receipt: str) -> Recalled:
        """Gives back, uncounted, all subjects handed out under a receipt whose reply was lost."""


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
        """Acknowledges each, in order, under its slot's epoch; answers as `settle`."""


class Groups(Protocol):
    """Groups, and which epoch owns their slots."""

    def subscribe(
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None
    ) -> bool:
        """Makes the group collect from now on; False if it did before (`start` is then ignored).

        `start` is `earliest` (a stream: all that is kept; else: what no group has seen yet) or
        `latest`. With `expires_ms` the group expires: `sweep` drops it once so long has passed
        since it was last subscribed. The last subscription counts, and None is for ever.
        """

    def groups(self, topic: Topic) -> list[str]:
        """All groups of a topic, by name."""

    def drop_group(self, topic: Topic, group: str) -> bool:
        """Forgets the group and all that stands for it; False if there was none."""

    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        """Moves a stream's group to an offset in each slot named (cut to what is kept).

        What was handed out is fenced off, what left the line (retries) is dropped. Dead letters
        below the offset stay; the others are dropped, as the line hands them out again. The
        offsets for a time are found with `offsets_at`.
        """

    def offsets_at(self, topic: Topic, at_ms: int) -> dict[int, int]:
        """For each slot of a stream, the first kept offset that joined the log at or after then."""

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot; `NO_EPOCH` where nobody has ever owned it."""

    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        """Takes slots under new epochs; answers those taken: an epoch below the slot's is refused.

        With a larger epoch than the slot's, all that is in doing comes back, counted and lost.
        With the same nothing changes.
        """


class Rosters(Protocol):
    """Which workers take part, and which slots are whose, by leases on the store's clock.

    All but `roster` begin by dropping the members whose lease has passed, with what they owned.
    All are idempotent, so that one whose reply was lost can be repeated.
    """

    def attend(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        """Makes a member's lease end `lease_ms` from now; answers the roster's version.

        One that is not there joins; so does one whose lease has passed, and owns nothing.
        """

    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        """Only looks; None if the version is still `seen` and no lease has passed since.

        Members whose lease has passed, and what they owned, are left out of the answer, whose
        version stays what it was until some other operation drops them: whoever looks, notices.
        """

    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        """Makes free slots the member's, each under the epoch given for it.

        Answers those that are its own now under that epoch. A slot that another living member owns
        is refused, one that the member owns under another epoch too, and everything is if the
        member is not there or its lease has passed.
        """

    def let_go(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        """Frees those of the slots that are the member's."""

    def depart(self, topic: Topic, group: str, member: str) -> None:
        """Takes a member out with all that it owns, whoever asks for it."""


class Timers(Protocol):
    """Changing what is not due yet, or not handed out yet, in topics that have subjects."""

    def move(self, topic: Topic, subject: str, at_ms: int) -> Moved:
        """Makes a subject due at another moment, for every group.

        `doing`, and nothing is changed, if any group has it in doing now; `absent` if none has it.
        In `ordered` it is the head that is moved.
        """

    def change(
        self, topic: Topic, subject: str, body: bytes, headers: dict[str, str] | None
    ) -> Moved:
        """Gives a subject another body and headers, for every group; answers as `move`."""

    def cancel(self, topic: Topic, subject: str) -> Moved:
        """Takes a subject with all its messages out, counted as cancelled; answers as `move`."""

    def timer(self, topic: Topic, subject: str) -> list[Record]:
        """Where the subject stands: a record for each group that has it; empty if none has."""

    def timers(
        self, topic: Topic, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 100
    ) -> list[Record]:
        """The heads that are waiting and due in `[from_ms, until_ms)`, by due time, then seq."""


class DeadLetters(Protocol):
    """What was given up, until somebody decides. Ids name messages, `ids=None` means all."""

    def dead(
        self, topic: Topic, group: str, *, ids: Sequence[str] | None = None, limit: int = 100
    ) -> list[Record]:
        """Dead messages, the longest dead first."""

    def retry_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Makes dead messages due again at once, attempts from zero; answers how many.

        In a stream they come back alone, as a retry does. Where subjects are queued, each is
        published to this group anew: appended in `ordered`, and elsewhere absorbed by an equal
        subject that is there already, which is the newer one.
        """

    def drop_dead(
        self, topic: Topic, group: str, ids: Sequence[str] | None = None, limit: int = 500
    ) -> int:
        """Removes dead messages for good, counted as cancelled; answers how many."""


class Inspecting(Protocol):
    """Looking, and changing nothing."""

    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        """Counts for each group (or one) and slot, groups by name, slots in order.

        While a topic with subjects has no group, what is kept for the first is shown under the
        group `""`.
        """

    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        """Messages that stand in one of these states, slot by slot, next ones first."""

    def explain(self, topic: Topic, message_id: str) -> list[Record]:
        """Where a message stands now: a record for each place; empty if it is in none."""

    def verify(self, topic: Topic) -> list[str]:
        """Audits counts and structure; answers what is wrong, in sentences, or nothing.

        Conservation as in `Stats`, no subject in two places, no doing without lease and receipt,
        nothing behind a subject without a head, floors below read positions below heads.
        """

    def now_ms(self) -> int:
        """The store's clock."""


class Bell(Protocol):
    """Wakes an idle pull loop; a hint, so a wait always ends by itself too.

    It rings for all that a pull might find, but for the passing of time: what is published, and
    what a settlement or a `seek` has made the next, or due at some time, and a slot that another
    has taken.

    Who waits has looked first: a store rings for what comes into a slot after a pull has emptied it
    (handed out less than its limit, and `QUIET` messages at most). It may ring more often.
    """

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; answers whether it may have."""

    def hints(self) -> frozenset[int] | None:
        """The slots for which it has rung since this was asked; None where it may be any."""

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none; from any thread."""

    def close(self) -> None:
        """Frees what it holds; ends a wait."""


class Store(
    Topics, Publishing, Pulling, Settling, Groups, Rosters, Timers, DeadLetters, Inspecting,
    Protocol,
):  # fmt: skip
    """All of them, in one place."""

    url: str
    capabilities: Capabilities

    def bell(self, topics: Sequence[Topic]) -> Bell:
        """A bell that rings when one of these topics may have something new."""

    def roster_bell(self, topic: Topic, group: str) -> Bell | None:
        """A bell that rings when the roster may have changed, but for a lease that passes.

        None where the store cannot tell; who wants to know then looks now and then.
        """

    def reconnect(self) -> None:
        """Lets go of connections that may be broken; they are made anew when they are needed."""

    def close(self) -> None:
        """Frees connections; the store cannot be used any more."""


def acks(deliveries: Sequence[Delivery], epochs: Mapping[int, str]) -> list[Settlement]:
    """The settlements that acknowledge deliveries."""
    return [
        Settlement(
            one.slot, one.subject, one.seq, one.receipt, one.attempt,
            epochs.get(one.slot, NO_EPOCH), Verdict.ACK,
        )
        for one in deliveries
    ]  # fmt: skip


def due_of(entry: Entry, now_ms: int, merges: bool) -> int:
    """When an entry is due, in milliseconds since 1970."""
    if entry.at_ms is not None:
        return entry.at_ms
    if entry.delay_ms is not None:
        return now_ms + entry.delay_ms
    return now_ms + entry.within_ms if merges else now_ms


def fresh_version() -> int:
    """A roster's next version: not 0, none that was before, and exact in every language's JSON."""
    return 1 + secrets.randbelow(LARGEST_VERSION)
