"""`qframe console`: serves this machine alone, unless it knows who somebody is."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program
from eventually import eventually
from ports import free_port
from processes import WITHIN_S, Running

from qframe import Topic

TOKEN = "a-token-that-is-long"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(Topic("orders", slots=1))
    return program


def page(url: str, **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as reply:
            return str(reply.read().decode())
    except urllib.error.HTTPError as error:
        return f"{error.code}"
    except OSError:
        return ""


@pytest.mark.gate
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_the_store_with_a_badge_until_it_is_told_to_stop(
    start: Callable[..., Running], program: Program, number: signal.Signals
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    words = ["--port", url[7:], "--prefix", "/ops", "--environment", "production"]
    with start("console", *words, QFRAME_CONSOLE_TOKEN=TOKEN) as running:
        eventually(lambda: "Token" in page(f"{url}/ops/"), within=WITHIN_S)
        shown = page(f"{url}/ops/", Authorization=f"Bearer {TOKEN}")
        assert "/ops/topics/orders" in shown
        assert '<span class="badge environment is-production">production</span>' in shown
        assert f"the console is at {url}/ops/" in running.lines
        running.signal(number)
        assert running.code() == 0


@pytest.mark.parametrize("port", ["0.0.0.0:8370", ":8370", "[::]:8370", "203.0.113.9:8370"])
def test_another_address_without_a_token_or_a_proxys_word_is_refused(
    program: Program, port: str
) -> None:
    ran = program.run("console", "--port", port)
    assert ran.code == 1
    assert "QFRAME_CONSOLE_TOKEN" in ran.err


def test_a_port_that_is_taken_is_an_error_in_one_line(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        said = program.refused("console", "--port", taken)
    assert said.startswith(f"error: --port '{taken}': it cannot be bound (Address already")
