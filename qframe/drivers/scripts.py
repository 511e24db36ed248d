"""Lua scripts: a file for each atomic operation, its parts included, known by its digest."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

_INCLUDE: Final = re.compile(r"^ *--@include (.+)$", re.MULTILINE)


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
        text: the whole text, `--@include part part` lines replaced by those of `parts/`.
        digest: what EVALSHA calls it by.
    """

    __slots__ = ("digest", "name", "text")

    def __init__(self, folder: Traversable, name: str) -> None:
        def included(match: re.Match[str]) -> str:
            return "\n".join(_read(folder / "parts" / f"{part}.lua") for part in match[1].split())

        self.name: str = name
        self.text: str = _INCLUDE.sub(included, _read(folder / f"{name}.lua"))
        self.digest: str = sha1(self.text.encode()).hexdigest()  # noqa: S324 - it is what Redis uses

    def __repr__(self) -> str:
        return f"<Script {self.name}>"


@lru_cache
def script(package: str, name: str) -> Script:
    """The script `<name>.lua` of a package's folder `scripts`."""
    return Script(files(package) / "scripts", name)


def _read(file: Traversable) -> str:
    return file.read_text(encoding="utf-8")
