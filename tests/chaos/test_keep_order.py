"""Small soaks of streams that keep order: see `soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak import soak

pytestmark = [pytest.mark.gate, pytest.mark.promise(1, 3, 4)]


def test_a_stream_keeps_order_through_delayed_retries_kills_and_freezes(
    tmp_path: Path, redis: str
) -> None:
    soaked = soak(tmp_path, redis, messages=1500, keys=60, workers=3, session_s=1.5, is_short=True)
    print("", *soaked.lines, sep="\n  ")  # noqa: T201 - for people
    assert soaked.violations == []


def test_it_does_so_while_its_slots_are_doubled_and_whoever_sees_to_that_is_killed(
    tmp_path: Path, redis: str
) -> None:
    soaked = soak(
        tmp_path, redis, messages=1000, keys=60, workers=3, session_s=1.5, is_short=True,
        grows=True,
    )  # fmt: skip
    print("", *soaked.lines, sep="\n  ")  # noqa: T201 - for people
    assert soaked.violations == []
