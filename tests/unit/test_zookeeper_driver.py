"""A session with ZooKeeper whose replies are given: what is asked, granted, repeated and told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    KazooException,
    SessionExpiredError,
)
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState, KeeperState

from qframe.clock import VirtualClock
from qframe.drivers import zookeeper as driver
from qframe.drivers.zookeeper_servers import servers_of

SESSION_S = 9.0
URL = "zookeeper://a,b,c/shop/qf"


class Reply:
    """A reply to a request; an error is raised."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def get(self, timeout: float) -> Any:
        assert timeout >= 0
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


class Opened:
    """What is known of kazoo's client, which asks nobody: a test says what is answered."""

    it: Any

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str = URL) -> None:
        self.clock = VirtualClock()
        monkeypatch.setattr(driver, "SYSTEM_CLOCK", self.clock)
        self.states = 0
        self.it = driver._Open(servers_of(url), SESSION_S, None, self._state)
        self.invoked: list[tuple[float, Any]] = []
        self.grant(1, 6000)
        self.it._invoke = self._invoke
        self.asked: list[str] = []
        self.replies: dict[str, list[Any]] = {}
        client = self.it.client
        client.start_async = lambda: self.asked.append("start")
        for name in ("exists_async", "create_async", "get_children_async"):
            setattr(client, name, self._answer(name.removesuffix("_async")))
        self.pauses: list[float] = []
        self.it._pause = SimpleNamespace(wait=self._pass)

    def grant(self, session: int, silence_ms: int) -> None:
        """What the next connection is granted."""
        self._granted = SimpleNamespace(session_id=session, time_out=silence_ms)

    def connect(self, session: int = 0, silence_ms: int = 6000) -> Any:
        """Connects; returns what was asked, and how long the reply may take."""
        if session:
            self.grant(session, silence_ms)
        self.it._asked(20.0, Connect(0, 77, 0, 0, b"", False))
        return self.invoked[-1]

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        self.invoked.append((timeout, request))
        return (self._granted, 0)

    def _answer(self, name: str) -> Callable[[str], Reply]:
        def answer(path: str) -> Reply:
            self.asked.append(f"{name} {path}")
            return Reply(self.replies[name].pop(0) if self.replies.get(name) else None)

        return answer

    def _pass(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(round(seconds * 1000))

    def _state(self) -> None:
        self.states += 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def test_a_server_has_its_share_of_the_session_to_answer_and_says_how_long_that_is(
    opened: Opened,
) -> None:
    timeout, request = opened.connect(5, 4000)
    assert (timeout, request.last_zxid_seen) == (SESSION_S / 5, 77)
    assert opened.it.session == (5, 4.0)
    opened.grant(0, 0)
    opened.connect()  # a session that has expired is granted no time
    assert opened.it.session == (5, 4.0)
    assert opened.it._asked(20.0, "ping", 3) is not None
    assert opened.invoked[-1] == (20.0, "ping")


def test_who_was_away_for_a_whole_session_asks_as_one_that_has_seen_nothing(
    opened: Opened,
) -> None:
    opened.connect(5, 4000)
    opened.it._changed(KazooState.SUSPENDED)
    opened.clock.advance(4000)
    assert opened.connect()[1].last_zxid_seen == 77
    opened.clock.advance(1)
    assert opened.connect()[1].last_zxid_seen == 0


def test_a_session_is_none_once_it_is_lost_and_the_state_is_told_each_time(opened: Opened) -> None:
    opened.connect(5)
    assert not opened.it._heard.is_set()
    opened.it._changed(KazooState.SUSPENDED)
    assert opened.it.session.id == 5
    assert opened.it._heard.is_set()
    opened.it._changed(KazooState.LOST)
    assert opened.it.session == (0, 0.0)
    assert opened.states == 2
    assert opened.it.trouble_of(ConnectionLoss()) == "no server answered in time"
    opened.it._note("its last words")
    assert opened.it.trouble_of(ConnectionLoss()) == "its last words"
    opened.it._ended_by(ValueError("odd"))
    assert opened.it.trouble_of(ConnectionLoss()) == "ValueError: odd"
    assert "refuses the user" in opened.it.trouble_of(AuthFailedError())
    opened.it.client._session_callback = None
    opened.it.client._state = KeeperState.AUTH_FAILED
    opened.it._changed(KazooState.LOST)
    assert "refuses the user" in opened.it.trouble_of(ConnectionLoss())


@pytest.mark.parametrize("error", [ConnectionLoss(), SessionExpiredError()])
def test_what_was_not_answered_is_asked_again_until_it_is_too_late(
    opened: Opened, error: Exception
) -> None:
    opened.it._heard.set()
    opened.replies["exists"] = [error, object()]
    opened.it.begin(1.0)
    assert opened.pauses == [driver.FIRST_PAUSE_S]
    opened.replies["exists"] = [error] * 99
    with pytest.raises(type(error)):
        opened.it.begin(0.99)
    assert opened.clock.monotonic_s() == 1.0


@pytest.mark.parametrize(
    ("connected", "order"),
    [
        (True, ["end", "start", "join 3.0", "stop", "close", "cut", "join 1.0"]),
        (False, ["end", "cut", "start", "join 1.0", "stop", "close"]),
    ],
)
def test_a_session_is_ended_before_its_connection_is_cut_if_there_is_one(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, *, connected: bool, order: list[str]
) -> None:
    done: list[str] = []

    class Thread:
        def __init__(self, target: Callable[[], None], daemon: bool, **_: str) -> None:
            assert daemon
            self._target = target

        def start(self) -> None:
            done.append("start")

        def join(self, seconds: float) -> None:
            done.append(f"join {seconds}")
            if "stop" not in done:
                self._target()

    def stop() -> None:
        done.append("stop")
        raise KazooException("half way")  # which keeps nobody from closing

    opened.connect(5)
    monkeypatch.setattr(type(opened.it.client), "connected", connected)
    monkeypatch.setattr(driver, "threading", SimpleNamespace(Thread=Thread))
    opened.it._connections = SimpleNamespace(
        end=lambda: done.append("end"), cut=lambda: done.append("cut")
    )
    opened.it.client.stop = stop
    opened.it.client.close = lambda: done.append("close")
    opened.it.end()
    assert done == order
    assert opened.it.session == (0, 0.0)


def test_of_what_kazoo_logs_the_last_words_are_kept_and_not_what_follows_from_them() -> None:
    noted: list[str] = []
    logger = driver._logger(noted.append)
    for text in (
        "Connection dropped: socket connection error: refused", "Transition to CONNECTING",
        "Failed connecting to Zookeeper within the connection retry policy.", "Zookeeper: %s",
    ):  # fmt: skip
        logger.warning(text, *(["odd"] if "%s" in text else []))
    logger.info("Connecting to a")
    assert noted == ["refused", "Zookeeper: odd"]
    assert logger.parent is None
    assert logger.level == logging.WARNING
