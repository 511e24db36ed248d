"""The parts of requests to the gateway, and what clients are told of errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Message

from qframe.errors import BadOption, PublishUnknown
from qframe.web.gateway import OpenDelivery, request_parts
from qframe.web.gateway.callers import TooMuch
from qframe.web.gateway.deliveries import SettleOutcome, SettleReply
from qframe.web.gateway.gateway import GatewayStopped
from qframe.web.gateway.problem_json import BadRequest, problem_of, unsettled
from qframe.web.gateway.request_parts import decoded, lines_of, read_body, unless_gone
from qframe.web.gateway.wire import PublishRequest, SettleIn, lease_of, wait_of


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


def body_of(*parts: bytes, **headers: str) -> Request:
    """A request whose body comes in parts; who asks for more than there are, fails."""
    left = list(parts)

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    coded = [(name.replace("_", "-").encode(), each.encode()) for name, each in headers.items()]
    return Request({"type": "http", "method": "POST", "headers": coded}, receive)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (body_of(b"x" * 6, b"x" * 5), 413),  # in chunks, so that nobody has said how large it is
        (body_of(content_length="11"), 413),  # nothing of it is read
        (body_of(b"x", content_encoding="gzip"), 415),
    ],
    ids=["chunks", "declared", "compressed"],
)
def test_a_body_is_refused_by_its_size_or_coding(request_: Request, status: int) -> None:
    with pytest.raises(BadRequest) as refused:
        asyncio.run(read_body(request_, 10))
    assert refused.value.status == status


def test_a_body_as_large_as_it_may_be_is_read() -> None:
    assert asyncio.run(read_body(body_of(b"x" * 6, b"x" * 4, content_length="10"), 10)) == b"x" * 10


def test_json_whose_texts_are_not_utf8_is_none() -> None:
    for body in (b'{"body": "\xff"}', b'{"\xff": 1}', b'{"body": {"\xff": 1}}'):
        with pytest.raises(BadRequest) as refused:
            decoded(body, PublishRequest)
        assert refused.value.status == 400


def test_a_client_that_hangs_up_just_as_its_messages_come_is_gone() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def pulling() -> list[OpenDelivery]:
        return ["a"]  # type: ignore[list-item]

    async def test() -> None:
        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        assert await unless_gone(request, pulling()) == (["a"], True)

    asyncio.run(test())


def test_spans_are_exact_and_within_their_bounds() -> None:
    assert (lease_of("1500ms"), wait_of(0.25)) == (1.5, 0.25)
    for span in (0.05, "13h"):
        with pytest.raises(BadOption):
            lease_of(span)


@pytest.mark.parametrize("count", [0, 501])
def test_a_settlement_has_one_receipt_at_least_and_500_at_most(count: int) -> None:
    with pytest.raises(BadOption):
        SettleIn(ack=["r"] * count).wanted()
    assert len(SettleIn(ack=["r"] * 500).wanted()) == 500


def test_what_may_have_been_stored_is_told_with_its_ids() -> None:
    reply = problem_of(PublishUnknown("orders", ["a", "b"]))
    assert (reply.status_code, msgspec.json.decode(reply.body)["ids"]) == (503, ["a", "b"])


@pytest.mark.parametrize(
    ("error", "again"),
    [(TooMuch("slower", 0.2), "1"), (TooMuch("slower", 3.0), "3"), (GatewayStopped(), "1")],
)
def test_nobody_is_told_to_come_again_at_once(error: Exception, again: str) -> None:
    assert problem_of(error).headers["retry-after"] == again


def test_an_unforeseen_error_keeps_its_text_for_the_log() -> None:
    reply = problem_of(RuntimeError("secret"))
    assert reply.status_code == 500
    assert b"secret" not in reply.body


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (["stale", "stale"], 409), (["elsewhere"], 421), (["stale", "elsewhere"], None),
        (["settled", "stale"], None), (["unknown"], None),
    ],
)  # fmt: skip
def test_a_settlement_is_a_problem_if_nothing_of_it_was_done_for_one_reason(
    outcomes: list[str], status: int | None
) -> None:
    reply = unsettled([SettleReply("r", SettleOutcome(outcome)) for outcome in outcomes])
    assert (None if reply is None else reply.status_code) == status
