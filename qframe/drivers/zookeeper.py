"""ZooKeeper: one session with one of several servers. Nothing of queues.

A session outlives its connection. kazoo keeps looking for a server, and the session goes on if it
finds one in time; else the servers end it, its ephemeral nodes go, and the next connection begins
another. Only a server can tell which of the two came true: after SUSPENDED nobody knows whether the
session lives until CONNECTED (it does if `session_id` is the same) or LOST (it does not).

    SUSPENDED ──► CONNECTED            the session goes on
         └──────► LOST ──► CONNECTED   another session

Servers turn away a client that has seen more than they have, so that it finds one that does not lag
behind. Where none has answered for as long as a session lasts, they may have lost their data: then
the client asks as one that has seen nothing, and with another session the chroot is made again.

Requests that are on their way when the connection breaks fail with ConnectionLoss: they may or may
not have been done. Calls made while it is broken wait, and go to the next server that is found,
however late: a caller waits for a reply with a timeout, and a reply is no proof that it was asked
for just now.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Connect, Create
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_digest_acl

from qframe.clock import SYSTEM_CLOCK
from qframe.drivers.zookeeper_servers import Connections, ZooKeeperUrl, servers_of
from qframe.errors import CoordinatorUnavailable

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
CLOSE_S: Final = 3.0
CUT_S: Final = 1.0

FAILURES: Final = (KazooException, KazooTimeoutError)
# What a request gets that was not answered, and may be made again.
_AGAIN: Final = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)


class _Session(NamedTuple):
    """The session that a server has granted."""

    id: int
    silence_s: float


_NO_SESSION: Final = _Session(0, 0.0)


class ZooKeeper:
    """A session with ZooKeeper, begun anew when it has ended.

    One thread starts and closes it. A session does not outlive a fork in the child: the child
    starts its own, and the parent's stays as it is.

    Args:
        url: `zookeeper://host:port,host:port/chroot`, or `zookeepers://` for TLS; with
            `user:password@`, a digest, where needed. Options after `?` are named as Redis's are:
            `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_password`, `ssl_cert_reqs=none`,
            `ssl_check_hostname=false`; with any of them it speaks TLS.
        session_s: how long the session may be silent before the servers end it, in seconds. They
            may grant more or less.
        on_state: called after `connected` or `session_id` has changed, from a thread without which
            there is no connection: it is quick, raises nothing, and asks ZooKeeper nothing.

    Attributes:
        shown: the URL without its secrets.
        root: the chroot, as `/a/b`; nothing for the top. `client` prepends it to every path.
        acl: what `client` gives the nodes it makes: everything to the user of the URL and nothing
            to others; None, which is everything to everybody, without a user.

    Raises:
        BadUrl: if the URL cannot be used.
    """

    def __init__(self, url: str, *, session_s: float, on_state: Callable[[], None]) -> None:
        self._servers = servers_of(url)
        self._asked_s = session_s
        self._on_state = on_state
        self.shown: str = self._servers.shown
        self.root: str = self._servers.root
        self.acl: list[ACL] | None = _acl(self._servers)
        self._open: _Open | None = None

    def start(self, timeout_s: float) -> None:
        """Begins a session and makes the chroot, unless it is started already.

        Raises:
            CoordinatorUnavailable: if no server has answered in time, or they refuse the user.
        """
        if self._here is not None:
            return
        # What a fork has left here is let go as it is: its socket is the parent's.
        opened = self._open = _Open(self._servers, self._asked_s, self.acl, self._on_state)
        try:
            opened.begin(SYSTEM_CLOCK.monotonic_s() + timeout_s)
        except BaseException as error:
            trouble = opened.trouble_of(error)
            self.close()
            if isinstance(error, FAILURES):
                raise self.unavailable(error, trouble) from error
            raise

    def unavailable(self, error: Exception, trouble: str = "") -> CoordinatorUnavailable:
        """The meaning of an error of kazoo's.

        Args:
            error: the error.
            trouble: what is known of its cause; by default, of an error without a text, what has
                gone wrong last.
        """
        place = self.root or "/"
        if isinstance(error, NoAuthError):
            return CoordinatorUnavailable(
                self.shown, f"its nodes at {place} are not open to this user or password",
                what="refuses access",
                remedy="name the user that made them in the URL, name another path, or set ACLs",
            )  # fmt: skip
        why = trouble or str(error) or self.trouble or type(error).__name__
        return CoordinatorUnavailable(self.shown, why, **self._servers.meaning_of(why))

    @property
    def client(self) -> KazooClient:
        """The KazooClient, in which paths begin below the chroot.

        Raises:
            CoordinatorUnavailable: if it is not started in this process.
        """
        here = self._here
        if here is None:
            raise CoordinatorUnavailable(self.shown, "it was not started in this process")
        return here.client

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known: one that stalls is noticed late."""
        here = self._here
        return here is not None and bool(here.client.connected)

    @property
    def session_id(self) -> int:
        """The session's id, as nodes name their owner; 0 while there is none."""
        here = self._here
        return here.session.id if here is not None else 0

    @property
    def session_s(self) -> float:
        """How long the session may be silent, as the servers grant; 0 while there is none."""
        here = self._here
        return here.session.silence_s if here is not None else 0.0

    @property
    def trouble(self) -> str:
        """The last failure, in a line; empty if there was none."""
        here = self._here
        return here.trouble if here is not None else ""

    def close(self) -> None:
        """Ends the session, so that its ephemeral nodes go at once; idempotent.

        It gives up after some seconds, or at once without a connection; then the servers end the
        session in its time.
        """
        here, self._open = self._here, None
        if here is not None:
            here.end()

    @property
    def _here(self) -> _Open | None:
        """The sessions that this process has started and not closed."""
        opened = self._open
        return opened if opened is not None and opened.pid == os.getpid() else None


