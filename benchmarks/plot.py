"""Draws benchmarks/results/redis.json as a picture: `python -m benchmarks.plot`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import RESULTS, number_of

COLOURS = {"qframe": "#1f6f8b", "bare loop": "#b8b8b8", "other frameworks": "#e0a458"}

SO_MANY = ", 500 to a call"


class Bar(NamedTuple):
    """One bar: its label, its messages a second, and whose it is."""

    label: str
    rate: float
    whose: str


def try_draw(source: Path, target: Path) -> str:
    """Draws if matplotlib is installed and there is something to draw; says what came of it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "no picture: matplotlib is not installed (make bench installs it)"
    facts = json.loads(source.read_text(encoding="utf-8"))
    if not consume_bars(facts) and not publish_bars(facts):
        return "no picture: neither publish, consume nor peers were measured"
    draw(facts, target)
    return f"drawn: {target}"


def draw(facts: dict[str, Any], target: Path) -> None:
    """Draws both panels into a file."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    panels = [
        ("Consume: a backlog, one process, a handler that does nothing", consume_bars(facts)),
        ("Publish: one by one, and 500 to a call", publish_bars(facts)),
    ]
    panels = [panel for panel in panels if panel[1]]
    heights = [len(bars) + 2 for _, bars in panels]
    figure, axes = pyplot.subplots(
        len(panels), figsize=(10, 1.6 + 0.36 * sum(heights)), squeeze=False,
        gridspec_kw={"height_ratios": heights}, layout="constrained",
    )  # fmt: skip
    machine = facts["machine"]
    figure.suptitle(
        f"qframe on Redis {machine['redis']}, Python {machine['python']},"
        f" {machine['cores']} cores: messages a second",
        fontsize=13, fontweight="bold",
    )  # fmt: skip
    for axis, (title, bars) in zip(axes[:, 0], panels, strict=True):
        panel(axis, title, sorted(bars, key=lambda bar: bar.rate))
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.15)
    figure.legend(handles, COLOURS, loc="outside lower center", ncols=len(COLOURS), frameon=False)
    figure.savefig(target, dpi=130)
    pyplot.close(figure)


def panel(axis: Any, title: str, bars: list[Bar]) -> None:
    """Draws one panel, the fastest on top."""
    drawn = axis.barh(
        [bar.label for bar in bars], [bar.rate for bar in bars],
        color=[COLOURS[bar.whose] for bar in bars], height=0.72,
    )  # fmt: skip
    axis.bar_label(drawn, [number_of(bar.rate) for bar in bars], padding=4, fontsize=9)
    axis.set_xscale("log")
    rates = [bar.rate for bar in bars]
    axis.set_xlim(10 ** math.floor(math.log10(min(rates) / 2)), max(rates) * 2.5)
    axis.margins(y=0.02)
    axis.set_title(title, loc="left", fontsize=11)
    axis.grid(axis="x", which="major", color="#dddddd")
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def consume_bars(facts: dict[str, Any]) -> list[Bar]:
    """The rates of consuming."""
    return [*own_bars(facts, "consume"), *peer_bars(facts, "consume")]


def publish_bars(facts: dict[str, Any]) -> list[Bar]:
    """The rates of publishing."""
    return [*own_bars(facts, "publish"), *peer_bars(facts, "publish")]


def own_bars(facts: dict[str, Any], measure: str) -> list[Bar]:
    """A bar for each rate of qframe's, and one for each different bare loop."""
    rows = [row for row in facts["rows"] if row["measure"] == measure and row["unit"] == "/s"]
    bars = [Bar(f"qframe {label(row)}", row["median"], "qframe") for row in rows]
    bare: dict[str, Bar] = {}
    for row in rows:
        if row["bare_median"] is not None:
            name = bare_name(row)
            bare.setdefault(name, Bar(name, row["bare_median"], "bare loop"))
    return [*bars, *bare.values()]


def label(row: dict[str, Any]) -> str:
    """The label of a row's bar."""
    return (
        row["what"]
        .replace(" consume", "")
        .replace(" publish_many", SO_MANY)
        .replace(" publish,", ",")
    )


def bare_name(row: dict[str, Any]) -> str:
    """The label of the bar of a row's bare loop."""
    if "one by one" in row["what"]:
        return "bare XADD, one by one"
    name = "bare stream" if row["what"].startswith("stream") else "bare subjects"
    return name + SO_MANY if row["measure"] == "publish" else name


def peer_bars(facts: dict[str, Any], measure: str) -> list[Bar]:
    """A bar for each peer."""
    manner = ", one by one" if measure == "publish" else ""
    return [Bar(one["name"] + manner, one[measure], "other frameworks") for one in facts["peers"]]


if __name__ == "__main__":
    print(try_draw(RESULTS / "redis.json", RESULTS / "redis.png"))
