"""Where a command works, and what it says of a topic that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from qframe import Topic
from qframe.cli.target import Target
from qframe.errors import UnknownTopic


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QFRAME_STORE", "")
    return Target(store=f"sqlite:///{tmp_path / 'q.db'}")


def told_of(target: Target, error: UnknownTopic) -> str:
    with target.opened(creating=True) as app:
        app.declare(Topic("orders"))
    with pytest.raises(UnknownTopic) as raised, target.opened():
        raise error
    return str(raised.value)


def test_topics_that_an_error_names_already_are_not_read_again(target: Target) -> None:
    told = told_of(target, UnknownTopic("nights", ["flights"]))
    assert "q.db, namespace qframe; did you mean 'flights'" in told


def test_topics_that_an_error_does_not_name_are_read_for_the_hint(target: Target) -> None:
    assert "did you mean 'orders'" in told_of(target, UnknownTopic("order"))
