"""What one caller of the gateway can hold, name and have done, and what the next caller gets."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ParamSpec

import msgspec
import pytest
import uvicorn
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qframe import Outgoing, QFrame, Topic
from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.shares import Share
from qframe.telemetry.meters import Meters
from qframe.web.gateway import Gateway, asking, connections, deliveries, forwarding, making
from qframe.web.gateway import gateway as module
from qframe.web.gateway.asking import ASKING, Asking
from qframe.web.gateway.callers import Callers, TooMuch, new_token
from qframe.web.gateway.connections import Connections
from qframe.web.gateway.deliveries import Client, Settle, SettleOutcome, SettleReply
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.gateway import GatewayFull
from qframe.web.gateway.receipts import Receipts
from qframe.web.gateway.routes import GatewayRoutes
from qframe.web.gateway.serving import TimedConnection, bound_socket
from qframe.web.gateway.sqs import SqsFront
from qframe.web.gateway.turns import FairThreads, Turns
from qframe.web.gateway.wire import SettledOut

pytestmark = pytest.mark.gate

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "contributors" / "gateway.md"
ROW = re.compile(r"\(../../(tests/\S+\.py)\) `(test_\w+)` \|$", re.MULTILINE)
P = ParamSpec("P")
ORDERED = Topic("events", kind="ordered", slots=2)
GROUPS = "/v1/topics/events/groups"
TOKENS = {name: new_token() for name in ("greedy", "next", "pattern", "slow")}
RULES = {
    "greedy": 'publish = ["*"]\nconsume = ["*"]\nadmin = ["events", "greedy-*"]',
    "next": 'publish = ["*"]\nconsume = ["events/mine", "*"]\nadmin = ["next-*"]',
    "pattern": 'consume = ["events", "events/*"]',
    "slow": 'publish = ["*"]\nconsume = ["*"]\nadmin = ["*"]\nrate = "1/h"',
}


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs in an event loop."""

    @wraps(test)
    def limited(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*given, **named), 120))

    return limited


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[name][0]}"}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.write_text("\n".join(
        f'[tokens.{name}]\nhashes = ["{TOKENS[name][1]}"]\n{rule}' for name, rule in RULES.items()
    ), encoding="utf-8")  # fmt: skip
    return path


def routes_of(app: QFrame, tokens: Path | None, gateway: Gateway) -> GatewayRoutes:
    callers = Callers(tokens, clock=SYSTEM_CLOCK, events=app.events)
    forwarder = Forwarder(gateway.receipts)
    others = SqsFront(gateway, callers, forwarder).routes()
    return GatewayRoutes(gateway, callers, forwarder, most_bytes=1 << 20, others=others)


def client(app: QFrame, tokens: Path | None) -> TestClient:
    routes = routes_of(app, tokens, Gateway(app))
    return TestClient(routes.starlette(), "http://127.0.0.1", client=("127.0.0.1", 1))


@pytest.fixture
def guarded(events_app: QFrame, tokens: Path) -> Iterator[TestClient]:
    with client(events_app, tokens) as web:
        yield web


# Real connections, in the loop of the test.


class Talk:
    """Connections to a gateway of this process.

    Attributes:
        gateway: the gateway.
        port: where it is.
    """

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.gateway, self.port = gateway, port
        self._open: list[StreamWriter] = []

    async def begin(
        self, name: str, path: str, body: bytes, *, size: int | None = None, kind: str = "json"
    ) -> tuple[StreamReader, StreamWriter]:
        """Sends a request by POST, of which more may follow."""
        reader, writer = await self.connected()
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/{kind}\r\n"
            f"authorization: Bearer {TOKENS[name][0]}\r\n"
            f"content-length: {len(body) if size is None else size}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        return reader, writer

    async def connected(self, source: str = "127.0.0.1") -> tuple[StreamReader, StreamWriter]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(source, 0)
        )
        self._open.append(writer)
        return reader, writer

    async def ask(self, name: str, path: str, body: Any) -> int:
        """The status of a request."""
        reader, _ = await self.begin(name, path, json.dumps(body).encode())
        return await status(reader)

    def close(self) -> None:
        for writer in self._open:
            writer.close()


