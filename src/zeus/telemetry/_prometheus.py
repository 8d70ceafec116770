"""The metrics of this machine in a registry of `prometheus-client`.

For applications that serve metrics of their own. `zeus export` writes its page by itself, because
that takes a fraction of the time; both have the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator

from zeus.device import Node, current_node
from zeus.errors import MissingExtraError
from zeus.telemetry._collection import Telemetry
from zeus.telemetry._metrics import Kind

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    raise MissingExtraError("a collector for prometheus-client", "export") from None


def prometheus_collector(node: Node | None = None) -> NodeCollector:
    """Return a collector of `prometheus-client` with all that `zeus export` publishes.

    For applications that serve metrics of their own: ``registry.register(prometheus_collector())``.

    Args:
        node: The node; by default this machine.

    Raises:
        MissingExtraError: If `prometheus-client` is not installed.
    """
    return NodeCollector(Telemetry(node or current_node()))


class NodeCollector(Collector):
    """Collects all metrics of a node whenever the registry is scraped.

    Args:
        telemetry: Reads the node.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Read the metrics."""
        for family in self._telemetry.collect():
            metric = family.metric
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            made = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in family.samples:
                made.add_metric(labels, value)
            yield made
