"""Access: who looks at the console, with which rights, and whether a change comes from its pages.

Somebody is known by the first of these that the console was given:

1. `auth=`: a function of the program, which knows its own users;
2. `user_header=`: a header that a proxy sets for whom it has let in. It is believed of this machine
   and of the addresses in `proxies=`, since whoever reaches the console directly could write it. A
   request with two such headers is from nobody: one of them is not the proxy's;
3. `token=`: as a bearer, or typed in once and kept for 12 hours as a signed cookie. A name that is
   typed with it is a claim, so the audit has it behind "token";
4. nothing: then only this machine is let in, by the address of the client and by the name in the
   request, so that neither a forgotten proxy nor another site's name for 127.0.0.1 opens it.

The `Host` of a request is checked in the second case, and in each if `allowed_hosts=` is given: a
page of another site that gives 127.0.0.1 a name of its own (DNS rebinding) can write any header,
but not this one. An address as `Host` is nobody's name.
"""

from __future__ import annotations

import hmac
import ipaddress
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import SplitResult, urlsplit

from starlette.requests import HTTPConnection, Request

from qframe.admin.rights import Right, checked_rights
from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.codec import legible
from qframe.errors import BadOption

COOKIE: Final = "qframe-console"
SIGNED_IN_S: Final = 12 * 3600
_SHORTEST_TOKEN: Final = 16
_MAX_NAME: Final = 100
_FORWARDED: Final = ("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip",
                     "cf-connecting-ip", "x-original-for", "x-envoy-external-address")  # fmt: skip


@dataclass(frozen=True)
class Visitor:
    """Somebody who looks at the console.

    Attributes:
        name: who it is, for the audit.
        role: the name of a role, `viewer`, `reader`, `operator` or `owner`.
    """

    name: str
    role: str = "reader"

    def __post_init__(self) -> None:
        checked_rights(self.role)

    @property
    def rights(self) -> frozenset[Right]:
        """The rights of the role."""
        return checked_rights(self.role)


Auth = Callable[[HTTPConnection], Visitor | None]


