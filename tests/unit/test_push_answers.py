"""What the answers of a receiver mean, and what is sent to one."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.push.contents import content_of
from qframe.push.signatures import secrets_of, signature
from qframe.push.timed_connections import RequestEnd
from qframe.push.webhook import (
    LONGEST_WAIT_S,
    MOST_READ,
    Webhook,
    WebhookGone,
    WebhookRefused,
    WebhookUnavailable,
)

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
CLOCK = VirtualClock(1_000_000_000_000)


def webhook(url: str = "https://hooks.example/in") -> Webhook:
    return Webhook(url, SECRET, timeout_s=1, private=False, clock=CLOCK)


def judged(status: int, again: str | None = None) -> object:
    """Nothing where an answer is that a message was taken; else what is raised."""
    try:
        webhook()._judge(status, {} if again is None else {"retry-after": again}, "why\nmore")
    except (WebhookGone, WebhookRefused, WebhookUnavailable) as error:
        return type(error)
    return None


@pytest.mark.parametrize("status", [200, 202, 299])
def test_what_is_taken_is_taken(status: int) -> None:
    assert judged(status) is None


@pytest.mark.parametrize(
    ("status", "again"),
    [(300, None), (302, None), (400, None), (500, "5"), (429, None), (503, "soon"), (503, "-5")],
)
def test_what_is_not_taken_is_tried_again_by_the_backoff(status: int, again: str | None) -> None:
    assert judged(status, again) is WebhookRefused


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("again", "wait_s"),
    [
        ("7", 7.0), ("99999999", LONGEST_WAIT_S), ("Sun, 09 Sep 2001 01:46:45 GMT", 5.0),
        ("Sun, 09 Sep 2001 01:46:35 GMT", 0.0),
    ],
)  # fmt: skip
def test_a_receiver_is_asked_again_when_it_says(status: int, again: str, wait_s: float) -> None:
    assert judged(status, again) is WebhookUnavailable
    assert webhook()._wait_s(again) == wait_s


def test_a_receiver_that_wants_no_more_is_gone() -> None:
    assert judged(410, "5") is WebhookGone


def test_the_time_of_a_request_is_in_seconds_and_in_its_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: dict[Any, Any] = {}
    made = webhook()

    def post(headers: dict[Any, Any], _body: bytes) -> tuple[int, dict[str, str], str]:
        sent.update(headers)
        return 200, {}, ""

    monkeypatch.setattr(made, "_post", post)
    made.send(content_of(_message(), None))
    assert sent["webhook-timestamp"] == "1000000000"
    secrets = secrets_of(SECRET)
    assert sent["webhook-signature"] == signature(secrets, "id", 1_000_000_000, b"1")


def test_of_an_answer_without_end_the_beginning_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made, parts = webhook(), []

    def endless() -> Iterator[bytes]:
        while len(parts) < 1000:
            parts.append("")
            yield b"x" * 1000

    @contextmanager
    def stream(*_: object, **__: object) -> Iterator[Any]:
        yield SimpleNamespace(iter_stream=endless, status=500, headers=[])

    monkeypatch.setattr(made, "_pool", SimpleNamespace(stream=stream))
    assert made._post({}, b"")[2] == "x" * 200
    assert len(parts) == -(-MOST_READ // 1000)


def _message(**headers: str) -> Any:
    delivery = SimpleNamespace(headers=headers, body=b"1")
    return SimpleNamespace(
        id="id", topic="orders", attempt=1, key="50% \u00e4\r\n", headers=headers, delivery=delivery
    )


def test_no_header_of_a_message_becomes_two_of_a_request() -> None:
    content = content_of(_message(traceparent="00-a\r\nx: y", tracestate=" a"), None)
    assert content.headers["qframe-key"] == "50%25 %C3%A4%0D%0A"
    assert not {"traceparent", "tracestate"} & content.headers.keys()


def test_the_shortest_secret_is_one_and_several_are_parted_by_blanks() -> None:
    secrets = secrets_of(f"{SECRET} {SECRET}")
    assert secrets == [b"k" * 24] * 2
    first, second = signature(secrets, "id", 1, b"").split(" ")
    assert first == second


def test_a_limit_is_that_of_its_request_alone() -> None:
    limit = RequestEnd()
    with limit.ending(time.monotonic()):
        assert limit.until_s < float("inf")
    assert limit.until_s == float("inf")
