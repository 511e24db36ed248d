"""Asking a server to run each script with one of its commands refused, before it is run in earnest.

What is refused must have changed nothing; what is not needed there is undone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from servers import RedisServer

from qframe.drivers.redis import Call
from qframe.drivers.scripts import Script

COMMAND = re.compile(r"'([A-Z]{3,})'")
USER = "shop"
MEMORY = "memory"

Snapshot = dict[bytes, bytes]


class Refusing:
    """A server with a user of whom single rights are taken while scripts are tried.

    Of each test the first call of each script is tried, and the second, the fourth, the eighth and
    so on: late ones find much in their slot.

    Args:
        server: the server.

    Attributes:
        url: the server's, for the user.
        admin: a client that may all.
        refused: how often each script was refused for the lack of each command.
        went: how often it was not, since it did nothing there that needs the command.
    """

    def __init__(self, server: RedisServer) -> None:
        self.url = f"redis://{USER}:secret@127.0.0.1:{server.port}"
        self.refused: Counter[tuple[str, str]] = Counter()
        self.went: Counter[tuple[str, str]] = Counter()
        self.admin: redis.Redis = server.client()
        self.admin.execute_command(
            "ACL", "SETUSER", USER, "on", ">secret", "~qf:*", "&qf:bell:*", "+@all"
        )
        self._user = redis.Redis.from_url(self.url)
        self._known = {name.upper() for name in self.admin.command()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Tries what is called from here on."""
        packed, calls = Call.packed, Counter[str]()

        def tried(call: Call, known: bool) -> bytes:
            calls[call.script.name] += 1
            number = calls[call.script.name]
            if known and number & (number - 1) == 0:
                self._try(call)
            return packed(call, known)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Call, "packed", tried)
            yield

    def close(self) -> None:
        """Closes the connections."""
        self.admin.close()
        self._user.close()

    def commands_of(self, script: Script) -> list[str]:
        """The commands that stand in a script."""
        return sorted(set(COMMAND.findall(script.text)) & self._known)

    def _try(self, call: Call) -> None:
        digest = self.admin.execute_command("SCRIPT", "LOAD", call.script.text)
        before = self._digests(call.key), self._dumps(call.key)
        for command in self.commands_of(call.script):
            self.admin.execute_command("ACL", "SETUSER", USER, f"-{command}")
            try:
                self._try_one(call, digest, command, before)
            finally:
                self.admin.execute_command("ACL", "SETUSER", USER, f"+{command}")
        self.admin.config_set("maxmemory", 1)
        try:
            self._try_one(call, digest, MEMORY, before)
        finally:
            self.admin.config_set("maxmemory", 0)

    def _try_one(
        self, call: Call, digest: bytes, command: str, before: tuple[Snapshot, Snapshot]
    ) -> None:
        digests, dumps = before
        error: redis.ResponseError | None = None
        try:
            self._user.execute_command("EVALSHA", digest, 1, call.key, *call.arguments)
        except redis.ResponseError as refusal:
            error = refusal
        if error is None:
            self.went[call.script.name, command] += 1
            self.admin.config_set("maxmemory", 0)
            self._restore(call.key, dumps)
            return
        self.refused[call.script.name, command] += 1
        after = self._digests(call.key)
        changed = {key for key in digests.keys() | after if digests.get(key) != after.get(key)}
        assert not changed, f"{call.script.name} without {command} ({error}): {changed}"

    def _digests(self, prefix: bytes) -> Snapshot:
        """What each key has, whatever order a hash has it in."""
        keys = self.admin.keys(prefix + b"*")
        found = self.admin.execute_command("DEBUG", "DIGEST-VALUE", *keys) if keys else []
        return dict(zip(keys, found, strict=True))

    def _dumps(self, prefix: bytes) -> Snapshot:
        keys = self.admin.keys(prefix + b"*")
        with self.admin.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.dump(key)
            return dict(zip(keys, pipe.execute(), strict=True))

    def _restore(self, prefix: bytes, before: Snapshot) -> None:
        with self.admin.pipeline(transaction=False) as pipe:
            for key in self.admin.keys(prefix + b"*"):
                pipe.delete(key)
            for key, value in before.items():
                pipe.restore(key, 0, value)
            pipe.execute()