async def status(reader: StreamReader) -> int:
    line = await reader.readline()
    return int(line.split()[1])


@asynccontextmanager
async def talk(
    app: QFrame, tokens: Path | None, around: Callable[[ASGIApp], ASGIApp] = lambda app: app
) -> AsyncIterator[Talk]:
    """A gateway in this loop, as `qframe gateway` serves it."""
    gateway = Gateway(app)
    served = around(routes_of(app, tokens, gateway).starlette())
    config = uvicorn.Config(served, http=TimedConnection, ws="none", log_level="error")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    bound = bound_socket("127.0.0.1", 0)
    async with gateway:
        await server.startup(sockets=[bound])
        there = Talk(gateway, bound.getsockname()[1])
        try:
            yield there
        finally:
            there.close()
            await server.shutdown(sockets=[bound])


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # the test as a whole has a limit
        await asyncio.sleep(0)


# Groups and topics, which are there for all once they are made.


def test_a_group_is_made_by_a_token_that_names_it_or_may_declare_its_topic(
    events_app: QFrame, guarded: TestClient
) -> None:
    for ask in ("PUT", "POST"):
        for name, group, allowed in [
            ("pattern", f"new-{ask}", False), ("greedy", f"its-{ask}", True),
            ("next", "mine", True), ("next", f"new-{ask}", False), ("pattern", "group", True),
            ("pattern", "mine", True),
        ]:  # fmt: skip
            tail = "" if ask == "PUT" else "/pull"
            reply = guarded.request(ask, f"{GROUPS}/{group}{tail}", json={}, headers=bearer(name))
            assert (reply.status_code == 200) is allowed, (ask, name, group, reply.text)
            if not allowed:
                assert reply.status_code == 403
                assert f'consume = ["events/{group}"]' in reply.json()["detail"]
        events_app.store.drop_group(ORDERED, "mine")
    assert events_app.store.groups(ORDERED) == ["group", "its-POST", "its-PUT"]


@pytest.mark.parametrize("greedy", ["greedy", None])
def test_a_topic_gets_no_more_than_so_many_groups_but_those_that_the_file_names(
    events_app: QFrame, tokens: Path, greedy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "MOST_GROUPS_OF_TOPIC", 3)
    headers = {} if greedy is None else bearer(greedy)
    with client(events_app, None if greedy is None else tokens) as web:
        replies = [web.put(f"{GROUPS}/g{n}", headers=headers) for n in range(4)]
        assert [reply.status_code for reply in replies] == [200, 200, 507, 507]
        assert "qframe groups drop events" in replies[-1].json()["detail"]
        pulled = web.post(f"{GROUPS}/g4/pull", json={}, headers=headers)
        assert pulled.status_code == 507
        assert web.put(f"{GROUPS}/g1", headers=headers).status_code == 200
    with client(events_app, tokens) as web:
        assert web.put(f"{GROUPS}/mine", headers=bearer("next")).status_code == 200
    assert len(events_app.store.groups(ORDERED)) == 4


def test_a_group_that_is_put_begins_where_the_file_says(events_app: QFrame, tokens: Path) -> None:
    tokens.write_text(
        tokens.read_text(encoding="utf-8") + '\n[groups."stream/late"]\nstart = "latest"',
        encoding="utf-8",
    )
    events_app.publish("stream", 1)
    callers = Callers(tokens, clock=SYSTEM_CLOCK, events=events_app.events)
    gateway = Gateway(events_app, groups=callers.groups)
    routes = GatewayRoutes(gateway, callers, Forwarder(gateway.receipts))
    with TestClient(routes.starlette(), "http://127.0.0.1") as web:
        path = "/v1/topics/stream/groups"
        for group in ("late", "early"):
            tokens.write_text(
                tokens.read_text(encoding="utf-8").replace(
                    '"events/mine"', f'"events/mine", "stream/{group}"', 1
                ), encoding="utf-8",
            )  # fmt: skip
        callers._read(tokens)
        for group in ("late", "early"):
            assert web.put(f"{path}/{group}", headers=bearer("next")).status_code == 200
    assert events_app.admin.lag("stream", "late") == 0
    assert events_app.admin.lag("stream", "early") == 1


