"""Durations of public calls: a number by position, which has no unit, is refused."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import qframe
from qframe import (
    Backoff,
    BadOption,
    Batch,
    BatchExecutor,
    Flusher,
    Message,
    QFrame,
    Topic,
    testing,
)
from qframe.durations import with_unit
from qframe.producing.buffered import BufferedProducer

IS_DURATION = re.compile(r"float \| str|timedelta")
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def public() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Every public function, constructor and method, with its docstring and that of its class."""
    things = {name: getattr(qframe, name) for name in qframe.__all__}
    things |= {name: getattr(testing, name) for name in testing.__all__}
    things["BufferedProducer"] = BufferedProducer
    for name, thing in things.items():
        if inspect.isfunction(thing):
            yield name, thing, inspect.getdoc(thing) or ""
        elif inspect.isclass(thing):
            yield name, thing, inspect.getdoc(thing) or ""
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_"):
                    told = (inspect.getdoc(function), inspect.getdoc(thing))
                    yield f"{name}.{method}", function, "\n".join(filter(None, told))


def durations() -> Iterator[tuple[str, Callable[..., Any], inspect.Parameter, str]]:
    """Each duration of each: its parameter, and the docstring."""
    for name, function, text in public():
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # of an exception without a constructor of its own
            continue
        for parameter in parameters:
            if IS_DURATION.search(str(parameter.annotation)):
                yield name, function, parameter, text


EVERY = list(durations())
NAMES = [f"{name}-{parameter.name}" for name, _, parameter, _ in EVERY]


def by_position(function: Callable[..., Any], parameter: inspect.Parameter) -> int | None:
    """The place at which a duration can be given without its name."""
    names = list(inspect.signature(function).parameters)
    if parameter.kind in BY_POSITION:
        return names.index(parameter.name)
    return names.index("by_position") if "by_position" in names else None


PLACED = [
    (name, function, parameter.name, place)
    for name, function, parameter, _ in EVERY
    if (place := by_position(function, parameter)) is not None
]


def test_there_are_durations_to_look_at() -> None:
    assert {"Batch-within", "Backoff-first", "Flusher-interval", "Message.ack-elapsed",
            "Harness.advance-by", "BufferedProducer.close-timeout_s", "Outgoing-delay",
            "NeedRetry-delay", "Topic-retain"} <= set(NAMES)  # fmt: skip
    assert len(PLACED) >= 14


@pytest.mark.parametrize(
    ("function", "name", "place"),
    [pytest.param(*each, id=f"{name}-{each[1]}") for name, *each in PLACED],
)
def test_a_bare_number_by_position_is_refused_with_both_ways_to_write_it(
    function: Callable[..., Any], name: str, place: int
) -> None:
    for number in (50, 0.05):
        with pytest.raises(BadOption) as caught:
            function(*[None] * place, number)
        assert caught.value.what == name
        assert f'"{number}s" or {name}={number} for seconds' in caught.value.remedy
        assert f'"{number}ms" for milliseconds' in caught.value.remedy


@pytest.mark.parametrize("text", [text for *_, text in EVERY], ids=NAMES)
def test_the_docstring_of_a_duration_says_that_a_number_is_seconds(text: str) -> None:
    assert "seconds" in text


def test_by_keyword_a_number_is_seconds() -> None:
    assert Batch(10, within=0.05) == Batch(10, "50ms")
    assert Backoff(first=2, cap=3).cap_ms == 3000
    with Flusher("f", 1, interval=0.05, queue_size=1, threads=1, process=print) as flusher:
        assert flusher.closed is False


def test_nothing_at_all_needs_no_unit() -> None:
    with BatchExecutor("e", 1, print, 1) as executor:
        assert executor.close(0) == []


def test_the_order_of_another_library_is_refused_and_not_misread() -> None:
    with pytest.raises(BadOption, match=r'interval 50: .* "50ms" for milliseconds'):
        Flusher("f", 10, 50, 1000, 1, print)


def test_a_wrapped_function_keeps_its_name_signature_and_result() -> None:
    @with_unit("wait")
    def waits(name: str, wait: float | str = "1s") -> tuple[str, float | str]:
        """Waits."""
        return name, wait

    assert (waits.__name__, waits.__doc__) == ("waits", "Waits.")
    assert list(inspect.signature(waits).parameters) == ["name", "wait"]
    assert waits("a", "2s") == waits("a", wait="2s") == ("a", "2s")
    assert waits("a", wait=2) == ("a", 2)


@pytest.mark.parametrize("auto_ack", [True, False])
def test_auto_ack_called_like_a_method_says_how_it_is_set(auto_ack: bool) -> None:
    seen: list[bool] = []
    with QFrame(store="model://") as app:
        topic = Topic("t", slots=1)

        @app.consumer(topic, group="g", auto_ack=auto_ack, max_attempts=1)
        def handle(message: Message) -> None:
            seen.append(message.auto_ack == auto_ack and bool(message.auto_ack) is auto_ack)
            message.auto_ack(False)  # type: ignore[operator]

        with testing.Harness(app) as harness:
            harness.publish(topic, 1)
            harness.run_until_idle()
            [handing] = harness.deliveries
    assert seen == [True]
    assert isinstance(handing.error, BadOption)
    assert handing.error.remedy == "write message.auto_ack = False"