class Access:
    """Says who somebody is.

    Args:
        role: the role of everybody who is let in without `auth`.
        auth: returns who a request is from, None for nobody.
        user_header: the header in which a proxy names its user.
        proxies: addresses or networks of proxies that are not on this machine.
        token: what somebody has to know.
        allowed_hosts: further names by which browsers call the console.
        clock: tells when somebody has signed in.

    Raises:
        BadOption: if the role is none, a proxy is no address, or the token is short enough to be
            guessed.
    """

    def __init__(
        self,
        *,
        role: str,
        auth: Auth | None,
        user_header: str | None,
        proxies: Sequence[str],
        token: str | None,
        allowed_hosts: Sequence[str] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        checked_rights(role)
        self._proxies = [_network(each) for each in proxies]
        if token is not None and len(token) < _SHORTEST_TOKEN:
            raise BadOption(
                "token", "***", f"it is shorter than {_SHORTEST_TOKEN} characters",
                "make one: python -c 'import secrets; print(secrets.token_urlsafe())'",
            )  # fmt: skip
        self._role = role
        self._auth = auth
        self._user_header = user_header
        self._token = token
        self._hosts = frozenset(host.lower() for host in allowed_hosts)
        self._checks_host = bool(allowed_hosts) or (auth is None and user_header is not None)
        self._clock = clock

    def allows_host(self, connection: HTTPConnection) -> bool:
        """Whether the console is called by a name of its own, where that has to be checked."""
        return not self._checks_host or is_own_host(connection, self._hosts)

    @property
    def known_by(self) -> str:
        """By what visitors are known, for the audit."""
        if self._auth is not None:
            return "the program"
        if self._user_header is not None:
            return f"the header {self._user_header}"
        return "a token" if self._token is not None else "the address"

    @property
    def has_login(self) -> bool:
        """Whether somebody unknown may type in the token."""
        return self._auth is None and self._user_header is None and self._token is not None

    def visitor(self, connection: HTTPConnection) -> Visitor | None:
        """The visitor that a request is from; None for nobody who is let in."""
        if not self.allows_host(connection):
            return None
        if self._auth is not None:
            return self._auth(connection)
        if self._user_header is not None:
            named = connection.headers.getlist(self._user_header)
            name = _name(named[0]) if len(named) == 1 else ""
            is_proxy = self._is_proxy(connection)
            return Visitor(name, self._role) if name and is_proxy else None
        if self._token is not None:
            scheme, _, given = connection.headers.get("authorization", "").partition(" ")
            if scheme.lower() == "bearer" and self.is_token(given.strip()):
                return Visitor("token", self._role)
            name = self._signed_name(connection.cookies.get(COOKIE, ""))
            return Visitor(name, self._role) if name else None
        return Visitor("local", self._role) if is_local(connection) else None

    def _is_proxy(self, connection: HTTPConnection) -> bool:
        host = connection.client.host if connection.client is not None else ""
        if is_loopback(host):
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:  # a Unix socket has no address: who may open it is the file's matter
            return not host
        return any(address in network for network in self._proxies)

    def is_token(self, given: str) -> bool:
        """Whether it is the token; it takes as long whatever is given."""
        return self._token is not None and hmac.compare_digest(
            given.encode("utf-8", "replace"), self._token.encode()
        )

    def cookie(self, name: str) -> str:
        """The value of a cookie that lets somebody in by a name of their choice, for 12 hours."""
        claimed = _name(name)
        text = f"{self._clock.now_ms()} token{f' ({claimed})' if claimed else ''}"
        coded = urlsafe_b64encode(text.encode()).decode()
        return f"{coded}.{self._signature(coded)}"

    def _signed_name(self, cookie: str) -> str:
        """The name in a cookie; empty if it is not signed so, or is too old."""
        coded, _, signature = cookie.rpartition(".")
        if not coded or not hmac.compare_digest(
            signature.encode("utf-8", "replace"), self._signature(coded).encode()
        ):
            return ""
        made_ms, _, name = urlsafe_b64decode(coded).decode().partition(" ")
        age_s = (self._clock.now_ms() - int(made_ms)) / 1000
        return name if age_s < SIGNED_IN_S else ""

    def _signature(self, coded: str) -> str:
        key = sha256(f"qframe console cookie {self._token}".encode()).digest()
        return hmac.new(key, coded.encode("utf-8", "replace"), sha256).hexdigest()


def is_local(connection: HTTPConnection) -> bool:
    """Whether a request comes from this machine, by no proxy, and calls it by a local name.

    A proxy is known by what it adds, or by HTTP 1.0, which nginx speaks unless it is told not to.
    One that adds nothing, such as a tunnel, looks like any program of this machine.
    """
    client = connection.client
    if client is None or not is_loopback(client.host):
        return False
    if connection.scope.get("http_version") == "1.0":
        return False
    if any(name in _FORWARDED or name.startswith("x-forwarded-") for name in connection.headers):
        return False
    return is_loopback(split_url(f"//{connection.headers.get('host', '')}").hostname or "")


def is_own_host(connection: HTTPConnection, names: Collection[str]) -> bool:
    """Whether a request calls this machine by an address, a local name, or one of `names`."""
    hosts = connection.headers.getlist("host")
    host = split_url(f"//{hosts[0]}").hostname or "" if len(hosts) == 1 else ""
    return host in (*names, "localhost") or is_address(host)


def is_sent_by_page(connection: HTTPConnection) -> bool:
    """Whether a browser says that another site's page, or a link in a mail, has sent a request."""
    site = connection.headers.get("sec-fetch-site")
    if site is not None:
        return site != "same-origin"
    return "origin" in connection.headers


def split_url(text: str) -> SplitResult:
    """The parts of a URL that a client names; all are empty where it is none."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")


def is_address(host: str) -> bool:
    """Whether a host is written as an address, which no other site can have as its name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host is this machine as only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_same_origin(request: Request) -> bool:
    """Whether a browser says that a request comes from the console's own pages.

    Browsers send `Sec-Fetch-Site` where the page is secure or local, and `Origin` with each POST.
    There is no token to lose, and a proxy changes neither.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = split_url(request.headers.get("origin", "")).netloc
    hosts = (request.headers.get("host"), request.headers.get("x-forwarded-host"))
    return bool(origin) and origin in hosts  # no other site's page can send X-Forwarded-Host


def _name(text: str) -> str:
    """A name as the audit takes it."""
    return legible(" ".join(text.split()))[:_MAX_NAME]


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise BadOption(
            "proxy", text, "it is no address", "give an address or network, such as 10.0.0.0/8"
        ) from None
