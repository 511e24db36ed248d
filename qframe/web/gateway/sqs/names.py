"""Names of queues, as they stand in requests: alone, in an address, in an ARN."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from qframe.errors import BadInput
from qframe.topic import INTERNAL, Topic, checked_name
from qframe.web.gateway.sqs.refusals import invalid_value, no_queue

FIFO: Final = ".fifo"
MOST_LETTERS: Final = 64
"""SQS has 80; a queue's name is a topic's, which has 64."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Place(NamedTuple):
    """Where the queues seem to be: what stands in their addresses and ARNs.

    Attributes:
        region: the region.
        account: the twelve digits of the account.
    """

    region: str = "us-east-1"
    account: str = "000000000000"

    def arn(self, queue: str) -> str:
        """The ARN of a queue."""
        return f"arn:aws:sqs:{self.region}:{self.account}:{queue}"

    def url(self, base: str, queue: str) -> str:
        """The address of a queue, under the address by which a client reached the gateway."""
        return f"{base}/{self.account}/{queue}"

    def named_by(self, arn: str) -> str | None:
        """The name that an ARN of this place has for a queue; None if no queue can have it."""
        start = self.arn("")
        with suppress(BadInput):
            return checked_name(arn.removeprefix(start), "queue") if arn.startswith(start) else None
        return None


def checked_queue_name(name: str, *, is_fifo: bool) -> str:
    """The name itself, if a queue may have it.

    Raises:
        SqsRefusal: if it may not.
    """
    plain = name.removesuffix(FIFO)
    if name.endswith(FIFO) != is_fifo or not _NAME.fullmatch(plain):
        raise invalid_value(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length."
            if is_fifo
            else "Can only include alphanumeric characters, hyphens, or underscores. "
            "1 to 80 in length"
        )
    if len(name) > MOST_LETTERS:
        raise invalid_value(
            f"The name has {len(name)} letters: a queue of qframe has {MOST_LETTERS} at most."
        )
    return name


def queue_named_by(url: str) -> str:
    """The name of the queue that an address, or a bare name, is of.

    Raises:
        SqsRefusal: if no queue can have it.
    """
    try:
        path = urlsplit(url).path.rstrip("/") if "//" in url else url
        name = unquote(path).rpartition("/")[2]
        topic = Topic(name)
    except ValueError:
        raise no_queue() from None
    if topic.name.startswith(INTERNAL):
        raise no_queue()
    return name
