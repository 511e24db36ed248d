"""The HTTP port: routes, bounds, and what it refuses."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from qframe.errors import BadOption
from qframe.events import Events
from qframe.http_port import (
    CONNECTIONS,
    LONGEST_HEAD,
    WAITING,
    HttpPort,
    HttpReply,
    HttpRequest,
    HttpRoute,
    address_of,
    json_reply,
    text_reply,
)

GREEDY = "127.0.0.1"
OTHER = "127.0.0.2"
LARGE = b"x" * 2**24  # more than a system keeps for a client that reads nothing


class Answer(NamedTuple):
    status: int
    type: str | None
    body: str


def failed(part: str, error: BaseException) -> None:
    raise error


def boom(request: HttpRequest) -> HttpReply:
    raise ValueError("hunter2")


class Served:
    """A port with routes of each sort; those that wait do so until `opened` is set."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.begun = threading.Semaphore(0)
        self.told: list[tuple[str, dict[str, Any]]] = []
        events = Events()
        events.listen(lambda name, facts: self.told.append((name, facts)))
        self.port = HttpPort(
            "--health-port", ("127.0.0.1", 0),
            {
                "/livez": HttpRoute(lambda _: text_reply(200, "ok")),
                "/echo/{topic}/{group}": HttpRoute(self.echo),
                "/secret": HttpRoute(lambda _: text_reply(200, "42"), guarded=True),
                "/boom": HttpRoute(boom),
                "/slow": HttpRoute(self.slow, waits=True),
                "/large": HttpRoute(lambda _: HttpReply(200, "text/plain", LARGE)),
            },
            token="s3cret", events=events, on_failure=failed,
        )  # fmt: skip
        self.port.start()

    def echo(self, request: HttpRequest) -> HttpReply:
        return json_reply(200, [request.params, request.query, request.headers.get("x-a")])

    def slow(self, request: HttpRequest) -> HttpReply:
        self.begun.release()
        self.opened.wait(60)
        return text_reply(200, "done")

    def ask(self, path: str, method: str = "GET", *, of: str = GREEDY, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port.port, timeout=60, source_address=(of, 0)
        )  # fmt: skip
        try:
            connection.request(method, path, headers=headers)
            reply = connection.getresponse()
            return Answer(
                reply.status, reply.getheader("Content-Type"), reply.read().decode().strip()
            )
        finally:
            connection.close()

    def client(self, sent: str = "", *, of: str = GREEDY) -> socket.socket:
        """A connection of an address whose client has sent so much, and reads nothing."""
        client = socket.create_connection(
            ("127.0.0.1", self.port.port), timeout=60, source_address=(of, 0)
        )  # fmt: skip
        client.sendall(sent.encode())
        return client

    def held(self, *, of: str = GREEDY) -> socket.socket:
        """A request that the port is answering still."""
        client = self.client("GET /slow HTTP/1.1\r\n\r\n", of=of)
        assert self.begun.acquire(timeout=60)
        return client


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.opened.set()
    served.port.close()


def test_a_route_is_found_by_its_path_and_given_names_query_and_headers(served: Served) -> None:
    assert served.ask("/livez") == Answer(200, "text/plain; charset=utf-8", "ok")
    asked = served.ask("/echo/a%2Fb/g?x=1&y=%20", **{"X-A": "7"})
    assert asked.body == '[{"topic": "a/b", "group": "g"}, {"x": "1", "y": " "}, "7"]'
    assert asked.type == "application/json"


def test_head_has_no_body_and_other_methods_and_paths_are_refused(served: Served) -> None:
    assert served.ask("/livez", "HEAD") == Answer(200, "text/plain; charset=utf-8", "")
    assert served.ask("/livez", "POST").status == 405
    missing = served.ask("/nowhere")
    assert missing.status == 404
    assert "/echo/{topic}/{group}" in missing.body


