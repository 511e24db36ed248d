"""What `app.run()` says on stderr: failures, and nothing that somebody else hears already."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qframe import Message, QFrame, Topic

ORDERS = Topic("orders", slots=1)


def app_of(url: str, **options: Any) -> QFrame:
    app = QFrame(store=url, **options)

    @app.consumer(ORDERS, group="billing", max_attempts=1)
    def bill(message: Message) -> None:
        if message.body == "bad":
            raise ValueError("card 4711 declined")

    return app


@pytest.fixture
def url(tmp_path: Any) -> str:
    return f"sqlite:///{tmp_path / 'q.db'}"


def events_of(said: str) -> list[str]:
    return [json.loads(line)["event"] for line in said.splitlines()]


def test_a_handler_that_fails_is_told_without_anybody_asking(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with app_of(url) as app:
        app.publish_many(ORDERS, ["good", "bad"])
        app.run(burst=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert events_of(said.err) == ["delivery.dead"]
    assert "ValueError" in said.err
    assert "test_run_log.py:" in said.err
    assert "4711" not in said.err


def test_where_nothing_fails_nothing_is_said(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with app_of(url) as app:
        app.publish(ORDERS, "good")
        app.run(burst=True)
    assert capsys.readouterr().err == ""


def test_a_process_without_a_stderr_runs_without_a_log(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)  # as Python sets it where the descriptor is closed
    with app_of(url) as app:
        app.publish_many(ORDERS, ["good", "bad"])
        app.run(burst=True)
        assert len(app.admin.dead(ORDERS, "billing")) == 1


def test_a_log_level_that_is_set_counts(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with app_of(url, log_level="info") as app:
        app.run(burst=True)
    said = capsys.readouterr().err
    assert events_of(said)[0] == "worker.started"
    started = json.loads(said.splitlines()[0])
    assert (started["store"], "namespace" in started) == (url, False)
    with app_of(url, log_level="info", namespace="shop") as app:
        app.run(burst=True)
    assert json.loads(capsys.readouterr().err.splitlines()[0])["namespace"] == "shop"


def test_who_listens_to_the_events_has_the_log_to_himself(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = []
    with app_of(url) as app:
        app.events.listen(lambda name, _facts: heard.append(name))
        app.publish(ORDERS, "bad")
        app.run(burst=True)
    assert "delivery.dead" in heard
    assert capsys.readouterr().err == ""
