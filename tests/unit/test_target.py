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


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (UnknownTopic("nights", ["flights"]), "q.db, namespace qframe; did you mean 'flights'"),
        (UnknownTopic("order"), "did you mean 'orders'"),
    ],
    ids=["named by the error", "read"],
)
def test_an_unknown_topic_has_a_hint_and_the_place(
    target: Target, error: UnknownTopic, hint: str
) -> None:
    with target.opened(creating=True) as app:
        app.declare(Topic("orders"))
    with pytest.raises(UnknownTopic) as raised, target.opened():
        raise error
    assert hint in str(raised.value)
