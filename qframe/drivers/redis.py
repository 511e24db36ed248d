"""Redis: one server, the primary behind Sentinels, or a cluster. Nothing of queues.

Scripts and commands go many at a time: all that belong to one server in one write, to all servers
before the first reply is read. A reply that says that nothing was done (the script is not known,
the slot has moved, the server loads its data or has become a replica) is followed by another try,
for a few seconds. A reply that never came is not: only the caller knows whether to ask again.

While a cluster moves a slot from node to node, scripts for it wait: a script names one key of many,
so it would run on the new node, beside the keys that are still on the old one, and begin them anew.
The name that it gives is a prefix and never a key that exists, so the old node refuses every script
from the first moment of the move to the last, and none meets half of its keys.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from threading import Event
from typing import Any, Final, NamedTuple

from hiredis import pack_command
from redis.exceptions import AskError, MovedError, NoScriptError, OutOfMemoryError

from qframe.clock import SYSTEM_CLOCK
from qframe.drivers.redis_connections import FAILURES, Node, NoReply, Sending, Wire, numbered
from qframe.drivers.redis_errors import AGAIN, AGAIN_TEXTS, refusal_of, translated
from qframe.drivers.redis_servers import check_files, replicas_of, servers_of
from qframe.drivers.scripts import Refused, Script, is_refusal
from qframe.errors import AnswerLost, BadUrl, StoreDamaged, StoreForbidden, StoreUnavailable
from qframe.forks import Forks

PATIENCE_S: Final = 5.0
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5


class Call(NamedTuple):
    """A script with its one key and its arguments."""

    script: Script
    key: bytes
    arguments: Sequence[bytes | str | int]

    def packed(self, known: bool) -> bytes:
        """As sent to a server that knows the script, or to one that does not."""
        by, name = ("EVALSHA", self.script.digest) if known else ("EVAL", self.script.text)
        return _pack(by, name, 1, self.key, *self.arguments)


class Command(NamedTuple):
    """A plain command about one key."""

    key: bytes
    words: tuple[bytes | str | int, ...]

    def packed(self, known: bool) -> bytes:  # noqa: ARG002 - a command is always known
        """As sent to a server."""
        return _pack(*self.words)


Request = Call | Command


class Missing(NamedTuple):
    """In place of a reply that did not come, where others will do.

    `lost`: whether what was asked may have been done. `fault`: why it never can be, if so.
    """

    lost: bool
    fault: str | None = None


def _pack(*words: Any) -> bytes:
    # While hiredis writes a number, signals are handled; if a handler raises, it reads address 0.
    plain: list[Any] = [str(word) if isinstance(word, int) else word for word in words]
    packed: bytes = pack_command(tuple(plain))
    return packed


class _Again(NamedTuple):
    """In place of a reply that says that nothing was done yet.

    `waits`: whether the next try has to wait, since the server cannot do it now.
    """

    why: BaseException
    waits: bool


class Redis:
    """Requests to a server, a primary behind Sentinels, or a cluster (then it is not `is_one`).

    Args:
        url: `redis://host:port/db`, `rediss://` for TLS, `redis+sentinel://host:port,…/name`,
            `redis+cluster://host:port,…`, `unix:///path`; with `user:password@` where needed.
            Options after `?` are redis-py's, such as `socket_timeout=5` or `ssl_ca_certs=…`;
            `wait_replicas=1` is for `await_replicas`.

    Attributes:
        replicas: the replicas to be waited for; None if nobody asks for any.

    Raises:
        BadUrl: if the URL cannot be used.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._servers, self.shown = servers_of(url)
        check_files(url, self.shown)
        self.replicas = replicas_of(url, self.shown)
        self.is_one: bool = self._servers.is_one
        self._pause = Event()
        Forks.add(self._begin_anew)

    def run(self, requests: Iterable[Request], *, partly: bool = False) -> list[Any]:
        """The replies, in order; those that one server gets are done by it in order.

        Args:
            requests: what to ask; while some are still being made, the first are on their way.
            partly: whether some replies will do, for a caller who asks again: nobody waits then
                for a server that cannot answer now, and what is `Missing` stands in place of its
                replies; it is raised only if all are.

        Raises:
            StoreUnavailable: if nothing was done.
            AnswerLost: if it is unknown what was done, or only a part of it was.
            StoreFull: if there was no room for any of it.
            Refused: if scripts have refused some, and all others were answered.
        """
        return self._judged(self._replies_to(requests, partly=partly), partly=partly)

    def _replies_to(self, requests: Iterable[Request], *, partly: bool) -> list[Any]:
        """The replies of `run`, whatever has come in place of some."""
        replies: list[Any] = []
        made: list[Request] = []
        unknown: set[int] = set()
        ask: dict[int, AskError] = {}
        fresh = numbered(requests, made, replies)
        until_s, pause_s = SYSTEM_CLOCK.monotonic_s() + PATIENCE_S, FIRST_PAUSE_S
        while True:
            pauses, moved = self._round(fresh, unknown, ask, replies)
            open_ = [
                number for number, reply in enumerate(replies)
                if type(reply) is _Again and not (partly and reply.waits)
            ]  # fmt: skip
            fresh = iter([(number, made[number]) for number in open_])
            # A script that was not known goes again with its text, however late it is.
            is_late = (pauses or moved) and SYSTEM_CLOCK.monotonic_s() >= until_s
            if pauses and not (is_late or partly):
                self._pause.wait(pause_s * random.uniform(0.5, 1))  # noqa: S311 - jitter
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
            if moved and not is_late:
                with suppress(*FAILURES):
                    self._servers.look_again()
            if is_late or not open_:
                return replies

    def one(self, request: Request, *, partly: bool = False) -> Any:
        """The reply to one request: what `run` does, in the shortest way."""
        return self.few((request,), partly=partly)[0]

    def few(self, requests: Sequence[Request], *, partly: bool = False) -> list[Any]:
        """The replies to requests about one slot: what `run` does, in the shortest way."""
        try:
            sending = self._servers.node_of(requests[0].key).begin()
        except FAILURES:
            return self.run(requests, partly=partly)
        with sending:
            for number, request in enumerate(requests):
                sending.add(number, request.packed(True))
            replies = sending.replies()
        for number, reply in enumerate(replies):
            if isinstance(reply, Exception) and self._is_undone(reply):
                [replies[number]] = self._replies_to((requests[number],), partly=partly)
        return self._judged(replies, partly=partly)

    def ask(self, key: bytes, *words: bytes | str | int) -> Any:
        """The reply to one plain command about a key; raises what `run` raises."""
        return self.ask_many([(key, *words)])[0]

    def ask_many(self, questions: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies to plain commands, each given as key, command, arguments."""
        return self.run([Command(key, (word, key, *rest)) for key, word, *rest in questions])

    def time(self, key: bytes) -> tuple[int, int]:
        """Seconds and microseconds since 1970, by the clock of the server that has a key."""
        seconds, micros = map(int, self.one(Command(key, ("TIME",))))
        return seconds, micros

    def await_replicas(self, keys: Iterable[bytes]) -> None:
        """Waits until replicas have all that was written to the servers of some keys, if asked to.

        WAIT looks at what its own connection has written, and a repetition may have written
        nothing. So a key that lasts for a millisecond is written before it.

        Raises:
            AnswerLost: if too few have it in time, or that cannot be known.
        """
        if self.replicas is None:
            return
        needed, within_ms = self.replicas
        try:
            nodes = {self._servers.node_of(key): key + b"replicas" for key in keys}
            with ExitStack() as begun:
                sendings = []
                for node, key in nodes.items():
                    sending = begun.enter_context(node.begin())
                    sending.add(0, _pack("SET", key, "", "PX", 1))
                    sending.add(1, _pack("WAIT", needed, within_ms))
                    sending.flush()
                    sendings.append(sending)
                answered = [sending.replies() for sending in sendings]
        except FAILURES as error:
            raise AnswerLost(self.shown, str(error)) from error
        for reply in chain.from_iterable(answered):
            if _is_failed(reply):
                why = reply if isinstance(reply, Exception) else reply.why
                raise AnswerLost(self.shown, str(why), **refusal_of(self.shown, why)) from why
        if (found := min(answer[1] for answer in answered)) < needed:
            raise AnswerLost(
                self.shown, f"{found} of {needed} replicas had it within {within_ms} ms",
                what="does not know that it is kept",
                remedy="see that replicas are connected, or wait for longer (wait_timeout=)",
            )  # fmt: skip

    @property
    def breaks(self) -> int:
        """How often connections were broken or let go: a server may have come back with less."""
        return self._servers.breaks

    def reconnect(self) -> None:
        """Closes what is open and finds servers anew."""
        with suppress(*FAILURES):
            self._servers.look_again()

    def check(self, check: Callable[[dict[str, Any]], None]) -> None:
        """Calls `check` with what each server tells of itself.

        Nodes of a cluster that cannot be reached keep nobody from the others.

        Raises:
            StoreUnavailable: if none can be reached.
            StoreForbidden: if one refuses the name or the password.
            BadUrl: if one refuses the database, or the options.
        """
        try:
            servers = self._servers.all()
        except FAILURES as error:
            raise translated(self.shown, error) from error
        away = 0
        for server in servers:
            try:
                facts = server.info("everything")
            except FAILURES as error:
                fault = translated(self.shown, error)
                if isinstance(fault, StoreDamaged):  # no key was asked for: it refused the client
                    remedy = "check the database and the options of the URL"
                    fault = BadUrl("store", self.shown, f"it refuses access ({error})", remedy)
                away += 1
                if type(fault) is not StoreUnavailable or away == len(servers):
                    raise fault from error
            else:
                check(facts)

    def listener(self) -> Wire:
        """A connection of its own, to subscribe with; on a cluster any server hears all channels.

        Which one is chance, so that who tries again is not bound to one that is gone.

        Raises:
            StoreUnavailable: if there is none to be had.
        """
        try:
            server = random.choice(self._servers.all())  # noqa: S311 - no secret
            pool = server.connection_pool
            # Not the pool's: it counts all that it makes for good, and bells come and go.
            connection = pool.connection_class(**pool.connection_kwargs)
            connection.connect()
        except FAILURES as error:
            raise translated(self.shown, error) from error
        return Wire(connection)

    def close(self) -> None:
        """Closes all connections."""
        self._servers.close()

    def _begin_anew(self) -> None:
        """Has connections of its own in the child of a fork."""
        Forks.keep(self._servers)
        self._servers, _ = servers_of(self._url)
        self._pause = Event()

    def _round(
        self,
        requests: Iterable[tuple[int, Request]],
        unknown: set[int],
        ask: dict[int, AskError],
        replies: list[Any],
    ) -> tuple[bool, bool]:
        """Sends all that is open, and reads; returns whether to pause and to look again."""
        pauses = moved = False
        sendings: dict[Node, Sending] = {}
        calls: set[int] = set()
        with ExitStack() as begun:
            for number, request in requests:
                redirected = ask.pop(number, None)
                try:
                    if redirected is not None:
                        node = self._servers.asked(redirected)
                    else:
                        node = self._servers.node_of(request.key)
                    sending = sendings.get(node)
                    if sending is None:
                        sending = sendings[node] = begun.enter_context(node.begin())
                except FAILURES as error:
                    replies[number] = _Again(error, waits=True)
                    pauses = moved = True
                    continue
                if redirected is not None:
                    sending.add(-1, _pack("ASKING"))
                sending.add(number, request.packed(number not in unknown))
                if isinstance(request, Call):
                    calls.add(number)
            for sending in sendings.values():
                sending.flush()
            answered = [
                answer for sending in sendings.values()
                for answer in zip(sending.numbers, sending.replies(), strict=True)
            ]  # fmt: skip
        for number, reply in answered:
            if number < 0:
                continue
            replies[number] = reply
            if not (isinstance(reply, Exception) and self._is_undone(reply)):
                continue
            waits = False
            if isinstance(reply, NoScriptError):
                unknown.add(number)
            elif isinstance(reply, MovedError):
                moved = True
            elif isinstance(reply, AskError) and number not in calls:
                ask[number] = reply
            elif isinstance(reply, AskError):
                # Half of a script's keys are there and half are here: it waits until they
                # are together again. A command has one key, and that is where it says.
                waits = pauses = True
            else:
                waits = moved = pauses = True
            replies[number] = _Again(reply, waits)
        return pauses, moved

    @staticmethod
    def _is_undone(reply: Exception) -> bool:
        """Whether an error says that nothing was done, and may be done later or elsewhere."""
        kinds = (NoScriptError, AskError, *AGAIN)
        return isinstance(reply, kinds) or str(reply).startswith(AGAIN_TEXTS)

    def _judged(self, replies: list[Any], *, partly: bool = False) -> list[Any]:
        """The replies, if all came or some will do; else the one error that tells what is known."""
        failed = [reply for reply in replies if _is_failed(reply)]
        if not failed:
            return replies
        if any(map(is_refusal, failed)):
            answered = [None if is_refusal(reply) else reply for reply in replies]
            raise Refused(self._judged(answered, partly=partly))
        some_will_do = partly and len(failed) < len(replies)
        for reply in failed:
            if isinstance(reply, Exception) and not isinstance(reply, OutOfMemoryError):
                fault = translated(self.shown, reply)
                if isinstance(fault, StoreForbidden) and len(failed) < len(replies):
                    # A right was taken away while the others were done.
                    what = "has refused its user a part"
                    raise AnswerLost(
                        self.shown, fault.why, what=what, remedy=fault.remedy
                    ) from reply
                if not (some_will_do and isinstance(fault, StoreDamaged)):
                    raise fault from reply
        is_full = any(isinstance(reply, OutOfMemoryError) for reply in failed)
        if some_will_do and not is_full:
            return [self._missing(reply) if _is_failed(reply) else reply for reply in replies]
        why = failed[0] if isinstance(failed[0], Exception) else failed[0].why
        if len(failed) < len(replies) or any(type(reply) is NoReply for reply in failed):
            text = str(why) or type(why).__name__
            raise AnswerLost(self.shown, text, **refusal_of(self.shown, why)) from why
        raise translated(self.shown, why) from why

    def _missing(self, reply: Any) -> Missing:
        fault = str(translated(self.shown, reply)) if isinstance(reply, Exception) else None
        return Missing(type(reply) is not _Again, fault)


def _is_failed(reply: Any) -> bool:
    return isinstance(reply, Exception) or type(reply) is NoReply or type(reply) is _Again
