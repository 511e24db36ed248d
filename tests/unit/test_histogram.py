"""A histogram: values by upper bounds, one by one or many at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.telemetry.histogram import Histogram

BOUNDS = (0.001, 0.01, 1.0)


@given(st.lists(st.integers(-50, 2000), max_size=60))
def test_many_values_at_once_are_counted_as_each_by_itself(values: list[int]) -> None:
    at_once, one_by_one = Histogram(BOUNDS, 1000), Histogram(BOUNDS, 1000)
    at_once.add_since([5000 - value for value in values], 5000, len(values))
    for value in values:
        one_by_one.add(max(0, value))
    assert at_once.read() == one_by_one.read()


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=9), st.integers(0, 7))
def test_a_sample_stands_for_all(values: list[int], more: int) -> None:
    sampled = Histogram(BOUNDS, 1000)
    times = len(values) * 8 + more
    sampled.add_since([5000 - value for value in values], 5000, times)
    exact = Histogram(BOUNDS, 1000)
    exact.add_since([5000 - value for value in values], 5000, len(values))
    read, one = sampled.read(), exact.read()
    assert read.counts[-1] == times
    assert all(
        0 <= many - 8 * few <= more for many, few in zip(read.counts, one.counts, strict=True)
    )
    assert read.total == pytest.approx(one.total / len(values) * times)


def test_a_count_includes_all_values_that_are_not_above_its_bound() -> None:
    histogram = Histogram(BOUNDS, 1000)
    for value in (0, 1, 2, 10, 11, 1000, 1001):
        histogram.add(value)
    assert histogram.read() == (BOUNDS, (2, 4, 6, 7), 2.025)


def test_a_run_is_so_many_values_that_are_equal() -> None:
    histogram = Histogram(BOUNDS)
    histogram.add(0.5, 10)
    assert histogram.read() == (BOUNDS, (0, 0, 10, 10), 5.0)
