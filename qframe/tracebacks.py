"""The place where an error arose, seen from the user's own code.

Most errors end deep in a library, under frames of the framework and of its caller: `cursor.py:117`
tells a reader little. The user's own frames are those outside qframe, the standard library and
installed packages. A service may itself be installed as a package, so the package of the first
function that qframe has called counts as the user's too.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Final

_QFRAME: Final = f"{Path(__file__).parent}/"
_LIBRARY: Final = (
    "<frozen ",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")),
)
_MAX_FRAMES: Final = 20
_MAX_LINES: Final = 12
_MAX_LINE: Final = 100
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_ELSEWHERE: Final = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python\d|^<")


def place_of(error: BaseException) -> str | None:
    """The user's last line that led to an error, and the innermost line where that is another.

    Such as `shop/handlers.py:31 in bill (cursor.py:117)`; None for an error that was never raised.
    """
    steps = list(traceback.walk_tb(error.__traceback__))
    if not steps:
        return None
    mine = [step for step, is_own in zip(steps, _own(steps), strict=True) if is_own]
    inner, inner_line = steps[-1]
    frame, line = mine[-1] if mine else steps[-1]
    place = f"{_path(frame)}:{line} in {frame.f_code.co_name}"
    if inner is frame:
        return place
    return f"{place} ({Path(inner.f_code.co_filename).name}:{inner_line})"


def shortened(error: BaseException, most: int) -> str:
    """The traceback with the user's own frames and the innermost one, of causes too.

    Args:
        error: the error.
        most: the largest number of characters; of a longer text the end is kept.
    """
    # Without its traceback: the frames that stay are filled in, without the marks under a line's
    # parts, which cost ten times as much as all the rest.
    told = traceback.TracebackException(type(error), error, None, lookup_lines=False, compact=True)
    _shorten(told, error)
    text = "".join(told.format()).rstrip()
    return text if len(text) <= most else "…" + text[1 - most :]


def lines_of(steps: Iterable[tuple[FrameType, int]]) -> tuple[str, ...]:
    """The lines that run, from the user's first one on, the innermost last; no values.

    Of a long stack the first and the last lines. Nothing is there while qframe itself runs.
    """
    found = list(steps)
    origins = [_origin(frame.f_code.co_filename) for frame, _ in found]
    own = _own(found)
    first = own.index(True) if True in own else len(found)
    if True not in own and _Origin.QFRAME in origins:  # a library's function is the handler
        first = len(origins) - origins[::-1].index(_Origin.QFRAME)
    lines = [
        f"{_path(frame)}:{line} in {frame.f_code.co_name}"[-_MAX_LINE:]
        for frame, line in found[first:]
    ]
    return tuple(lines if len(lines) <= _MAX_LINES else [lines[0], "…", *lines[2 - _MAX_LINES :]])


def frames_of_threads() -> Mapping[int, FrameType]:
    """The innermost frame of each thread that runs, by the thread's ident."""
    return sys._current_frames()  # noqa: SLF001 - documented, and there is no other way


def running_in(frame: FrameType) -> tuple[str, ...]:
    """The lines that a thread runs, given its innermost frame; as `lines_of`."""
    steps = [(each, line or 0) for each, line in traceback.walk_stack(frame)]
    return lines_of(reversed(steps))


def place_in(text: str) -> str:
    """The innermost frame in the user's own code, of a printed traceback; else the innermost."""
    frames = _FRAME.findall(text)
    own = [frame for frame in frames if not _ELSEWHERE.search(frame[0])] or frames
    if not own:
        return ""
    file, line, function = own[-1]
    short = "/".join(file.replace("\\", "/").split("/")[-2:])
    return f"{short}:{line} in {function}"


def _shorten(told: traceback.TracebackException, error: BaseException) -> None:
    steps = list(traceback.walk_tb(error.__traceback__))
    stays = [*_own(steps)[:-1], True]
    kept = [step for step, stay in zip(steps, stays, strict=False) if stay]
    told.stack[:] = [
        traceback.FrameSummary(
            frame.f_code.co_filename, line, frame.f_code.co_name, lookup_line=False
        )
        for frame, line in kept[-_MAX_FRAMES:]
    ]  # fmt: skip
    if told.__cause__ is not None and error.__cause__ is not None:
        _shorten(told.__cause__, error.__cause__)
    if told.__context__ is not None and error.__context__ is not None:
        _shorten(told.__context__, error.__context__)
    if told.exceptions is not None and isinstance(error, BaseExceptionGroup):
        for each, its_error in zip(told.exceptions, error.exceptions, strict=True):
            _shorten(each, its_error)


def _own(steps: list[tuple[FrameType, int]]) -> list[bool]:
    """For each frame whether it is the user's."""
    called: str | None = None
    own = []
    for frame, _ in steps:
        origin = _origin(frame.f_code.co_filename)
        if origin is _Origin.INSTALLED and called is None:
            called = _package(frame)
        elif origin is _Origin.PROJECT and called is None:
            called = ""
        is_called = origin is _Origin.INSTALLED and _package(frame) == called
        own.append(origin is _Origin.PROJECT or is_called)
    return own


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


class _Origin(Enum):
    """The origin of a file."""

    QFRAME = 1
    LIBRARY = 2
    INSTALLED = 3
    PROJECT = 4


@lru_cache(maxsize=1024)
def _origin(file: str) -> _Origin:
    if file.startswith(_QFRAME):
        return _Origin.QFRAME
    if any(part in file for part in _INSTALLED):
        return _Origin.INSTALLED
    return _Origin.LIBRARY if file.startswith(_LIBRARY) else _Origin.PROJECT


def _path(frame: FrameType) -> str:
    """A frame's file, from its topmost package on: `shop/handlers.py`."""
    file = Path(frame.f_code.co_filename)
    name = str(frame.f_globals.get("__name__", "")).removesuffix(".__init__")
    depth = name.count(".") + (2 if file.name == "__init__.py" else 1)
    return "/".join(file.parts[-depth:])
