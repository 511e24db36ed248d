"""Failures of assertions that can be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

SHOWN: Final = 50


def check_equal(what: str, wanted: Sequence[Any], found: Sequence[Any], why: Iterable[Any]) -> None:
    """Raises unless both are the same, one by one.

    Raises:
        AssertionError: with both, side by side where they differ, and what may explain it.
    """
    if list(wanted) == list(found):
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
    if explained := told(why):
        lines += ["(- expected, + found) where:", explained]
    else:
        lines.append("(- expected, + found)")
    raise AssertionError("\n".join(lines))


def told(things: Iterable[Any]) -> str:
    """Things one below the other; the first of them where there are many."""
    listed = [f"  {thing}" for thing in things]
    if len(listed) > SHOWN:
        listed[SHOWN:] = [f"  … and {len(listed) - SHOWN} more"]
    return "\n".join(listed)
