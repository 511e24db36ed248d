"""Effects that are missing, doubled or out of order are found; the table forbids none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger import Effect, disordered, effects, not_once, opened, prepare, read

pytestmark = pytest.mark.gate

EXPECTED = {"k-0", "k-1", "q-0"}


def rows(text: str) -> list[Effect]:
    """Effects in their order: each word is a key, `-`, and a number."""
    return [
        Effect(word, key, int(number))
        for word, (key, _, number) in ((word, word.partition("-")) for word in text.split())
    ]


def test_effects_that_are_there_once_and_in_order_pass() -> None:
    assert not_once(rows("k-0 q-0 k-1"), EXPECTED) == []
    assert disordered(rows("k-0 q-0 k-1")) == []


def test_an_effect_that_is_missing_or_there_twice_is_found() -> None:
    assert not_once(rows("k-0 q-0"), EXPECTED) == ["k-1 has no effect"]
    assert not_once(rows("k-0 q-0 k-1 k-0"), EXPECTED) == ["k-0 has 2 effects"]


def test_an_effect_behind_that_of_a_later_message_of_its_key_is_found() -> None:
    assert len(disordered(rows("k-1 q-0 k-0"))) == 1
    assert len(disordered(rows("k-0 k-2 q-0 k-1 k-3"))) == 1


def test_the_table_keeps_what_is_written_twice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'business.db'}"
    prepare(url)
    row = {"message": "k-0", "key": "k", "number": 0}
    with opened(url) as engine, engine.begin() as connection:
        connection.execute(effects.insert(), [row, row])
    assert read(url) == rows("k-0 k-0")