def test_topics_are_counted_for_those_who_may_declare_them(
    events_app: QFrame, guarded: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "MOST_TOPICS", 3)

    def declare(name: str, topic: str) -> int:
        return guarded.put(f"/v1/topics/{topic}", json={}, headers=bearer(name)).status_code

    # `events` counts for the greedy one, who may declare it.
    assert [declare("greedy", f"greedy-{n}") for n in range(4)] == [200, 200, 507, 507]
    assert [declare("next", f"next-{n}") for n in range(3)] == [200, 200, 200]
    assert declare("greedy", "greedy-0") == 200  # it is there
    assert [declare("greedy", "events"), declare("next", "next-3")] == [400, 507]


SETTLES = ("POST", f"{GROUPS}/group/settle", {"ack": ["x"]})


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"{GROUPS}/group", None),
        ("GET", f"{GROUPS}/group/stats", None),
        ("PUT", "/v1/topics/new", {}),
        ("PATCH", "/v1/timers/events/k", {"body": 1}),
        ("DELETE", "/v1/timers/events/k", None),
    ],
)
def test_every_request_counts_against_the_rate_but_one_that_settles(
    guarded: TestClient, method: str, path: str, body: Any
) -> None:
    replies = [guarded.request(method, path, json=body, headers=bearer("slow")) for _ in range(2)]
    assert [reply.status_code == 429 for reply in replies] == [False, True]
    asked, there, settling = SETTLES
    assert guarded.request(asked, there, json=settling, headers=bearer("slow")).status_code == 409
    assert guarded.request(method, path, json=body, headers=bearer("next")).status_code != 429


# Places, threads, requests, bytes.


def test_one_alone_gets_half_of_what_is_shared_and_the_next_one_half_of_the_rest() -> None:
    share = Share(16)
    for holder, its in (("greedy", 8), ("next", 4), ("third", 2), ("fourth", 1), ("fifth", 1)):
        assert sum(share.take(holder) for _ in range(16)) == its
    share.give_back("greedy", 7)
    assert [share.take("next", 4), share.take("greedy", 3)] == [False, True]
    assert [share.held("next"), share.held("greedy"), share.free] == [4, 4, 4]


@in_loop
async def test_nobody_takes_the_last_places_of_groups(
    events_app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 4)
    greedy, following, last = Client(), Client(), Client()
    async with Gateway(events_app) as gateway:

        async def joined(client: Client, *groups: str) -> None:
            for group in groups:
                await gateway.pull("stream", group, client=client)

        await joined(greedy, "a", "b")
        with pytest.raises(TooMuch, match="2 groups for this caller"):
            await joined(greedy, "c")
        await joined(following, "d", "a", "b")  # those that are open already count for the first
        await joined(last, "e")
        with pytest.raises(GatewayFull):
            await joined(Client(), "f")
        await gateway.leave("stream", "d")
        await joined(Client(), "f")


@in_loop
async def test_slow_calls_of_one_caller_leave_threads_to_the_next() -> None:
    threads = FairThreads(4, "test")
    held, greedy = threading.Event(), Client()
    slow = [asyncio.create_task(threads.call(greedy, held.wait, 100)) for _ in range(8)]
    for task in slow[:2]:  # one of them runs, and one that waits may go too
        await asyncio.sleep(0)
        task.cancel()
    slow[5].cancel()
    assert await threads.call(Client(), lambda: 7) == 7
    held.set()
    results = await asyncio.gather(*slow, return_exceptions=True)
    assert results.count(True) == 5
    assert await asyncio.gather(*(threads.call(greedy, lambda: 7) for _ in range(9))) == [7] * 9
    threads.close()


