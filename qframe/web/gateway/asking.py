"""Requests that are being served: whose each is, and what it holds until its reply is sent."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qframe.shares import Share
from qframe.web.gateway.callers import TooMuch
from qframe.web.gateway.deliveries import Client
from qframe.web.gateway.turns import Turns

MOST_REQUESTS: Final = 4096
MOST_REQUEST_BYTES: Final = 512 * 2**20
IS_LOST: Final = "qframe.is_lost"
"""Of a scope: says whether the connection has been lost."""

_AGAIN_S: Final = 1.0


class Asking:
    """A request that is being served.

    Args:
        requests: the places of requests at once.
        sizes: the bytes that requests and their replies have at once.
        turns: say when it begins.

    Attributes:
        client: whose it is, once that is known.
        on_lost: called if its connection is lost before anything of the reply was sent.
    """

    def __init__(self, requests: Share, sizes: Share, turns: Turns) -> None:
        self.client: Client | None = None
        self.on_lost: Callable[[], None] | None = None
        self._requests = requests
        self._sizes = sizes
        self._turns = turns
        self._is_begun = False
        self._size = 0

    async def begin(self, client: Client) -> None:
        """Waits for its turn, as its client is known now, and takes a place.

        Raises:
            TooMuch: if the client has its share of them.
        """
        self.client = client
        await self._turns.wait(client)  # also to be refused, which takes the loop a while too
        if not self._requests.take(client):
            why = f"this caller has {self._requests.held(client)} requests under way here"
            raise TooMuch(f"{why}, its share; ask when some have their replies", _AGAIN_S)
        self._is_begun = True

    def hold(self, size: int) -> None:
        """Says how many bytes it has now.

        Raises:
            TooMuch: if they are more than the client's share allows.
        """
        if not self._is_begun:
            return
        if size < self._size:
            self._sizes.give_back(self.client, self._size - size)
        elif size > self._size and not self._sizes.take(self.client, size - self._size):
            why = f"requests of this caller hold {self._sizes.held(self.client)} bytes here"
            raise TooMuch(f"{why}, its share; send or ask for less at once", _AGAIN_S)
        self._size = size

    def lose(self) -> None:
        """Notes that its client gets nothing of the reply."""
        if self.on_lost is not None:
            self.on_lost()

    def end(self) -> None:
        """Gives back all that it holds."""
        if self._is_begun:
            self.hold(0)
            self._requests.give_back(self.client)
            self._is_begun = False


ASKING: Final[ContextVar[Asking | None]] = ContextVar("qframe gateway request", default=None)
"""The request that is being served here; None for what the gateway does by itself."""


def asking_client() -> Client | None:
    """Whose request is being served."""
    asking = ASKING.get()
    return None if asking is None else asking.client


async def begin_request(client: Client) -> None:
    """Notes whose request this is, and waits for its turn.

    Raises:
        TooMuch: if the client has its share of requests at once.
    """
    if (asking := ASKING.get()) is not None:
        await asking.begin(client)


def hold_bytes(size: int) -> None:
    """Says how many bytes the request, or its reply, has now.

    Raises:
        TooMuch: if they are more than its client's share allows.
    """
    if (asking := ASKING.get()) is not None:
        asking.hold(size)


def _never() -> bool:
    return False


class AskingLayer:
    """Has each request give back what it holds once its reply is sent.

    Args:
        app: serves the requests.
        requests, sizes: those of an `Asking`.
    """

    def __init__(self, app: ASGIApp, *, requests: Share, sizes: Share) -> None:
        self._app = app
        self._requests = requests
        self._sizes = sizes
        self._turns = Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asking = Asking(self._requests, self._sizes, self._turns)

        async def sent(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start" and scope.get(IS_LOST, _never)():
                asking.lose()

        token = ASKING.set(asking)
        try:
            await self._app(scope, receive, sent)
        finally:
            ASKING.reset(token)
            asking.end()
