"""The parts of requests: bodies within bounds, JSON that is checked, clients that go away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from itertools import takewhile
from typing import Final, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec.inspect import ListType, StructType, type_info
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qframe.cloud_events import BATCHED, STRUCTURED
from qframe.codec import why_not_json
from qframe.errors import BadInput
from qframe.producing.outgoing import Outgoing
from qframe.web.gateway.asking import hold_bytes
from qframe.web.gateway.deliveries import OpenDelivery
from qframe.web.gateway.problem_json import BadRequest
from qframe.web.gateway.wire import PublishRequest

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
BODY_S: Final = 30.0
_UNKNOWN: Final = re.compile(r"unknown field `[^`]*`(?: - at `\$([^`]*)`)?")
_STEP: Final = re.compile(r"\.(\w+)|\[[^]]*\]")
_REGEX: Final = re.compile(r"`str` matching regex '.*'")  # durations alone have one

Decoded = TypeVar("Decoded")


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The body of a request.

    Raises:
        BadRequest: if it is too large, compressed, or does not arrive in time.
    """
    require_uncompressed(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most_bytes:
        raise too_large(most_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                hold_bytes(len(body))
                if len(body) > most_bytes:
                    raise too_large(most_bytes)
    except TimeoutError:
        raise too_slow("the body") from None
    return bytes(body)


async def lines_of(
    request: Request, most_bytes: int, most_lines: int, stopping: asyncio.Event
) -> AsyncIterator[list[bytes]]:
    """The lines of a request as they arrive, some at a time; empty ones are left out.

    Between two lines a client may take any time, within one as long as for a body. They end when
    the gateway is stopping, with the last whole line.

    Raises:
        BadRequest: if one is too long, or does not arrive in time.
    """
    rest = bytearray()
    parts = request.stream()
    loop = asyncio.get_running_loop()
    left_s = BODY_S
    while True:
        since_s = loop.time()
        try:
            async with asyncio.timeout(left_s if rest else None):
                part = await _next_part(parts, stopping)
        except TimeoutError:
            raise too_slow("the line") from None
        if stopping.is_set():
            return
        if part is None:
            break
        if rest:
            left_s -= loop.time() - since_s
        before, newline, after = part.rpartition(b"\n")
        whole: list[bytes] = []
        if newline:
            whole = [line for line in bytes(rest + before).split(b"\n") if line.strip()]
            rest.clear()
            left_s = BODY_S
        rest += after
        hold_bytes(len(rest))
        fitting = list(takewhile(lambda line: len(line) <= most_bytes, whole))
        for start in range(0, len(fitting), most_lines):
            yield fitting[start : start + most_lines]
        if len(fitting) < len(whole) or len(rest) > most_bytes:
            raise too_large(most_bytes)
    if rest.strip():
        yield [bytes(rest)]


async def _next_part(parts: AsyncIterator[bytes], stopping: asyncio.Event) -> bytes | None:
    """The next part; None at the end, or when the gateway is stopping."""
    part, stopped = (
        asyncio.ensure_future(anext(parts, None)),
        asyncio.ensure_future(stopping.wait()),
    )
    try:
        await asyncio.wait([part, stopped], return_when=asyncio.FIRST_COMPLETED)
        return part.result() if part.done() else None
    finally:
        part.cancel()
        stopped.cancel()


class LinesResponse(Response):
    """Lines that are written while the request is still read: nothing else may read it."""

    media_type = LINES

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        super().__init__()
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Sends the lines as they are made."""
        headers = [(b"content-type", LINES.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for part in self._lines:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def unless_gone(
    request: Request, pulling: Awaitable[list[OpenDelivery]]
) -> tuple[list[OpenDelivery], bool]:
    """Waits for messages while the client is there; returns them, and whether it has gone."""
    task = asyncio.ensure_future(pulling)
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
            return [], True
        return task.result(), gone.done()
    finally:
        gone.cancel()
        task.cancel()


def decoded(body: bytes, kind: type[Decoded]) -> Decoded:
    """A request's JSON, checked.

    Raises:
        BadRequest: if it is none, or not as described.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        why = _REGEX.sub('seconds, or a text such as "500ms", "30s" or "10m"', str(error))
        if (found := _UNKNOWN.search(why)) is not None:
            why += f"; there are: {', '.join(_fields_at(kind, found[1] or '')) or 'none'}"
        raise BadRequest(
            400, "bad-request", f"the request is wrong: {why}; see /v1/openapi.json"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        why = f"the request is not JSON: {why_not_json(body, error)}"
        raise BadRequest(400, "bad-json", why) from None


def _fields_at(kind: type, path: str) -> list[str]:
    """The names of the fields of an object, by its place in a request, such as `.retry[0]`."""
    found = [type_info(kind)]
    for name in _STEP.findall(path):
        if name:
            fields = [each for one in found if isinstance(one, StructType) for each in one.fields]
            found = [each.type for each in fields if each.encode_name == name]
            found = [one for each in found for one in getattr(each, "types", (each,))]
        else:
            found = [one.item_type for one in found if isinstance(one, ListType)]
    return [each.encode_name for one in found if isinstance(one, StructType) for each in one.fields]


def messages_of(asked: PublishRequest) -> tuple[list[Outgoing], bool]:
    """The messages of a request, and whether they came as a list."""
    if asked.messages is msgspec.UNSET:
        return [asked.outgoing()], False
    if asked != PublishRequest(messages=asked.messages):
        why = "body, key and the like stand beside messages; give them for each message"
        raise BadRequest(400, "bad-request", f"the request is wrong: {why}")
    items = []
    for place, each in enumerate(asked.messages):
        try:
            items.append(each.outgoing())
        except BadInput as error:
            raise BadRequest(400, "bad-body", f"messages[{place}]: {error}") from None
    return items, True


def content_type(request: Request) -> str:
    """The content type of a request, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def require_json(kind: str) -> None:
    """Refuses a content type that is not JSON.

    Raises:
        BadRequest: if it is another one.
    """
    if kind not in (JSON, ""):
        raise BadRequest(
            415, "content-type", f"the content type {kind[:80]!r} is not one of ours; "
            f"send {JSON}, {LINES}, {STRUCTURED} or {BATCHED}",
        )  # fmt: skip


def require_uncompressed(request: Request) -> None:
    """Refuses a body that is compressed: it might have any size.

    Raises:
        BadRequest: if it is.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise BadRequest(415, "content-encoding", "send the body without content-encoding")


def require_utf8_path(request: Request) -> None:
    """Refuses a path whose percent signs are not UTF-8: different bytes would be one character.

    Raises:
        BadRequest: if it is such.
    """
    try:
        unquote(request.scope["raw_path"].decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise BadRequest(
            400, "bad-path", "the percent signs of the path are not UTF-8; encode the key so"
        ) from None


def idempotency_key(request: Request) -> str | None:
    """The key under which a request may be sent again, if it has one.

    Raises:
        BadRequest: if it has several.
    """
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1:
        raise BadRequest(400, "several-keys", "the request has several Idempotency-Key; send one")
    key = keys[0]
    return key[1:-1] if len(key) > 2 and key[0] == key[-1] == '"' else key


def too_many(count: int, most: int) -> BadRequest:
    """The error of a request that has more than so many messages."""
    why = f"the request has {count} messages, and this caller's may have {most}; send several"
    return BadRequest(413, "too-many", why)


def too_large(most: int) -> BadRequest:
    """The error of a request that has more than so many bytes."""
    return BadRequest(413, "too-large", f"the request has more than {most} bytes; send less")


def too_slow(what: str) -> BadRequest:
    """The error of a request of which something does not arrive in time."""
    why = f"{what} did not arrive within {BODY_S:g} s; send it faster, or less at once"
    return BadRequest(408, "slow-request", why)
