"""The SQS front for moto's own tests: the gateway, and beside it what they ask a test server for.

    python -m tests.support.moto_server sqlite:////tmp/moto.db 5000

`POST /moto-api/reset` begins anew in an empty namespace; STS, which some tests ask for their
account, answers as moto does.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from urllib.parse import parse_qs

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qframe.app.qframe import QFrame
from qframe.clock import SYSTEM_CLOCK
from qframe.web.gateway.callers import Callers
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.gateway import Gateway
from qframe.web.gateway.sqs import Place, SqsFront

ACCOUNT = "123456789012"
_IDENTITY = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
    f"<GetCallerIdentityResult><Account>{ACCOUNT}</Account><UserId>AIDA</UserId>"
    f"<Arn>arn:aws:iam::{ACCOUNT}:user/moto</Arn></GetCallerIdentityResult>"
    "</GetCallerIdentityResponse>"
)
_ROLE = (
    '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
    "<Credentials><AccessKeyId>ASIAOTHER</AccessKeyId><SecretAccessKey>x</SecretAccessKey>"
    "<SessionToken>x</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
    "</AssumeRoleResult></AssumeRoleResponse>"
)


class MotoServer:
    """An app for a server, whose front is another one after each reset."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._numbers = count()
        self._guard = asyncio.Lock()
        self._app: QFrame | None = None
        self._gateway: Gateway | None = None
        self._front: SqsFront | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.url.path == "/moto-api/reset":
            await self._reset()
            return Response('{"status": "ok"}', media_type="application/json")
        if "/sts/" in request.headers.get("authorization", ""):
            action = parse_qs((await request.body()).decode())["Action"][0]
            return Response(_ROLE if action == "AssumeRole" else _IDENTITY, media_type="text/xml")
        if self._front is None:
            await self._reset()
        assert self._front is not None
        return await self._front.answer(request)

    async def _reset(self) -> None:
        async with self._guard:
            if self._front is not None and self._gateway is not None and self._app is not None:
                await self._gateway.close()
                await asyncio.to_thread(self._app.close)
            self._app = QFrame(
                self._store, namespace=f"moto{next(self._numbers)}", max_body=1024 * 1024
            )
            self._gateway = await Gateway(self._app).__aenter__()
            self._front = SqsFront(
                self._gateway,
                Callers(None, clock=SYSTEM_CLOCK, events=self._app.events),
                Forwarder(self._gateway.receipts),
                place=Place(account=ACCOUNT),
            )


if __name__ == "__main__":
    uvicorn.run(MotoServer(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]),
                log_level="warning", lifespan="off")  # fmt: skip
