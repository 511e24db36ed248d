"""The attributes of queues: which there are, which values they may have, what they are by default.

A few are kept and returned as they were set, and have no effect: keys of KMS and policies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from qframe.web.gateway.sqs.names import Place
from qframe.web.gateway.sqs.refusals import invalid_parameter, unknown_attribute, wrong_attribute

MOST_BYTES: Final = 1024 * 1024
LONGEST_VISIBILITY_S: Final = 43_200
LONGEST_DELAY_S: Final = 900
LONGEST_WAIT_S: Final = 20
FIFO_QUEUE: Final = "FifoQueue"
POLICY: Final = "Policy"
REDRIVE: Final = "RedrivePolicy"

_NUMBERS: Final = {
    "DelaySeconds": (0, LONGEST_DELAY_S),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
    "MaximumMessageSize": (1024, MOST_BYTES),
    "MessageRetentionPeriod": (1, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": (0, LONGEST_WAIT_S),
    "VisibilityTimeout": (0, LONGEST_VISIBILITY_S),
}  # fmt: skip
_MOST_DIGITS: Final = 12
MOST_VALUE_BYTES: Final = 8192
"""How many bytes the value of an attribute has at most, as a policy in SQS."""
_WORDS: Final = {
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
    "SqsManagedSseEnabled": ("true", "false"),
}  # fmt: skip
_OF_FIFO: Final = ("ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
_DEFAULTS: Final = {
    "DelaySeconds": "0", "MaximumMessageSize": str(MOST_BYTES), "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0", "VisibilityTimeout": "30",
}  # fmt: skip
_FIFO_DEFAULTS: Final = {
    FIFO_QUEUE: "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}  # fmt: skip
COUNTED: Final = {
    "ApproximateNumberOfMessages": "todo", "ApproximateNumberOfMessagesDelayed": "waiting",
    "ApproximateNumberOfMessagesNotVisible": "doing",
}  # fmt: skip
"""The attributes that are counted, and what qframe calls these messages."""

_OTHERS: Final = (
    FIFO_QUEUE, "KmsMasterKeyId", POLICY, "RedriveAllowPolicy", REDRIVE, "QueueArn",
    "CreatedTimestamp", "LastModifiedTimestamp",
)  # fmt: skip
KNOWN: Final = frozenset((*_NUMBERS, *_WORDS, *_OTHERS, *COUNTED))
_SETTABLE: Final = frozenset((*_NUMBERS, *_WORDS, *_OTHERS[:5]))


def defaults(*, is_fifo: bool, max_body: int) -> dict[str, str]:
    """The attributes of a queue that has none set."""
    most = min(MOST_BYTES, max_body)
    found = {**_DEFAULTS, "MaximumMessageSize": str(most)}
    return {**found, **_FIFO_DEFAULTS} if is_fifo else found


def checked(
    given: Mapping[str, str], *, is_fifo: bool, max_body: int
) -> dict[str, str | None]:  # fmt: skip
    """Attributes to set, as they are kept; None for those that are to be taken back.

    Raises:
        SqsRefusal: if one is unknown, has a wrong value, or is of a FIFO queue alone.
    """
    found: dict[str, str | None] = {}
    for given_name, value in given.items():
        name = given_name.strip()
        if name not in _SETTABLE:
            raise unknown_attribute(name)
        if name in _OF_FIFO and not is_fifo:
            raise unknown_attribute(name)
        if len(value.encode()) > MOST_VALUE_BYTES:
            raise wrong_attribute(name)
        if name == FIFO_QUEUE:
            continue  # the name has it
        if name in _NUMBERS:
            found[name] = _number(name, value, max_body)
        elif name in _WORDS and value not in _WORDS[name]:
            raise wrong_attribute(name)
        elif name == REDRIVE:
            found[name] = _redrive_policy(value)
        elif name in (POLICY, "RedriveAllowPolicy"):
            found[name] = _policy(name, value)
        else:
            found[name] = value or None
    return found


def _number(name: str, value: str, max_body: int) -> str:
    least, most = _NUMBERS[name]
    if name == "MaximumMessageSize":
        most = min(most, max_body)
    is_number = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    if not (is_number and least <= int(value) <= most):
        raise wrong_attribute(name)
    return str(int(value))


def _policy(name: str, value: str) -> str | None:
    if not value:
        return None
    policy = _parsed(value)
    if not isinstance(policy, dict) or not all(
        isinstance(each, dict) for each in statements_of(policy)
    ):
        raise wrong_attribute(name)
    return value


def statements_of(policy: Mapping[str, Any]) -> list[Any]:
    """The statements of a policy; one may stand there without a list."""
    statements = policy.get("Statement", [])
    return list(statements) if isinstance(statements, list) else [statements]


def _redrive_policy(value: str) -> str | None:
    policy = _parsed(value) if value else {}
    if policy == {}:
        return None
    if not isinstance(policy, dict):
        raise wrong_attribute(REDRIVE)
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in policy:
            raise _bad_redrive(
                value, f"Redrive policy does not contain mandatory attribute: {name}."
            )
    try:
        count = int(policy["maxReceiveCount"])
    except (TypeError, ValueError, OverflowError):  # JSON may say Infinity
        raise _bad_redrive(value, "maxReceiveCount must be a number.") from None
    if not 1 <= count <= 1000:
        raise _bad_redrive(value, "maxReceiveCount must be from 1 to 1000.")
    return json.dumps({**policy, "maxReceiveCount": count})


def _bad_redrive(value: str, reason: str) -> Exception:
    return invalid_parameter(REDRIVE, value, reason)


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def target_of(policy: str) -> str:
    """The ARN of the queue to which a redrive policy, as it is kept, sends dead letters."""
    return str(json.loads(policy)["deadLetterTargetArn"])


def check_redrive(
    policy: str, name: str, *, place: Place, find: Callable[[str], object | None]
) -> None:
    """Checks that the target of a redrive policy is another queue of the same sort.

    Args:
        policy: the policy, as it is kept.
        name: the queue that is to have it.
        place: where the queues are.
        find: returns a queue by its name, None where there is none.

    Raises:
        SqsRefusal: if it is not.
    """
    target = place.named_by(target_of(policy))
    if target is None or target == name or find(target) is None:
        raise _bad_redrive(policy, "Dead letter target does not exist.")
    if target.endswith(".fifo") != name.endswith(".fifo"):
        raise _bad_redrive(policy, "Dead-letter queue must be same type of queue as the source.")