@in_loop
async def test_one_caller_has_few_threads_while_others_ask_and_half_of_them_when_alone() -> None:
    clock = VirtualClock()
    threads = FairThreads(32, "test", clock)
    free, greedy = threading.Semaphore(0), Client()
    running: list[int] = []

    def hold() -> None:
        running.append(1)
        free.acquire(timeout=100)
        running.pop()

    async def ended(count: int) -> None:
        left = sum(not task.done() for task in calls) - count
        free.release(count)
        await until(lambda: sum(not task.done() for task in calls) == left)

    calls = [asyncio.create_task(threads.call(greedy, hold)) for _ in range(40)]
    await until(lambda: len(running) == 16)
    assert await threads.call(Client(), lambda: 7) == 7
    await ended(14)
    assert len(running) == 2
    await ended(3)
    await until(lambda: len(running) == 2)
    clock.advance(1001)
    await ended(1)
    await until(lambda: len(running) == 16)
    free.release(40)
    await asyncio.gather(*calls)
    threads.close()


@in_loop
async def test_requests_of_one_caller_begin_one_after_the_other_so_that_the_next_is_not_last() -> (
    None
):
    turns, greedy, following = Turns(), Client(), Client()
    begun: list[Client] = []

    async def begin(client: Client) -> None:
        await turns.wait(client)
        begun.append(client)

    many = [asyncio.create_task(begin(greedy)) for _ in range(50)]
    one = asyncio.create_task(begin(following))
    await asyncio.sleep(0)
    many[1].cancel()
    await one
    assert begun.count(greedy) <= 2
    await asyncio.gather(*many, return_exceptions=True)
    assert begun.count(greedy) == 49


@in_loop
async def test_requests_beyond_a_share_are_refused_by_turns_so_that_the_next_is_not_last() -> None:
    requests, turns, greedy = Share(8), Turns(), Client()
    for _ in range(4):
        requests.take(greedy)
    ended: list[Client] = []

    async def begin(client: Client) -> None:
        try:
            await Asking(requests, Share(1), turns).begin(client)
        finally:
            ended.append(client)

    many = [asyncio.create_task(begin(greedy)) for _ in range(50)]
    await asyncio.create_task(begin(Client()))
    assert ended.count(greedy) <= 2
    refused = await asyncio.gather(*many, return_exceptions=True)
    assert all(isinstance(each, TooMuch) for each in refused)


@in_loop
async def test_pulls_that_wait_are_served_by_turns_of_their_callers(events_app: QFrame) -> None:
    greedy, following = Client(), Client()
    async with Gateway(events_app) as gateway:
        await gateway.pull("stream", "group")  # it has joined

        def waiting(client: Client) -> asyncio.Task[Any]:
            return asyncio.create_task(
                gateway.pull("stream", "group", wait_s=60, client=client)
            )  # fmt: skip

        many = [waiting(greedy) for _ in range(20)]
        one = waiting(following)
        await asyncio.sleep(0)
        await gateway.publish("stream", [Outgoing(n) for n in range(2)])
        assert len(await one) == 1
        for task in many:
            task.cancel()