class _Open:
    """kazoo's client, with what must be known of it and kazoo does not tell.

    Attributes:
        session: what a server has granted.
        trouble: what has gone wrong last, in a line.
    """

    def __init__(
        self,
        servers: ZooKeeperUrl,
        session_s: float,
        acl: list[ACL] | None,
        on_state: Callable[[], None],
    ) -> None:
        self.pid = os.getpid()
        self.session = _NO_SESSION
        self.trouble = ""
        self._servers = servers
        self._answer_s = servers.share_s(session_s)
        self._refused = False
        self._cut_s = float("inf")
        self._rooted = 0
        self._heard = threading.Event()
        self._on_state = on_state
        self._pause = threading.Event()
        self._connections = Connections(servers, session_s, self._ended_by)
        self.client = KazooClient(
            hosts=list(servers.hosts),
            timeout=session_s,
            handler=self._connections,
            default_acl=acl,
            auth_data=[("digest", f"{servers.user}:{servers.password}")] if servers.user else None,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=FIRST_PAUSE_S,
                max_delay=min(LONGEST_PAUSE_S, session_s / 8),
                sleep_func=self._connections.sleep_func,
            ),
            logger=_logger(self._note),
        )
        self.client.add_listener(self._changed)
        # kazoo keeps what the server grants in a local variable, and waits for that answer as long
        # as the session may be silent: one server that hangs would cost the session. This method is
        # where it asks and is answered; github.com/python-zk/kazoo/issues/769 and 756.
        self._invoke = self.client._connection._invoke  # noqa: SLF001
        self.client._connection._invoke = self._asked  # noqa: SLF001

    def begin(self, until_s: float) -> None:
        """Waits for a server and for the chroot; raises kazoo's errors."""
        self.client.start_async()
        self._heard.wait(_left_s(until_s))
        while True:
            try:
                self._make_root(until_s)
            except _AGAIN:
                if self._refused or not _left_s(until_s):
                    raise
                self._pause.wait(FIRST_PAUSE_S)
            else:
                return

    def trouble_of(self, error: BaseException) -> str:
        """Why the session was not begun."""
        if self._refused or isinstance(error, AuthFailedError):
            return "it refuses the user or password"
        return self.trouble or "no server answered in time"

    def end(self) -> None:
        """Ends the session if there is a connection; returns after a few seconds at the most."""
        self._connections.end()
        # kazoo would wait without end for its own threads: github.com/python-zk/kazoo/issues/582
        ending = threading.Thread(target=self._stop, name="qframe.zookeeper.end", daemon=True)
        if self.client.connected:
            ending.start()
            ending.join(CLOSE_S)
            self._connections.cut()
        else:
            self._connections.cut()
            ending.start()
        ending.join(CUT_S)
        self.session = _NO_SESSION

    def _stop(self) -> None:
        with suppress(Exception):
            self.client.stop()
        with suppress(Exception):
            self.client.close()

    def _make_root(self, until_s: float) -> None:
        """Makes the nodes of the chroot that are missing, and has all paths begin below it."""
        root = self._servers.root
        self._rooted = self.session.id
        # Even without a chroot one question is asked: kazoo is connected before it shows the user.
        if self._reply(self.client.exists_async(root or "/"), until_s) is None:
            for path in self._root_paths():
                # Who may not make nodes above it is told so even of a node that exists.
                if self._reply(self.client.exists_async(path), until_s) is None:
                    with suppress(NodeExistsError):
                        self._reply(self.client.create_async(path), until_s)
        if root:
            self._reply(self.client.get_children_async(root), until_s)
        self.client.chroot = root

    def _make_root_again(self) -> None:
        """Has the chroot made before all that is asked next; kazoo would make it below itself."""
        self._rooted = self.session.id
        for path in self._root_paths():
            making = self.client.transaction()
            acl = self.client.default_acl or OPEN_ACL_UNSAFE
            making.operations.append(Create(path, b"", acl, 0))
            making.commit_async()

    def _root_paths(self) -> list[str]:
        """The nodes of the chroot, from the top."""
        names = self._servers.root.split("/")[1:]
        return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]

    def _reply(self, asked: Any, until_s: float) -> Any:
        return asked.get(timeout=_left_s(until_s))

    def _asked(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """The server's reply while a connection is made; notes what it grants."""
        if not isinstance(request, Connect):
            return self._invoke(timeout, request, xid)
        if SYSTEM_CLOCK.monotonic_s() - self._cut_s > self.session.silence_s:
            request = request._replace(last_zxid_seen=0)
        reply = self._invoke(min(timeout, self._answer_s), request, xid)
        granted = reply[0]
        if granted.time_out > 0:
            self.session = _Session(granted.session_id, granted.time_out / 1000)
        return reply

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._refused = self.client.client_state == KeeperState.AUTH_FAILED
            self.session = _NO_SESSION
        elif state == KazooState.SUSPENDED:
            self._cut_s = SYSTEM_CLOCK.monotonic_s()
        elif self.client.chroot and self._rooted != self.session.id:
            self._make_root_again()
        self._heard.set()
        self._on_state()

    def _ended_by(self, error: BaseException) -> None:
        self.trouble = f"{type(error).__name__}: {error}"

    def _note(self, text: str) -> None:
        self.trouble = text


def _acl(servers: ZooKeeperUrl) -> list[ACL] | None:
    if not servers.user:
        return None
    return [make_digest_acl(servers.user, servers.password, all=True)]


def _left_s(until_s: float) -> float:
    return max(0.0, until_s - SYSTEM_CLOCK.monotonic_s())


class _LastWords(logging.Handler):
    """Keeps to itself what kazoo would write into the user's logs."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a line."""
        text = record.getMessage()
        if text.startswith(("Transition to", "Failed connecting")):
            return  # what follows from the trouble told before
        self._note(text.removeprefix("Connection dropped: socket connection error: "))


def _logger(note: Callable[[str], None]) -> logging.Logger:
    """A logger that is nobody's child, so that no setting reaches it."""
    logger = logging.Logger("qframe.zookeeper", logging.WARNING)
    logger.addHandler(_LastWords(note))
    return logger
