"""What follows from the steps that ranks report: stragglers, plans that are too slow, savings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from zeus.frontier import Point
from zeus.optimizer.pipeline_frequency.job._job import PipelineJob
from zeus.optimizer.pipeline_frequency.job._messages import RankPlace, StepReport, StepTimes
from zeus.optimizer.pipeline_frequency.job._planning import Planned
from zeus.optimizer.pipeline_frequency.job._prediction import predict
from zeus.optimizer.pipeline_frequency.job._progress import Progress
from zeus.optimizer.pipeline_frequency.job._supervision import Saved, Supervision
from zeus.optimizer.pipeline_frequency.storage._histories import Histories

_SOONEST = 3  # steps after a drift was reported: the next one may still begin under the old plan
_PLANNING = 2.0  # seconds until all ranks have the new plan, about
_APART = 10  # steps between two such references, so that frequent drifts cost a tenth at most

Change = Callable[[PipelineJob, float], None]
"""A change of a job at a time, in seconds since 1970."""


class ReportedSteps:
    """Steps of all jobs, in memory. Call with the lock of the jobs held.

    Args:
        histories: Their histories, which expectations are added to.
    """

    def __init__(self, histories: Histories) -> None:
        self._jobs: dict[str, Supervision] = {}
        self._histories = histories
        self._progress: dict[str, dict[int, Progress]] = {}
        self._references: dict[str, int] = {}  # the latest extra one of each job

    def explores(self, job: str, rank: int, progress: Progress) -> None:
        """Take the latest report of a rank that explores clocks."""
        self._progress.setdefault(job, {})[rank] = progress

    def measuring(self, job: PipelineJob, alive: Callable[[int], bool]) -> Mapping[int, Progress]:
        """Return how far each rank that explores clocks now has come."""
        known = self._progress.get(job.name, {})
        return {
            number: known[number]
            for number, rank in job.ranks.items()
            if number in known and rank.state == "measuring" and alive(number)
        }

    def take(self, job: str, seat: RankPlace, report: StepReport) -> None:
        """Take the latest report of a rank."""
        self._jobs.setdefault(job, Supervision()).take(seat, report)

    def forget(self, job: str, rank: int) -> None:
        """Drop the reports of a rank, which has started again."""
        self._progress.get(job, {}).pop(rank, None)
        if job in self._jobs:
            self._jobs[job].forget(rank)

    def drift(self, job: str, passages: Sequence[StepTimes]) -> None:
        """Count reference steps of a job from now on, as its instructions take another time.

        Some steps later there is a new one, by which plans are judged.

        Args:
            job: Name of the job.
            passages: Steps of the rank that reported it, the latest last.
        """
        if job in self._jobs:
            self._jobs[job].drift()
        if passages:
            latest = passages[-1]
            seconds = max(latest.ends[-1] - latest.begins[0], 1e-3)
            soon = latest.step + max(_SOONEST, math.ceil(_PLANNING / seconds))
            before = self._references.get(job, soon)
            taken = before <= latest.step
            self._references[job] = max(soon, before + _APART) if taken else soon

    def reference(self, job: str) -> int | None:
        """Return the number of the latest step that is a reference because of a drift."""
        return self._references.get(job)

    def drop(self, job: str) -> None:
        """Drop all reports about a job."""
        self._jobs.pop(job, None)
        self._progress.pop(job, None)
        self._references.pop(job, None)

    def step_time(self, job: PipelineJob) -> float | None:
        """Return seconds of a whole step without stragglers: the median of the ranks' reports."""
        steps = self._jobs.get(job.name)
        return None if steps is None or job.stragglers else steps.step_time(job.version)

    def saved(self, job: PipelineJob) -> Saved | None:
        """Return what the current plan saves, as measured; `None` until that is known."""
        steps = self._jobs.get(job.name)
        return None if steps is None else steps.saved(job.version)

    def change(self, job: PipelineJob, planned: Planned) -> Change | None:
        """Return how a job is to be changed: a pipeline straggles, or a plan is too slow."""
        steps = self._jobs[job.name]
        points = self._followed(job, planned)
        times = {pipeline: point.time for pipeline, point in points.items()}
        expected = predict(planned, list(points.values()), job.stragglers, self.step_time(job))
        self._histories.expect(job.name, job.version, expected.time, expected.energy)
        slow = steps.slowdowns(lambda pipeline: times[pipeline], job.version)
        stragglers = [
            each for pipeline, by in slow.items() if (each := job.judged(pipeline, by)) is not None
        ]
        if stragglers:

            def report(found: PipelineJob, at: float) -> None:
                for each in stragglers:
                    found.put_straggler(each, at)

            return report
        if job.stragglers or job.objective.bounds_power:
            return None  # to measure again would break the bound
        promised = max(times[0] / planned.expected.time, 1.0)
        ratio = steps.slower_than(promised, job.version, planned.expected.deviation)
        if ratio is None:
            return None
        said = (
            f"steps take {ratio:.3g} times as long as at the highest clocks, and "
            f"{promised:.3g} times was planned: all ranks measure again"
        )
        return lambda found, at: found.measure_again(said, at)

    def _followed(self, job: PipelineJob, planned: Planned) -> Mapping[int, Point]:
        """Return the point that each pipeline follows."""
        step_time = self.step_time(job)
        return {
            pipeline: planned.point(job.stragglers, pipeline, step_time, job.objective)
            for pipeline in range(job.degrees[0])
        }
