"""Each promise of docs/guarantees.md is held by tests, on every store that it names."""

from __future__ import annotations

from pathlib import Path

import promises
import pytest
from programs import python


def test_every_promise_has_a_test_on_each_of_its_stores_and_the_page_lists_them(
    request: pytest.FixtureRequest,
) -> None:
    """The gate has some of them, and looks whether the page lists those."""
    config = request.config
    page = promises.PAGE.read_text(encoding="utf-8")
    holders, option = config.stash[promises.HELD], config.option
    if option.gate:
        assert promises.unlisted(page, holders) == [], "run `python tests/promises.py`"
        return
    whole = [Path(each).resolve() for each in config.args] == [promises.ROOT / "tests"]
    if not whole or option.keyword or option.markexpr or option.parts:
        done = python(promises.__file__, "--check")
        assert done.returncode == 0, done.stdout + done.stderr
        return
    assert promises.missing(holders) == []
    assert page == promises.written(page, holders), "run `python tests/promises.py`"


def test_a_promise_that_no_test_holds_on_a_store_is_found(request: pytest.FixtureRequest) -> None:
    on = frozenset((*promises.STORES, "ZooKeeper"))
    file = promises.ROOT / "tests" / "test_promises.py"
    holders = [promises.Held(number, file, "test", on) for number in promises.promises()]
    assert promises.missing(holders) == []
    holders[3] = holders[3]._replace(systems=on - {"MariaDB"})
    [fault] = promises.missing(holders)
    assert "promise 4" in fault
    assert "MariaDB" in fault
