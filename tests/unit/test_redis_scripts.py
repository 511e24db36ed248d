"""The Redis store's scripts: each head tells what its code takes, and the store gives just that."""

from __future__ import annotations

import re

import pytest
from script_heads import (
    FOLDER,
    FROM,
    HEADINGS,
    NAMES,
    bound_in,
    head_of,
    named_in,
    repeated_in,
    sections,
    text_of,
)

from qframe.drivers.scripts import Script
from qframe.stores.redis import (
    reading,
)
from qframe.stores.redis.envelopes import META

PARTS = sorted(path.stem for path in (FOLDER / "parts").glob("*.lua"))
MAY_NOT_FILL = {"publish_stream", "publish_subjects", "edit", "restore"}
READS = {"history", "list_documents", "look"}
MAX_LINES, MAX_WIDTH = 200, 100
INCLUDE = re.compile(r"^ *--@include (.+)$", re.MULTILINE)
DEFINED = re.compile(r"^local (?:function )?([\w, ]+?)(?:\(| =)", re.MULTILINE)


def faults(name: str, text: str) -> list[str]:
    """What is wrong with a script, in sentences."""
    wrong = []
    flag = "" if name in MAY_NOT_FILL else "no-writes" if name in READS else "allow-oom"
    first = f"#!lua flags={flag}" if flag else "#!lua"
    if text.splitlines()[0] != first:
        wrong.append(f"its first line is not {first}")
    head = head_of(text)
    code = text[text.index(head) + len(head) :]
    shown = [next((h for h in HEADINGS if part.startswith(h)), part) for part in sections(head)]
    if shown != list(HEADINGS):
        wrong.append(f"its head has {shown}")
    named, bound = named_in(head), bound_in(code)
    if named != bound:
        wrong.append(f"the head names {named}, the code binds {bound}")
    if {index for word, index in named if word == "ARGV"} != set(range(1, len(named))):
        wrong.append(f"the head numbers {named}")
    fixed = sum(word == "ARGV" for word, _ in bound)
    for word, index in FROM.findall(code):
        is_item = word == "ARGV" and int(index) > fixed and repeated_in(head)
        if code.count(f"{word}[{index}]") != 1 and not is_item:
            wrong.append(f"the code uses {word}[{index}] by its number")
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        wrong.append(f"it has {len(lines)} lines")
    wrong += [f"line {n} is too long" for n, line in enumerate(lines, 1) if len(line) > MAX_WIDTH]
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_head_says_what_its_code_does(name: str) -> None:
    assert faults(name, text_of(name)) == []


def test_parts_are_there_and_all_of_them_are_used() -> None:
    included = [part for name in NAMES for found in INCLUDE.findall(text_of(name))
                for part in found.split()]  # fmt: skip
    assert sorted(set(included)) == PARTS


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_short_and_says_what_it_is(part: str) -> None:
    text = (FOLDER / "parts" / f"{part}.lua").read_text(encoding="utf-8")
    assert text.startswith("-- ")
    assert len(text.splitlines()) <= MAX_LINES
    assert max(map(len, text.splitlines())) <= MAX_WIDTH
    assert "--@include" not in text
    assert "KEYS[" not in text
    assert "ARGV[" not in text


@pytest.mark.parametrize("name", NAMES)
def test_a_script_includes_what_it_uses_and_nothing_else(name: str) -> None:
    """Parts include no parts: a script names all that it and they use, in their order."""
    text = text_of(name)
    for line in INCLUDE.finditer(text):
        below = re.sub(r"--.*", "", text[line.end() :])
        for part in reversed(line[1].split()):
            added = (FOLDER / "parts" / f"{part}.lua").read_text(encoding="utf-8")
            words = {word for found in DEFINED.findall(added) for word in found.split(", ")}
            assert words & set(re.findall(r"\w+", below)), f"{part} is not used"
            below += re.sub(r"--.*", "", added)


def test_a_script_is_its_text_with_its_parts() -> None:
    one = Script(FOLDER, "take")
    assert "--@include" not in one.text
    assert one.text.startswith("#!lua flags=allow-oom\n-- Purpose: takes a slot")
    assert "local function lose_window" in one.text


def test_a_head_in_python_is_a_head_in_lua() -> None:
    """The binary formats that both sides name are the same."""
    assert META.size == 28
    text = (FOLDER / "parts" / "head.lua").read_text(encoding="utf-8")
    assert "local META, META_SIZE = '>I8I8i4I8', 28" in text
    assert "local STATE, STATE_SIZE = '>I8I4I4I2I1', 19" in text
    text = (FOLDER / "parts" / "answer.lua").read_text(encoding="utf-8")
    assert "struct.pack('>I4c16I8I8I2I2I4', number," in text
    assert reading._LATE.format == ">I16sQQHHI"
