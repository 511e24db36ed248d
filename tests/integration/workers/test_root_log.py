"""Records of the user's own loggers: in the worker's format, with the message in hand."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from apps import handler

from qframe import Batch, Message, QFrame, Topic
from qframe.options.settings import Settings
from qframe.telemetry.lines import make_logger
from qframe.telemetry.root_log import RootHandler, log_records

ORDERS = Topic("orders", slots=1)
LOG = logging.getLogger("shop.handlers")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    writer = RootHandler(make_logger("json", stream))
    LOG.addHandler(writer)
    LOG.setLevel("INFO")
    LOG.propagate = False
    yield stream
    LOG.removeHandler(writer)
    LOG.setLevel(logging.NOTSET)
    LOG.propagate = True


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    for line in found:
        del line["timestamp"]
    return found


def serve(tmp_path: Path, handle: Any, **options: Any) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.consumer(ORDERS, "billing", **options)(handle)
        app.publish(ORDERS, 1, key="A", id="m-1")
        app.run(burst=True)


@pytest.mark.parametrize("awaited", [False, True])
def test_a_record_of_a_handler_names_its_message(
    tmp_path: Path, lines: io.StringIO, awaited: bool
) -> None:
    def bill(message: Message) -> None:
        LOG.info("packing %s", message.body)

    serve(tmp_path, handler(awaited, bill))
    assert read(lines) == [
        {
            "level": "info", "event": "packing 1", "logger": "shop.handlers", "topic": "orders",
            "group": "billing", "id": "m-1", "key": "A",
        }
    ]  # fmt: skip


@pytest.mark.parametrize("awaited", [False, True])
def test_a_record_of_a_batch_tells_how_many_messages_there_are(
    tmp_path: Path, lines: io.StringIO, awaited: bool
) -> None:
    def bill(messages: list[Message]) -> None:
        LOG.info("packing %d", len(messages))

    async def bill_awaited(messages: list[Message]) -> None:
        LOG.info("packing %d", len(messages))

    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.consumer(ORDERS, "billing", batch=Batch(5, "10ms"))(bill_awaited if awaited else bill)
        app.publish_many(ORDERS, [1, 2, 3])
        app.run(burst=True)
    found = read(lines)
    assert sum(line.get("messages", 1) for line in found) == 3
    for line in found:
        assert line["event"] == f"packing {line.get('messages', 1)}"
        assert (line["topic"], line["group"]) == ("orders", "billing")


def test_a_record_outside_of_handlers_has_no_message_and_an_error_its_traceback(
    tmp_path: Path, lines: io.StringIO
) -> None:
    def bill(message: Message) -> None:
        other = threading.Thread(target=LOG.info, args=("elsewhere",))
        other.start()
        other.join()

    serve(tmp_path, bill)
    try:
        LOG.info("%s", {}["customer_id"])
    except KeyError:
        LOG.exception("no")
    elsewhere, failed = read(lines)
    assert elsewhere == {"level": "info", "event": "elsewhere", "logger": "shop.handlers"}
    assert failed["level"] == "error"
    assert failed["traceback"].endswith("KeyError: 'customer_id'")


def test_no_credential_of_a_record_is_shown(lines: io.StringIO) -> None:
    LOG.warning("connecting to %s", "redis://:hunter2@cache")
    (line,) = read(lines)
    assert line["event"] == "connecting to redis://***@cache"


def test_a_root_logger_that_somebody_has_configured_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = logging.getLogger()
    theirs = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [theirs])
    assert not log_records(Settings(), io.StringIO())
    assert root.handlers == [theirs]


def test_a_root_logger_that_nobody_has_configured_writes_from_the_log_level_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    stream = io.StringIO()
    assert log_records(Settings(log_level="info"), stream)
    LOG.debug("no")
    LOG.info("yes")
    root.setLevel(logging.WARNING)
    assert [line["event"] for line in read(stream)] == ["yes"]


@pytest.fixture
def httpx_log() -> Iterator[logging.Logger]:
    """The logger of httpx, whose level is restored, as the root logger's is."""
    root, logger = logging.getLogger(), logging.getLogger("httpx")
    level = root.level
    yield logger
    root.setLevel(level)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def web() -> Iterator[str]:
    """The address of a server that replies to everything with 501."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.mark.parametrize(
    ("level", "own", "calls"),
    [("info", logging.NOTSET, 0), ("debug", logging.NOTSET, 1), ("info", logging.INFO, 1)],
)
def test_a_line_for_each_call_of_httpx_is_written_only_if_somebody_asks_for_it(
    httpx_log: logging.Logger, web: str, monkeypatch: pytest.MonkeyPatch, level: Any, own: int,
    calls: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    httpx_log.setLevel(own)
    stream = io.StringIO()
    assert log_records(Settings(log_level=level), stream)
    httpx.get(web)
    httpx_log.warning("a warning")
    told = [line["event"] for line in read(stream) if line["logger"] == "httpx"]
    assert [line.partition(":")[0] for line in told] == ["HTTP Request"] * calls + ["a warning"]
