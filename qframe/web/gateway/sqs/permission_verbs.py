"""The operations on a queue's policy, which are words: the rights are those of tokens."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from qframe.web.gateway.sqs.attributes import MOST_VALUE_BYTES, POLICY, statements_of
from qframe.web.gateway.sqs.queues import Queue
from qframe.web.gateway.sqs.refusals import invalid_parameter, missing, over_limit
from qframe.web.gateway.sqs.requests import AddPermission, RemovePermission
from qframe.web.gateway.sqs.service import SqsCall, SqsService

_MOST_ACTIONS: Final = 7
_GRANTABLE: Final = frozenset((
    "*", "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl",
    "ListDeadLetterSourceQueues", "PurgeQueue", "ReceiveMessage", "SendMessage",
))  # fmt: skip


class PermissionVerbs:
    """The operations on a queue's policy, each a request and who asks to an answer.

    Args:
        service: the parts that all operations share.
    """

    def __init__(self, service: SqsService) -> None:
        self._service = service
        self._book = service.book

    async def permit(self, request: AddPermission, call: SqsCall) -> dict[str, Any]:
        """Adds a statement to the policy of a queue."""
        queue = await self._service.queue(request.queue_url, call, "admin")
        arn = self._service.place.arn(queue.name)
        statement = _statement(request, arn)

        def added(found: Queue) -> Queue:
            policy = _policy_of(found, arn)
            if any(each.get("Sid") == request.label for each in policy["Statement"]):
                raise invalid_parameter("Label", request.label, "Already exists.")
            policy["Statement"].append(statement)
            after = _with_policy(found, policy)
            if len(after.attributes[POLICY].encode()) > MOST_VALUE_BYTES:
                raise over_limit(
                    f"With this statement the policy has more than {MOST_VALUE_BYTES} bytes. "
                    "Remove others first."
                )
            return after

        added(queue)
        _check_granted(request)
        await self._service.blocking(self._book.change, queue.name, added)
        return {}

    async def forbid(self, request: RemovePermission, call: SqsCall) -> dict[str, Any]:
        """Takes a statement out of the policy of a queue."""
        queue = await self._service.queue(request.queue_url, call, "admin")
        arn = self._service.place.arn(queue.name)

        def removed(found: Queue) -> Queue:
            policy = _policy_of(found, arn)
            kept = [each for each in policy["Statement"] if each.get("Sid") != request.label]
            if len(kept) == len(policy["Statement"]):
                raise invalid_parameter(
                    "Label", request.label, "can't find label on existing policy."
                )
            return _with_policy(found, {**policy, "Statement": kept})

        await self._service.blocking(self._book.change, queue.name, removed)
        return {}


def _policy_of(queue: Queue, arn: str) -> dict[str, Any]:
    text = queue.attributes.get(POLICY)
    policy = {} if text is None else json.loads(text)
    return {
        "Version": "2012-10-17", "Id": f"{arn}/SQSDefaultPolicy", **policy,
        "Statement": statements_of(policy),
    }  # fmt: skip


def _with_policy(queue: Queue, policy: dict[str, Any]) -> Queue:
    return msgspec.structs.replace(
        queue, attributes={**queue.attributes, POLICY: json.dumps(policy)}
    )


def _statement(request: AddPermission, arn: str) -> dict[str, Any]:
    accounts = [f"arn:aws:iam::{account}:root" for account in request.accounts]
    actions = [f"SQS:{action}" for action in request.actions]
    return {
        "Sid": request.label, "Effect": "Allow", "Principal": {"AWS": _alone(accounts)},
        "Action": _alone(actions), "Resource": arn,
    }  # fmt: skip


def _alone(each: list[str]) -> list[str] | str:
    return each[0] if len(each) == 1 else each


def _check_granted(request: AddPermission) -> None:
    if not request.actions:
        raise missing("Actions")
    if not request.accounts:
        raise invalid_parameter("PrincipalId", "[]", "Unable to verify.")
    if len(request.actions) > _MOST_ACTIONS:
        raise over_limit(
            f"{len(request.actions)} Actions were found, maximum allowed is {_MOST_ACTIONS}."
        )
    for action in request.actions:
        if action not in _GRANTABLE:
            raise invalid_parameter(
                "ActionName", f"SQS:{action}",
                "Only the queue owner is allowed to invoke this action.",
            )  # fmt: skip