@in_loop
async def test_requests_of_one_caller_leave_places_to_the_next(
    events_app: QFrame, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REQUESTS", 8)
    messages = "/v1/topics/stream/messages"
    async with talk(events_app, tokens) as there:
        requests = there.gateway.requests
        await there.begin("greedy", messages, b"{", size=9)  # a body that does not come
        await there.begin("greedy", messages, b"", size=9, kind="x-ndjson")  # lines
        for _ in range(2):
            await there.begin("greedy", f"{GROUPS}/group/pull", b'{"wait": 60}')
        await until(lambda: requests.free == 4)
        refused, _ = await there.begin("greedy", messages, b'{"body": 1}')
        assert b"429" in (answer := await refused.readuntil(b"}"))
        assert b"retry-after: 1" in answer
        assert b"this caller has 4 requests under way" in answer
        assert await there.ask("next", messages, {"body": 1}) == 200
        there.close()
        await until(lambda: requests.free == 8)


@in_loop
async def test_bytes_of_one_callers_requests_leave_room_for_the_next(
    events_app: QFrame, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REQUEST_BYTES", 100_000)
    messages = "/v1/topics/stream/messages"
    async with talk(events_app, tokens) as there:
        sizes = there.gateway.sizes
        await there.begin("greedy", messages, b" " * 25_000, size=90_000)
        await there.begin("greedy", messages, b" " * 25_000, size=90_000, kind="x-ndjson")
        await until(lambda: sizes.free == 50_000)
        refused, _ = await there.begin("greedy", messages, b" " * 25_000)
        assert await status(refused) == 429
        assert await there.ask("next", messages, {"body": "x" * 20_000}) == 200
        there.close()
        await until(lambda: sizes.free == 100_000)


@in_loop
async def test_replies_count_with_the_bytes_that_their_caller_has_here(
    events_app: QFrame, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REQUEST_BYTES", 100_000)
    async with talk(events_app, tokens) as there:
        events_app.publish("events", "x" * 60_000, key="ann")
        pull = f"{GROUPS}/group/pull"
        await there.begin("greedy", "/v1/topics/stream/messages", b" " * 25_000, size=90_000)
        await until(lambda: there.gateway.sizes.free == 75_000)
        assert await there.ask("greedy", pull, {"wait": "20s"}) == 429
        assert there.gateway.open_count == 0
        assert await there.ask("next", pull, {"wait": "20s"}) == 200
        assert there.gateway.open_count == 1


@in_loop
async def test_a_caller_with_large_messages_open_gets_no_more_and_the_next_one_does(
    events_app: QFrame, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MOST_OPEN_BYTES", 1000)
    pull = f"{GROUPS}/group/pull"
    async with talk(events_app, tokens) as there:
        for key in ("ann", "ben", "cid"):
            events_app.publish("events", "x" * 1000, key=key)
        assert await there.ask("greedy", pull, {"max": 1, "wait": "20s"}) == 200
        assert await there.ask("greedy", pull, {"max": 1}) == 429
        assert await there.ask("next", pull, {"max": 1, "wait": "20s"}) == 200
        assert there.gateway.open_count == 2
        await there.gateway.leave("events", "group")
        assert await there.ask("greedy", pull, {"max": 1, "wait": "20s"}) == 200


class OtherGateway(BaseHTTPRequestHandler):
    """A gateway that has settled what it was asked to."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        replies = [SettleReply("receipt", SettleOutcome.SETTLED)]
        self.wfile.write(msgspec.json.encode(SettledOut(replies)))

    def log_message(self, *_: Any) -> None:
        pass


@in_loop
async def test_settlements_for_a_gateway_that_hangs_leave_threads_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "TIMEOUT_S", 1000)
    forwarder = forwarding.Forwarder(Receipts(secret="s" * 20))

    async def settle(client: Client, address: str) -> SettleOutcome:
        asking = Asking(Share(1), Share(1), Turns())
        asking.client = client
        ASKING.set(asking)  # of this task
        receipt = Receipts(address, "s" * 20).new()
        results = [SettleReply(receipt, SettleOutcome.ELSEWHERE, address)]
        await forwarder.settle("events", "group", [Settle(receipt)], results, "")
        return results[0].outcome

    with (
        socket.create_server(("127.0.0.1", 0), backlog=64) as hanging,
        HTTPServer(("127.0.0.1", 0), OtherGateway) as other,
    ):
        threading.Thread(target=other.serve_forever, daemon=True).start()
        hangs, replies = hanging.getsockname()[1], other.server_port
        greedy = Client()
        many = [
            asyncio.create_task(settle(greedy, f"http://127.0.0.1:{hangs}")) for _ in range(16)
        ]  # fmt: skip
        await asyncio.sleep(0)
        assert await settle(Client(), f"http://127.0.0.1:{replies}") is SettleOutcome.SETTLED
        assert not any(task.done() for task in many)
        other.shutdown()
    await asyncio.gather(*many)  # the connections are reset


# Connections.


@in_loop
async def test_connections_of_one_address_leave_some_to_the_next(
    events_app: QFrame, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    async with talk(events_app, tokens) as there:
        silent = [await there.connected() for _ in range(8)]
        for reader, _ in silent[:4]:  # the oldest of them had to go
            assert await reader.read() == b""
        path = "/v1/topics/stream/messages"
        for place in range(4):  # each new request takes the place of a silent connection
            assert await there.ask("greedy", path, {"body": place}) == 200
        busy = [
            await there.begin("greedy", f"{GROUPS}/group/pull", b'{"wait": 60}') for _ in range(4)
        ]
        await until(lambda: there.gateway.requests.held(_held_by(there)) == 4)
        refused, _ = await there.begin("greedy", path, b'{"body": 1}')
        assert await status(refused) == 429
        reader, writer = await there.connected("127.0.0.2")
        writer.write(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n")
        assert await status(reader) == 200
        assert not any(reader.at_eof() for reader, _ in busy)


def _held_by(there: Talk) -> Any:
    held = there.gateway.requests._held
    return next(iter(held), None)


class Named:
    """A connection that says what became of it."""

    def __init__(self, told: list[str], name: str) -> None:
        self._told, self._name = told, name

    def refuse(self) -> None:
        self._told.append(f"{self._name} refused")

    def drop(self) -> None:
        self._told.append(f"{self._name} dropped")


def test_a_connection_in_use_is_not_closed_for_another_one() -> None:
    told: list[str] = []
    shared = Connections(4)
    a, b, c, d = (Named(told, name) for name in "abcd")
    for each in (a, b):
        shared.add(each, "one")
        shared.mark(each, is_idle=True)
    shared.mark(a, is_idle=False)
    shared.add(c, "one")
    shared.add(d, "one")
    assert told == ["b dropped", "d refused"]
    shared.remove(a)
    shared.remove(b)  # it was dropped
    shared.add(d, "one")
    assert told == ["b dropped", "d refused"]


@pytest.mark.parametrize(("path", "test"), ROW.findall(PAGE.read_text(encoding="utf-8")))
def test_each_row_of_the_page_on_bounds_has_the_test_that_it_names(path: str, test: str) -> None:
    assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8")


# What else a caller could do to others.


class Resets:
    """Resets the connection of a client in the moment of its reply."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.client: socket.socket | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and self.client is not None:
                self.client.close()
                self.client = None
            await send(message)

        await self._app(scope, receive, sent)


@in_loop
async def test_a_client_that_resets_in_the_moment_of_its_reply_costs_no_lease(
    events_app: QFrame, tokens: Path
) -> None:
    resets: list[Resets] = []

    def around(app: ASGIApp) -> ASGIApp:
        resets.append(Resets(app))
        return resets[0]

    async with talk(events_app, tokens, around) as there:
        asked = f"POST {GROUPS}/group/pull HTTP/1.1\r\nhost: h\r\ncontent-length: 15\r\n"
        gone = socket.create_connection(("127.0.0.1", there.port))
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        token = bearer("greedy")["authorization"]
        gone.sendall(f'{asked}authorization: {token}\r\n\r\n{{"wait": "20s"}}'.encode())
        await until(lambda: there.gateway.requests.free < asking.MOST_REQUESTS)
        resets[0].client = gone
        events_app.publish("events", 1, key="ann")
        await until(lambda: resets[0].client is None)
        [opened] = await there.gateway.pull("events", "group", wait_s=20)
        assert opened.message.attempt == 1


def test_json_comes_back_as_json_however_deep_it_is(guarded: TestClient) -> None:
    headers = {**bearer("next"), "content-type": "application/json"}
    topic, deepest = "/v1/topics/stream", 0
    for depth in range(940, 1000):  # the stack is as deep as this at the most
        body = b"[" * depth + b"]" * depth
        sent = guarded.post(f"{topic}/messages", content=b'{"body": %s}' % body, headers=headers)
        if sent.status_code != 200:  # it was refused, and is nowhere
            continue
        deepest = depth
        pulled = guarded.post(
            f"{topic}/groups/group/pull", json={"wait": "20s"}, headers=bearer("next")
        )
        assert body in pulled.content, depth
    assert deepest >= 940


@pytest.mark.parametrize(
    "header",
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-port", "x-real-ip",
     "cf-connecting-ip", "true-client-ip", "x-envoy-external-address"],
)  # fmt: skip
def test_a_proxy_is_known_by_any_header_that_proxies_add(events_app: QFrame, header: str) -> None:
    with client(events_app, None) as web:
        sent = {"json": {"body": 1}}
        path = "/v1/topics/stream/messages"
        assert web.post(path, **sent, headers={header: "x"}).status_code == 401
        assert web.post(path, **sent).status_code == 200


@in_loop
async def test_a_proxy_is_known_by_the_version_of_http_that_nginx_speaks(
    events_app: QFrame,
) -> None:
    for version, code in (("1.0", 401), ("1.1", 200)):
        async with talk(events_app, None) as there:
            reader, writer = await there.connected()
            body = b'{"body": 1}'
            writer.write(
                f"POST /v1/topics/stream/messages HTTP/{version}\r\nhost: 127.0.0.1:8380\r\n"
                f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            assert await status(reader) == code


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_page_changes_nothing_by_an_image_though_the_front_of_sqs_is_open(
    events_app: QFrame, method: str
) -> None:
    with client(events_app, None) as web:
        front = next(route for route in web.app.routes if route.path == "/")
        operations = front.endpoint.__self__._operations
        assert operations
        for name in operations:
            asked = {"Action": name, "QueueName": "made", "QueueUrl": "http://h/0/made"}
            reply = web.request(method, "/", params=asked)
            if name.startswith(("Get", "List")):
                assert b"asked for by POST" not in reply.content
            else:
                assert reply.status_code == 400, name
                assert method == "HEAD" or b"asked for by POST" in reply.content
    assert events_app.store.topic("made") is None


# Numbers.


def test_the_numbers_of_a_group_go_when_the_gateway_leaves_it(
    events_app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    meters = Meters(SYSTEM_CLOCK)
    events_app.measure(meters)

    def series() -> set[tuple[str, ...]]:
        return {
            labels for family in meters.families() for labels, _ in family.values
            if "group" in family.labels
        }  # fmt: skip

    async def pulled() -> None:
        async with Gateway(events_app, idle_s=0.0) as gateway:
            for group in ("a", "b", "group"):
                await gateway.pull("stream", group)
            assert {labels[1] for labels in series()} == {"a", "b", "group"}
            await until(lambda: not gateway.groups())
            assert series() == set()

    asyncio.run(asyncio.wait_for(pulled(), 60))


def test_no_label_of_a_number_is_a_word_of_a_callers_but_topic_and_group(
    events_app: QFrame,
) -> None:
    meters = Meters(SYSTEM_CLOCK)
    events_app.measure(meters)
    meters.of("stream", "group")
    labels = {name for family in meters.families() for name in family.labels}
    assert labels == {"topic", "group", "outcome", "change", "op", "version", "python"}
