"""One receiver: what a request to it looks like, and what its answer means."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import httpcore2

from qframe.clock import Clock
from qframe.errors import BadUrl, QFrameError
from qframe.push.addresses import CheckedAddresses
from qframe.push.contents import PushContent
from qframe.push.signatures import secrets_of, signature
from qframe.push.special_addresses import is_public
from qframe.push.timed_connections import RequestEnd, TimedConnections
from qframe.retry import NeedRetry

LONGEST_WAIT_S: Final = 3600.0
KEPT_S: Final = 30.0
MOST_READ: Final = 65_536
_GONE: Final = 410
_LATER: Final = (429, 503)
_SHOWN: Final = 200
_VISIBLE: Final = re.compile("[!-~]+")


class WebhookRefused(QFrameError):
    """Raised when a receiver has not taken a message: its delivery is tried again."""

    def __init__(self, receiver: str, why: str) -> None:
        super().__init__(f"{receiver} {why}")


class WebhookUnavailable(NeedRetry, QFrameError):
    """Raised when a receiver says when it may be asked again: its delivery is tried then."""

    def __init__(self, receiver: str, status: int, wait_s: float) -> None:
        super().__init__(
            f"{receiver} answered {status}: it wants to be asked again in {wait_s:g} s",
            delay=wait_s,
        )


class WebhookGone(QFrameError):
    """Raised when a receiver says that it wants no more."""

    def __init__(self, receiver: str) -> None:
        super().__init__(f"{receiver} answered 410: it wants no more messages")


class Webhook:
    """A receiver of messages.

    Args:
        url: where they are sent.
        secrets: what they are signed with, as of `secrets_of`.
        timeout_s: how long a request may take, in seconds.
        private: whether any address, and `http`, is allowed.
        clock: the time of signatures.

    Attributes:
        shown: the receiver for logs and errors, without what the URL's path and query may hide.

    Raises:
        BadUrl: if nothing may be sent there.
        BadOption: if a secret is not one.
    """

    def __init__(
        self, url: str, secrets: str | Iterable[str], *, timeout_s: float, private: bool,
        clock: Clock,
    ) -> None:  # fmt: skip
        self.shown: str = _checked(url, private=private)
        self._url = url
        self._secrets = secrets_of(secrets)
        self._timeout_s = timeout_s
        self._clock = clock
        self._terms = {"timeout": dict.fromkeys(("connect", "read", "write"), timeout_s)}
        self._limit = RequestEnd()
        network = CheckedAddresses(httpcore2.SyncBackend(), clock, private=private)
        # Whoever sends has a thread for it, and how many there are may be tuned: no other bound.
        self._pool = httpcore2.ConnectionPool(
            max_connections=None, keepalive_expiry=KEPT_S,
            network_backend=TimedConnections(network, self._limit, clock),
        )  # fmt: skip
        weakref.finalize(self, self._pool.close)

    def send(self, content: PushContent) -> None:
        """Sends a request; returns when the receiver has taken it.

        Raises:
            WebhookRefused: if it has not.
            AddressRefused: if it is at an address to which nothing may be sent.
            WebhookUnavailable: if it says when it may be asked again.
            WebhookGone: if it wants no more.
        """
        at_s = self._clock.now_ms() // 1000
        headers: dict[bytes | str, bytes | str] = dict(content.headers.items())
        headers |= {
            "user-agent": "qframe",
            "webhook-id": content.id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": signature(self._secrets, content.id, at_s, content.body),
        }
        try:
            status, answered, text = self._post(headers, content.body)
        except (httpcore2.LocalProtocolError, TypeError, ValueError) as error:
            raise WebhookRefused(self.shown, f"cannot be sent this: {error}") from error
        except (
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.TimeoutException,
        ) as error:
            why = str(error) or type(error).__name__
            raise WebhookRefused(self.shown, f"cannot be reached: {why}") from error
        self._judge(status, answered, text)

    def _post(
        self, headers: dict[bytes | str, bytes | str], body: bytes
    ) -> tuple[int, dict[str, str], str]:
        until_s = self._clock.monotonic_s() + self._timeout_s
        read = b""
        with (
            self._limit.ending(until_s),
            self._pool.stream(
                "POST", self._url, headers=headers, content=body, extensions=self._terms
            ) as response,
        ):
            for part in response.iter_stream():
                read += part
                if len(read) >= MOST_READ:
                    break
        answered = {
            name.decode().lower(): value.decode("latin-1") for name, value in response.headers
        }
        return response.status, answered, read[:_SHOWN].decode(errors="replace")

    def _judge(self, status: int, headers: Mapping[str, str], text: str) -> None:
        if 200 <= status < 300:
            return
        if status == _GONE:
            raise WebhookGone(self.shown)
        if (
            status in _LATER
            and (wait_s := self._wait_s(headers.get("retry-after", ""))) is not None
        ):
            raise WebhookUnavailable(self.shown, status, wait_s)
        first = text.partition("\n")[0].strip()
        raise WebhookRefused(self.shown, f"answered {status}{': ' if first else ''}{first}")

    def _wait_s(self, text: str) -> float | None:
        """How long a receiver wants to be left alone; None where it does not say."""
        try:
            if text.isascii() and text.isdigit():
                wait_s = float(text)
            else:
                until = parsedate_to_datetime(text)
                until = until.replace(tzinfo=until.tzinfo or UTC)
                now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
                wait_s = (until - now).total_seconds()
        except (ValueError, OverflowError):
            return None
        return min(max(wait_s, 0.0), LONGEST_WAIT_S)


def _checked(url: str, *, private: bool) -> str:
    """A receiver's scheme, host and port.

    Raises:
        BadUrl: if nothing may be sent there.
    """

    def refuse(why: str, remedy: str) -> BadUrl:
        return BadUrl("url", shown or "…", why, remedy)

    shown = ""
    if not _VISIBLE.fullmatch(url):  # before it is split, which drops some of them
        raise refuse(
            "it is no URL: it is empty, or has a blank, or another character than visible ASCII",
            "write those as %XX, and in a host's name as in xn--bcher-kva.example",
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as it is when its address is looked up
    except ValueError as error:
        raise refuse(
            f"it is no URL ({error})", "name one such as https://example.com/hook"
        ) from error
    if not host or port == 0 or parts.scheme not in ("http", "https"):
        raise refuse("it is no URL of a web server", "name one such as https://example.com/hook")
    shown = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    if parts.username is not None or parts.password is not None:
        raise refuse("it has a user in it", "leave user and password out; requests are signed")
    if private:
        return shown
    if parts.scheme != "https":
        raise refuse(
            "its messages could be read on their way",
            "use https, or allow private=True (--private)",
        )
    try:
        is_allowed = is_public(host)
    except ValueError:
        is_allowed = host.rstrip(".").lower() != "localhost"
    if not is_allowed:
        raise refuse(
            "it is not a public address", "name a public one, or allow private=True (--private)"
        )
    return shown
