"""The SQS front without a process: each operation is a request to an app in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.testclient import TestClient

from qframe import QFrame
from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.web.gateway import Gateway
from qframe.web.gateway.callers import Callers, new_token
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.routes import GatewayRoutes
from qframe.web.gateway.sqs import SqsFront

TOKENS = {name: new_token() for name in ("owner", "shop", "batcher", "reader", "other", "single")}
ARN = "arn:aws:sqs:us-east-1:000000000000:"


class SqsRefused(Exception):
    """Raised for a refusal, whose code is its text."""

    def __init__(self, status: int, reply: dict[str, Any]) -> None:
        super().__init__(reply["__type"].partition("#")[2])
        self.status = status
        self.message: str = reply["message"]


class SqsWeb:
    """A client of one front.

    Args:
        web: sends its requests.
        front: the front.
        gateway: what the front calls.
    """

    def __init__(self, web: TestClient, front: SqsFront, gateway: Gateway) -> None:
        self.web, self.front, self.gateway = web, front, gateway

    def ask(self, operation: str, *, by: str = "owner", **fields: Any) -> dict[str, Any]:
        """The answer to an operation; raises `SqsRefused` where it is a refusal."""
        reply = self.web.post("/", content=msgspec.json.encode(fields), headers={
            "x-amz-target": f"AmazonSQS.{operation}",
            "authorization": f"AWS4-HMAC-SHA256 Credential={TOKENS[by][0]}/x",
        })  # fmt: skip
        answer: dict[str, Any] = reply.json()
        if reply.status_code != 200:
            raise SqsRefused(reply.status_code, answer)
        return answer

    def made(self, name: str, **attributes: str) -> str:
        """The name of a queue, which is made."""
        self.ask("CreateQueue", QueueName=name, Attributes=attributes)
        return name

    def sent(self, queue: str, body: str = "x", **fields: Any) -> str:
        """The id of a message, which is sent."""
        answer = self.ask("SendMessage", QueueUrl=queue, MessageBody=body, **fields)
        return str(answer["MessageId"])

    def received(self, queue: str, **fields: Any) -> list[dict[str, Any]]:
        """What one request receives, with all attributes."""
        asked = {
            "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"],
            "MessageSystemAttributeNames": ["All"], **fields,
        }  # fmt: skip
        found: list[dict[str, Any]] = self.ask("ReceiveMessage", QueueUrl=queue, **asked).get(
            "Messages", []
        )
        return found

    def attributes(self, queue: str, *names: str) -> dict[str, str]:
        """Attributes of a queue."""
        answer = self.ask("GetQueueAttributes", QueueUrl=queue, AttributeNames=names or ["All"])
        found: dict[str, str] = answer.get("Attributes", {})
        return found


def rules(more: str = "", **rights: str) -> str:
    """A file of tokens: that of the owner, who may do all, and others with these rights."""
    everything = 'publish = ["*"]\nconsume = ["*"]\nadmin = ["*"]'
    return (
        "\n".join(
            f'[tokens.{name}]\nhashes = ["{TOKENS[name][1]}"]\n{rule}'
            for name, rule in {"owner": everything, **rights}.items()
        )
        + f"\n{more}"
    )


@contextmanager
def sqs_web(
    folder: Path, *, store: str = "model://", tokens: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> Iterator[SqsWeb]:
    """A front over a store in memory; `clock` is the one of its queues."""
    path = folder / "tokens.toml"
    path.write_text(rules() if tokens is None else tokens, encoding="utf-8")
    with QFrame(store) as app:
        gateway = Gateway(app)
        callers = Callers(path, clock=SYSTEM_CLOCK, events=app.events)
        forwarder = Forwarder(gateway.receipts)
        front = SqsFront(gateway, callers, forwarder, clock=clock)
        routes = GatewayRoutes(gateway, callers, forwarder, others=front.routes())
        with TestClient(routes.starlette(), "http://127.0.0.1", client=("127.0.0.1", 1)) as web:
            yield SqsWeb(web, front, gateway)
