"""The parts of requests to the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.types import Message

from qframe.web.gateway import request_parts
from qframe.web.gateway.problem_json import BadRequest
from qframe.web.gateway.request_parts import lines_of


def request_of(*parts: bytes, pause_s: float | None) -> Request:
    """A request whose client pauses before each further part; None stands for ever."""

    async def messages() -> AsyncIterator[Message]:
        for place, part in enumerate(parts):
            if place and pause_s is not None:
                await asyncio.sleep(pause_s)
            yield {"type": "http.request", "body": part, "more_body": True}
        if pause_s is None:
            await asyncio.Event().wait()
        yield {"type": "http.request", "body": b"", "more_body": False}

    sent = messages()
    return Request({"type": "http", "method": "POST", "headers": []}, lambda: anext(sent))  # type: ignore[arg-type]


async def read(request: Request) -> list[bytes]:
    stopping = asyncio.Event()
    return [line async for lines in lines_of(request, 1000, 10, stopping) for line in lines]


@pytest.mark.parametrize("parts", [[b'{"body'], [b'1\n{"b']], ids=["first", "second"])
def test_a_line_that_is_never_whole_ends_the_request(
    monkeypatch: pytest.MonkeyPatch, parts: list[bytes]
) -> None:
    monkeypatch.setattr(request_parts, "BODY_S", 0.05)
    with pytest.raises(BadRequest, match="the line did not arrive within") as raised:
        asyncio.run(asyncio.wait_for(read(request_of(*parts, pause_s=None)), 60))
    assert raised.value.status == 408


def test_a_line_that_comes_byte_by_byte_has_one_time_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_parts, "BODY_S", 0.1)
    dripping = request_of(*[b"x"] * 500, pause_s=0.01)
    with pytest.raises(BadRequest):
        asyncio.run(read(dripping))


def test_between_two_lines_any_time_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_parts, "BODY_S", 0.0)
    assert asyncio.run(read(request_of(b"1\n", b"2\n", pause_s=0))) == [b"1", b"2"]
