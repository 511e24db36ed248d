"""Failures of assertions that can be read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from qframe.codec import RAW, TYPE_HEADER, decode_body, encode_body
from qframe.errors import BadBody

SHOWN: Final = 50


def check_equal(
    what: str,
    bodies: Sequence[Any],
    found: Sequence[Any],
    why: Iterable[Any],
    tracebacks: Iterable[str] = (),
) -> None:
    """Raises unless both are the same, one by one, as handlers see bodies.

    Raises:
        AssertionError: with both, side by side where they differ, and what may explain it.
    """
    __tracebackhide__ = True
    wanted = list(map(as_handled, bodies))
    if wanted == list(found):
        return
    lines = [f"{what} {len(found)} messages where {len(wanted)} were expected:"]
    if len(wanted) == len(found):
        lines = [f"{what} other messages than expected:"]
    for place in range(max(len(wanted), len(found))):
        is_wanted, is_found = place < len(wanted), place < len(found)
        if is_wanted and is_found and wanted[place] == found[place]:
            lines.append(f"    {found[place]!r}")
            continue
        if is_wanted:
            lines.append(f"  - {wanted[place]!r}")
        if is_found:
            lines.append(f"  + {found[place]!r}")
    if explained := listed(why):
        lines += ["(- expected, + found) where:", explained]
    else:
        lines.append("(- expected, + found)")
    lines += tracebacks
    raise AssertionError("\n".join(lines))


def as_handled(body: Any) -> Any:
    """A body as it comes out of a store; itself where it could not be published, as a matcher."""
    try:
        encoded, raw = encode_body(body, sys.maxsize)
    except BadBody:
        return body
    return decode_body(encoded, {TYPE_HEADER: RAW} if raw else None)


def listed(things: Iterable[Any]) -> str:
    """Things one below the other; the first of them where there are many."""
    listed = [f"  {thing}" for thing in things]
    if len(listed) > SHOWN:
        listed[SHOWN:] = [f"  … and {len(listed) - SHOWN} more"]
    return "\n".join(listed)
