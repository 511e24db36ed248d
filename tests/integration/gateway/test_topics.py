"""Topics that are declared over HTTP: `PUT /v1/topics/{topic}`."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from qframe import QFrame, Topic

JOBS: dict[str, Any] = {"kind": "delay", "slots": 2}


def put(web: TestClient, **asked: Any) -> None:
    reply = web.put("/v1/topics/jobs", json={**JOBS, **asked})
    assert reply.status_code == 200, reply.text


def options(app: QFrame) -> tuple[Any, ...]:
    found = app.store.topic("jobs")
    assert found is not None
    return (
        found.retain_ms, found.max_length, found.dedupe_window_ms, found.gap_timeout_ms,
        found.subject, found.history_ms,
    )  # fmt: skip


def test_a_client_that_declares_a_topic_changes_none_of_the_options_that_it_does_not_name(
    events_app: QFrame, web: TestClient
) -> None:
    """Some of them it could not even name."""
    events_app.declare(Topic(
        "jobs", **JOBS, retain="7d", max_length=900, dedupe_window="1500ms", gap_timeout="5m",
        subject="body", history="2d",
    ))  # fmt: skip
    declared = options(events_app)
    put(web)
    assert options(events_app) == declared
    put(web, retain="1h", dedupe_window=7, max_length=None)
    assert options(events_app) == (3_600_000, None, 7000, *declared[3:])


def test_a_topic_that_is_new_has_the_defaults_for_what_is_not_named(
    events_app: QFrame, web: TestClient
) -> None:
    put(web, max_length=5)
    assert events_app.store.topic("jobs") == Topic("jobs", **JOBS, max_length=5)


@pytest.mark.parametrize("wrong", [{"kind": "stream"}, {"slots": 1}])
def test_a_topic_that_is_there_keeps_its_kind_and_its_slots(
    events_app: QFrame, web: TestClient, wrong: dict[str, Any]
) -> None:
    events_app.declare(Topic("jobs", **JOBS, subject="body"))
    reply = web.put("/v1/topics/jobs", json={**JOBS, **wrong})
    assert (reply.status_code, reply.json()["type"]) == (
        400, "urn:qframe:problem:topic-mismatch",
    )  # fmt: skip
