"""Energy of a node as metrics: for Prometheus, the node exporter's text files, OpenTelemetry.

`zeus export` publishes the devices of a machine. `TrainingTelemetry` is a callback that adds what
a training process does. In applications, `prometheus_collector` adds the devices to a registry of
`prometheus-client`, and `observe_node` publishes them through OpenTelemetry. A `Source` of another
distribution adds metrics (docs/extending.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.telemetry._collection import Source
    from zeus.telemetry._metrics import Family, Kind, Metric
    from zeus.telemetry._opentelemetry import observe_node
    from zeus.telemetry._prometheus import prometheus_collector
    from zeus.telemetry._training import TrainingTelemetry

__all__ = [
    "Family",
    "Kind",
    "Metric",
    "Source",
    "TrainingTelemetry",
    "observe_node",
    "prometheus_collector",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Family": "zeus.telemetry._metrics",
        "Kind": "zeus.telemetry._metrics",
        "Metric": "zeus.telemetry._metrics",
        "Source": "zeus.telemetry._collection",
        "TrainingTelemetry": "zeus.telemetry._training",
        "observe_node": "zeus.telemetry._opentelemetry",
        "prometheus_collector": "zeus.telemetry._prometheus",
    },
)
