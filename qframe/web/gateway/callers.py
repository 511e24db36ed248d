"""The callers of the gateway: their rights, and the limits of each.

Without a file of tokens only programs on this machine are let in, with all rights. With one a
caller is known by a bearer token, of which the file has the SHA-256 alone:

    [tokens.shop]
    hashes = ["9f86d0…"]             # several at once, while a token is replaced
    publish = ["orders", "web-*"]    # topics; "*" stands for any characters
    consume = ["orders/billing"]     # a topic, or one group of it
    admin = []                       # topics that it may declare
    rate = "500/s"                   # messages published, and requests to pull
    in_flight = 1000                 # deliveries in its hands
    max_request = 65536              # bytes of a request
    max_batch = 100                  # messages of a request

    [groups."orders/billing"]        # options of the group's pull
    max_attempts = 5

A token is 256 random bits, so a plain hash is enough: there is nothing to guess. The file is read
again when it has changed; one that is wrong then changes nothing.
"""

from __future__ import annotations

import hmac
import re
import secrets
import tomllib
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec
from starlette.requests import HTTPConnection

from qframe.app.pull import PullKeywords
from qframe.clock import Clock
from qframe.errors import BadOption, QFrameError
from qframe.events import Events
from qframe.options.consumer import consumer_options
from qframe.options.flow import RateLimit
from qframe.runtime.flow.token_bucket import LocalTokenBucket
from qframe.topic import checked_name, is_internal
from qframe.web.access import is_local, is_sent_by_page
from qframe.web.gateway.deliveries import Client

GatewayRight = Literal["publish", "consume", "admin"]
MOST_IN_FLIGHT: Final = 3000
_LOOK_S: Final = 1.0
_BEARER: Final = "send one as: Authorization: Bearer <token>"
_HASH = re.compile(r"[0-9a-f]{64}")
_GROUP_OPTIONS: Final = ("max_attempts", "backoff", "lease", "start", "serial", "max_in_flight",
                         "tags", "keep_order", "max_parked")  # fmt: skip


class TokenRule(msgspec.Struct, forbid_unknown_fields=True):
    """A caller in the file of tokens."""

    hashes: list[str]
    publish: list[str] = []
    consume: list[str] = []
    admin: list[str] = []
    rate: str | None = None
    in_flight: int = MOST_IN_FLIGHT
    max_request: int | None = None
    max_batch: int | None = None


class TokenFile(msgspec.Struct, forbid_unknown_fields=True):
    """The file of tokens."""

    tokens: dict[str, TokenRule]
    groups: dict[str, dict[str, Any]] = {}


class NotKnown(QFrameError):
    """Raised when nobody knows who calls."""


class NotPermitted(QFrameError):
    """Raised when a caller lacks the right to what it asks for."""

    def __init__(
        self, name: str, right: str, place: str, remedy: str = "use a token that has it"
    ) -> None:
        if is_internal(place):
            remedy = "no token has it, since this topic is qframe's own"
        super().__init__(f"{name} has no right to {right} {place!r}; {remedy}")


class TooMuch(QFrameError):
    """Raised when a caller asks for more than its limit allows.

    Attributes:
        again_s: when it is worth asking again.
    """

    def __init__(self, why: str, again_s: float) -> None:
        super().__init__(why)
        self.again_s = again_s


