"""The refusals of SQS: its codes and its sentences, as clients know them."""

from __future__ import annotations

from typing import Final

_LONG: Final = "AWS.SimpleQueueService."


class SqsRefusal(Exception):
    """Raised when a request is refused.

    Attributes:
        code: the code that clients compare.
        message: the sentence of SQS, or what is wrong where SQS has none.
        shape: the name of the error in the JSON protocol.
        status: of the reply.
        of_sender: whether the request is at fault, and not the service.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        shape: str | None = None,
        status: int = 400,
        of_sender: bool = True,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.shape = shape or code.removeprefix(_LONG)
        self.status = status
        self.of_sender = of_sender

    @property
    def fault(self) -> str:
        """The side at fault, in the word of the protocol."""
        return "Sender" if self.of_sender else "Receiver"


def invalid_value(message: str) -> SqsRefusal:
    """A parameter has a value that it may not have."""
    return SqsRefusal("InvalidParameterValue", message)


def invalid_parameter(name: str, value: object, reason: str) -> SqsRefusal:
    """A parameter has a value that it may not have, in the usual sentence."""
    return invalid_value(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def missing(name: str) -> SqsRefusal:
    """A parameter is not there."""
    return SqsRefusal("MissingParameter", f"The request must contain the parameter {name}.")


def unknown_attribute(name: str) -> SqsRefusal:
    """There is no such attribute of a queue."""
    return SqsRefusal("InvalidAttributeName", f"Unknown Attribute {name}.")


def wrong_attribute(name: str) -> SqsRefusal:
    """An attribute of a queue has a value that it may not have."""
    return SqsRefusal("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def no_queue() -> SqsRefusal:
    """There is no such queue."""
    return SqsRefusal(
        f"{_LONG}NonExistentQueue", "The specified queue does not exist.", shape="QueueDoesNotExist"
    )


def mere_topic(name: str) -> SqsRefusal:
    """There is a topic of that name, and it is not a queue."""
    return SqsRefusal(
        f"{_LONG}NonExistentQueue",
        f"The specified queue does not exist. {name!r} is a topic: messages can be sent to it, and "
        "to receive them make it a queue with CreateQueue.",
        shape="QueueDoesNotExist",
    )


def queue_exists(why: str) -> SqsRefusal:
    """There is a queue of that name with other attributes."""
    return SqsRefusal("QueueAlreadyExists", why, shape="QueueNameExists")


def purged_recently(name: str) -> SqsRefusal:
    """The queue is being purged."""
    return SqsRefusal(
        f"{_LONG}PurgeQueueInProgress",
        f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.", status=403,
    )  # fmt: skip


def wrong_receipt(given: str | None = None) -> SqsRefusal:
    """A receipt handle is none of this queue's."""
    if given is None:
        return SqsRefusal("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
    return SqsRefusal(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{given}" is not a valid receipt handle.',
    )  # fmt: skip


def expired_receipt(given: str) -> SqsRefusal:
    """The visibility that came with a receipt handle has ended, so the message is not its own."""
    return invalid_parameter("ReceiptHandle", given, "The receipt handle has expired.")


def not_in_flight() -> SqsRefusal:
    """A message is not in flight any more under the receipt handle."""
    return SqsRefusal(
        f"{_LONG}MessageNotInflight", "The message referred to is not in flight.",
        shape="MessageNotInflight",
    )  # fmt: skip


def empty_batch(entry: str) -> SqsRefusal:
    """A batch has no entry."""
    return SqsRefusal(
        f"{_LONG}EmptyBatchRequest", f"There should be at least one {entry} in the request."
    )


def too_many_entries(count: int, most: int) -> SqsRefusal:
    """A batch has more entries than it may."""
    return SqsRefusal(
        f"{_LONG}TooManyEntriesInBatchRequest",
        f"Maximum number of entries per request are {most}. You have sent {count}.",
    )


def wrong_entry_id() -> SqsRefusal:
    """An entry of a batch has an id that it may not have."""
    return SqsRefusal(
        f"{_LONG}InvalidBatchEntryId",
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
        "It can be at most 80 letters long.",
    )


def repeated_entry_id(entry_id: str) -> SqsRefusal:
    """Two entries of a batch have one id."""
    return SqsRefusal(f"{_LONG}BatchEntryIdsNotDistinct", f"Id {entry_id} repeated.")


def long_batch(length: int, limit: int) -> SqsRefusal:
    """A batch is too large."""
    return SqsRefusal(
        f"{_LONG}BatchRequestTooLong",
        f"Batch requests cannot be longer than {limit} bytes. You have sent {length} bytes.",
    )


def over_limit(message: str) -> SqsRefusal:
    """The client has as many as it may."""
    return SqsRefusal("OverLimit", message, status=403)


def unsupported(message: str) -> SqsRefusal:
    """The operation cannot be done."""
    return SqsRefusal(f"{_LONG}UnsupportedOperation", message)


def no_resource(message: str) -> SqsRefusal:
    """The queue or the task that is named is not there."""
    return SqsRefusal("ResourceNotFoundException", message, status=404)


def access_denied(message: str) -> SqsRefusal:
    """The client lacks the right."""
    return SqsRefusal("AccessDenied", message, shape="AccessDeniedException", status=403)


def throttled(message: str) -> SqsRefusal:
    """There were too many requests, or there is no room; the client tries again."""
    return SqsRefusal("RequestThrottled", message, status=403)


def unavailable(message: str) -> SqsRefusal:
    """The store cannot be reached; the client tries again."""
    return SqsRefusal("ServiceUnavailable", message, status=503, of_sender=False)
