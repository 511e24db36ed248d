"""Publishing a stream of lines: each line has an outcome, while the request is still being sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request

from qframe.errors import BadInput, QFrameError
from qframe.outcomes import Published
from qframe.producing.outgoing import Outgoing
from qframe.web.gateway.callers import Caller
from qframe.web.gateway.gateway import Gateway
from qframe.web.gateway.problem_json import BadRequest, line_out
from qframe.web.gateway.request_parts import decoded, lines_of
from qframe.web.gateway.wire import MOST_MESSAGES, MessageIn

_encode_lines = msgspec.json.Encoder().encode_lines


async def published_lines(
    gateway: Gateway, topic: str, request: Request, caller: Caller, most_bytes: int
) -> AsyncIterator[bytes]:
    """Publishes line by line, up to 500 at once; one line of outcome for each.

    It ends when the store is away, since the next lines would overtake what was not stored, and
    when the gateway is stopping.

    Args:
        gateway: publishes.
        topic: its name.
        request: has the lines.
        caller: who sends them; its rate and bounds hold, and its right as it is at each line.
        most_bytes: how long a line may be at this gateway.
    """
    most = min(MOST_MESSAGES, gateway.app.settings.publish_batch)
    try:
        most, most_bytes = caller.most_messages(most), caller.most_bytes(most_bytes)
        async for lines in lines_of(request, most_bytes, most, gateway.stopping):
            while wait_s := caller.wait_s(len(lines)):
                await asyncio.sleep(wait_s)
            caller.require("publish", topic)
            found = await _published(gateway, topic, lines)
            yield _encode_lines([line_out(one) for one in found])
            if not all(isinstance(one, Published | BadInput | BadRequest) for one in found):
                return
    except ClientDisconnect:
        return
    except QFrameError as error:
        yield _encode_lines([line_out(error)])


async def _published(
    gateway: Gateway, topic: str, lines: list[bytes]
) -> list[Published | QFrameError]:
    found: list[Published | QFrameError | None] = []
    items: list[Outgoing] = []
    for line in lines:
        try:
            items.append(decoded(line, MessageIn).outgoing())
            found.append(None)
        except QFrameError as error:
            found.append(error)
    published: Sequence[Published | QFrameError] = ()
    try:
        if items:
            published = await gateway.publish_each(topic, items)
    except QFrameError as error:
        published = [error] * len(items)
    outcomes = iter(published)
    return [next(outcomes) if one is None else one for one in found]