class Caller:
    """A program that calls, and how much of it is let through.

    Attributes:
        name: its name, for the audit.
        client: counts the deliveries in its hands.
    """

    def __init__(self, name: str, rule: TokenRule | None, clock: Clock) -> None:
        self.name = name
        self.client: Client = Client()
        self._clock = clock
        self._rule: TokenRule | None = None
        self._bucket: LocalTokenBucket | None = None
        if rule is not None:
            self.obey(rule)

    def obey(self, rule: TokenRule) -> None:
        """Gives it other rights and limits, which hold for what it has under way too."""
        if self._rule is None or self._rule.rate != rule.rate:
            limit = None if rule.rate is None else RateLimit(rule.rate)
            self._bucket = None if limit is None else LocalTokenBucket(limit, self._clock)
        self._rule, self.client.most = rule, rule.in_flight

    def require(self, right: GatewayRight, topic: str, group: str | None = None) -> None:
        """Checks that it has a right.

        Raises:
            NotPermitted: if it has not.
        """
        if not self.may(right, topic, group):
            raise NotPermitted(self.name, right, _place(topic, group))

    def may(self, right: GatewayRight, topic: str, group: str | None = None) -> bool:
        """Whether it has a right; nobody has one to a topic of qframe's own, such as the audit."""
        if is_internal(topic):
            return False
        if self._rule is None:
            return True
        names = topic, _place(topic, group)
        patterns = getattr(self._rule, right)
        return any(fnmatchcase(name, each) for each in patterns for name in names)

    def require_making(self, topic: str, group: str) -> None:
        """Checks that it may make a group: one that its `consume` names, or on its own topics.

        Raises:
            NotPermitted: if it may not.
        """
        if self._rule is None or self.names(topic, group) or self.may("admin", topic):
            return
        place = _place(topic, group)
        remedy = f'name it in consume = ["{place}"], or make it with a token that has admin'
        raise NotPermitted(self.name, "make", place, f"there is no such group; {remedy}")

    def names(self, topic: str, group: str) -> bool:
        """Whether its `consume` names a group itself, and not by a pattern."""
        return self._rule is not None and _place(topic, group) in self._rule.consume

    def most_bytes(self, most: int) -> int:
        """How many bytes a request of it may have, where the gateway allows so many."""
        own = None if self._rule is None else self._rule.max_request
        return most if own is None else min(most, own)

    def most_messages(self, most: int) -> int:
        """How many messages a request of it may have, where the gateway allows so many."""
        own = None if self._rule is None else self._rule.max_batch
        return most if own is None else min(most, own)

    def take(self, messages: int) -> None:
        """Counts messages against its rate.

        Raises:
            TooMuch: if they are too many for now.
        """
        again_s = self.wait_s(messages)
        if again_s:
            raise TooMuch("this token is at its rate; wait, or give it a higher rate=", again_s)

    def wait_s(self, messages: int) -> float:
        """0 if so many messages may pass now, else after how long to ask again."""
        return 0.0 if self._bucket is None else self._bucket.take(max(1, messages))

    def room(self, most: int) -> int:
        """How many deliveries it may be handed, at most `most`.

        Raises:
            TooMuch: if it has as many as it may.
        """
        if self.client.room < 1:
            client = self.client
            raise TooMuch(
                f"this token has {client.open} deliveries open, of {client.open_bytes} bytes, and "
                "may have no more; settle some, or give it a higher in_flight=", 1.0,
            )  # fmt: skip
        return self.most_messages(min(most, self.client.room))


