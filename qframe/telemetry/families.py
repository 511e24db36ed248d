"""Numbers under a name, on their way to whoever shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from qframe.telemetry.histogram import Distribution


class Family(NamedTuple):
    """A metric: its name, and a value for each combination of labels.

    Attributes:
        name: as Prometheus has it, without the `_total` of a counter.
        kind: `counter` only grows, `gauge` does not, `histogram` has distributions.
        help: its meaning, in a sentence.
        labels: the names of its labels.
        values: the labels' values, and the number that stands for them.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...]
    values: Sequence[tuple[tuple[str, ...], float | Distribution]]
