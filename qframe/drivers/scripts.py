"""Lua scripts: a file for each atomic operation, its parts included, known by its digest.

A script is not undone where one of its commands is refused: what it has written by then stays. So
each asks for the rights to all its commands before it writes, and is refused whole. `Script` puts
the lines that ask under its head, unless its first line says that it only reads (`no-writes`).
Where that would be too slow or too strict, a script asks by lines of its own: `--@may XADD ZADD`
for what this way through it runs after its first write, `--@may` for all. Each command is asked for
with a key that no pattern of keys allows but one for the whole slot, or with the one that stands
behind it: `ZADD(group.todo)`. The server's other refusals (no memory, a replica, a full disk, too
few replicas) come at a script's first write or not at all; and SCRIPT KILL ends none that has
written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from textwrap import indent
from typing import Any, Final

_INCLUDE: Final = re.compile(r"^ *--@include (.+)$", re.MULTILINE)
_HEAD: Final = re.compile(r"\A#!lua.*\n(--.*\n)*")
_COMMAND: Final = re.compile(r"(?:redis\.call|call_many|read_many)\('([A-Z]+)'")
_ASKS: Final = re.compile(r"^( *)--@may(.*)$", re.MULTILINE)
_ASKED: Final = re.compile(r"([A-Z]+)(?:\((.+?)\))?")
_KEYS: Final = {
    "COPY": "any, any", "PUBLISH": "'qf:bell:' .. string.match(KEYS[1], '{(.*):')",
    "RENAME": "any, any",
}  # fmt: skip
_REFUSAL: Final = "CLOSED"


class Refused(Exception):
    """Raised when scripts have refused what was asked, and have changed nothing.

    Attributes:
        replies: the replies to all requests, None where one was refused.
    """

    def __init__(self, replies: list[Any]) -> None:
        super().__init__("scripts have refused what was asked")
        self.replies: list[Any] = replies


def is_refusal(reply: Any) -> bool:
    """Whether a reply is the error by which a script refuses."""
    return isinstance(reply, Exception) and str(reply).startswith(_REFUSAL)


class Script:
    """A script as servers run it.

    Attributes:
        name: the file's name without its ending.
        text: the whole text, `--@include part part` lines replaced by those of `parts/`, and
            `--@may` lines by those that ask for rights.
        digest: what EVALSHA calls it by.
    """

    __slots__ = ("digest", "name", "text")

    def __init__(self, folder: Traversable, name: str) -> None:
        def included(match: re.Match[str]) -> str:
            return "\n".join(_read(folder / "parts" / f"{part}.lua") for part in match[1].split())

        def asking(match: re.Match[str]) -> str:
            return indent(_asking(_ASKED.findall(match[2]) or every), match[1])

        self.name: str = name
        text = _INCLUDE.sub(included, _read(folder / f"{name}.lua"))
        every = [(command, "") for command in sorted(set(_COMMAND.findall(text)))]
        if not _ASKS.search(text) and "no-writes" not in text.partition("\n")[0]:
            text = _HEAD.sub(r"\g<0>--@may\n", text)
        self.text: str = _ASKS.sub(asking, text)
        self.digest: str = sha1(self.text.encode()).hexdigest()  # noqa: S324 - it is what Redis uses

    def __repr__(self) -> str:
        return f"<Script {self.name}>"


@lru_cache
def script(package: str, name: str) -> Script:
    """The script `<name>.lua` of a package's folder `scripts`."""
    return Script(files(package) / "scripts", name)


def _asking(asked: Sequence[tuple[str, str]]) -> str:
    """The lines that refuse a user who may not run some command on a key, or on any of the slot."""
    allowed = {}
    for command, key in asked:
        on = key or _KEYS.get(command, "any")
        allowed[f"may('{command}', {on})"] = command
    lacks = [f"not {each} and '{command}'" for each, command in allowed.items()]
    return "\n".join((
        "do",
        "  local any, may = KEYS[1] .. '*', redis.acl_check_cmd",
        f"  if not ({' and '.join(allowed)}) then",
        f"    local lacking = {' or '.join(lacks)}",
        "    return redis.error_reply('NOPERM this user may not run ' .. lacking)",
        "  end",
        "end",
    ))  # fmt: skip


def _read(file: Traversable) -> str:
    return file.read_text(encoding="utf-8")
