"""All metrics of a node: those of its devices, and those of further sources.

A source is one class with the protocol `Source`, listed in `SOURCES`. Its success and duration
are published as those of devices are, and an error of it costs its own metrics only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from zeus.device import Node
from zeus.telemetry._job_source import JOB_METRICS, JobEnergySource
from zeus.telemetry._metrics import DURATION, NODE_METRICS, SUCCESS, Family, Metric, node_families
from zeus.telemetry._outside import outside_sources
from zeus.telemetry._readings import CollectorStatus, NodeReader, NodeReading
from zeus.telemetry._training_files import TRAINING_METRICS, TrainingSource

logger = logging.getLogger(__name__)


class Source(Protocol):
    """Metrics other than readings of devices.

    Attributes:
        name: Its name in `zeus_collector_success`.
        problem: Why some of its metrics are missing since it was last asked, if so.
    """

    name: str
    problem: str

    def families(self, reading: NodeReading) -> Iterable[Family]:
        """Return its metrics, at the time of a reading of the node's devices."""

    def close(self) -> None:
        """End background work."""


class MetricCollector(Protocol):
    """Collects metrics whenever it is asked."""

    def collect(self) -> list[Family]:
        """Read everything now."""

    def close(self) -> None:
        """End background work."""


SOURCES: list[Callable[[Node], Source]] = [lambda _: TrainingSource()]
"""Makers of the sources of each exporter; each is given the node."""

BACKGROUND_SOURCES: list[Callable[[Node], Source]] = [JobEnergySource]
"""Makers of further sources of an exporter that goes on, which measure between scrapes."""

SOURCE_METRICS: list[Metric] = [*TRAINING_METRICS, *JOB_METRICS]
"""Metrics of these sources, for the documentation."""


def all_metrics() -> list[Metric]:
    """Return the descriptions of all metrics that may be published."""
    return [*NODE_METRICS, *SOURCE_METRICS]


class Telemetry:
    """Collects all metrics of a node, whenever it is asked.

    Args:
        node: The node.
        continuous: Whether it will be asked again; see `NodeReader`.
        sources: Makers of further metrics; by default `SOURCES`, `BACKGROUND_SOURCES` if it is
            continuous, and those of extensions.
        version: Version of Zeus to publish.
    """

    def __init__(
        self,
        node: Node,
        *,
        continuous: bool = True,
        sources: Sequence[Callable[[Node], Source]] | None = None,
        version: str = "",
    ) -> None:
        self._reader = NodeReader(node, continuous=continuous)
        if sources is None:
            sources = [*SOURCES, *BACKGROUND_SOURCES] if continuous else SOURCES
            self._sources = [make(node) for make in sources]
            own = [*self._reader.collectors, *(source.name for source in self._sources)]
            metrics = [metric.name for metric in all_metrics()]
            self._sources += outside_sources(node, own, metrics)
        else:
            self._sources = [make(node) for make in sources]
        self._lock = threading.Lock()
        self._version = version
        self._errors: dict[str, str] = {}

    def collect(self) -> list[Family]:
        """Read everything now."""
        with self._lock:
            return self._collect()

    def close(self) -> None:
        """End background work."""
        self._reader.close()
        for source in self._sources:
            source.close()

    def _collect(self) -> list[Family]:
        reading = self._reader.read()
        found: list[Family] = []
        statuses: list[CollectorStatus] = []
        for source in self._sources:
            begun = time.perf_counter()
            error = ""
            try:
                found += [family for family in source.families(reading) if family.samples]
                error = source.problem
            except Exception as surprise:  # the other metrics are still published
                error = f"{type(surprise).__name__}: {surprise}"
            seconds = time.perf_counter() - begun
            statuses.append(CollectorStatus(source.name, not error, seconds, error))
        self._log([*reading.collectors, *statuses])
        own = node_families(reading, self._version)
        for family in own:
            for status in statuses:
                if family.metric is SUCCESS:
                    family.add((status.name,), status.success)
                elif family.metric is DURATION:
                    family.add((status.name,), status.seconds)
        return own + found

    def _log(self, statuses: Iterable[CollectorStatus]) -> None:
        """Log a failure when it begins or changes, and its end."""
        for status in statuses:
            before = self._errors.get(status.name, "")
            if status.error != before:
                self._errors[status.name] = status.error
                text = status.error or "works again"
                logger.warning("collector %s: %s", status.name, text)
