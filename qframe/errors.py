"""Every error that qframe raises: one root, facts as attributes, the remedy in the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
        self.what = what
        self.value = value
        self.why = why
        self.remedy = remedy


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
            "body of message",
            message_id,
            f"it cannot be decoded as {expected} ({why})",
            "publish what the handler's annotation says, or widen the annotation",
        )


class BadOption(BadInput):
    """Raised when an option is unknown, mistyped, out of bounds, or at odds with another."""


class BadUrl(BadInput):
    """Raised when a store's or coordinator's URL cannot be used."""


class BadModule(BadInput):
    """Raised when a module given to a worker cannot be imported or registers no consumer."""


class BadHandler(BadInput):
    """Raised when a decorated function's parameters cannot be filled."""


class UnknownTopic(BadInput):
    """Raised when a topic is named that nobody has declared."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "topic",
            name,
            "nobody has declared it",
            f'declare it once: Topic("{name}", kind="stream", slots=16), '
            f"or: qframe topics declare {name} --kind stream --slots 16",
        )


class UnknownGroup(BadInput):
    """Raised when a group is named that has never subscribed to the topic."""

    def __init__(self, topic: str, group: str, known: Sequence[str] = ()) -> None:
        there = ", ".join(known) or "none yet"
        super().__init__(
            "group",
            group,
            f"it has never subscribed to topic {topic!r}",
            f"start a worker for it, or name one of these: {there}",
        )


class TopicMismatch(BadInput):
    """Raised when a topic is declared with another kind or slot count than it was first."""

    def __init__(self, name: str, what: str, declared: object, asked: object) -> None:
        super().__init__(
            "topic",
            name,
            f"its {what} is {declared} since it was first declared, and {asked} was asked",
            f"declare it with {what}={declared!r}, or choose another name",
        )


class NotSupported(QFrameError):
    """Raised when something of the public API is asked for that this version does not serve."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is not supported in this version; {remedy}")
        self.what = what
        self.remedy = remedy


class TopicFull(QFrameError):
    """Raised when a publish would take a topic past its `max_length`.

    Attributes:
        topic: the topic's name.
        outcomes: one `Published` for each message of the call, in order; those with the outcome
            `full` were not stored, the others were.
    """

    def __init__(self, topic: str, outcomes: Sequence[Any]) -> None:
        refused = sum(1 for published in outcomes if published.outcome == "full")
        super().__init__(
            f"topic {topic!r} is full: {refused} of {len(outcomes)} messages were refused; "
            "wait until its groups have settled some, or raise its max_length"
        )
        self.topic = topic
        self.outcomes = outcomes


class StoreUnavailable(QFrameError):
    """Raised when the store cannot be reached; nothing was changed."""

    def __init__(self, store: str, why: str) -> None:
        super().__init__(f"store {store} cannot be reached: {why}; check that it runs and its URL")
        self.store = store


class CoordinatorUnavailable(QFrameError):
    """Raised when the coordinator cannot be reached, or refuses the user of its URL."""

    def __init__(self, coordinator: str, why: str) -> None:
        super().__init__(
            f"coordinator {coordinator} cannot be reached: {why}; check that it runs and its URL"
        )
        self.coordinator = coordinator


class AnswerLost(StoreUnavailable):
    """Raised when the store's answer was lost: what was asked may or may not have been done."""


class StoreFull(QFrameError):
    """Raised when the store has no room left; nothing was written."""

    def __init__(self, store: str, why: str) -> None:
        super().__init__(f"store {store} has no room: {why}; free space, or give it more")
        self.store = store


class SchemaMismatch(QFrameError):
    """Raised when a database's qframe tables are of a version that this code cannot use."""

    def __init__(self, store: str, found: int, known: int) -> None:
        super().__init__(
            f"the tables in {store} are at version {found} and this qframe knows up to {known}; "
            "upgrade qframe"
        )
        self.found = found
        self.known = known


class PublishUnknown(QFrameError):
    """Raised when the store's answer to a publish was lost.

    Attributes:
        ids: the messages' ids, in order; publishing them again under these ids is safe.
    """

    def __init__(self, topic: str, ids: Sequence[str]) -> None:
        shown = ids[0] if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"
        super().__init__(
            f"whether {shown} was stored in topic {topic!r} is unknown: the answer was lost; "
            "publish it again with the same id= (a duplicate is recognised)"
        )
        self.topic = topic
        self.ids = list(ids)

    @property
    def id(self) -> str:
        """The id of the first message of the call."""
        return self.ids[0]


class AlreadySettled(QFrameError):
    """Raised when a message is acknowledged a second time."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"message {message_id} is settled already; acknowledge it once, "
            "and set auto_ack = False at the handler's entry to do it yourself"
        )
        self.message_id = message_id


class Forgotten(QFrameError):
    """Raised for nobody: the error of a message that was taken over and let go unsettled."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"message {message_id} was taken over with auto_ack = False and let go unsettled; "
            "keep it until message.ack() is called"
        )
        self.message_id = message_id


class ProducerClosed(QFrameError):
    """Raised when something is published with a producer that was closed."""

    def __init__(self) -> None:
        super().__init__("this producer is closed and takes nothing; publish before it is closed")


class ConsumerExists(BadInput):
    """Raised when a (topic, group) is registered twice in one app."""

    def __init__(self, topic: str, group: str, first: str) -> None:
        super().__init__(
            "consumer",
            f"{topic}/{group}",
            f"{first} is registered for it already",
            "give this one another group, so that both see every message",
        )


class WorkerFailed(QFrameError):
    """Raised when a part of a worker has died and the worker must be started anew."""

    def __init__(self, part: str, cause: BaseException | str) -> None:
        super().__init__(f"{part} failed: {cause}; start the worker again")
        self.part = part


def _shown(value: object) -> str:
    """The value as the reader typed it, cut where it is too long for one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
