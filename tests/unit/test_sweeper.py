"""Sweeping goes on while topics come and go."""

from __future__ import annotations

from qframe.runtime.process.sweeper import Sweeper
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic


def test_a_topic_that_is_gone_has_nothing_to_be_swept_and_ends_no_worker() -> None:
    sweeper = Sweeper(topics=[], store=ModelStore(), on_failure=lambda name, error: None)
    assert sweeper._sweep(Topic("gone", kind="stream", slots=1)) == 0
