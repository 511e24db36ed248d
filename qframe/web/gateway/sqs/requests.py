"""The requests of SQS, each with the fields that its protocols have in common."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

_NAMES: TypeAlias = list[str] | None


class Request(msgspec.Struct, rename="pascal", kw_only=True):
    """Any request: the name of a field is that of SQS, in lower case."""


class AttributeValue(Request, kw_only=True):
    """The value of a message's attribute, or of a system attribute that is sent."""

    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: _NAMES = None
    binary_list_values: list[bytes] | None = None


class OnQueue(Request, kw_only=True):
    """A request to one queue."""

    queue_url: str


class CreateQueue(Request, kw_only=True):
    """Makes a queue."""

    queue_name: str
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = msgspec.field(default=None, name="tags")


class GetQueueUrl(Request, kw_only=True):
    """Asks for the address of a queue."""

    queue_name: str
    owner: str | None = msgspec.field(default=None, name="QueueOwnerAWSAccountId")


class ListQueues(Request, kw_only=True):
    """Asks for the addresses of all queues."""

    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class ListDeadLetterSourceQueues(OnQueue, kw_only=True):
    """Asks which queues send their dead letters to this one."""

    next_token: str | None = None
    max_results: int | None = None


class GetQueueAttributes(OnQueue, kw_only=True):
    """Asks for attributes of a queue."""

    attribute_names: _NAMES = None


class SetQueueAttributes(OnQueue, kw_only=True):
    """Changes attributes of a queue."""

    attributes: dict[str, str]


class TagQueue(OnQueue, kw_only=True):
    """Adds tags to a queue."""

    tags: dict[str, str]


class UntagQueue(OnQueue, kw_only=True):
    """Takes tags off a queue."""

    tag_keys: list[str]


class AddPermission(OnQueue, kw_only=True):
    """Adds a statement to a queue's policy."""

    label: str
    accounts: list[str] = msgspec.field(default_factory=list, name="AWSAccountIds")
    actions: list[str] = []


class RemovePermission(OnQueue, kw_only=True):
    """Takes a statement out of a queue's policy."""

    label: str


class SentMessage(Request, kw_only=True):
    """A message to send, alone or in a batch."""

    message_body: str
    delay_seconds: int | None = None
    message_attributes: dict[str, AttributeValue] | None = None
    message_system_attributes: dict[str, AttributeValue] | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessage(SentMessage, kw_only=True):
    """Sends a message."""

    queue_url: str


class SendMessageEntry(SentMessage, kw_only=True):
    """A message of a batch."""

    id: str


class SendMessageBatch(OnQueue, kw_only=True):
    """Sends up to ten messages."""

    entry: ClassVar[str] = "SendMessageBatchRequestEntry"

    entries: list[SendMessageEntry] = []


class ReceiveMessage(OnQueue, kw_only=True):
    """Asks for messages."""

    attribute_names: _NAMES = None
    message_system_attribute_names: _NAMES = None
    message_attribute_names: _NAMES = None
    max_number_of_messages: int = 1
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(OnQueue, kw_only=True):
    """Acknowledges a message."""

    receipt_handle: str


class DeleteMessageEntry(Request, kw_only=True):
    """A message to acknowledge."""

    id: str
    receipt_handle: str


class DeleteMessageBatch(OnQueue, kw_only=True):
    """Acknowledges up to ten messages."""

    entry: ClassVar[str] = "DeleteMessageBatchRequestEntry"

    entries: list[DeleteMessageEntry] = []


class ChangeMessageVisibility(OnQueue, kw_only=True):
    """Changes how long a message stays hidden."""

    receipt_handle: str
    visibility_timeout: int


class ChangeMessageVisibilityEntry(Request, kw_only=True):
    """A message that is to stay hidden for another time."""

    id: str
    receipt_handle: str
    visibility_timeout: int = 0


class ChangeMessageVisibilityBatch(OnQueue, kw_only=True):
    """Changes how long up to ten messages stay hidden."""

    entry: ClassVar[str] = "ChangeMessageVisibilityBatchRequestEntry"

    entries: list[ChangeMessageVisibilityEntry] = []


class StartMessageMoveTask(Request, kw_only=True):
    """Moves dead letters back to where they came from, or elsewhere."""

    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class CancelMessageMoveTask(Request, kw_only=True):
    """Ends a move of dead letters."""

    task_handle: str


class ListMessageMoveTasks(Request, kw_only=True):
    """Asks how far moves of dead letters are."""

    source_arn: str
    max_results: int | None = None
