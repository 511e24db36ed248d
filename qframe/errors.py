"""Every error that qframe raises: one root, facts as attributes, the remedy in the message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

from qframe.open_files import remedy_for


class QFrameError(Exception):
    """Root of all errors of qframe."""


class BadInput(QFrameError, ValueError):
    """Raised when a value is refused before anything was written.

    Attributes:
        what: what the value was meant to be, in the words of the docs.
        value: the value that was refused.
        why: the rule that it breaks.
        remedy: what to do instead.
    """

    def __init__(self, what: str, value: object, why: str, remedy: str) -> None:
        super().__init__(f"{what} {_shown(value)}: {why}; {remedy}")
        self.what, self.value, self.why, self.remedy = what, value, why, remedy


class BadTopic(BadInput):
    """Raised when a topic's name, kind, slots or options are not what a topic can have."""


class BadKey(BadInput):
    """Raised when a key is missing where one is needed, or is not a text of 1 to 512 bytes."""


class BadBody(BadInput):
    """Raised when a body cannot be encoded, or is larger than `max_body`."""


class UndecodableBody(BadBody):
    """Raised when a stored body is not what its handler takes; the message goes to dead."""

    def __init__(self, message_id: str, expected: str, why: object) -> None:
        super().__init__(
            "body of message", message_id, f"it cannot be decoded as {expected} ({why})",
            "publish what the handler's annotation says, or widen the annotation",
        )  # fmt: skip


class BadOption(BadInput):
    """Raised when an option is unknown, mistyped, out of bounds, or at odds with another."""


class BadUrl(BadInput):
    """Raised when the URL of a store, a coordinator or a push cannot be used."""


class BadModule(BadInput):
    """Raised when a module given to a worker cannot be imported or registers no consumer."""


class BadHandler(BadInput):
    """Raised when a decorated function's parameters cannot be filled."""


class BadTable(BadInput):
    """Raised when a user's table cannot be used as asked, or lacks a column that is named."""


class BadEffectKey(BadInput):
    """Raised when a checker's `key=` makes no effect key of a message, which goes to dead."""


class UnknownTopic(BadInput):
    """Raised when a topic is named that nobody has declared."""

    def __init__(self, name: str, known: Iterable[str] = (), store: str = "this store") -> None:
        self.known: list[str] = list(known)
        meant = get_close_matches(name, [each for each in self.known if each != name], n=1)
        remedy = (
            f'declare it once: Topic("{name}", kind="stream", slots=16), '
            f"or: qframe topics declare {name} --kind stream --slots 16"
        )
        if name.startswith("qframe."):
            remedy = "qframe declares its own topics itself, when they are first used"
        super().__init__(
            "topic", name, f"nobody has declared it in {store}",
            (f"did you mean {meant[0]!r}? else " if meant else "") + remedy,
        )  # fmt: skip


class UnknownGroup(BadInput):
    """Raised when a group is named that has never subscribed to the topic."""

    def __init__(self, topic: str, group: str, known: Sequence[str] = ()) -> None:
        there = ", ".join([*known[:10], *(["…"] if known[10:] else [])]) or "none yet"
        remedy = f"start a worker for it, or name one of these: {there}"
        super().__init__("group", group, f"it has never subscribed to topic {topic!r}", remedy)


class TopicMismatch(BadInput):
    """Raised when a topic is declared with another kind, or a slot count that it never had."""

    def __init__(self, name: str, what: str, declared: object, asked: object) -> None:
        grows = what == "slots" and int(f"{asked}") > int(f"{declared}")
        more = f"double them: qframe topics resize {name} --slots {asked}" if grows else "rename it"
        super().__init__(
            "topic", name,
            f"it was first declared with {what}={declared}, and now with {what}={asked}",
            f"declare it with {what}={declared!r}, or {more}",
        )  # fmt: skip


class MessagesGone(QFrameError):
    """Raised when offsets from `first` up to `kept` were removed before a reader had read them."""

    def __init__(self, topic: str, slot: int, first: int, kept: int) -> None:
        super().__init__(
            f"offsets {first} to {kept - 1} of slot {slot} of topic {topic!r} were removed before "
            "they were read; give a streaming query a group, or the topic a longer retain, or set "
            "failOnDataLoss to false to go on without them"
        )
        self.topic, self.slot, self.first, self.kept = topic, slot, first, kept


