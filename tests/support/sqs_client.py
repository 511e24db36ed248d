"""Clients of SQS under test: boto3 as it is, and what tests ask of it."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from gatewaying import GatewayProcess

ALL = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["All"]}


def client_of(gateway: GatewayProcess, access_key: str = "local") -> Any:
    """An unmodified client of SQS."""
    return boto3.client(
        "sqs", endpoint_url=gateway.url, region_name="us-east-1", aws_access_key_id=access_key,
        aws_secret_access_key="any", config=Config(retries={"max_attempts": 0}),
    )  # fmt: skip


def made(sqs: Any, name: str, **attributes: str) -> str:
    """The address of a queue, which is made."""
    url: str = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url


def received(sqs: Any, url: str, **asked: Any) -> list[Any]:
    """What one request receives."""
    found: list[Any] = sqs.receive_message(
        QueueUrl=url, **{"WaitTimeSeconds": 10, "MaxNumberOfMessages": 10, **ALL, **asked}
    ).get("Messages", [])
    return found


def refusal_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    """The code of a refusal."""
    code: str = error.value.response["Error"]["Code"]
    return code
