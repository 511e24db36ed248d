"""Words of the search box, such as `topic:orders state:dead body.user.id:77`.

    topic:  group:  key:  id:  tag:  header.NAME:  error:  state:  body.PATH:

A word without a colon is an id or a key. A value with blanks stands in quotes. Nothing of it is
code: it only names what `app.admin.search` compares.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Final

from qframe.errors import BadOption

_PLAIN: Final = ("topic", "group", "key", "id", "tag", "error", "state")
_HELP: Final = f"use {', '.join(f'{each}:' for each in _PLAIN)}, header.NAME: or body.PATH:"


@dataclass
class Wanted:
    """The facts that somebody looks for.

    Attributes:
        facts: the plain facts by name: topic, group, key, id, tag, error, state.
        headers: headers by name; None for any value.
        body: values in the body, by path.
        word: what may be an id or a key.
    """

    facts: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str | None] = field(default_factory=dict)
    body: dict[str, str] = field(default_factory=dict)
    word: str | None = None

    @property
    def asks_inside(self) -> bool:
        """Whether it asks for more than plain facts."""
        return bool(self.headers or self.body or self.word)

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was asked for."""
        return not (self.facts or self.headers or self.body or self.word)

    def meanings(self) -> list[Wanted]:
        """It with its word as an id, and as a key; itself where it has no word."""
        if self.word is None:
            return [self]
        return [
            replace(self, word=None, facts={**self.facts, name: self.word})
            for name in ("id", "key")
            if name not in self.facts
        ]

    @property
    def text(self) -> str:
        """The words that mean the same."""
        named = [
            *self.facts.items(),
            *((f"header.{name}", value or "") for name, value in self.headers.items()),
            *((f"body.{path}", value) for path, value in self.body.items()),
        ]
        words = [
            f'{name}:"{value}"' if " " in value else f"{name}:{value}" for name, value in named
        ]
        return " ".join([*words, *([self.word] if self.word is not None else [])])


def wanted_of(text: str) -> Wanted:
    """Reads what was typed.

    Raises:
        BadOption: if a word is not as described.
    """
    wanted = Wanted()
    for word in _words(text):
        name, colon, value = word.partition(":")
        if not colon or not _is_name(name):
            if wanted.word is not None:
                raise BadOption("search", text, "it has two words without a name", _HELP)
            wanted.word = word
        elif name in _PLAIN:
            wanted.facts[name] = value
        elif name.startswith("header.") and len(name) > len("header."):
            wanted.headers[name.removeprefix("header.")] = value or None
        else:
            wanted.body[name.removeprefix("body.")] = value
    if wanted.word is not None and {"id", "key"} <= wanted.facts.keys():
        raise BadOption("search", text, "it has a word beside an id and a key", _HELP)
    return wanted


def _is_name(name: str) -> bool:
    return name in _PLAIN or name.startswith(("header.", "body."))


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.escape = ""
    lexer.quotes = '"'
    try:
        return list(lexer)
    except ValueError:
        raise BadOption(
            "search", text, "a quotation mark is not closed", 'write key:"two words"'
        ) from None
