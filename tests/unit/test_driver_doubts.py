"""What drivers repeat, and what they only tell of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import MovedError

from qframe.drivers.redis_errors import translated
from qframe.drivers.sql import Database
from qframe.errors import AnswerLost, BadUrl, StoreUnavailable


class LostError(Exception):
    """What a driver raises when its connection is gone."""


def _tries(monkeypatch: pytest.MonkeyPatch, *, committing: bool, conflict: bool) -> tuple[int, Any]:
    """How often a transaction was tried that fails each time, and what is raised in the end."""
    database: Any = Database.__new__(Database)
    monkeypatch.setattr(database, "close", lambda: None)
    database.backend = SimpleNamespace(
        failures=(LostError,), is_conflict=lambda _: conflict, is_gone=lambda _: not conflict,
        translated=lambda error, *, unknown: (AnswerLost if unknown else StoreUnavailable)(
            "database", str(error)
        ),
    )  # fmt: skip
    monkeypatch.setattr("qframe.drivers.sql.CONFLICTS", 3)
    tries: list[str] = []

    def once(stage: Any) -> None:
        tries.append("")
        stage.connected, stage.committing = True, committing
        raise LostError("gone")

    with pytest.raises(StoreUnavailable) as raised:
        database._repeated(once)
    return len(tries), type(raised.value)


@pytest.mark.parametrize(
    ("committing", "conflict", "tries", "error"),
    [
        (False, False, 2, StoreUnavailable), (False, True, 4, StoreUnavailable),
        (True, False, 1, AnswerLost), (True, True, 1, AnswerLost),
    ],
)  # fmt: skip
def test_a_commit_of_which_nobody_knows_is_never_repeated(
    monkeypatch: pytest.MonkeyPatch, *, committing: bool, conflict: bool, tries: int, error: type
) -> None:
    assert _tries(monkeypatch, committing=committing, conflict=conflict) == (tries, error)


def test_a_slot_that_has_moved_is_elsewhere_in_a_cluster_and_a_wrong_url_without_one() -> None:
    moved = MovedError("3999 127.0.0.1:6381")
    assert isinstance(translated("redis+cluster://host", moved), StoreUnavailable)
    assert isinstance(translated("redis://host", moved), BadUrl)
