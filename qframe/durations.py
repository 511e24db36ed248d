"""Durations as arguments: a number by position does not say its unit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from qframe.errors import BadOption

Function = TypeVar("Function", bound=Callable[..., Any])

_WHY: Final = "by position a number does not say whether it is seconds or milliseconds"


def with_unit(*names: str) -> Callable[[Function], Function]:
    """Makes a function refuse a bare number by position for these parameters; 0 needs no unit.

    By keyword a number is seconds, as everywhere in Python.

    Args:
        names: the parameters that are durations.
    """

    def wrapped(function: Function) -> Function:
        parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
        places = [(parameters.index(name), name) for name in names]
        first = min(place for place, _ in places)

        @functools.wraps(function)
        def call(*arguments: Any, **more: Any) -> Any:
            if len(arguments) > first:
                for place, name in places:
                    if place < len(arguments):
                        refuse_bare(name, arguments[place])
            return function(*arguments, **more)

        return cast("Function", call)

    return wrapped


def refuse_bare(name: str, value: object) -> None:
    """Refuses a number that was given by position for a duration of this name.

    Raises:
        BadOption: if it is a number other than 0.
    """
    if isinstance(value, int | float) and value != 0:
        raise BadOption(
            name, value, _WHY,
            f'write "{value}s" or {name}={value} for seconds, "{value}ms" for milliseconds',
        )  # fmt: skip
