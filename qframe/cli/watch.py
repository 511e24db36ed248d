"""Showing what there is: once, or again every second until somebody ends it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.live import Live

from qframe.cli.output import console, error_line, say_drawn, say_error, say_json
from qframe.errors import CoordinatorUnavailable, StoreUnavailable

EVERY_S: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class View(NamedTuple):
    """One look at the store.

    Attributes:
        value: for programs, as JSON.
        parts: for people: tables and sentences, one below the other.
    """

    value: Any
    parts: list[RenderableType]


def show(look: Callable[[], View], *, as_json: bool, watch: bool) -> None:
    """Shows what there is.

    A terminal is drawn anew each time; elsewhere one follows the other, JSON in a line each. If
    store or coordinator is away for a while when they have answered once, that is said, and they
    are asked again.

    Args:
        look: returns the present state.
        as_json: whether programs read it.
        watch: whether to go on until Ctrl-C or SIGTERM.
    """
    if not watch:
        view = look()
        if as_json:
            say_json(view.value)
        else:
            say_drawn(*view.parts)
    else:
        with _signals() as heard:
            _show_again(look, as_json=as_json, heard=heard)


def _show_again(look: Callable[[], View], *, as_json: bool, heard: SimpleQueue[int]) -> None:
    view = look()
    out = console()
    if as_json or not out.is_terminal or out.is_dumb_terminal:
        for each in _looks(view, look, heard):
            if isinstance(each, View):
                _append(each, as_json=as_json)
            else:
                say_error(str(each))
        return
    with Live(
        console=out, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        for each in _looks(view, look, heard):
            parts = each.parts if isinstance(each, View) else [error_line(str(each))]
            live.update(Group(*parts), refresh=True)


def _append(view: View, *, as_json: bool) -> None:
    if as_json:
        say_json(view.value, in_a_line=True)
    else:
        say_drawn(*view.parts, "")
    sys.stdout.flush()


def _looks(
    view: View, look: Callable[[], View], heard: SimpleQueue[int]
) -> Iterator[View | Exception]:
    """Looks again and again until a signal comes; yields the state, or why there is none."""
    yield view
    while True:
        with suppress(Empty):
            heard.get(timeout=EVERY_S)
            return
        try:
            yield look()
        except (StoreUnavailable, CoordinatorUnavailable) as error:
            yield error


@contextmanager
def _signals() -> Iterator[SimpleQueue[int]]:
    """An event that the first Ctrl-C or SIGTERM sets; a second one interrupts.

    No Event: a handler that sets one waits for ever if it interrupts who just looks at it.
    """
    heard: SimpleQueue[int] = SimpleQueue()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if not heard.empty():
            raise KeyboardInterrupt
        heard.put(number)

    before: dict[int, Any] = {each: signal.signal(each, on_signal) for each in _SIGNALS}
    try:
        yield heard
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
