"""Numbers in the format of Prometheus: needs the extra `metrics`, the package prometheus-client.

It is loaded when something here is first used, since most processes show no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from qframe.errors import BadOption
from qframe.http_port import HttpReply, HttpRequest, HttpRoute
from qframe.telemetry.families import Family
from qframe.telemetry.histogram import Distribution

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector, CollectorRegistry


def check_installed(option: str, value: object) -> None:
    """Sees that prometheus-client is there.

    Raises:
        BadOption: if it is not.
    """
    if find_spec("prometheus_client") is None:
        raise BadOption(
            option, value, "the package prometheus-client is missing",
            "pip install 'qframe[metrics]'",
        )  # fmt: skip


class FamilyCollector:
    """Shows families to a registry of prometheus_client.

        prometheus_client.REGISTRY.register(FamilyCollector(app.measure().families))

    Args:
        read: returns the families as they are now.
    """

    def __init__(self, read: Callable[[], Iterable[Family]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that registering it reads no store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client has them."""
        return map(metric_of, self._read())


def metric_of(family: Family) -> Metric:
    """A family, as prometheus_client has it."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if family.kind == "histogram":
        return _histogram(family)
    made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = made(family.name, family.help, labels=family.labels)
    for labels, value in family.values:
        if not isinstance(value, Distribution):
            metric.add_metric(labels, value)
    return metric


def _histogram(family: Family) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in family.values:
        if isinstance(value, Distribution):
            bounds = [*map(str, value.bounds), "+Inf"]
            buckets = list(zip(bounds, value.counts, strict=True))
            metric.add_metric(labels, buckets=buckets, sum_value=value.total)
    return metric


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """A registry that shows these collectors."""
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return registry


def process_registry() -> CollectorRegistry:
    """The registry that holds what handlers count by themselves, and what Python does."""
    from prometheus_client import REGISTRY

    return REGISTRY


def page(registry: CollectorRegistry) -> HttpRoute:
    """The route that shows a registry, in the format that its reader asks for."""
    from prometheus_client.exposition import choose_encoder

    def reply(request: HttpRequest) -> HttpReply:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return HttpReply(200, media_type, encode(registry))

    return HttpRoute(reply, waits=True)
