"""Reading the heads of the Redis store's scripts."""

from __future__ import annotations

import re
from pathlib import Path

import qframe.stores.redis

FOLDER = Path(qframe.stores.redis.__file__).parent / "scripts"
NAMES = sorted(path.stem for path in FOLDER.glob("*.lua"))
HEADINGS = ("Purpose: ", "KEYS", "ARGV", "Reply: ", "Cost: ", "Promise: ")
SIZES = {"two": 2, "three": 3, "four": 4, "five": 5}

NAMED = re.compile(r"\b(KEYS|ARGV)\[(\d+)\] ([a-z][a-z ]*[a-z])(?=[,;.:( ])")
BOUND = re.compile(r"^local ([\w, ]+?)\s*=\s*((?:[^-\n]|\n  )+)$", re.MULTILINE)
FROM = re.compile(r"(?:tonumber\()?(KEYS|ARGV)\[(\d+)\]\)?")

Word = tuple[str, int]


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.lua").read_text(encoding="utf-8")


def head_of(text: str) -> str:
    """The comment under the first line."""
    lines = text.splitlines()[1:]
    return "\n".join(lines[: next(n for n, line in enumerate(lines) if line[:2] != "--")])


def sections(head: str) -> list[str]:
    """The head's paragraphs, each in one line."""
    return re.sub(r"\n--   ", " ", head).removeprefix("-- ").split("\n-- ")


def named_in(head: str) -> dict[Word, str]:
    """What the head calls each key and argument, as a name in Lua."""
    found = NAMED.finditer(" ".join(part for part in sections(head) if part[:4] in HEADINGS))
    return {(one[1], int(one[2])): one[3].replace(" ", "_") for one in found}


def bound_in(code: str) -> dict[Word, str]:
    """What each key and argument is bound to in the first lines of code."""
    found: dict[Word, str] = {}
    for one in BOUND.finditer(code.split("--@include")[0]):
        sources = [FROM.fullmatch(source) for source in re.split(r",\s*", one[2].strip())]
        names = re.split(r",\s*", one[1])
        if len(names) != len(sources) or not all(sources):
            break
        for name, source in zip(names, sources, strict=True):
            assert source is not None
            found[source[1], int(source[2])] = name
    return found


def repeated_in(head: str) -> int:
    """How many arguments follow the fixed ones for each item; 0 where none do."""
    [arguments] = [part for part in sections(head) if part.startswith("ARGV")]
    if re.search(r"then the (members|slots)", arguments):
        return 1
    found = re.search(r"; then for each [\w ]+? (two|three|four|five):", arguments)
    return SIZES[found[1]] if found else 0
