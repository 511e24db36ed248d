"""Tunings as texts: what is written is read again, and what is wrong harms nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.errors import BadOption
from qframe.options.hold import Hold, text_of
from qframe.options.tuning import Tuning, texts_of, tuning_of


@given(
    threads=st.none() | st.integers(1, 100_000), in_flight=st.none() | st.integers(1, 100_000),
    rate=st.none() | st.integers(1, 10**6).map(lambda number: f"{number}/s"),
)  # fmt: skip
def test_what_is_written_is_read_again(
    threads: int | None, in_flight: int | None, rate: str | None
) -> None:
    texts = {
        name: text for name, text in texts_of(threads, rate, in_flight).items() if text is not None
    }
    assert tuning_of(texts) == (Tuning(threads=threads, rate=rate, in_flight=in_flight), [])


def test_a_reset_takes_back_and_what_is_left_out_is_not_written() -> None:
    assert texts_of("reset", None, None) == {"threads": None}
    assert texts_of(None, "reset", 4) == {"rate": None, "in_flight": "4"}
    assert texts_of(None, None, None) == {}


@given(texts=st.dictionaries(st.sampled_from(["threads", "rate", "in_flight", "paused", "x"]),
                             st.text(max_size=30)))  # fmt: skip
def test_whatever_stands_in_the_store_is_read_or_told_to_be_wrong(texts: dict[str, str]) -> None:
    tuning, wrong = tuning_of(texts)
    set_now = [tuning.threads, tuning.rate, tuning.in_flight, tuning.paused or None]
    assert sum(value is not None for value in set_now) + len(wrong) == len(texts)
    assert all(isinstance(error, BadOption) for error in wrong)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("threads", "0"), ("threads", "1.5"), ("threads", "²"), ("threads", "9" * 5000),
        ("threads", "-1"), ("in_flight", "100001"), ("rate", "1"), ("paused", "no"),
        ("colour", "red"), ("stacks_until_ms", "²"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_left_out_with_an_error_that_names_it(name: str, text: str) -> None:
    tuning, [error] = tuning_of({name: text, "in_flight" if name != "in_flight" else "rate":
                                 "7" if name != "in_flight" else "7/s"})  # fmt: skip
    assert tuning in (Tuning(in_flight=7), Tuning(rate="7/s"))
    assert text[:9] in str(error) or name in str(error)


def test_a_pause_that_nobody_has_signed_is_a_pause_and_a_signature_alone_is_none() -> None:
    assert tuning_of({"paused": "yes"})[0].holds == [Hold()]
    assert tuning_of({"hold": text_of(Hold(by="ann"))})[0].holds == []
