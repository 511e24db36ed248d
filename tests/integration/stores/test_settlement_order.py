"""Slots that have more than fits take turns: a pull costs a slot the same, however much it gets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from qframe import Message, Outgoing, QFrame, Topic
from qframe.runtime.feed.ask_planner import DEEP_AT_ONCE, WORTH_TURNS
from qframe.stores.types import PullRequest, PullResult, PullTerms

SLOTS = 16
COUNT = 96_000
KEYS = 200


@pytest.fixture
def app() -> Iterator[QFrame]:
    with QFrame("model://") as app:
        yield app


def wanted(asks: list[PullRequest]) -> int:
    """How many messages a pull asked for."""
    return sum(ask.limit for ask in asks)


def drained(app: QFrame, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> list[list[PullRequest]]:
    """What each pull asked until all is handled; nothing for one that did not get all of it."""
    handled: dict[str | None, list[int]] = {}
    pulls: list[list[PullRequest]] = []
    pull = app.store.pull

    @app.consumer(topic, group="g")
    def handle(message: Message) -> None:
        handled.setdefault(message.key, []).append(message.body)

    def noted(topic: Topic, group: str, asks: list[PullRequest], terms: PullTerms) -> PullResult:
        pulled = pull(topic, group, asks, terms)
        pulls.append(asks if len(pulled.deliveries) == wanted(asks) else [])
        return pulled

    app.declare(topic)
    app.publish_many(topic, [Outgoing(n, key=f"k{n % KEYS}") for n in range(COUNT)])
    monkeypatch.setattr(app.store, "pull", noted)
    app.run(burst=True)
    assert handled == {f"k{key}": list(range(key, COUNT, KEYS)) for key in range(KEYS)}
    return pulls


def test_the_slots_of_a_stream_take_turns_where_all_have_more_than_fits(
    app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls = drained(app, Topic("many", slots=SLOTS), monkeypatch)
    large = [asks for asks in pulls if wanted(asks) > WORTH_TURNS]
    assert large
    for asks in large:
        assert len(asks) in (1, DEEP_AT_ONCE)
        assert all(ask.limit >= WORTH_TURNS // len(asks) for ask in asks)
    for before, after in pairwise(pulls):
        if before and after and len(before) + len(after) <= SLOTS:
            assert {ask.slot for ask in before}.isdisjoint(ask.slot for ask in after)


def test_subjects_are_asked_for_in_all_slots(app: QFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = drained(app, Topic("many", kind="ordered", slots=SLOTS), monkeypatch)
    large = [asks for asks in pulls if wanted(asks) > WORTH_TURNS]
    assert all(len(asks) == SLOTS for asks in large)