class NotSupported(QFrameError):
    """Raised when something of the public API is asked for that this version does not serve."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is not supported in this version; {remedy}")
        self.what, self.remedy = what, remedy


class NotAllowed(QFrameError):
    """Raised when somebody lacks the right to what they ask for; nothing was changed."""

    def __init__(self, by: str, right: str, rights: Iterable[str]) -> None:
        there = ", ".join(sorted(rights)) or "nothing"
        super().__init__(f"{by} has no right to {right}, only to {there}; use a role that has it")
        self.by, self.right = by, right


class TopicFull(QFrameError):
    """Raised when a publish would take a topic past its `max_length`.

    Attributes:
        outcomes: one `Published` for each message, in order; the `full` ones were not stored.
    """

    def __init__(self, topic: str, outcomes: Sequence[Any]) -> None:
        refused = sum(1 for published in outcomes if published.outcome == "full")
        what = f"{refused} of {len(outcomes)} messages were refused; wait until its groups have "
        super().__init__(f"topic {topic!r} is full: {what}settled some, or raise its max_length")
        self.topic, self.outcomes = topic, outcomes


class StoreUnavailable(QFrameError):
    """Raised when the store cannot be reached, or refuses writes; nothing was changed."""

    _what = "cannot be reached"
    _remedy = "check that it runs, and its URL"

    def __init__(self, store: str, why: str, *, what: str = "", remedy: str = "") -> None:
        self.store, self.why, self.remedy = store, why, remedy or remedy_for(why, self._remedy)
        super().__init__(f"store {store} {what or self._what}: {why}; {self.remedy}")


class CoordinatorUnavailable(QFrameError):
    """Raised when the coordinator cannot be reached, or refuses the user of its URL."""

    def __init__(self, coordinator: str, why: str, *, what: str = "", remedy: str = "") -> None:
        self.coordinator, what = coordinator, what or "cannot be reached"
        self.remedy = remedy or remedy_for(why, "check that it runs, and its URL")
        super().__init__(f"coordinator {coordinator} {what}: {why}; {self.remedy}")


class AnswerLost(StoreUnavailable):
    """Raised when the store's answer was lost: what was asked may or may not have been done."""


class StoreDamaged(StoreUnavailable):
    """Raised when keys of the store hold what qframe did not write; other slots are not touched."""

    _what = "is damaged"
    _remedy = "run qframe store verify to see where"


class StoreForbidden(StoreUnavailable):
    """Raised when the store refuses the name or password of its URL, or this user lacks a right."""

    _what = "refuses its user"


class StoreFull(StoreUnavailable):
    """Raised when the store has no room left; nothing was written."""

    _what = "has no room"
    _remedy = "free space, or add more"


class SchemaMismatch(QFrameError):
    """Raised when a database's qframe tables are of a version that this code cannot use."""

    def __init__(self, store: str, found: int, known: int = 1, first: int = 1) -> None:
        what = f"the tables in {store} are at version {found}, while qframe knows up to {known}"
        remedy = "run: qframe store migrate" if found < known else "upgrade qframe"
        if not found:
            what, remedy = (
                f"{store} has no tables of qframe yet",
                f"{remedy}, or name another store",
            )
        elif found < first:
            remedy = "it was never released: drop the tables qframe_*, or name another store"
        super().__init__(f"{what}; {remedy}")
        self.found, self.known = found, known


class WrongStore(QFrameError):
    """Raised when an outbox belongs to another store or namespace; it was left as it is."""

    def __init__(self, store: str, why: str, remedy: str) -> None:
        super().__init__(f"store {store}: {why}; {remedy}")
        self.store, self.why, self.remedy = store, why, remedy


class PublishUnknown(QFrameError):
    """Raised when the store's answer to a publish was lost.

    Attributes:
        ids: the messages' ids, in order; publishing them again under these ids is safe.
    """

    def __init__(self, topic: str, ids: Sequence[str], why: object = None) -> None:
        shown = ids[0] if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"
        super().__init__(
            f"whether {shown} was stored in topic {topic!r} is unknown ({why or 'a reply was lost'}"
            "); publish it again with the same id= (a duplicate is recognised)"
        )
        self.topic, self.ids = topic, list(ids)

    @property
    def id(self) -> str:
        """The id of the first message of the call."""
        return self.ids[0]


class AlreadySettled(QFrameError):
    """Raised when a message is acknowledged a second time."""

    def __init__(self, message_id: str) -> None:
        remedy = "once, and set auto_ack = False at the handler's start to do it yourself"
        super().__init__(f"message {message_id} is already settled; acknowledge it {remedy}")
        self.message_id = message_id


class Forgotten(QFrameError):
    """Raised for nobody: the error of a message that was taken over and let go unsettled."""

    def __init__(self, message_id: str) -> None:
        why = "auto_ack = False and dropped unsettled; keep a reference to it until message.ack()"
        super().__init__(f"message {message_id} was taken over with {why}")
        self.message_id = message_id


class WorkerLost(QFrameError):
    """Raised for nobody: the error of a message whose worker was gone after its last attempt."""

    def __init__(self, message_id: str) -> None:
        why = "ended, or let it go, at its last attempt; look for what ends workers"
        super().__init__(f"the worker of message {message_id} {why}")
        self.message_id = message_id


