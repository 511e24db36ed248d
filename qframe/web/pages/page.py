"""A page: its template, and the facts that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from qframe.web.desk import Visit


class Page(NamedTuple):
    """A page of the console.

    Attributes:
        path: its path, as a route's pattern.
        template: its template, without `.html`.
        facts: makes what the template shows, but for what every page has.
        fresh_s: for how long its facts are shared by all who look.
        live: whether it is looked at again while it is open, where its facts do not say.
        asks: the parameters of its address.
    """

    path: str
    template: str
    facts: Callable[[Visit], Mapping[str, Any]]
    fresh_s: float = 1.0
    live: bool = True
    asks: tuple[str, ...] = ()
