"""Metrics of the server, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from zeus.optimizer.batch_size.api._answers import JobTotals
from zeus.optimizer.batch_size.api._commands import SumJobs
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.optimizer.serving.storage._service import Services
from zeus.server._planner import Planner
from zeus.server._writer import Writer

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds

# When each route was first requested would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Metrics of one application: a registry of its own, and the requests that it answered."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "zeus_http_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "zeus_http_request_seconds",
            "Seconds until the response.",
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            method: HTTP method; nonstandard ones are counted as "other".
            route: Path template of the route, empty if none matched.
            status: Status code of the response.
            seconds: Time to the response.
        """
        known = method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS") else "other"
        self._requests.labels(known, route, status).inc()
        self._seconds.observe(seconds)

    def response(self) -> Response:
        """Return all metrics in the text format.

        Raises:
            StorageError: If the jobs cannot be counted.
        """
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


class StateCollector(Collector):
    """Metrics that are read when they are asked for: of jobs, of their store, and of planning."""

    def __init__(
        self,
        jobs: Jobs,
        writer: Writer,
        pipelines: Pipelines,
        planner: Planner,
        services: Services,
    ) -> None:
        self._jobs, self._writer = jobs, writer
        self._pipelines, self._planner, self._services = pipelines, planner, services

    def collect(self) -> Iterator[Metric]:
        """Read the metrics."""
        totals = self._jobs.do(SumJobs())
        pipelines, ranks = self._pipelines.numbers()
        services, heard = self._services.numbers()
        for name, value, what in (
            ("zeus_jobs", totals.jobs, "Recurring jobs in the store."),
            ("zeus_jobs_in_trouble", totals.trouble, "Recurring jobs that need a person."),
            ("zeus_jobs_compared", totals.compared, "Jobs that are part of what was saved."),
            ("zeus_jobs_predicted", totals.predicted, "Of these, with a predicted default."),
            ("zeus_trials_running", totals.running, "Trials that have begun and not ended."),
            ("zeus_trials_energy_joules", totals.energy, "Measured energy of trials that ended."),
            ("zeus_trials_seconds", totals.time, "Time of trials that ended."),
            ("zeus_trials_wasted_joules", totals.wasted, "Energy of those that missed the target."),
            ("zeus_trials_unmeasured", totals.unmeasured, "Those whose energy is unknown."),
            ("zeus_pipelines", pipelines, "Pipeline jobs."),
            ("zeus_pipeline_ranks_heard", ranks, "Ranks of pipeline jobs that are alive."),
            ("zeus_services", services, "Services."),
            ("zeus_services_heard", heard, "Services that reported recently."),
        ):
            yield GaugeMetricFamily(name, what, value)
        yield from _saved(totals)
        for name, total, what in (
            ("zeus_commands", float(self._writer.commands), "Commands that this server executed."),
            ("zeus_transactions", self._writer.batches, "Transactions that committed them."),
            ("zeus_pipeline_plans", self._planner.plans, "Planning runs."),
            ("zeus_pipeline_planning_seconds", self._planner.seconds, "Seconds spent on planning."),
        ):
            yield CounterMetricFamily(name, what, total)


def _saved(totals: JobTotals) -> Iterator[Metric]:
    """Yield what jobs saved; absent while there is nothing to compare with."""
    for name, saved, default, what in (
        ("energy_joules", totals.saved_energy, totals.default_energy, "Energy"),
        ("time_seconds", totals.saved_time, totals.default_time, "Time"),
        ("cost_joules", totals.saved_cost, totals.default_cost, "Cost"),
    ):
        against = "compared with the default batch sizes at full power."
        if saved is not None and default is not None:
            yield GaugeMetricFamily(f"zeus_saved_{name}", f"{what} saved, {against}", saved)
            yield GaugeMetricFamily(f"zeus_default_{name}", f"{what} of these defaults.", default)