class HandlerTimeout(QFrameError):
    """Raised for nobody: the error of a message whose handler ran for longer than `timeout=`."""

    def __init__(self, message_id: str, timeout_s: float) -> None:
        why = f"ran longer than timeout={timeout_s:g}; make it faster, or raise the timeout"
        super().__init__(f"the handler of message {message_id} {why}")
        self.message_id, self.timeout_s = message_id, timeout_s


class CheckerUnavailable(QFrameError):
    """Raised when a checker's Redis or database cannot be reached or is busy; nothing was done."""

    _what = "cannot be asked"
    _remedy = "its messages wait meanwhile; check that it runs, its URL, and the rights of its user"

    def __init__(self, checker: str, why: str) -> None:
        super().__init__(f"checker {checker} {self._what}: {why}; {self._remedy}")
        self.checker = checker


class EffectUnknown(CheckerUnavailable):
    """Raised when a COMMIT's answer was lost: the mark tells whether it was done."""


class EffectConflict(CheckerUnavailable):
    """Raised when a deadlock or another transaction's lock undid a checker's; nothing was done."""

    _what = "met another transaction"
    _remedy = "it is tried again; if this is frequent, take locks in the same order in all handlers"


class CommitRefused(QFrameError):
    """Raised when a handler ends the transaction that its checker gave to it."""

    def __init__(self, how: str) -> None:
        super().__init__(
            f"the handler has {how} the transaction of its TransactionalChecker, which commits it "
            "with the mark when the message is acknowledged; remove commit(), rollback() and "
            "close(); raise to roll back, and use begin_nested() for a part"
        )
        self.how = how


class ProducerClosed(QFrameError):
    """Raised when something is published with a producer that was closed."""

    def __init__(self) -> None:
        super().__init__("this producer is closed; publish before you close it")


class BadRoute(BadInput):
    """Raised when a `route` function returns no channel's number; the item was not taken."""

    def __init__(self, batcher: str, answer: object, channels: int) -> None:
        what, why = f"route of batcher {batcher!r}", f"its channels are 0 to {channels - 1}"
        super().__init__(what, answer, why, f"return one of these, such as hash % {channels}")
        self.batcher, self.channels = batcher, channels


class BatcherClosed(QFrameError):
    """Raised when an item is given to a batcher that was closed; it was not taken."""

    def __init__(self, batcher: str) -> None:
        remedy = "put items before you close it, or create another one"
        super().__init__(f"batcher {batcher!r} is closed; {remedy}")
        self.batcher = batcher


class BatcherForked(QFrameError):
    """Raised when a batcher that was made before a fork is used in the child; nothing was taken."""

    def __init__(self, batcher: str) -> None:
        why = "was created before a fork, and its threads stayed in the parent"
        super().__init__(f"batcher {batcher!r} {why}; create one in the child")
        self.batcher = batcher


class QueueFull(QFrameError):
    """Raised when a batcher had no room for an item in time; it was not taken."""

    def __init__(self, batcher: str, queue_size: int, why: str) -> None:
        remedy = "put it again later, wait longer, or give the batcher more threads or queue_size"
        full = f"is full with {queue_size} items waiting ({why})"
        super().__init__(f"batcher {batcher!r} {full}; {remedy}")
        self.batcher, self.queue_size = batcher, queue_size


class NotProcessed(QFrameError):
    """Raised for nobody: the error of items that a batcher still held when its process ended."""

    def __init__(self, batcher: str, waited_s: float) -> None:
        what = f"batcher {batcher!r} was not closed and could not process all within {waited_s:g} s"
        super().__init__(f"{what} of its process's end; close it, and check what close() returns")
        self.batcher = batcher


class ConsumerExists(BadInput):
    """Raised when a (topic, group) is registered twice in one app."""

    def __init__(self, topic: str, group: str, why: str, remedy: str) -> None:
        super().__init__("consumer", f"{topic}/{group}", why, remedy)


class NeverIdle(QFrameError):
    """Raised by a test's harness that finds no end of what it has to handle, or to wait for."""

    def __init__(self, what: str, option: str, limit: object) -> None:
        why = "look for a handler that publishes what it handles, or a message that nobody settles"
        super().__init__(f"it does not finish ({option}: {limit}):\n{what}\n{why}")
        self.what, self.limit = what, limit


class WorkerFailed(QFrameError):
    """Raised when a part of a worker has died and the worker must be started anew."""

    def __init__(self, part: str, cause: BaseException | str) -> None:
        super().__init__(f"{part} failed: {cause}; {remedy_for(cause, 'start the worker again')}")
        self.part = part


def _shown(value: object) -> str:
    """The value as the reader typed it; of a long one the middle is left out, not a file's name."""
    text = f"<{type(value).__name__}>"
    with suppress(Exception):  # such as that of a value which is nested too deeply
        text = str(value) if isinstance(value, datetime | timedelta) else repr(value)
    return text if len(text) <= 80 else f"{text[:40]}…{text[-24:]} ({len(text)} characters)"
