"""Where a command works, and what it says of a topic that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from qframe import Topic
from qframe.cli.place import Place
from qframe.errors import UnknownTopic


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QFRAME_STORE", "")
    return Place(store=f"sqlite:///{tmp_path / 'q.db'}")


def told_of(place: Place, error: UnknownTopic) -> str:
    with place.opened(creating=True) as app:
        app.declare(Topic("orders"))
    with pytest.raises(UnknownTopic) as raised, place.opened():
        raise error
    return str(raised.value)


def test_topics_that_an_error_names_already_are_not_read_again(place: Place) -> None:
    told = told_of(place, UnknownTopic("nights", ["flights"]))
    assert "q.db, namespace qframe; did you mean 'flights'" in told


def test_topics_that_an_error_does_not_name_are_read_for_the_hint(place: Place) -> None:
    assert "did you mean 'orders'" in told_of(place, UnknownTopic("order"))
