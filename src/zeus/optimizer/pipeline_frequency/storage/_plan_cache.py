"""Plans of jobs in memory: as many as there is room for; others are computed again when needed."""

from __future__ import annotations

from zeus.optimizer.pipeline_frequency.job._job import PipelineJob
from zeus.optimizer.pipeline_frequency.job._planning import Planned

_MAX_PLANS = 64  # jobs whose plans are in memory
_MAX_BYTES = 512 << 20  # of all plans


class PlanCache:
    """Plans by job. Call with the lock of the jobs held."""

    def __init__(self) -> None:
        self._plans: dict[str, Planned] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._plans

    def of(self, job: PipelineJob) -> Planned | None:
        """Return the plans of a job, if they are in memory and for its current inputs."""
        known = self._plans.get(job.name)
        if known is None:
            return None
        return known if known.inputs == job.inputs or job.stale else None

    def keep(self, name: str, planned: Planned) -> None:
        """Keep the plans of a job, instead of earlier ones, or of others if there is no room."""
        self._plans.pop(name, None)
        while len(self._plans) >= _MAX_PLANS:
            del self._plans[next(iter(self._plans))]
        # Evict large pipelines first, so that only they pay for their long planning again.
        sizes = {known: each.size for known, each in self._plans.items()}
        while sizes and sum(sizes.values()) + planned.size > _MAX_BYTES:
            largest = max(sizes, key=lambda each: sizes[each])
            del self._plans[largest], sizes[largest]
        self._plans[name] = planned

    def pop(self, name: str, default: None = None) -> Planned | None:
        """Drop the plans of a job, and return them."""
        return self._plans.pop(name, default)
