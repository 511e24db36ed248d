"""The checker's scripts: each head tells what its code takes, and the checker gives just that."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_heads import HEADINGS, bound_in, head_of, named_in, sections

import qframe.idempotency
from qframe.idempotency.base import Claim, Scope
from qframe.idempotency.redis import call

FOLDER = Path(qframe.idempotency.__file__).parent / "scripts"
NAMES = sorted(path.stem for path in FOLDER.glob("*.lua"))
SCOPE = Scope("shop", "t", "g")


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.lua").read_text(encoding="utf-8")


def test_there_is_one_for_each_thing_that_is_done_to_claims() -> None:
    assert NAMES == ["claim", "finish", "release", "renew"]


@pytest.mark.parametrize("name", NAMES)
def test_a_head_says_what_its_code_does(name: str) -> None:
    text = text_of(name)
    # A server without room lets all of them through: a message that is claimed leaves it.
    assert text.splitlines()[0] == "#!lua flags=allow-oom"
    head = head_of(text)
    shown = [next((h for h in HEADINGS if part.startswith(h)), part) for part in sections(head)]
    assert shown == list(HEADINGS)
    assert named_in(head) == bound_in(text[text.index(head) + len(head) :])


@pytest.mark.parametrize("name", NAMES)
def test_the_checker_gives_what_the_head_names(name: str) -> None:
    fixed = sum(word == "ARGV" for word, _ in named_in(head_of(text_of(name))))
    claims = [Claim("a"), Claim("b")]
    made = call(name, SCOPE, 3, (400,)[:fixed], claims)
    assert made.key == b"qf:{shop:t:g:effects:3}:"
    assert list(made.arguments) == [
        *(400,)[:fixed], "a", claims[0].token, "b", claims[1].token,
    ]  # fmt: skip
