"""ZooKeeper servers: what a URL says of them, and the connections to them."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from qframe.drivers.tls import ENDED, OF_REDIS, fault_of, meaning_of
from qframe.errors import BadUrl
from qframe.redaction import shown_url

Ready = tuple[list[Any], list[Any], list[Any]]

if TYPE_CHECKING:

    class _Handler:
        """The part of kazoo's handler that is used here: kazoo has no types."""

        sleep_func: Callable[[float], None]

        def select(
            self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
        ) -> Ready:
            """The files of each list that are ready."""
            raise NotImplementedError

else:
    from kazoo.handlers.threading import SequentialThreadingHandler as _Handler

PORT: Final = 2181
CONNECT_TIMEOUT_S: Final = 3.0
SHORTEST_TRY_S: Final = 0.5
AGAIN_S: Final = 1.0
REMEDY: Final = "use zookeeper://host:2181,host:2181/chroot, with user:password@ where needed"
_CUT: Final = "socket connection broken"
OPTIONS: Final = (*OF_REDIS, "ssl_cert_reqs", "ssl_check_hostname")


@dataclass(frozen=True)
class ZooKeeperUrl:
    """The parts of a URL.

    Attributes:
        shown: the URL without its secrets.
        hosts: each `host:port`.
        root: the node under which all others are, as `/a/b`; nothing for the top.
        user: the user of the digest, or nothing.
        password: the password of the digest, or nothing.
        options: of TLS, or None where none is spoken.
    """

    shown: str
    hosts: tuple[str, ...]
    root: str
    user: str
    password: str = field(repr=False)
    options: dict[str, str] | None = field(repr=False)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How to speak TLS, by the files as they are now: a certificate may have been renewed.

        Raises:
            BadUrl: if one cannot be used.
        """
        return None if self.options is None else _tls(self.options, self.shown)

    def meaning_of(self, trouble: str) -> Mapping[str, str]:
        """The `what` and `remedy` of a `CoordinatorUnavailable`, if it has to do with TLS."""
        if self.options is None:
            remedy = "check that it runs; if it speaks TLS there, write zookeepers://"
            return {"remedy": remedy} if _CUT in trouble else {}
        meaning = meaning_of(trouble, OF_REDIS)
        if ENDED in trouble.lower():
            remedy = f"{meaning['remedy']}; if it listens there without TLS, write zookeeper://"
            return {**meaning, "remedy": remedy}
        return meaning

    def share_s(self, session_s: float) -> float:
        """How long one server may take to answer, so that others are asked in the same session."""
        return max(SHORTEST_TRY_S, session_s / (len(self.hosts) + 2))


def servers_of(url: str) -> ZooKeeperUrl:
    """Reads what a URL says of the servers, and the certificates that it names; asks nobody.

    Raises:
        BadUrl: if it cannot be used. No password is in the message.
    """
    shown = _shown(url)
    try:
        return _parsed(url, shown)
    except BadUrl:
        raise
    except ValueError as error:
        raise BadUrl("coordinator", shown, str(error), REMEDY) from None


def _parsed(url: str, shown: str) -> ZooKeeperUrl:
    """Reads a URL; the errors name no part of it, since that may be part of a password."""
    if not url.isprintable() or " " in url:
        raise ValueError("it has a space or an unprintable character")
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("zookeeper", "zookeepers"):
        raise ValueError("it is not a ZooKeeper URL")
    rest, _, query = rest.partition("?")
    place, _, path = rest.partition("/")
    if "@" in path + query:
        raise ValueError(
            "it has an @ after its hosts; in a user, a password or a file's name write "
            "%40 for @, %2F for / and %3F for ?"
        )
    credentials, at, hosts = place.rpartition("@")
    user, password = _user(credentials) if at else ("", "")
    options = _options(query)
    secure = scheme.lower() == "zookeepers" or bool(options)
    servers = ZooKeeperUrl(
        shown=shown,
        hosts=tuple(_host(each) for each in hosts.split(",")),
        root=_root(path),
        user=user,
        password=password,
        options=options if secure else None,
    )
    _ = servers.tls  # which reads the files
    return servers


def _shown(url: str) -> str:
    """The URL without what may be a password, also where it was not written as it should be."""
    _, question, options = url.rpartition("@")[2].partition("?")
    shown = [
        each if name in OPTIONS and name != "ssl_password" else f"{name}=***" if sign else "***"
        for each in options.split("&") for name, sign, _ in [each.partition("=")]
    ]  # fmt: skip
    return shown_url(url) + question + "&".join(shown if question else ())


def _user(credentials: str) -> tuple[str, str]:
    user, _, password = (unquote(each) for each in credentials.partition(":"))
    if not user or not password:
        raise ValueError("it needs both user and password, as user:password@")
    if ":" in user:
        raise ValueError("the user's name contains a colon")
    # A server reads them in the charset of its locale, and another client may hash them otherwise.
    if not (user + password).isascii():
        raise ValueError("its user or password has a character that is not ASCII")
    return user, password


def _host(text: str) -> str:
    """A host and its port, as kazoo takes them."""
    host, port = None, 0
    with suppress(ValueError):
        parsed = urlsplit(f"//{text}")
        if parsed.netloc == text and parsed.hostname:
            parsed.hostname.encode("idna")
            host, port = parsed.hostname, PORT if parsed.port is None else parsed.port
    if not host or not port:
        raise ValueError("it names no host, or a wrong host or port")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _root(path: str) -> str:
    path = unquote(path).removesuffix("/")
    if not path:
        return ""
    if not path.isprintable() or any(each in ("", ".", "..") for each in path.split("/")):
        raise ValueError("its path is not a valid node path")
    return f"/{path}"


def _options(query: str) -> dict[str, str]:
    options = {}
    for each in query.split("&") if query else ():
        name, _, value = each.partition("=")
        if name not in OPTIONS:
            raise ValueError(f"it has an option other than {', '.join(OPTIONS)}")
        if not value:
            raise ValueError(f"its {name} is empty")
        options[name] = unquote(value)
    return options


def _tls(options: dict[str, str], shown: str) -> ssl.SSLContext:
    verify = _choice(options, "ssl_cert_reqs", "required", "none")
    check = _choice(options, "ssl_check_hostname", "true", "false") and verify
    trusted, made, key, password = map(options.get, OF_REDIS)
    if fault := fault_of(trusted, made, key, password):
        raise BadUrl("coordinator", shown, fault.why, fault.remedy)
    context = ssl.create_default_context(cafile=trusted)
    context.check_hostname = check
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if made is not None:
        context.load_cert_chain(made, key, password)
    return context


def _choice(options: dict[str, str], name: str, yes: str, no: str) -> bool:
    """Whether an option has the first of its two values, as it has when it is left out."""
    value = options.get(name, yes).lower()
    if value not in (yes, no):
        raise ValueError(f"its {name} is neither {yes} nor {no}")
    return value == yes


class Connections(_Handler):
    """kazoo's threads and sockets, with what kazoo lacks.

    It would give each server the time of a whole session to accept a connection, leave sockets open
    whose TLS has failed, wait for bytes that TLS has read already, and give up for good after an
    error that it does not know, or when a server refuses the user.

    Args:
        servers: what the URL says.
        session_s: how long a session may be silent, in seconds.
        on_error: told the error that has ended kazoo's loop.
    """

    def __init__(
        self, servers: ZooKeeperUrl, session_s: float, on_error: Callable[[BaseException], None]
    ) -> None:
        super().__init__()
        self._servers = servers
        self._connect_s = min(CONNECT_TIMEOUT_S, servers.share_s(session_s))
        self._on_error = on_error
        self._current: socket.socket | None = None
        self._ending = threading.Event()
        self._closed = threading.Event()

    def end(self) -> None:
        """Lets kazoo's loop end when it next ends."""
        self._ending.set()

    def cut(self) -> None:
        """Ends the connection there is, and makes no other."""
        self._ending.set()
        self._closed.set()
        current = self._current
        if current is not None:
            with suppress(OSError):
                # Not as TLS would: another thread is reading from it.
                socket.socket.shutdown(current, socket.SHUT_RDWR)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **_: Any
    ) -> socket.socket:
        """A connection; `hostname` is whom the certificate is to name."""
        if self._closed.is_set():
            raise ConnectionAbortedError("this client is closed")
        try:
            tls = self._servers.tls
        except (BadUrl, OSError) as error:  # as while a file is replaced
            raise ConnectionAbortedError(str(getattr(error, "why", error))) from None
        made = socket.create_connection(address, self._connect_s)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                made = tls.wrap_socket(made, server_hostname=hostname)
        except BaseException:
            made.close()
            raise
        self._current = made
        if self._closed.is_set():
            self.cut()
        return made

    def select(
        self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
    ) -> Ready:
        """The ready sockets; also those of which TLS holds bytes that nobody has fetched."""
        read = [each for each in rlist if isinstance(each, ssl.SSLSocket) and each.pending()]
        if read:
            return read, [], []
        return super().select(rlist, wlist, xlist, timeout)

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        """A thread of its own for one of kazoo's loops."""
        is_connection = func.__name__ == "zk_loop"  # the others end when kazoo stops

        def run() -> None:
            while True:
                try:
                    func(*args, **kwargs)
                except Exception as error:  # last words: nobody else hears it
                    self._on_error(error)
                if not is_connection or self._ending.wait(AGAIN_S):
                    return

        name = "connection" if is_connection else "callbacks"
        thread = threading.Thread(target=run, name=f"qframe.zookeeper.{name}", daemon=True)
        thread.start()
        return thread