def test_a_guarded_route_asks_for_the_bearer_token(served: Served) -> None:
    assert served.ask("/secret").status == 401
    assert served.ask("/secret", Authorization="Bearer wrong").status == 401
    assert served.ask("/secret", Authorization="Basic s3cret").status == 401
    assert served.ask("/secret", Authorization="bearer s3cret").body == "42"


def test_a_route_that_fails_is_told_and_its_text_stays_inside(served: Served) -> None:
    assert served.ask("/boom") == Answer(500, "text/plain; charset=utf-8", "ValueError")
    ((name, facts),) = served.told
    assert (name, facts["path"], str(facts["error"])) == ("http.failed", "/boom", "hunter2")
    assert served.ask("/livez").status == 200


@pytest.mark.parametrize("sent", ["", "GET /livez", "GET /large HTTP/1.1\r\n\r\n"])
def test_clients_that_send_no_head_or_take_no_reply_keep_no_probe_waiting(
    served: Served, sent: str
) -> None:
    with ExitStack() as open_ones:
        for _ in range(2 * CONNECTIONS):
            open_ones.enter_context(served.client(sent))
        for of in (GREEDY, OTHER):
            assert served.ask("/livez", of=of).status == 200


def test_the_oldest_connection_of_the_address_that_has_most_gives_way(served: Served) -> None:
    with ExitStack() as open_ones:
        patient = open_ones.enter_context(served.client(of=OTHER))
        greedy = [open_ones.enter_context(served.client()) for _ in range(CONNECTIONS)]
        assert greedy[0].recv(64) == b""
        for client in (patient, greedy[-1]):
            client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
            assert b"HTTP/1.1" in client.recv(64)


def test_requests_that_wait_for_a_store_keep_no_probe_waiting_and_leave_others_half(
    served: Served,
) -> None:
    with ExitStack() as held:
        clients = [held.enter_context(served.held()) for _ in range(WAITING // 2)]
        assert served.ask("/slow").status == 503
        assert served.ask("/livez").status == 200
        clients.append(held.enter_context(served.held(of=OTHER)))
        clients.append(held.enter_context(served.held(of="127.0.0.3")))
        assert served.ask("/slow").status == 503
        assert served.ask("/livez", of=OTHER).status == 200
        served.opened.set()
        for client in clients:
            assert client.recv(64).startswith(b"HTTP/1.1 200 OK\r\n")
    assert served.ask("/slow").status == 200


def test_a_port_that_is_closed_waits_for_no_store(served: Served) -> None:
    with served.held():
        served.port.close()
        assert not served.port.alive


@pytest.mark.parametrize(
    "sent", [b"", b"x" * (LONGEST_HEAD + 4096), b"GET http://[ HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_harms_itself_alone(served: Served, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port.port), timeout=60) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert b"200" not in client.recv(4096).splitlines()[:1]
    assert served.ask("/livez").status == 200


def test_a_port_that_is_taken_is_named_with_a_remedy(served: Served) -> None:
    taken = ("127.0.0.1", served.port.port)
    with pytest.raises(BadOption, match=f"--health-port .*{served.port.port}.*choose a free port"):
        HttpPort("--health-port", taken, {}, events=Events(), on_failure=failed)


def test_a_closed_port_is_free_again(served: Served) -> None:
    taken = ("127.0.0.1", served.port.port)
    served.port.close()
    assert not served.port.alive
    HttpPort("--health-port", taken, {}, events=Events(), on_failure=failed).close()


def test_an_address_is_a_port_or_a_host_with_one() -> None:
    assert address_of("--health-port", "8080") == ("", 8080)
    assert address_of("--health-port", "127.0.0.1:80") == ("127.0.0.1", 80)
    assert address_of("--health-port", "[::1]:80") == ("::1", 80)
    for wrong in ("", "x", "70000", "localhost", "-1"):
        with pytest.raises(BadOption, match="write 8080"):
            address_of("--health-port", wrong)
