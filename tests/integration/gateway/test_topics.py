"""Topics that are declared over HTTP: `PUT /v1/topics/{topic}`."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from qframe import QFrame, Topic

pytestmark = pytest.mark.gate

JOBS: dict[str, Any] = {"kind": "delay", "slots": 2}
OF_A_KIND: dict[str, dict[str, Any]] = {
    "stream": {"retain": "7d"},
    "ordered": {"gap_timeout": "5m"},
    "delay": {"subject": "body"},
}


def put(web: TestClient, kind: str = "delay", **asked: Any) -> None:
    reply = web.put("/v1/topics/jobs", json={**JOBS, "kind": kind, **asked})
    assert reply.status_code == 200, reply.text


def options(app: QFrame) -> tuple[Any, ...]:
    found = app.store.topic("jobs")
    assert found is not None
    return (
        found.retain_ms, found.max_length, found.dedupe_window_ms, found.gap_timeout_ms,
        found.subject, found.history_ms,
    )  # fmt: skip


@pytest.mark.parametrize("kind", OF_A_KIND)
def test_a_client_that_declares_a_topic_changes_none_of_the_options_that_it_does_not_name(
    events_app: QFrame, web: TestClient, kind: str
) -> None:
    """Some of them it could not even name."""
    events_app.declare(Topic(
        "jobs", kind, 2, max_length=900, dedupe_window="1500ms", history="2d", **OF_A_KIND[kind]
    ))  # type: ignore[arg-type]  # fmt: skip
    declared = options(events_app)
    put(web, kind)
    assert options(events_app) == declared
    put(web, kind, dedupe_window=7, max_length=None)
    assert options(events_app) == (declared[0], None, 7000, *declared[3:])


def test_a_client_sets_for_how_long_a_stream_keeps_messages_and_no_other_kind(
    events_app: QFrame, web: TestClient
) -> None:
    reply = web.put("/v1/topics/jobs", json={**JOBS, "retain": "1h"})
    assert (reply.status_code, reply.json()["type"]) == (400, "urn:qframe:problem:bad-topic")
    assert "only a stream keeps what is settled" in reply.json()["detail"]
    put(web, "stream", retain="1h")
    assert options(events_app)[0] == 3_600_000


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
