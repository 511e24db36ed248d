"""From facts to HTML: the templates, and how they write times, numbers, texts, links and charts.

Templates escape everything. A text from outside (a name, a key, a body, an error) goes through
`plain`, so that neither a control character nor one that turns the direction of writing reaches the
page as what it is, and stands in a `<bdi>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from qframe import __version__
from qframe.clock import moment
from qframe.telemetry.facts import ranges
from qframe.web.sampler import STEP_MS, ChartPoint

HERE: Final = Path(__file__).parent
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of every page."""

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_HEIGHT: Final = 100.0
_WIDTH: Final = 360.0
_HOUR_MS: Final = 3_600_000
_LEAST_MS: Final = 60_000


class Renderer:
    """Makes pages of templates and facts."""

    def __init__(self) -> None:
        self._templates = _environment()

    def page(self, template: str, **facts: Any) -> str:
        """A page's HTML."""
        return self._templates.get_template(f"{template}.html").render(facts)


def _environment() -> Environment:
    """The templates, and what they may call."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {
        "count": count, "span": span, "clock": clock, "plain": plain, "text": text,
        "short": short, "ranges": ranges, "offsets": offsets,
    }  # fmt: skip
    made.globals["version"] = __version__
    return made


def count(number: int | None) -> str:
    """A number with its thousands apart; a dash for none."""
    return "\u2013" if number is None else f"{number:,}".replace(",", "\u202f")


def span(ms: int | float | None) -> str:
    """How long something lasts, in the largest unit of which there are two."""
    if ms is None:
        return "\u2013"
    for unit, length_ms in _UNITS:
        if ms >= 2 * length_ms:
            return f"{round(ms / length_ms)} {unit}"
    return f"{max(0, round(ms))} ms"


def clock(ms: int | None) -> Markup:
    """A moment in UTC, to the second; machines read it to the millisecond."""
    exact = moment(ms)
    if exact is None:
        return Markup("\u2013")
    if "since" in exact:
        return Markup("{}").format(exact)
    shown = f"{exact[:10]} {exact[11:19]}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, shown)


def plain(value: object) -> str:
    """A text without what would not be seen, or would turn others round: that is spelt out."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found.group()):04x}", str(value))


def text(value: object) -> Markup:
    """A text from outside, kept apart in its direction of writing."""
    return Markup("<bdi>{}</bdi>").format(plain(value))


def short(value: object, most: int = 120) -> Markup:
    """A text from outside, cut for a row."""
    shown = plain(value)
    if len(shown) <= most:
        return Markup("<bdi>{}</bdi>").format(shown)
    return Markup('<bdi title="{}">{}…</bdi>').format(shown[:2000], shown[: most - 1])


class Chart:
    """A line over the last hour, or as much of it as is known, as paths of an SVG of 360 by 100.

    Args:
        points: moments, and the value at each; None where it is not known.
        now_ms: where the line ends at the right.
        since_ms: where it begins at the left, an hour before at the most.
        least: what the top of the chart is at the least.

    Attributes:
        lines: the paths of the line, one for each stretch without a gap.
        areas: what lies under them.
        top: the value at the top.
        span_ms: how long ago the line begins at the left.
        last: the last value; None where nothing is known.
    """

    def __init__(
        self,
        points: Sequence[tuple[int, float | None]],
        now_ms: int,
        *,
        since_ms: int,
        least: float = 1.0,
    ) -> None:
        known = [value for _, value in points if value is not None]
        self.top = max([least, *known])
        self.last = known[-1] if known else None
        self.span_ms = min(_HOUR_MS, max(_LEAST_MS, now_ms - since_ms))
        self.lines: list[str] = []
        self.areas: list[str] = []
        stretch: list[tuple[float, float]] = []
        before_ms: int | None = None
        for at_ms, value in points:
            if before_ms is not None and at_ms - before_ms > 3 * STEP_MS:
                self._end(stretch)
                stretch = []
            before_ms = at_ms
            if value is not None:
                across = _WIDTH * (1 - (now_ms - at_ms) / self.span_ms)
                stretch.append((max(0.0, across), _HEIGHT * (1 - value / self.top)))
        self._end(stretch)

    def _end(self, stretch: list[tuple[float, float]]) -> None:
        if not stretch:
            return
        if len(stretch) == 1:
            stretch = [(stretch[0][0] - 1, stretch[0][1]), stretch[0]]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in stretch)
        self.lines.append(f"M{line}")
        self.areas.append(f"M{stretch[0][0]:.1f},100 L{line} L{stretch[-1][0]:.1f},100 Z")


def charts_of(points: Sequence[ChartPoint], now_ms: int) -> dict[str, Chart]:
    """The charts of a group: lag, lateness in seconds, arrivals and handled per second."""
    since_ms = points[0].at_ms if points else now_ms
    lags: list[tuple[int, float | None]] = [(each.at_ms, each.lag) for each in points]
    late: list[tuple[int, float | None]] = [(each.at_ms, each.late_ms / 1000) for each in points]
    return {
        "lag": Chart(lags, now_ms, since_ms=since_ms, least=10),
        "late": Chart(late, now_ms, since_ms=since_ms, least=10),
        "arrivals": Chart(rates(points, "published"), now_ms, since_ms=since_ms),
        "handled": Chart(rates(points, "handled"), now_ms, since_ms=since_ms),
    }


def rates(points: Sequence[ChartPoint], name: str) -> list[tuple[int, float | None]]:
    """Per second, from each point to the next."""
    found: list[tuple[int, float | None]] = []
    for before, after in zip(points, points[1:], strict=False):  # noqa: RUF007 - slices are lists
        took_ms = after.at_ms - before.at_ms
        more = getattr(after, name) - getattr(before, name)
        known = 0 < took_ms <= 3 * STEP_MS and more >= 0
        found.append((after.at_ms, more * 1000 / took_ms if known else None))
    return found


def offsets(by_slot: Mapping[int, int]) -> str:
    """Offsets for the field of a form: `0:12,1:44`."""
    return ",".join(f"{slot}:{offset}" for slot, offset in by_slot.items())
