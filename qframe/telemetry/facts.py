"""The facts of an event as anybody may read them: no body, no header, no credential."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from qframe.errors import BadInput, QFrameError, UndecodableBody
from qframe.models import ModelRefused
from qframe.redaction import redacted
from qframe.retry import NeedRetry, Reject
from qframe.tracebacks import place_of, shortened

MAX_CHARS: Final = 600
MAX_TRACEBACK_CHARS: Final = 8000

_SECRET: Final = frozenset({"body", "headers", "message", "delivery", "record", "traceback"})
_SIGNALS: Final = (NeedRetry, Reject)
_QUOTED: Final = re.compile(r"\s*'[^']*'")
_FIELD: Final = re.compile(r"at `[^`]*`")


def facts_shown(facts: Mapping[str, Any], *, full: bool = False) -> dict[str, Any]:
    """The facts for a line of the log; where an error arose is the last of them.

    Args:
        facts: those of an event.
        full: whether an error is told with its text and its traceback.
    """
    words: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for name, value in facts.items():
        if name in _SECRET or value is None:
            continue
        if isinstance(value, BaseException):
            words[name] = _full_text(value) if full else _safe_text(value)
            last = _place(value, full=full)
        elif isinstance(value, bool | int | float):
            words[name] = round(value, 6) if isinstance(value, float) else value
        elif name == "slots":
            words[name] = first_line(ranges(value))
        elif isinstance(value, list | tuple):
            words[name] = first_line(", ".join(str(each) for each in value))
        else:
            words[name] = first_line(str(value))
    return words | last


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, those in a row as one: `0-3,7`."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def first_line(text: str) -> str:
    """A text's first line; what follows in a database driver's message are the parameters."""
    line, *_ = text.splitlines() or [""]
    line = redacted(line)
    return line if len(line) <= MAX_CHARS else f"{line[:MAX_CHARS]}…"


def _full_text(error: BaseException) -> str:
    if _is_in_words(error):
        return first_line(_text(error))
    text = error.why if isinstance(error, UndecodableBody) else _text(error)
    return first_line(f"{type(error).__name__}: {text}".rstrip(": "))


def _safe_text(error: BaseException) -> str:
    """Our own errors in words; others by their type only: their texts may quote a body."""
    if _is_in_words(error):
        return first_line(_text(error))
    if isinstance(error, UndecodableBody) and (why := _undecodable(error)):
        return first_line(f"{type(error).__name__}: {why}")
    return type(error).__name__


def _is_in_words(error: BaseException) -> bool:
    return isinstance(error, QFrameError) and not isinstance(error, BadInput)


def _undecodable(error: UndecodableBody) -> str:
    """Names the wrong field of a body and the reason, without its value."""
    cause = error.__cause__
    if cause is None:
        return error.why
    text = str(cause)
    if cause.__cause__ is None or isinstance(cause.__cause__, ModelRefused):
        return _QUOTED.sub("", text) if isinstance(cause, msgspec.DecodeError) else ""
    found = _FIELD.search(text)  # the rest is what the user's own class has raised
    return "" if found is None else found[0]


def _place(error: BaseException, *, full: bool) -> dict[str, str]:
    if _is_in_words(error) or isinstance(error, UndecodableBody):
        return {}
    place = place_of(error)
    if isinstance(error, _SIGNALS) and place is not None and place.startswith("qframe/"):
        place = None  # the handler has returned it, and not raised
    words = {} if place is None else {"at": place}
    if full and not isinstance(error, _SIGNALS):
        words["traceback"] = redacted(shortened(error, MAX_TRACEBACK_CHARS))
    return words


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # it is the user's class, and must not end the line
        return f"its __str__ raised {type(problem).__name__}"