class Callers:
    """Finds out who calls.

    Args:
        path: the file of tokens; None for a gateway that lets in this machine alone.
        clock: measures rates.
        events: hears of a file that has become wrong.

    Raises:
        BadOption: if the file is wrong.
    """

    def __init__(self, path: Path | None, *, clock: Clock, events: Events) -> None:
        self._path = path
        self._clock = clock
        self._events = events
        self._local = Caller("local", None, clock)
        self._known: list[tuple[bytes, Caller]] = []
        self.groups: dict[tuple[str, str], PullKeywords] = {}
        self._stamp = self._stamp_now()
        self._looked_s = clock.monotonic_s()
        if path is not None:
            self._read(path)

    def caller(self, connection: HTTPConnection) -> Caller:
        """The program that a request is from, by its bearer token.

        Raises:
            NotKnown: if nobody knows.
        """
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        return self.caller_of(connection, given.strip() if scheme.lower() == "bearer" else "")

    def caller_of(self, connection: HTTPConnection, token: str, *, remedy: str = _BEARER) -> Caller:
        """The program that a request with this token is from.

        Args:
            connection: the request's.
            token: the token; empty if there is none.
            remedy: how one is sent.

        Raises:
            NotKnown: if nobody knows.
        """
        if self._path is None:
            if is_local(connection) and not is_sent_by_page(connection):
                return self._local
            raise NotKnown(
                "this gateway has no tokens, and lets in programs of its own machine alone, "
                "neither through a proxy nor from a page; give it a file of tokens, or call "
                "127.0.0.1 itself"
            )
        self._look(self._path)
        digest = sha256(token.encode("utf-8", "replace")).digest()
        found: Caller | None = None
        for known, caller in self._known:  # all of them, so that the time tells nothing
            if hmac.compare_digest(known, digest):
                found = caller
        if found is None:
            raise NotKnown(f"the request has no token that this gateway knows; {remedy}")
        return found

    def _look(self, path: Path) -> None:
        """Reads the file again if it has changed."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._read(path)
        except BadOption as error:
            if self._events:
                self._events.emit("part.failed", part="gateway tokens", error=error)

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            stat = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_size)

    def _read(self, path: Path) -> None:
        file = read_token_file(path)
        groups = _groups(path, file)
        before = {caller.name: caller for _, caller in self._known}
        known: list[tuple[bytes, Caller]] = []
        for name, rule in file.tokens.items():
            caller = before.pop(name, None) or Caller(name, rule, self._clock)
            caller.obey(rule)
            known += [(bytes.fromhex(each), caller) for each in rule.hashes]
        for gone in before.values():
            gone.obey(TokenRule(hashes=[]))
        self._known, self.groups = known, groups


def _place(topic: str, group: str | None) -> str:
    return topic if group is None else f"{topic}/{group}"


def new_token() -> tuple[str, str]:
    """A token, and its hash for the file."""
    token = f"qf_{secrets.token_urlsafe(32)}"
    return token, sha256(token.encode()).hexdigest()


def read_token_file(path: Path) -> TokenFile:
    """The content of a file of tokens.

    Raises:
        BadOption: if it cannot be read, or is not as described.
    """
    remedy = "write it as the page on the gateway shows"
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), TokenFile)
    except OSError as error:
        raise BadOption("tokens", str(path), f"it cannot be read ({error.strerror})",
                        "name a file that this user may read") from error  # fmt: skip
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadOption("tokens", str(path), str(error), remedy) from error
    for name, rule in file.tokens.items():
        for each in rule.hashes:
            if not _HASH.fullmatch(each):
                raise BadOption(
                    "tokens", str(path), f"a hash of {name} is no SHA-256 in hexadecimal",
                    "make a token and its hash: qframe gateway --new-token",
                )  # fmt: skip
        if rule.rate is not None:
            RateLimit(rule.rate)
        for option, value, remedy in (
            ("in_flight", rule.in_flight, "use 1000"), ("max_batch", rule.max_batch, "use 500"),
            ("max_request", rule.max_request, "use 1048576"),
        ):  # fmt: skip
            if value is not None and value < 1:
                raise BadOption(option, value, f"{name} could ask for nothing", remedy)
    return file


def _groups(path: Path, file: TokenFile) -> dict[tuple[str, str], PullKeywords]:
    found = {}
    for place, options in file.groups.items():
        topic, slash, group = place.partition("/")
        if not slash:
            raise BadOption("groups", place, "it is no group", 'write it as "topic/group"')
        name = checked_name(topic, "topic"), checked_name(group, "group")
        if wrong := sorted(set(options) - set(_GROUP_OPTIONS)):
            raise BadOption(
                f"option of {place} in {path}", wrong[0], "a group of the gateway has none such",
                f"use some of {', '.join(_GROUP_OPTIONS)}",
            )  # fmt: skip
        consumer_options(auto_ack=False, **options)  # else it is refused to each client that pulls
        found[name] = cast("PullKeywords", options)
    return found
