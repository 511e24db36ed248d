"""Who may call the gateway, for what, and how much of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from qframe import QFrame, Topic
from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.errors import BadOption
from qframe.events import Events
from qframe.web.gateway import Gateway
from qframe.web.gateway.callers import Caller, Callers, NotKnown, new_token, read_token_file
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.routes import GatewayRoutes

pytestmark = pytest.mark.gate

HERE = "http://127.0.0.1"
LOCAL = ("127.0.0.1", 1)
FAR = ("203.0.113.9", 4000)
ORDERS = "/v1/topics/orders"
TOKENS = {name: new_token() for name in ("shop", "billing", "owner", "other", "next", "slow")}


def write(path: Path, hashes: str = "", more: str = "") -> Path:
    rules = {
        "shop": 'publish = ["ord*"]',
        "billing": 'consume = ["orders/billing"]',
        "owner": 'publish = ["*"]\nconsume = ["*"]\nadmin = ["*"]',
        "other": 'publish = ["x"]\nconsume = ["orders/audit"]',
    }
    lines = [
        f'[tokens.{name}]\nhashes = ["{TOKENS[name][1]}"{hashes if name == "shop" else ""}]\n{rule}'
        for name, rule in rules.items()
    ]
    path.write_text("\n".join(lines) + more, encoding="utf-8")
    return path


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.declare(Topic("orders", slots=1))
        app.store.subscribe(Topic("orders", slots=1), "billing")
        yield app


def client(
    app: QFrame, tokens: Path | None, host: tuple[str, int] = FAR, url: str = HERE
) -> TestClient:
    gateway = Gateway(app)
    callers = Callers(tokens, clock=SYSTEM_CLOCK, events=app.events)
    routes = GatewayRoutes(gateway, callers, Forwarder(gateway.receipts), most_bytes=1 << 20)
    return TestClient(routes.starlette(), url, client=host)


def rule(name: str, more: str = "") -> str:
    """One more caller in the file, who may publish and consume, with limits."""
    head = f'\n[tokens.{name}]\nhashes = ["{TOKENS[name][1]}"]'
    return f'{head}\npublish = ["*"]\nconsume = ["*"]\n{more}'


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[name][0]}"}


def ask(web: TestClient, name: str | None, topic: str = "orders") -> dict[str, Any]:
    """The reply to each kind of request, for a token."""
    group = f"topics/{topic}/groups/billing"
    return {
        what: web.request(
            method, f"/v1/{path}", json=body, headers={} if name is None else bearer(name)
        )
        for what, method, path, body in [
            ("publish", "POST", f"topics/{topic}/messages", {"body": 1}),
            ("timer", "PUT", f"timers/{topic}/k", {"body": 1}),
            ("edit", "PATCH", f"timers/{topic}/k", {"body": 1}),
            ("cancel", "DELETE", f"timers/{topic}/k", None),
            ("pull", "POST", f"{group}/pull", {}),
            ("settle", "POST", f"{group}/settle", {"ack": ["x"]}),
            ("stats", "GET", f"{group}/stats", None),
            ("subscribe", "PUT", group, None),
            ("declare", "PUT", f"topics/{topic}", {"slots": 1}),
        ]
    }


PUBLISHING = {"publish", "timer", "edit", "cancel"}
CONSUMING = {"pull", "settle", "stats", "subscribe"}


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("shop", PUBLISHING), ("billing", CONSUMING), ("other", set()),
        ("owner", PUBLISHING | CONSUMING | {"declare"}),
    ],
)  # fmt: skip
def test_a_token_may_do_what_its_rights_say(
    app: QFrame, tmp_path: Path, name: str, allowed: set[str]
) -> None:
    with client(app, write(tmp_path / "tokens.toml")) as web:
        replies = ask(web, name)
    refused = {what: reply for what, reply in replies.items() if reply.status_code == 403}
    assert replies.keys() - refused.keys() == allowed
    assert {reply.status_code for reply in replies.values()} <= {200, 400, 403, 404, 409}
    assert all(f"{name} has no right to" in reply.json()["detail"] for reply in refused.values())


@pytest.mark.parametrize("topic", ["qframe.audit", "qframe.schedules", "qframe.sqs"])
@pytest.mark.parametrize("name", [None, "owner"])
def test_topics_of_qframes_own_are_open_to_nobody(
    app: QFrame, tmp_path: Path, topic: str, name: str | None
) -> None:
    tokens = None if name is None else write(tmp_path / "t.toml")
    with client(app, tokens, LOCAL) as web:
        for what, reply in ask(web, name, topic).items():
            assert reply.status_code == 403, what
            assert "this topic is qframe's own" in reply.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer x"}, {"authorization": f"Basic {TOKENS['owner'][0]}"},
     {"authorization": f"Bearer {TOKENS['owner'][1]}"}, {"authorization": "Bearer \u00ff"}],
)  # fmt: skip
def test_who_has_no_known_token_is_turned_away(
    app: QFrame, tmp_path: Path, headers: dict[str, str]
) -> None:
    with client(app, write(tmp_path / "tokens.toml"), LOCAL) as web:
        coded: Any = {name: each.encode("latin-1") for name, each in headers.items()}
        reply = web.post(f"{ORDERS}/messages", json={"body": 1}, headers=coded)
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert web.get("/livez").status_code == 200
    assert app.admin.lag("orders", "billing") == 0


@pytest.mark.parametrize(
    ("host", "url", "headers", "status"),
    [
        (LOCAL, HERE, {}, 200),
        (FAR, HERE, {}, 401),
        (LOCAL, "http://evil.example", {}, 401),
        (LOCAL, HERE, {"x-forwarded-for": "203.0.113.9"}, 401),
        (LOCAL, HERE, {"origin": "http://evil.example"}, 401),
        (LOCAL, HERE, {"sec-fetch-site": "cross-site"}, 401),
    ],
)
def test_without_tokens_programs_of_this_machine_alone_are_let_in(
    app: QFrame, host: tuple[str, int], url: str, headers: dict[str, str], status: int
) -> None:
    with client(app, None, host, url) as web:
        reply = web.post(f"{ORDERS}/messages", json={"body": 1}, headers=headers)
        assert reply.status_code == status
        assert status == 200 or "neither through a proxy nor from a page" in reply.json()["detail"]


class Reloading:
    """A file of tokens that is read again at once, and what is told of it."""

    def __init__(self, folder: Path) -> None:
        self.told: list[Any] = []
        self.clock = VirtualClock()
        self.path = write(folder / "tokens.toml")
        events = Events()
        events.listen(lambda name, facts: self.told.append((name, facts["part"])))
        self.callers = Callers(self.path, clock=self.clock, events=events)

    def caller(self, name: str, more: str | None = None) -> Caller:
        """Who has a token, after the file was written with more."""
        if more is not None:
            write(self.path, more=more)
            self.clock.advance(1000)
        request = Request({"type": "http", "headers": [], "client": FAR})
        return self.callers.caller_of(request, TOKENS[name][0])


def test_a_wrong_file_changes_nothing_and_is_told_of_once(tmp_path: Path) -> None:
    file = Reloading(tmp_path)
    known = rule("next")
    for more in (f"{known}[groups.'orders/b']\nthreads = 1", f"{known}rate = 'fast'"):
        for again in (more, None):
            file.clock.advance(1000)
            with pytest.raises(NotKnown):
                file.caller("next", again)
    assert file.told == [("part.failed", "gateway tokens")] * 2
    assert file.caller("shop").name == "shop"
    assert [file.caller("next", known).name, file.caller("shop").name] == ["next", "shop"]


def test_a_caller_keeps_what_it_has_in_hand_when_the_file_is_read_again(tmp_path: Path) -> None:
    file = Reloading(tmp_path)
    more = rule("next", "in_flight = ")
    file.caller("next", f"{more}3").client.open = 2
    assert file.caller("next", f"{more}5").room(9) == 3


def test_a_file_of_the_same_length_and_second_is_read_again(tmp_path: Path) -> None:
    file = Reloading(tmp_path)
    more = rule("next", "in_flight = ")
    file.caller("next", f"{more}3")
    second_ns = 10**9
    os.utime(file.path, ns=(second_ns, second_ns))
    file.clock.advance(1000)
    file.caller("next")
    write(file.path, more=f"{more}5")
    os.utime(file.path, ns=(second_ns, second_ns + 1000))
    file.clock.advance(1000)
    assert file.caller("next").room(9) == 5


def test_rate_and_deliveries_in_flight_are_bounded(app: QFrame, tmp_path: Path) -> None:
    limited = rule("next", "in_flight = 2") + rule("slow", 'rate = "4/h"')
    with client(app, write(tmp_path / "tokens.toml", more=limited)) as web:
        app.publish_many("orders", [1, 2, 3])

        def post(path: str, body: Any, name: str = "next") -> Any:
            return web.post(f"{ORDERS}/{path}", json=body, headers=bearer(name))

        held = []
        while len(held) < 2:
            held += post("groups/billing/pull", {"max": 9, "wait": "20s"}).json()["deliveries"]
        assert len(held) == 2
        full = post("groups/billing/pull", {"max": 9})
        assert (full.status_code, full.headers["retry-after"]) == (429, "1")
        settled = post("groups/billing/settle", {"ack": [each["receipt"] for each in held]})
        assert settled.status_code == 200
        assert post("messages", {"body": 4}, "owner").status_code == 200
        replies = [post("messages", {"messages": [{"body": 1}] * 4}, "slow") for _ in range(2)]
        assert [reply.status_code for reply in replies] == [200, 429]
        assert int(replies[-1].headers["retry-after"]) > 2700  # each of the four counts


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{ORDERS}/messages", {"body": 1}),
        ("POST", f"{ORDERS}/groups/billing/pull", {}),
        ("PUT", "/v1/timers/orders/k", {"body": 1}),
    ],
)
def test_each_of_these_counts_against_the_rate(
    app: QFrame, tmp_path: Path, method: str, path: str, body: Any
) -> None:
    with client(app, write(tmp_path / "tokens.toml", more=rule("slow", 'rate = "1/h"'))) as web:
        replies = [web.request(method, path, json=body, headers=bearer("slow")) for _ in range(2)]
    assert replies[0].status_code != 429
    assert replies[1].status_code == 429


def test_of_a_batch_for_which_there_is_not_room_enough_each_is_told(
    app: QFrame, tmp_path: Path
) -> None:
    app.declare(Topic("small", kind="delay", slots=1, max_length=1))
    app.store.subscribe(Topic("small", kind="delay", slots=1, max_length=1), "group")
    with client(app, write(tmp_path / "tokens.toml")) as web:
        sent = {"messages": [{"body": 1}, {"body": 2}]}
        path = "/v1/topics/small/messages"
        replies = [web.post(path, json=sent, headers=bearer("owner")) for _ in range(2)]
    assert [one["outcome"] for one in replies[0].json()["results"]] == ["stored", "full"]
    assert (replies[1].status_code, replies[1].json()["type"][-10:]) == (507, "topic-full")


def test_size_of_requests_and_batches_is_bounded_for_each_token(
    app: QFrame, tmp_path: Path
) -> None:
    limited = rule("next", "max_request = 1000\nmax_batch = 2")
    lines = {**bearer("next"), "content-type": "application/x-ndjson"}
    with client(app, write(tmp_path / "tokens.toml", more=limited)) as web:
        for messages, body, name, status, slug in [
            (2, "x", "next", 200, ""),
            (3, "x", "next", 413, "too-many"),
            (3, "x", "owner", 200, ""),
            (1, "x" * 1000, "next", 413, "too-large"),
            (1, "x" * 1000, "owner", 200, ""),
        ]:
            sent = {"messages": [{"body": body}] * messages}
            reply = web.post(f"{ORDERS}/messages", json=sent, headers=bearer(name))
            assert reply.status_code == status, reply.text
            assert reply.json().get("type", "").endswith(slug)
        stream = b'{"body": 1}\n' * 5 + b'{"body": "' + b"x" * 1000 + b'"}'
        outcomes = web.post(f"{ORDERS}/messages", content=stream, headers=lines).text.splitlines()
        assert [outcome.count('"stored"') for outcome in outcomes] == [1] * 5 + [0]
        assert "more than 1000 bytes" in outcomes[-1]
        asked = {"max": 9, "wait": "20s"}
        pulled = web.post(f"{ORDERS}/groups/billing/pull", json=asked, headers=bearer("next"))
        assert 1 <= len(pulled.json()["deliveries"]) <= 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[tokens.a]\nhashes = ['abc']", "no SHA-256"),
        ("[tokens.a]\npublish = ['x']", "hashes"),
        ("[tokens.a]\nhashes = []\npublsh = ['x']", "publsh"),
        ("[tokens.a]\nhashes = []\nrate = 'fast'", "fast"),
        ("[tokens.a]\nhashes = []\nmax_batch = 0", "max_batch"),
        ("[tokens]\n[groups.'orders']\nmax_attempts = 1", "topic/group"),
        ("[tokens]\n[groups.'orders/b']\nthreads = 1", "threads"),
        ("[tokens]\n[groups.'orders/b']\nmax_attempts = 0", "max_attempts"),
        ("[tokens]\n[groups.'orders/b']\nbackoff = 'soon'", "backoff"),
        ("[tokens", "TOML|Expected"),
    ],
)
def test_a_wrong_file_is_refused(app: QFrame, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadOption, match=why):
        Callers(path, clock=SYSTEM_CLOCK, events=app.events)
    with pytest.raises(BadOption, match="cannot be read"):
        read_token_file(tmp_path / "none.toml")


def test_what_a_caller_has_under_way_has_the_rights_of_the_file_as_it_is_now(
    tmp_path: Path,
) -> None:
    file = Reloading(tmp_path)
    caller = file.caller("next", rule("next", 'rate = "1/h"'))
    assert caller.may("publish", "x")
    assert caller.wait_s(1) == 0
    assert caller is file.caller("next", rule("next", 'rate = "1/h"\nmax_batch = 2'))
    assert caller.most_messages(9) == 2
    assert caller.wait_s(1) > 0, "its rate is not begun anew"
    file.caller("shop", "")
    assert not caller.may("publish", "x")
